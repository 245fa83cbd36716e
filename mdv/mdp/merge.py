"""Merge: many rules into the global dependency graph at once (paper, section 3.3.2).

Atomic rules that are there already are used once more; only the others are written. A digest names each by what it
says, down to its triggering rules, so that all of them can be looked for before any is written.

Rules of one plan are taken apart together, column by column: a column is the same atomic rule of each of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain
from typing import Any, NamedTuple

from mdv.db.copy import NULL, text_field
from mdv.db.graph import SMALL, Graph, GroupKey, Known, News, PredicateKey, Step, line
from mdv.mdp.groups import constant_values
from mdv.mdp.plan import ConjunctionPlan, JoinPlan, TriggeringPlan, constant_of, digest_columns
from mdv.rules.ast import Operator
from mdv.rules.normal import Constant
from mdv.rules.pattern import Leaf

GRAMS = (6, 4)
"""The lengths of the parts by which constants of `contains` are found; the function mdv_grams knows the same."""

FEW = 50
"""Up to so many conjunctions are looked for in one go; of more, joins only where their inputs are known."""


class Planned(NamedTuple):
    """A rule to be merged: its number, whose it is, and how it is taken apart."""

    rule_id: int
    owner: int
    plan: tuple[ConjunctionPlan, ...]
    constants: tuple[Constant, ...]


@dataclass(slots=True)
class _Alike:
    """The conjunctions of one plan on their way, in the order of their rules: the digests and numbers of their atomic
    rules, a column for each place."""

    plan: ConjunctionPlan
    constants: list[tuple[Constant, ...]] = field(default_factory=list)
    digests: list[list[str]] = field(default_factory=list)
    ids: list[list[int]] = field(default_factory=list)

    @property
    def ends(self) -> list[int]:
        return self.ids[-1]

    def leaves(self) -> Iterator[tuple[int, ...]]:
        """The triggering rules of each, in the order of the pattern."""
        if not self.plan.leaves:
            return iter([()] * len(self.constants))
        return zip(*[self.ids[place] for place in self.plan.leaves], strict=True)


class End(NamedTuple):
    """An end rule, with its group, and the plan and the constants of a rule that ends there."""

    rule_id: int
    group_id: int
    plan: ConjunctionPlan
    constants: tuple[Constant, ...]

    @property
    def values(self) -> Mapping[str, Any]:
        """Its constants as the parameters of its group. A truth is compared as 1 or 0."""
        found = [constant_of(self.plan.triggering[place], self.constants) for place in self.plan.leaves]
        return constant_values(constant for constant in found if constant is not None)


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


class Parts:
    """Rules taken apart: what is to be looked for in the graph, before anything of them is written."""

    def __init__(self, items: Sequence[Planned]) -> None:
        self.items = items
        alike: dict[int, _Alike] = {}
        for item in items:
            for plan in item.plan:
                mine = alike.get(id(plan))
                if mine is None:
                    mine = alike[id(plan)] = _Alike(plan)
                mine.constants.append(item.constants)
        self.alike = list(alike.values())
        for some in self.alike:
            some.digests = digest_columns(some.plan, some.constants)
        self.few = sum(len(some.constants) for some in self.alike) <= FEW

    def look(self, graph: Graph) -> Callable[[], tuple[dict[str, int], set[int]]]:
        """Ask which of the atomic rules are there already, and which of those are the end of some rule."""
        digests: set[str] = set()
        for some in self.alike:
            digests.update(*some.digests[: None if self.few else len(some.plan.triggering)])
        return graph.look_for(digests)


class Merge:
    """One merge: what is to be written is made ready in memory; `write` writes it."""

    def __init__(
        self, graph: Graph, parts: Parts, found: tuple[dict[str, int], set[int]], known: Known, last_atomic_rule: int,
        after: int = 0,
    ) -> None:  # fmt: skip
        """`found`: what `parts` saw when it looked. `known`: the groups and predicates that there are. `after`: the
        numbers of the rules follow that one."""
        self._graph = graph
        self._last = last_atomic_rule
        self._news = News()
        self._fresh: dict[int, str] = {}
        self._contains: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self._known, self._ends = found
        self._few = parts.few
        self._name_groups(parts.alike, known)
        for some in parts.alike:
            self._place_triggering(some)
        for some in parts.alike:
            self._place_joins(some)
        for predicate, constants in self._contains.items():
            self._add_contains(predicate, constants)
        new_ends = self._place_ends(parts.alike)
        ends = self._end_rules(parts, after)
        self.is_small = self._news.size + len(self._fresh) + len(parts.items) <= SMALL
        """Whether what is to be written can be sent with other statements, in one message."""
        self.merged = Merged(
            ends, new_ends, self._known_ends(parts.alike), self._regrouped, self._last, last_atomic_rule + 1
        )

    def write(self, searches: Iterable[dict[str, int]] = ()) -> None:
        """Write the new atomic rules, and what rules search."""
        self._graph.write(self._ready((), searches), self.is_small)

    def write_step(
        self, rules: Iterable[str], searches: Iterable[dict[str, int]], step: Step, resources: int, seconds: int
    ) -> Callable[[], Collection[int]]:
        """The same with the lines of `rules`, and the `step` that this is: see there."""
        return self._graph.write_step(self._ready(rules, searches), self.is_small, step, resources, seconds)

    def _ready(self, rules: Iterable[str], searches: Iterable[dict[str, int]]) -> News:
        uses, news = self._news.uses, self._news
        news.rules, news.searches = list(rules), list(searches)
        news.atomic = [f"{number}\t{uses.pop(number, 0)}\t{rest}" for number, rest in self._fresh.items()]
        return news

    def _name_groups(self, alike: Sequence[_Alike], known: Known) -> None:
        """The numbers of groups and predicates, given out where they are new."""
        groups = {GroupKey(False, join.group_digest): (join.group_text, join.group_body)
                  for some in alike for join in some.plan.joins}  # fmt: skip
        groups |= {GroupKey(True, some.plan.digest): (some.plan.text, some.plan.pattern.as_json()) for some in alike}
        predicates = {
            predicate
            for some in alike
            for one in some.plan.triggering
            if (predicate := _predicate(one)) is not None
        }  # fmt: skip
        self._regrouped = not (groups.keys() <= known.groups.keys() and predicates <= known.predicates.keys())
        self._groups = {
            key: known.groups[key] if key in known.groups else (self._graph.add_group(key, text, body), None)
            for key, (text, body) in groups.items()
        }
        self._predicates = {
            key: known.predicates[key] if key in known.predicates else self._graph.add_predicate(key)
            for key in predicates
        }

    def _place_triggering(self, some: _Alike) -> None:
        for plan, digests in zip(some.plan.triggering, some.digests, strict=False):
            add = self._adding(plan)
            known, column, last = self._known, [], ""
            number = 0
            for digest, constants in zip(digests, some.constants, strict=True):
                if digest is not last:
                    last = digest
                    found = known.get(digest)
                    number = known[digest] = add(digest, constants) if found is None else found
                column.append(number)
            some.ids.append(column)

    def _adding(self, plan: TriggeringPlan) -> Callable[[str, Sequence[Constant]], int]:
        """What writes a triggering rule of that plan, given its digest and its rule's constants; its number."""
        rule, key, fresh = plan.rule, _predicate(plan), self._fresh
        shared, text = f"\t{text_field(rule.class_iri)}\t", text_field(plan.text)

        def plain(digest: str, _constants: Sequence[Constant]) -> int:
            self._last += 1
            fresh[self._last] = f"{NULL}\t{digest}{shared}{text}\n"
            self._news.plain.append(line(self._last, rule.class_iri))
            return self._last

        if key is None or rule.operator is None:
            return plain
        predicate, operator = self._predicates[key], rule.operator
        lines, contained = self._news.constants[operator], self._contains[predicate]

        def compared(digest: str, constants: Sequence[Constant]) -> int:
            constant = constant_of(plan, constants)
            assert constant is not None
            self._last += 1
            number, value = self._last, constant.value
            fresh[number] = f"{NULL}\t{digest}{shared}{text}{text_field(constant.shown)}\n"
            if operator is Operator.CONTAINS:
                contained.append((number, str(value)))
            elif isinstance(value, str):
                lines.append(f"{number}\t{predicate}\t{NULL}\t{text_field(value)}\n")
            else:
                exact = format(value, "f") if isinstance(value, Decimal) else int(value)
                lines.append(f"{number}\t{predicate}\t{exact}\t{NULL}\n")
            return number

        return compared

    def _add_contains(self, predicate: int, constants: Sequence[tuple[int, str]]) -> None:
        """Constants of `contains`, each with a part by which few others are found."""
        shared = Counter(gram for _, text in constants for gram in grams_of(text))
        for number, text in constants:
            gram = min(grams_of(text), key=lambda g: (shared[g], g), default="")
            self._news.constants[Operator.CONTAINS].append(
                f"{number}\t{predicate}\t{NULL}\t{text_field(text)}\t{text_field(gram)}\n"
            )

    def _place_joins(self, some: _Alike) -> None:
        for join, digests in zip(some.plan.joins, some.digests[len(some.plan.triggering) :], strict=True):
            inputs = [some.ids[place] for place in join.rule.inputs]
            if not self._few:
                self._look_for_joins(digests, inputs)
            some.ids.append(self._place_join(join, digests, inputs))

    def _look_for_joins(self, digests: Sequence[str], inputs: Sequence[Sequence[int]]) -> None:
        """Of a great many: with an input that is new, a join rule must be new, too."""
        fresh = self._fresh
        asked = {
            digest
            for digest, *mine in zip(digests, *inputs, strict=True)
            if not any(one in fresh for one in mine) and digest not in self._known
        }
        if asked:
            known, ends = self._graph.look_for(asked)()
            self._known |= known
            self._ends |= ends

    def _place_join(self, plan: JoinPlan, digests: Sequence[str], inputs: Sequence[Sequence[int]]) -> list[int]:
        """The numbers of join rules that are alike, given those of their inputs."""
        group, _ = self._groups[GroupKey(False, plan.group_digest)]
        shared, text = f"\t{text_field(plan.rule.class_iri)}\t", text_field(plan.text)
        known, fresh, dependencies = self._known, self._fresh, self._news.dependencies
        column, number = [], self._last
        sources: list[tuple[int, ...]] = []
        for digest, mine in zip(digests, zip(*inputs, strict=True), strict=True):
            found = known.get(digest)
            if found is None:
                number += 1
                found = known[digest] = number
                fresh[number] = f"{group}\t{digest}{shared}{text % mine}\n"
                sources.append(mine)
                for param, source in enumerate(mine, 1):
                    dependencies.append(f"{source}\t{number}\t{param}\t{group}\n")
            column.append(found)
        self._last = number
        for used in zip(*sources, strict=True):
            self._news.uses.update(used)
        self._news.members[group] += len(sources)
        return column

    def _place_ends(self, alike: Sequence[_Alike]) -> list[End]:
        by_plan: dict[str, dict[int, tuple[_Alike, int, tuple[int, ...]]]] = defaultdict(dict)
        placed: set[int] = set(self._ends)
        for some in alike:
            mine = by_plan[some.plan.digest]
            for place, (end, leaves) in enumerate(zip(some.ends, some.leaves(), strict=True)):
                if end not in placed:
                    placed.add(end)
                    mine[end] = (some, place, leaves)
        return [new for digest, fresh in by_plan.items() if fresh for new in self._place_group(digest, fresh)]

    def _place_group(self, digest: str, fresh: Mapping[int, tuple[_Alike, int, tuple[int, ...]]]) -> list[End]:
        """End rules that are new, into their whole group."""
        group, driver = self._groups[GroupKey(True, digest)]
        plan = next(iter(fresh.values()))[0].plan
        if driver is None and plan.leaves:
            columns = zip(*[leaves for _, _, leaves in fresh.values()], strict=True)
            driver = choose_driver(plan.pattern.leaves, [len(set(column)) for column in columns], len(fresh))
            self._graph.execute("choose_driver", group=group, driver=driver, resources=0)
            self._regrouped = True
        ends = self._news.ends
        for end, (_, _, leaves) in fresh.items():
            found_by = NULL if driver is None else leaves[driver]
            ends.append(f"{end}\t{found_by}\t{group}\t{{{','.join(map(str, leaves))}}}\n")
        self._news.members[group] += len(fresh)
        return [End(end, group, some.plan, some.constants[place]) for end, (some, place, _) in fresh.items()]

    def _known_ends(self, alike: Sequence[_Alike]) -> list[End]:
        if not self._ends:
            return []
        found: dict[int, End] = {}
        for some in alike:
            group, _ = self._groups[GroupKey(True, some.plan.digest)]
            for end, constants in zip(some.ends, some.constants, strict=True):
                if end in self._ends:
                    found[end] = End(end, group, some.plan, constants)
        return list(found.values())

    def _end_rules(self, parts: Parts, after: int) -> dict[int, tuple[int, ...]]:
        """Where each rule ends: once in each end rule, whichever of its conjunctions lead there."""
        next_end = {id(some.plan): iter(some.ends).__next__ for some in parts.alike}
        lines = self._news.rule_ends
        ends: dict[int, tuple[int, ...]] = {}
        for rule_id, owner, plans, _ in parts.items:
            rule = after + rule_id
            found = tuple(dict.fromkeys([next_end[id(plan)]() for plan in plans]))
            ends[rule] = found
            for end in found:
                lines.append(f"{rule}\t{end}\t{owner}\n")
        self._news.uses.update(chain.from_iterable(ends.values()))
        return ends


def merge_rules(
    graph: Graph, items: Sequence[Planned], known: Known, last_atomic_rule: int, searches: Iterable[dict[str, int]] = ()
) -> Merged:
    """Merge rules that are stored already, in one go."""
    parts = Parts(items)
    merge = Merge(graph, parts, parts.look(graph)(), known, last_atomic_rule)
    merge.write(searches)
    return merge.merged


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
