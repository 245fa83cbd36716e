"""Merge: many rules into the global dependency graph at once (paper, section 3.3.2).

Atomic rules that are there already are used once more; only the others are written. A digest names each by what it
says, down to its triggering rules, so that all of them can be looked for before any is written.

Rules of one plan are taken apart together, column by column: a column is the same atomic rule of each of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain
from typing import Any, NamedTuple

from mdv.db.copy import NULL, array_field, text_field
from mdv.db.exchange import Exchange
from mdv.db.graph import SMALL, Found, Graph, GroupKey, Known, News, PredicateKey, Step, line
from mdv.mdp.groups import constant_values
from mdv.mdp.plan import ConjunctionPlan, JoinPlan, TriggeringPlan, constant_of, digest_columns
from mdv.rules.ast import Operator
from mdv.rules.normal import Constant
from mdv.rules.pattern import Leaf, Pattern

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

    def leaves(self) -> Iterable[tuple[int, ...]]:
        """The triggering rules of each, in the order of the pattern."""
        if not self.plan.leaves:
            return [()] * len(self.constants)
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

    def touched(self, owners: Iterable[int]) -> set[tuple[int, int]]:
        """The whole groups that the rules end in, each with all of these owners."""
        groups = {end.group_id for end in chain(self.new_ends, self.known_ends)}
        return {(group, owner) for group in groups for owner in owners}


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

    def look(self, graph: Graph, exchange: Exchange | None = None) -> Callable[[], Found]:
        """Ask which of the atomic rules are there already, and which of those are the end of some rule."""
        digests: set[str] = set()
        for some in self.alike:
            digests.update(*some.digests[: None if self.few else len(some.plan.triggering)])
        return graph.look_for(digests, exchange)


class Merge:
    """One merge. `add` makes ready what is to be written; of a great many rules, that of some is written already while
    the next are made ready. `write` writes the rest."""

    def __init__(self, graph: Graph, known: Known, last_atomic_rule: int, after: int = 0) -> None:
        """`known`: the groups and predicates that there are. `after`: the numbers of the rules follow that one."""
        self._graph, self._known_groups = graph, known
        self._first, self._last, self._after = last_atomic_rule + 1, last_atomic_rule, after
        self._groups: dict[GroupKey, tuple[int, int | None]] = {}
        self._predicates: dict[PredicateKey, int] = {}
        self._regrouped = False
        self._known: dict[str, int] = {}
        self._are_ends: set[int] = set()
        self._known_ends: dict[int, End] = {}
        self._new_ends: dict[int, End] = {}
        self._ends: dict[int, tuple[int, ...]] = {}
        self._news = News()
        self._fresh: dict[int, str] = {}
        self._contains: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self._grams: dict[int, Counter[str]] = defaultdict(Counter)
        self._is_small = True

    def add(self, parts: Parts, found: Found, lines: Sequence[str] = ()) -> None:
        """Merge some rules. `found`: what was there when they were looked for. `lines`: the rules as they are kept."""
        self._known |= found.rules
        self._are_ends |= found.ends
        self._name_groups(parts.alike)
        for some in parts.alike:
            self._place_triggering(some)
        for some in parts.alike:
            self._place_joins(some, parts.few)
        for predicate, constants in self._contains.items():
            self._add_contains(predicate, constants)
        self._place_ends(parts.alike)
        self._end_rules(parts)
        self._news.rules += lines
        uses = self._news.uses
        self._news.atomic += [f"{number}\t{uses.pop(number, 0)}\t{rest}" for number, rest in self._fresh.items()]
        self._fresh, self._contains = {}, defaultdict(list)
        self._is_small = self._is_small and parts.few and self._news.size <= SMALL
        if not self._is_small:
            self._graph.copy(self._news.take_blocks())

    @property
    def merged(self) -> Merged:
        new, known = list(self._new_ends.values()), list(self._known_ends.values())
        return Merged(self._ends, new, known, self._regrouped, self._last, self._first)

    @property
    def is_small(self) -> bool:
        """Whether what is to be written can be sent with other statements, in one message."""
        return self._is_small

    def write(self, searches: Iterable[dict[str, int]] = ()) -> None:
        """Write the new atomic rules, and what rules search."""
        self._news.searches += searches
        self._graph.write(self._news, self._is_small)

    def write_step(
        self, searches: Iterable[dict[str, int]], step: Step, resources: int, seconds: int, exchange: Exchange
    ) -> Callable[[], Collection[int]]:
        """The same with the `step` that this is: see there."""
        self._news.searches += searches
        return self._graph.write_step(self._news, self._is_small, step, resources, seconds, exchange)

    def _name_groups(self, alike: Sequence[_Alike]) -> None:
        """The numbers of groups and predicates, given out where they are new."""
        known = self._known_groups
        for plan in [some.plan for some in alike]:
            for place, key in enumerate(plan.group_keys):
                if key not in self._groups:
                    self._groups[key] = known.groups.get(key) or self._new_group(plan, place)
            for predicate in plan.predicate_keys:
                if predicate is not None and predicate not in self._predicates:
                    self._predicates[predicate] = known.predicates.get(predicate) or self._new_predicate(predicate)

    def _new_group(self, plan: ConjunctionPlan, place: int) -> tuple[int, None]:
        self._regrouped = True
        if place == len(plan.joins):
            return self._graph.add_group(plan.group_keys[place], plan.text, plan.pattern.as_json()), None
        join = plan.joins[place]
        return self._graph.add_group(plan.group_keys[place], join.group_text, join.group_body), None

    def _new_predicate(self, key: PredicateKey) -> int:
        self._regrouped = True
        return self._graph.add_predicate(key)

    def _place_triggering(self, some: _Alike) -> None:
        for plan, key, digests in zip(some.plan.triggering, some.plan.predicate_keys, some.digests, strict=False):
            add = self._adding(plan, key)
            known, column, last = self._known, [], ""
            number = 0
            for digest, constants in zip(digests, some.constants, strict=True):
                if digest is not last:
                    last = digest
                    found = known.get(digest)
                    number = known[digest] = add(digest, constants) if found is None else found
                column.append(number)
            some.ids.append(column)

    def _adding(self, plan: TriggeringPlan, key: PredicateKey | None) -> Callable[[str, Sequence[Constant]], int]:
        """What writes a triggering rule of that plan, given its digest and its rule's constants; its number."""
        rule, fresh = plan.rule, self._fresh
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
        shared = self._grams[predicate]
        shared.update(gram for _, text in constants for gram in grams_of(text))
        for number, text in constants:
            gram = min(grams_of(text), key=lambda g: (shared[g], g), default="")
            self._news.constants[Operator.CONTAINS].append(
                f"{number}\t{predicate}\t{NULL}\t{text_field(text)}\t{text_field(gram)}\n"
            )

    def _place_joins(self, some: _Alike, few: bool) -> None:
        for join, digests in zip(some.plan.joins, some.digests[len(some.plan.triggering) :], strict=True):
            inputs = [some.ids[place] for place in join.rule.inputs]
            if not few:
                self._look_for_joins(digests, inputs)
            some.ids.append(self._place_join(join, digests, inputs))

    def _look_for_joins(self, digests: Sequence[str], inputs: Sequence[Sequence[int]]) -> None:
        """Of a great many: with an input that is new, a join rule must be new, too."""
        newest = map(max, zip(*inputs, strict=True))
        asked = {digest for digest, last in zip(digests, newest, strict=True) if last < self._first}
        asked -= self._known.keys()
        if asked:
            found = self._graph.look_for(asked)()
            self._known |= found.rules
            self._are_ends |= found.ends

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

    def _place_ends(self, alike: Sequence[_Alike]) -> None:
        """End rules into their whole groups, those that are new."""
        by_group: dict[GroupKey, list[_Alike]] = defaultdict(list)
        for some in alike:
            by_group[some.plan.group_keys[-1]].append(some)
        for key, mine in by_group.items():
            leaves: dict[int, tuple[int, ...]] = {}
            for some in mine:
                group, _ = self._groups[key]
                for end, its_leaves, constants in zip(some.ends, some.leaves(), some.constants, strict=True):
                    if end in self._are_ends:
                        self._known_ends[end] = End(end, group, some.plan, constants)
                    elif end not in self._new_ends:
                        self._new_ends[end] = End(end, group, some.plan, constants)
                        leaves[end] = its_leaves
            if leaves:
                self._place_group(key, mine[0].plan.pattern, leaves)

    def _place_group(self, key: GroupKey, pattern: Pattern, leaves: Mapping[int, tuple[int, ...]]) -> None:
        """End rules that are new, with their triggering rules, into their whole group."""
        group, driver = self._groups[key]
        if driver is None and pattern.leaves:
            different = [len(set(column)) for column in zip(*leaves.values(), strict=True)]
            driver = choose_driver(pattern.leaves, different, len(leaves))
            self._graph.execute("choose_driver", group=group, driver=driver, resources=0)
            self._groups[key] = (group, driver)
            self._regrouped = True
        lines = self._news.ends
        for end, mine in leaves.items():
            found_by = NULL if driver is None else mine[driver]
            lines.append(f"{end}\t{found_by}\t{group}\t{array_field(mine)}\n")
        self._news.members[group] += len(leaves)

    def _end_rules(self, parts: Parts) -> None:
        """Where each rule ends: once in each end rule, whichever of its conjunctions lead there."""
        next_end = {id(some.plan): iter(some.ends).__next__ for some in parts.alike}
        lines = self._news.rule_ends
        uses: list[int] = []
        for rule_id, owner, plans, _ in parts.items:
            rule = self._after + rule_id
            found = tuple(dict.fromkeys([next_end[id(plan)]() for plan in plans]))
            self._ends[rule] = found
            uses += found
            for end in found:
                lines.append(f"{rule}\t{end}\t{owner}\n")
        self._news.uses.update(uses)


def merge_rules(
    graph: Graph, items: Sequence[Planned], known: Known, last_atomic_rule: int, searches: Iterable[dict[str, int]] = ()
) -> Merged:
    """Merge rules that are stored already, in one go."""
    parts = Parts(items)
    merge = Merge(graph, known, last_atomic_rule)
    with graph.copying:
        merge.add(parts, parts.look(graph)())
    merge.write(searches)
    return merge.merged


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
