"""Merge many rules at once into the global dependency graph (paper, section 3.3.2).

Atomic rules that exist already are shared; only new ones are written. A digest identifies an atomic rule by its
content, down to its triggering rules, so that all of them can be looked up before any is written.

Rules with the same plan are decomposed together, column by column. A column holds the same atomic rule of each rule.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain
from typing import Any, NamedTuple

from mdv.db.pipeline import Pipeline
from mdv.db.postgres_copy import COPY_NULL, array_literal, copy_text
from mdv.db.rule_graph import (
    MAX_PIPELINED_ROWS,
    FoundAtomicRules,
    GraphAdditions,
    GroupKey,
    KnownGroups,
    PredicateKey,
    RuleGraph,
    RulesAdvance,
    copy_line,
)
from mdv.mdp.groups import constant_values
from mdv.mdp.plan import ConjunctionPlan, JoinPlan, TriggeringPlan, constant_of, digest_columns
from mdv.rules.normal import Constant
from mdv.rules.operators import Lookup, Operator
from mdv.rules.pattern import Leaf, Pattern

GRAM_LENGTHS = (6, 4)
"""The lengths of the n-grams by which constants of `contains` are found. The SQL function mdv_grams uses the same."""

MAX_CONJUNCTIONS_PER_LOOKUP = 50
"""Up to this number of conjunctions, all atomic rules are looked up at once. With more, a join rule is looked up only
if its inputs exist already."""


class PlannedRule(NamedTuple):
    """A rule to be merged: its id, its owner, its plan and its constants."""

    rule_id: int
    owner: int
    plan: tuple[ConjunctionPlan, ...]
    constants: tuple[Constant, ...]


@dataclass(slots=True)
class _SamePlan:
    """The conjunctions with one plan, in the order of their rules: the digests and ids of their atomic rules, with a
    column for each atomic rule of the plan."""

    plan: ConjunctionPlan
    constants: list[tuple[Constant, ...]] = field(default_factory=list)
    digests: list[list[str]] = field(default_factory=list)
    ids: list[list[int]] = field(default_factory=list)

    @property
    def ends(self) -> list[int]:
        return self.ids[-1]

    def leaves(self) -> Iterable[tuple[int, ...]]:
        """Return the triggering rules of each conjunction, in the order of the pattern's leaves."""
        if not self.plan.leaves:
            return [()] * len(self.constants)
        return zip(*[self.ids[place] for place in self.plan.leaves], strict=True)


class MergedEnd(NamedTuple):
    """An end rule with its group, and the plan and constants of a rule that has this end rule."""

    rule_id: int
    group_id: int
    plan: ConjunctionPlan
    constants: tuple[Constant, ...]

    @property
    def values(self) -> Mapping[str, Any]:
        """Its constants as the parameters of its group. A boolean is compared as 1 or 0."""
        found = [constant_of(self.plan.triggering[place], self.constants) for place in self.plan.leaves]
        return constant_values(constant for constant in found if constant is not None)


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The result of a merge: the end rules of each rule, which of them are new and which existed before, whether groups
    changed, and the last assigned id."""

    ends: dict[int, tuple[int, ...]]
    new_ends: list[MergedEnd]
    known_ends: list[MergedEnd]
    regrouped: bool
    last_atomic_rule: int
    first_atomic_rule: int
    """The first new atomic rule. A new end rule can be an older atomic rule."""

    def touched(self, owners: Iterable[int]) -> set[tuple[int, int]]:
        """Return pairs of the groups of these end rules with each of these owners."""
        groups = {end.group_id for end in chain(self.new_ends, self.known_ends)}
        return {(group, owner) for group in groups for owner in owners}


class DecomposedRules:
    """Decomposed rules: the atomic rules to look up in the rule graph before anything is written."""

    def __init__(self, items: Sequence[PlannedRule]) -> None:
        self.items = items
        by_plan: dict[int, _SamePlan] = {}
        for item in items:
            for plan in item.plan:
                same_plan = by_plan.get(id(plan))
                if same_plan is None:
                    same_plan = by_plan[id(plan)] = _SamePlan(plan)
                same_plan.constants.append(item.constants)
        self.by_plan = list(by_plan.values())
        for same_plan in self.by_plan:
            same_plan.digests = digest_columns(same_plan.plan, same_plan.constants)
        self.is_single_lookup = (
            sum(len(same_plan.constants) for same_plan in self.by_plan) <= MAX_CONJUNCTIONS_PER_LOOKUP
        )

    def look_up(self, graph: RuleGraph, pipeline: Pipeline | None = None) -> Callable[[], FoundAtomicRules]:
        """Look up which of the atomic rules exist already, and which of those are end rules."""
        digests: set[str] = set()
        for same_plan in self.by_plan:
            digests.update(*same_plan.digests[: None if self.is_single_lookup else len(same_plan.plan.triggering)])
        return graph.look_for(digests, pipeline)


class RuleMerge:
    """One merge. `add` prepares the rows to be written and, if there are many, writes them. `write` writes the rest."""

    def __init__(self, graph: RuleGraph, known: KnownGroups, last_atomic_rule: int, after: int = 0) -> None:
        """`known`: the existing groups and predicates. `after`: rule ids are relative to this one."""
        self._graph, self._known_groups = graph, known
        self._first, self._last, self._after = last_atomic_rule + 1, last_atomic_rule, after
        self._groups: dict[GroupKey, tuple[int, int | None]] = {}
        self._predicates: dict[PredicateKey, int] = {}
        self._regrouped = False
        self._known: dict[str, int] = {}
        self._existing_ends: set[int] = set()
        self._known_ends: dict[int, MergedEnd] = {}
        self._new_ends: dict[int, MergedEnd] = {}
        self._ends: dict[int, tuple[int, ...]] = {}
        self._additions = GraphAdditions()
        self._new_atomic: dict[int, str] = {}
        self._with_grams: dict[tuple[Operator, int], list[tuple[int, str]]] = defaultdict(list)
        self._grams: dict[int, Counter[str]] = defaultdict(Counter)
        self._is_small = True

    def add(self, parts: DecomposedRules, found: FoundAtomicRules, lines: Sequence[str] = ()) -> None:
        """Merge some rules. `found`: the result of their lookup. `lines`: the rules as rows in COPY format."""
        self._known |= found.rules
        self._existing_ends |= found.ends
        self._assign_groups(parts.by_plan)
        for same_plan in parts.by_plan:
            self._assign_triggering(same_plan)
        for same_plan in parts.by_plan:
            self._assign_joins(same_plan, parts.is_single_lookup)
        for (operator, predicate), constants in self._with_grams.items():
            self._add_with_grams(operator, predicate, constants)
        self._assign_ends(parts.by_plan)
        self._record_rule_ends(parts)
        self._additions.rules += lines
        uses = self._additions.uses
        self._additions.atomic += [
            f"{number}\t{uses.pop(number, 0)}\t{rest}" for number, rest in self._new_atomic.items()
        ]
        self._new_atomic, self._with_grams = {}, defaultdict(list)
        self._is_small = self._is_small and parts.is_single_lookup and self._additions.size <= MAX_PIPELINED_ROWS
        if not self._is_small:
            self._graph.copy(self._additions.pop_blocks())

    @property
    def merged(self) -> MergeResult:
        new, known = list(self._new_ends.values()), list(self._known_ends.values())
        return MergeResult(self._ends, new, known, self._regrouped, self._last, self._first)

    @property
    def is_small(self) -> bool:
        """True if the rows to be written can be sent with other statements in one message."""
        return self._is_small

    def write(self, searches: Iterable[dict[str, int]] = ()) -> None:
        """Write the new atomic rules, and which rules search which."""
        self._additions.searches += searches
        self._graph.write(self._additions, self._is_small)

    def write_step(
        self, searches: Iterable[dict[str, int]], step: RulesAdvance, resources: int, seconds: float, pipeline: Pipeline
    ) -> Callable[[], Collection[int]]:
        """Like `write`, together with the advance of the state: see `RuleGraph.write_step`."""
        self._additions.searches += searches
        return self._graph.write_step(self._additions, self._is_small, step, resources, seconds, pipeline)

    def _assign_groups(self, by_plan: Sequence[_SamePlan]) -> None:
        """Find the ids of groups and predicates. New ones get an id."""
        known = self._known_groups
        for plan in [same_plan.plan for same_plan in by_plan]:
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

    def _assign_triggering(self, same_plan: _SamePlan) -> None:
        for plan, key, digests in zip(
            same_plan.plan.triggering, same_plan.plan.predicate_keys, same_plan.digests, strict=False
        ):
            add = self._triggering_adder(plan, key)
            known, column, last = self._known, [], ""
            number = 0
            for digest, constants in zip(digests, same_plan.constants, strict=True):
                if digest is not last:
                    last = digest
                    found = known.get(digest)
                    number = known[digest] = add(digest, constants) if found is None else found
                column.append(number)
            same_plan.ids.append(column)

    def _triggering_adder(
        self, plan: TriggeringPlan, key: PredicateKey | None
    ) -> Callable[[str, Sequence[Constant]], int]:
        """Return a function that adds a triggering rule of this plan and returns its id.

        It takes the digest and the constants of the rule.
        """
        rule, fresh = plan.rule, self._new_atomic
        shared, text = f"\t{copy_text(rule.class_iri)}\t", copy_text(plan.text)

        def plain(digest: str, _constants: Sequence[Constant]) -> int:
            self._last += 1
            fresh[self._last] = f"{COPY_NULL}\t{digest}{shared}{text}\n"
            self._additions.plain.append(copy_line(self._last, rule.class_iri))
            return self._last

        if key is None or rule.operator is None:
            return plain
        predicate, operator = self._predicates[key], rule.operator
        lines, with_grams = self._additions.constants[operator], self._with_grams[operator, predicate]
        has_gram = operator.lookup is Lookup.GRAM

        def compared(digest: str, constants: Sequence[Constant]) -> int:
            constant = constant_of(plan, constants)
            assert constant is not None
            self._last += 1
            number, value = self._last, constant.value
            fresh[number] = f"{COPY_NULL}\t{digest}{shared}{text}{copy_text(constant.shown)}\n"
            if has_gram:
                with_grams.append((number, str(value)))
            elif isinstance(value, str):
                lines.append(f"{number}\t{predicate}\t{COPY_NULL}\t{copy_text(value)}\n")
            else:
                exact = format(value, "f") if isinstance(value, Decimal) else int(value)
                lines.append(f"{number}\t{predicate}\t{exact}\t{COPY_NULL}\n")
            return number

        return compared

    def _add_with_grams(self, operator: Operator, predicate: int, constants: Sequence[tuple[int, str]]) -> None:
        """Add constants, each with the n-gram that the fewest other constants share."""
        shared = self._grams[predicate]
        shared.update(gram for _, text in constants for gram in grams_of(text))
        for number, text in constants:
            gram = min(grams_of(text), key=lambda g: (shared[g], g), default="")
            self._additions.constants[operator].append(
                f"{number}\t{predicate}\t{COPY_NULL}\t{copy_text(text)}\t{copy_text(gram)}\n"
            )

    def _assign_joins(self, same_plan: _SamePlan, is_single_lookup: bool) -> None:
        for join, digests in zip(
            same_plan.plan.joins, same_plan.digests[len(same_plan.plan.triggering) :], strict=True
        ):
            inputs = [same_plan.ids[place] for place in join.rule.inputs]
            if not is_single_lookup:
                self._look_up_joins(digests, inputs)
            same_plan.ids.append(self._assign_join(join, digests, inputs))

    def _look_up_joins(self, digests: Sequence[str], inputs: Sequence[Sequence[int]]) -> None:
        """Look up join rules. A join rule with a new input must be new, so it is not looked up."""
        newest = map(max, zip(*inputs, strict=True))
        to_look_up = {digest for digest, last in zip(digests, newest, strict=True) if last < self._first}
        to_look_up -= self._known.keys()
        if to_look_up:
            found = self._graph.look_for(to_look_up)()
            self._known |= found.rules
            self._existing_ends |= found.ends

    def _assign_join(self, plan: JoinPlan, digests: Sequence[str], inputs: Sequence[Sequence[int]]) -> list[int]:
        """Return the ids of join rules with the same plan, given the ids of their inputs."""
        group, _ = self._groups[GroupKey(False, plan.group_digest)]
        shared, text = f"\t{copy_text(plan.rule.class_iri)}\t", copy_text(plan.text)
        known, fresh, dependencies = self._known, self._new_atomic, self._additions.dependencies
        column, number = [], self._last
        sources: list[tuple[int, ...]] = []
        for digest, input_ids in zip(digests, zip(*inputs, strict=True), strict=True):
            found = known.get(digest)
            if found is None:
                number += 1
                found = known[digest] = number
                fresh[number] = f"{group}\t{digest}{shared}{text % input_ids}\n"
                sources.append(input_ids)
                for param, source in enumerate(input_ids, 1):
                    dependencies.append(f"{source}\t{number}\t{param}\t{group}\n")
            column.append(found)
        self._last = number
        for used in zip(*sources, strict=True):
            self._additions.uses.update(used)
        self._additions.members[group] += len(sources)
        return column

    def _assign_ends(self, by_plan: Sequence[_SamePlan]) -> None:
        """Add the new end rules to their groups."""
        by_group: dict[GroupKey, list[_SamePlan]] = defaultdict(list)
        for same_plan in by_plan:
            by_group[same_plan.plan.group_keys[-1]].append(same_plan)
        for key, members in by_group.items():
            leaves: dict[int, tuple[int, ...]] = {}
            for same_plan in members:
                group, _ = self._groups[key]
                for end, leaf_ids, constants in zip(
                    same_plan.ends, same_plan.leaves(), same_plan.constants, strict=True
                ):
                    if end in self._existing_ends:
                        self._known_ends[end] = MergedEnd(end, group, same_plan.plan, constants)
                    elif end not in self._new_ends:
                        self._new_ends[end] = MergedEnd(end, group, same_plan.plan, constants)
                        leaves[end] = leaf_ids
            if leaves:
                self._assign_group(key, members[0].plan.pattern, leaves)

    def _assign_group(self, key: GroupKey, pattern: Pattern, leaves: Mapping[int, tuple[int, ...]]) -> None:
        """Add new end rules, with their triggering rules, to a group."""
        group, driver = self._groups[key]
        if driver is None and pattern.leaves:
            distinct = [len(set(column)) for column in zip(*leaves.values(), strict=True)]
            driver = choose_driving_leaf(pattern.leaves, distinct, len(leaves))
            self._graph.execute("choose_driver", group=group, driver=driver, resources=0)
            self._groups[key] = (group, driver)
            self._regrouped = True
        lines = self._additions.ends
        for end, leaf_ids in leaves.items():
            found_by = COPY_NULL if driver is None else leaf_ids[driver]
            lines.append(f"{end}\t{found_by}\t{group}\t{array_literal(leaf_ids)}\n")
        self._additions.members[group] += len(leaves)

    def _record_rule_ends(self, parts: DecomposedRules) -> None:
        """Record the end rules of each rule, each once, even if several conjunctions have the same end rule."""
        next_end = {id(same_plan.plan): iter(same_plan.ends).__next__ for same_plan in parts.by_plan}
        lines = self._additions.rule_ends
        uses: list[int] = []
        for rule_id, owner, plans, _ in parts.items:
            rule = self._after + rule_id
            found = tuple(dict.fromkeys([next_end[id(plan)]() for plan in plans]))
            self._ends[rule] = found
            uses += found
            for end in found:
                lines.append(f"{rule}\t{end}\t{owner}\n")
        self._additions.uses.update(uses)


def merge_rules(
    graph: RuleGraph,
    items: Sequence[PlannedRule],
    known: KnownGroups,
    last_atomic_rule: int,
    searches: Iterable[dict[str, int]] = (),
) -> MergeResult:
    """Merge rules that are already stored."""
    parts = DecomposedRules(items)
    merge = RuleMerge(graph, known, last_atomic_rule)
    with graph.copying:
        merge.add(parts, parts.look_up(graph)())
    merge.write(searches)
    return merge.merged


def choose_driving_leaf(leaves: Sequence[Leaf], distinct: Sequence[int], rules: int) -> int:
    """Return the leaf by which the rules of a group are looked up: the one that is expected to find the fewest rules.

    `distinct`: for each leaf, the number of distinct constants. A resource has one URI, so `=` on it finds the fewest.

    >>> from mdv.rules.normal import Sort
    >>> common = Leaf(0, "C", "cpu", Operator.EQ, Sort.NUMBER)
    >>> selective = Leaf(0, "C", "memory", Operator.EQ, Sort.NUMBER)
    >>> choose_driving_leaf([common, selective], [1, 1000], 1000)
    1
    """

    def cost(index: int) -> tuple[float, int]:
        leaf = leaves[index]
        found = leaf.operator.lookup.expected_rules(rules, distinct[index])
        return (found / 2 if leaf.operator is Operator.EQ and leaf.property is None else found), index

    return min(range(len(leaves)), key=cost)


def best_starting_leaf(pattern: Pattern) -> int | None:
    """Return the leaf that a full evaluation should start with."""
    if not pattern.leaves:
        return None
    return choose_driving_leaf(pattern.leaves, [2] * len(pattern.leaves), 2)


def grams_of(text: str) -> set[str]:
    """Return the n-grams of a constant by which it can be found, of the greatest length that fits.

    >>> sorted(grams_of("passau")), sorted(grams_of("uni.d")), grams_of("de")
    (['passau'], ['ni.d', 'uni.'], set())
    """
    size = next((size for size in GRAM_LENGTHS if len(text) >= size), 0)
    return {text[at : at + size] for at in range(len(text) - size + 1)} if size else set()
