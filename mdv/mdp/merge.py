"""Merge: many rules into the global dependency graph at once (paper, section 3.3.2).

Atomic rules that are there already are used once more; only the others are written. A digest names each by what it
says, down to its triggering rules, so that all of them can be looked for before any is written.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from mdv.db.copy import NULL, text_field
from mdv.db.graph import SMALL, Graph, GroupKey, News, PredicateKey, array_field, line
from mdv.mdp.plan import ConjunctionPlan, JoinPlan, TriggeringPlan, constant_of, digests_of
from mdv.rules.ast import Operator
from mdv.rules.normal import Constant
from mdv.rules.pattern import Leaf

GRAMS = (6, 4)
"""The lengths of the parts by which constants of `contains` are found; the function mdv_grams knows the same."""

FEW = 50
"""Up to so many conjunctions are looked for in one go; of more, joins only where their inputs are known."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A rule to be merged: its number, whose it is, and how it is taken apart."""

    rule_id: int
    owner: int
    plan: tuple[ConjunctionPlan, ...]
    constants: tuple[Constant, ...]


@dataclass(slots=True)
class _Part:
    """One conjunction of one rule on its way: the digests and numbers of its atomic rules by place."""

    rule_id: int
    plan: ConjunctionPlan
    constants: tuple[Constant, ...]
    digests: list[str]
    ids: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.ids[-1]

    def leaf_constants(self) -> list[Constant]:
        found = [constant_of(self.plan.triggering[place], self.constants) for place in self.plan.leaves]
        return [constant for constant in found if constant is not None]


@dataclass(frozen=True, slots=True)
class End:
    """An end rule, with its group and its constants."""

    rule_id: int
    group_id: int
    constants: list[Constant]


@dataclass(frozen=True, slots=True)
class Merged:
    """The end rules of each rule; those of them that are new, and those that were there; whether there are new groups;
    the last number given."""

    ends: dict[int, tuple[int, ...]]
    new_ends: list[End]
    known_ends: list[End]
    regrouped: bool
    last_atomic_rule: int
    first_atomic_rule: int
    """The first of those that are new; an end that is new may be an older one."""


class Merge:
    """One merge: what is to be written is made ready in memory; `write` writes it."""

    def __init__(self, graph: Graph, last_atomic_rule: int, items: Sequence[Planned]) -> None:
        self._graph = graph
        self._last = last_atomic_rule
        self._news = News()
        self._fresh: dict[int, tuple[object, str, str, str]] = {}
        self._contains: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self._joins: dict[str, int] = {}
        parts = [_part(item, part) for item in items for part in item.plan]
        self._few = len(parts) <= FEW
        self._look_around(parts)
        self._place_triggering(parts)
        self._place_joins(parts)
        for predicate, constants in self._contains.items():
            self._add_contains(predicate, constants)
        new_ends = self._place_ends(parts)
        ends: dict[int, dict[int, None]] = defaultdict(dict)
        for part in parts:
            ends[part.rule_id][part.end] = None
        owners = {item.rule_id: item.owner for item in items}
        for rule, its_ends in ends.items():
            for end in its_ends:
                self._news.rule_ends.append(f"{rule}\t{end}\t{owners[rule]}\n")
                self._news.uses[end] += 1
        self.is_small = self._news.size + len(self._fresh) + len(items) <= SMALL
        """Whether what is to be written can be sent with other statements, in one message."""
        self.merged = Merged(
            {rule: tuple(its) for rule, its in ends.items()},
            new_ends,
            self._known_ends(parts),
            self._regrouped,
            self._last,
            last_atomic_rule + 1,
        )

    def write(self, rules: Iterable[str] = (), searches: Iterable[dict[str, int]] = ()) -> None:
        """Write the new atomic rules, and the lines of `rules` with what they search."""
        uses, news = self._news.uses, self._news
        news.rules, news.searches = list(rules), list(searches)
        news.atomic = [
            f"{number}\t{uses.pop(number, 0)}\t{group}\t{digest}\t{class_iri}\t{text_field(text)}\n"
            for number, (group, digest, class_iri, text) in self._fresh.items()
        ]
        self._graph.write(news, self.is_small)

    def _look_around(self, parts: Sequence[_Part]) -> None:
        """Find what is there already: groups, predicates and atomic rules."""
        plans = {id(part.plan): part.plan for part in parts}.values()
        groups = {GroupKey(False, join.group_digest): (join.group_text, join.group_body)
                  for plan in plans for join in plan.joins}  # fmt: skip
        groups |= {GroupKey(True, plan.digest): (plan.text, plan.pattern.as_json()) for plan in plans}
        predicates = {
            predicate for plan in plans for one in plan.triggering if (predicate := _predicate(one)) is not None
        }
        digests = {
            digest for part in parts for digest in part.digests[: None if self._few else len(part.plan.triggering)]
        }
        found = self._graph.look_around(groups, predicates, digests)
        self._groups, self._predicates, self._known, self._ends = found
        self._regrouped = any(key.whole and key not in self._groups for key in groups)
        for key, (text, body) in groups.items():
            if key not in self._groups:
                self._groups[key] = (self._graph.add_group(key, text, body), None)
        for predicate in predicates - self._predicates.keys():
            self._predicates[predicate] = self._graph.add_predicate(predicate)

    def _place_triggering(self, parts: Sequence[_Part]) -> None:
        places: dict[str, int] = dict(self._known)
        for part in parts:
            for plan, digest in zip(part.plan.triggering, part.digests, strict=False):
                number = places.get(digest)
                if number is None:
                    number = places[digest] = self._add_triggering(plan, constant_of(plan, part.constants), digest)
                part.ids.append(number)

    def _add_triggering(self, plan: TriggeringPlan, constant: Constant | None, digest: str) -> int:
        self._last += 1
        number, rule = self._last, plan.rule
        text = plan.text if constant is None else plan.text + constant.shown
        self._fresh[number] = (NULL, digest, text_field(rule.class_iri), text)
        key = _predicate(plan)
        if constant is None or key is None or rule.operator is None:
            self._news.plain.append(line(number, rule.class_iri))
            return number
        predicate, value = self._predicates[key], constant.value
        if rule.operator is Operator.CONTAINS:
            self._contains[predicate].append((number, str(value)))
        elif isinstance(value, str):
            self._news.constants[rule.operator].append(f"{number}\t{predicate}\t{NULL}\t{text_field(value)}\n")
        else:
            exact = format(value, "f") if isinstance(value, Decimal) else int(value)
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

    def _place_joins(self, parts: Sequence[_Part]) -> None:
        for step in range(max((len(part.plan.joins) for part in parts), default=0)):
            some = [part for part in parts if len(part.plan.joins) > step]
            if not self._few:
                self._look_for_joins(some, step)
            for part in some:
                plan, digest = part.plan.joins[step], part.digests[len(part.plan.triggering) + step]
                number = self._known.get(digest) or self._joins.get(digest)
                if number is None:
                    inputs = tuple([part.ids[place] for place in plan.rule.inputs])
                    number = self._joins[digest] = self._add_join(plan, digest, inputs)
                part.ids.append(number)

    def _look_for_joins(self, parts: Sequence[_Part], step: int) -> None:
        """Of a great many: with an input that is new, a join rule must be new, too."""
        digests = {
            part.digests[len(part.plan.triggering) + step]
            for part in parts
            if not any(part.ids[place] in self._fresh for place in part.plan.joins[step].rule.inputs)
        }
        if digests:
            _, _, known, ends = self._graph.look_around({}, set(), digests)
            self._known |= known
            self._ends |= ends

    def _add_join(self, plan: JoinPlan, digest: str, inputs: tuple[int, ...]) -> int:
        self._last += 1
        number = self._last
        group, _ = self._groups[GroupKey(False, plan.group_digest)]
        self._fresh[number] = (group, digest, text_field(plan.rule.class_iri), plan.text % inputs)
        for param, source in enumerate(inputs, 1):
            self._news.dependencies.append(f"{source}\t{number}\t{param}\t{group}\n")
            self._news.uses[source] += 1
        self._news.members[group] += 1
        return number

    def _place_ends(self, parts: Sequence[_Part]) -> list[End]:
        fresh: dict[int, _Part] = {}
        for part in parts:
            if part.end not in self._ends:
                fresh.setdefault(part.end, part)
        by_plan: dict[str, list[_Part]] = defaultdict(list)
        for part in fresh.values():
            by_plan[part.plan.digest].append(part)
        return [new for members in by_plan.values() for new in self._place_group(members)]

    def _known_ends(self, parts: Sequence[_Part]) -> list[End]:
        known = {part.end: part for part in parts if part.end in self._ends}
        groups = {digest: self._groups[GroupKey(True, digest)][0] for digest in {p.plan.digest for p in known.values()}}
        return [End(end, groups[part.plan.digest], part.leaf_constants()) for end, part in known.items()]

    def _place_group(self, members: Sequence[_Part]) -> list[End]:
        plan = members[0].plan
        group, driver = self._groups[GroupKey(True, plan.digest)]
        leaves = [[part.ids[place] for place in part.plan.leaves] for part in members]
        if driver is None and plan.leaves:
            different = [len(set(column)) for column in zip(*leaves, strict=True)]
            driver = choose_driver(plan.pattern.leaves, different, len(members))
            self._graph.execute("choose_driver", group=group, driver=driver, resources=0)
        for part, its_leaves in zip(members, leaves, strict=True):
            found_by = NULL if driver is None else its_leaves[driver]
            self._news.ends.append(f"{part.end}\t{found_by}\t{group}\t{array_field(its_leaves)}\n")
        self._news.members[group] += len(members)
        return [End(part.end, group, part.leaf_constants()) for part in members]


def _part(item: Planned, plan: ConjunctionPlan) -> _Part:
    return _Part(item.rule_id, plan, item.constants, digests_of(plan, item.constants))


def _predicate(plan: TriggeringPlan) -> PredicateKey | None:
    rule = plan.rule
    if rule.operator is None or rule.sort is None:
        return None
    return PredicateKey(rule.class_iri, rule.property, rule.operator, rule.sort)


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
