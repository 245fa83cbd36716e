"""Merge: many rules into the global dependency graph at once (paper, section 3.3.2).

Atomic rules that are there already are used once more; only the others are written. Step by step over all rules of a
call: triggering rules, then the joins that need no others, then those that need these, to the end rules.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from mdv.db.copy import NULL, text_field
from mdv.db.graph import Graph, News, array_field, digest_of, line
from mdv.mdp.plan import ConjunctionPlan, JoinPlan, TriggeringPlan, constant_of, key_of
from mdv.rules.ast import Operator
from mdv.rules.normal import Constant
from mdv.rules.pattern import Leaf

GRAMS = (6, 4)
"""The lengths of the parts by which constants of `contains` are found; the function mdv_grams knows the same."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A rule to be merged: its number, and how it is taken apart."""

    rule_id: int
    plan: tuple[ConjunctionPlan, ...]
    constants: tuple[Constant, ...]


@dataclass(slots=True)
class _Part:
    """One conjunction of one rule on its way: its atomic rules by place, as far as they are known."""

    plan: ConjunctionPlan
    constants: tuple[Constant, ...]
    ids: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Merged:
    """The end rules of each rule; those of them that are new; whether there are new groups; the last number given."""

    ends: dict[int, tuple[int, ...]]
    new_ends: dict[int, tuple[ConjunctionPlan, list[Constant]]]
    regrouped: bool
    last_atomic_rule: int


class Merge:
    """One merge."""

    def __init__(self, graph: Graph, last_atomic_rule: int, rules: list[str], searches: list[dict[str, int]]) -> None:
        self._graph = graph
        self._old = self._last = last_atomic_rule
        self._news = News(rules, searches=searches)
        self._fresh: dict[int, tuple[object, str, str, str]] = {}
        self._groups: dict[tuple[bool, str], tuple[int, int | None]] = {}
        self._predicates: dict[str, int] = {}
        self._joins: dict[tuple[int, tuple[int, ...]], int] = {}
        self._regrouped = False

    def merge(self, items: Sequence[Planned]) -> Merged:
        parts = [(item, _Part(part, item.constants)) for item in items for part in item.plan]
        self._place_triggering([part for _, part in parts])
        for step in range(max((len(part.plan.joins) for _, part in parts), default=0)):
            self._place_joins([part for _, part in parts if len(part.plan.joins) > step], step)
        ends: dict[int, list[int]] = defaultdict(list)
        for item, part in parts:
            if part.ids[-1] not in ends[item.rule_id]:
                ends[item.rule_id].append(part.ids[-1])
        new_ends = self._place_ends([part for _, part in parts])
        for rule, its_ends in ends.items():
            for end in its_ends:
                self._news.rule_ends.append(f"{rule}\t{end}\n")
                self._news.uses[end] += 1
        self._write()
        return Merged({rule: tuple(its) for rule, its in ends.items()}, new_ends, self._regrouped, self._last)

    def _place_triggering(self, parts: Sequence[_Part]) -> None:
        places: dict[tuple[str, str], int] = {}
        wanted: dict[str, tuple[TriggeringPlan, Constant | None]] = {}
        keys: list[list[tuple[str, str]]] = []
        digests: dict[tuple[str, str], str] = {}
        for part in parts:
            mine = []
            for plan in part.plan.triggering:
                constant = constant_of(plan, part.constants)
                key = (plan.digest, "" if constant is None else key_of(constant))
                if key not in digests:
                    digests[key] = digest_of(*key)
                    wanted[digests[key]] = (plan, constant)
                mine.append(key)
            keys.append(mine)
        known = self._graph.find_atomic_rules(wanted)
        texts: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for key, digest in digests.items():
            number = known.get(digest)
            if number is None:
                number = self._add_triggering(*wanted[digest], digest, texts)
            places[key] = number
        for plan_digest, constants in texts.items():
            self._add_contains(self._predicates[plan_digest], constants)
        for part, mine in zip(parts, keys, strict=True):
            part.ids = [places[key] for key in mine]

    def _add_triggering(
        self, plan: TriggeringPlan, constant: Constant | None, digest: str, texts: dict[str, list[tuple[int, str]]]
    ) -> int:
        self._last += 1
        number, rule = self._last, plan.rule
        text = plan.text if constant is None else plan.text + constant.shown
        self._fresh[number] = (NULL, digest, text_field(rule.class_iri), text)
        if constant is None or rule.operator is None or rule.sort is None:
            self._news.plain.append(line(number, rule.class_iri))
            return number
        predicate = self._predicates.get(plan.digest)
        if predicate is None:
            predicate = self._graph.put_predicate(rule.class_iri, rule.property, rule.operator, rule.sort)
            self._predicates[plan.digest] = predicate
        value = constant.value
        if rule.operator is Operator.CONTAINS:
            texts[plan.digest].append((number, str(value)))
        elif isinstance(value, str):
            self._news.constants[rule.operator].append(f"{number}\t{predicate}\t{NULL}\t{text_field(value)}\n")
        else:
            exact = str(int(value)) if isinstance(value, bool) else _exact(value)
            self._news.constants[rule.operator].append(f"{number}\t{predicate}\t{exact}\t{NULL}\n")
        return number

    def _add_contains(self, predicate: int, constants: Sequence[tuple[int, str]]) -> None:
        """Constants of `contains`, each with a part by which few others are found."""
        shared = Counter(gram for _, text in constants for gram in grams_of(text))
        for number, text in constants:
            gram = min(grams_of(text), key=lambda g: (shared[g], g), default="")
            self._news.constants[Operator.CONTAINS].append(
                f"{number}\t{predicate}\t{NULL}\t{text_field(text)}\t{text_field(gram)}\n"
            )

    def _place_joins(self, parts: Sequence[_Part], step: int) -> None:
        places = self._joins
        keys: list[tuple[int, tuple[int, ...]]] = []
        asked: dict[str, tuple[int, tuple[int, ...]]] = {}
        for part in parts:
            plan = part.plan.joins[step]
            group, _ = self._group(False, plan.group_text, plan.group_digest, plan.group_body)
            key = (group, tuple([part.ids[place] for place in plan.rule.inputs]))
            keys.append(key)
            # With an input that is new, a join rule must be new, too.
            if key not in places and max(key[1]) <= self._old:
                places[key] = 0
                asked[digest_of("join", *key)] = key
        for digest, number in self._graph.find_atomic_rules(asked).items():
            places[asked[digest]] = number
        for part, key in zip(parts, keys, strict=True):
            number = places.get(key, 0)
            if not number:
                number = places[key] = self._add_join(part.plan.joins[step], *key)
            part.ids.append(number)

    def _add_join(self, plan: JoinPlan, group: int, inputs: tuple[int, ...]) -> int:
        self._last += 1
        number = self._last
        digest = digest_of("join", group, inputs)
        self._fresh[number] = (group, digest, text_field(plan.rule.class_iri), plan.text % inputs)
        for param, source in enumerate(inputs, 1):
            self._news.dependencies.append(f"{source}\t{number}\t{param}\t{group}\n")
            self._news.uses[source] += 1
        self._news.members[group] += 1
        return number

    def _place_ends(self, parts: Sequence[_Part]) -> dict[int, tuple[ConjunctionPlan, list[Constant]]]:
        known = self._graph.find_ends({part.ids[-1] for part in parts if part.ids[-1] <= self._old})
        fresh: dict[int, _Part] = {}
        for part in parts:
            if part.ids[-1] not in known:
                fresh.setdefault(part.ids[-1], part)
        by_plan: dict[str, list[tuple[int, _Part]]] = defaultdict(list)
        for end, part in fresh.items():
            by_plan[part.plan.digest].append((end, part))
        for members in by_plan.values():
            self._place_group(members)
        return {end: (part.plan, _leaf_constants(part)) for end, part in fresh.items()}

    def _place_group(self, members: Sequence[tuple[int, _Part]]) -> None:
        plan = members[0][1].plan
        group, driver = self._group(True, plan.text, plan.digest, plan.pattern.as_json())
        leaves = {end: [part.ids[place] for place in part.plan.leaves] for end, part in members}
        if driver is None and plan.leaves:
            different = [len(set(column)) for column in zip(*leaves.values(), strict=True)]
            driver = choose_driver(plan.pattern.leaves, different, len(members))
            self._graph.execute("choose_driver", group=group, driver=driver, resources=0)
            self._groups[True, plan.digest] = (group, driver)
        for end, its_leaves in leaves.items():
            found_by = NULL if driver is None else its_leaves[driver]
            self._news.ends.append(f"{end}\t{found_by}\t{group}\t{array_field(its_leaves)}\n")
        self._news.members[group] += len(members)

    def _group(self, whole: bool, text: str, digest: str, body: dict[str, Any]) -> tuple[int, int | None]:
        found = self._groups.get((whole, digest))
        if found is None:
            number, driver, made = self._graph.put_group(whole, text, digest, body)
            self._regrouped |= made and whole
            found = self._groups[whole, digest] = (number, driver)
        return found

    def _write(self) -> None:
        uses = self._news.uses
        self._news.atomic = [
            f"{number}\t{uses.pop(number, 0)}\t{group}\t{digest}\t{class_iri}\t{text_field(text)}\n"
            for number, (group, digest, class_iri, text) in self._fresh.items()
        ]
        self._graph.write(self._news)


def choose_driver(leaves: Sequence[Leaf], different: Sequence[int], rules: int) -> int:
    """The leaf by which the rules of a group are found: that which should lead to the fewest of them.

    An equality leads to as many as share the constant, a part of a text to somewhat more; an order to half of them,
    and what asks for another value to all.

    >>> from mdv.rules.normal import Sort
    >>> common = Leaf(0, "C", "cpu", Operator.EQ, Sort.NUMBER)
    >>> selective = Leaf(0, "C", "memory", Operator.EQ, Sort.NUMBER)
    >>> choose_driver([common, selective], [1, 1000], 1000)
    1
    """

    def cost(index: int) -> tuple[float, int]:
        leaf = leaves[index]
        if leaf.operator is Operator.EQ:
            return rules / different[index] * (0.5 if leaf.property is None else 1), index
        if leaf.operator is Operator.CONTAINS:
            return 2 * rules / different[index] + 1, index
        return (rules / 2 if leaf.operator.orders else rules) + 2, index

    return min(range(len(leaves)), key=cost)


def grams_of(text: str) -> set[str]:
    """The parts of a constant by which it can be found: the longest kind that it has.

    >>> sorted(grams_of("passau")), sorted(grams_of("uni.d")), grams_of("de")
    (['passau'], ['ni.d', 'uni.'], set())
    """
    size = next((size for size in GRAMS if len(text) >= size), 0)
    return {text[at : at + size] for at in range(len(text) - size + 1)} if size else set()


def _leaf_constants(part: _Part) -> list[Constant]:
    found = [constant_of(part.plan.triggering[place], part.constants) for place in part.plan.leaves]
    return [constant for constant in found if constant is not None]


def _exact(number: Decimal | str) -> str:
    return format(number, "f") if isinstance(number, Decimal) else str(number)
