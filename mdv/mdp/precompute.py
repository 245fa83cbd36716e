"""Compute how a change of rules changes the selection counts of LMRs, without holding the lock.

Evaluating a rule on all stored statements can take seconds. `precompute` evaluates it on a database snapshot, while
others write. `Precomputed.changes` then evaluates only what has changed since. This is short enough to be done under
the lock.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sqlalchemy import BindParameter, Connection, Engine, select, union

from mdv.db import filter as db
from mdv.db.engine import use_read_only_snapshot
from mdv.db.rule_graph import GroupKey, KnownGroups, RuleGraph
from mdv.db.selection_counts import SelectionCounts
from mdv.db.state import State, read_state
from mdv.db.suspensions import ConstantValue, KeptEnd, Suspensions
from mdv.db.vocabulary import Vocabulary
from mdv.errors import TooCostly
from mdv.mdp.filter import group_parameters
from mdv.mdp.groups import CompiledGroup, Groups, constant_parameters, read_names, statement_states
from mdv.mdp.merge import PlannedRule, best_starting_leaf
from mdv.mdp.plan import constant_of
from mdv.mdp.schemas import SchemaInForce
from mdv.query.compile import Group, matches, recheck
from mdv.rules.pattern import Pattern

MAX_EVALUATION_SECONDS = 30
"""A rule that cannot be evaluated on the stored documents within this time is refused."""

MAX_SECONDS_UNDER_LOCK = 0.15
"""The time limit for a catch-up statement under the lock, because other writers wait for the lock."""

TOO_COSTLY_MESSAGE = (
    "Evaluating the rule on the stored documents took too long. Nothing was changed. Compare a property with a "
    "constant, join the variables by = or by references, or search a smaller class. `mdv rule explain` estimates the "
    "cost of a rule."
)


class Selection(NamedTuple):
    """The resources that a pattern registers with at least one of several lists of constants."""

    pattern: Pattern
    alternatives: tuple[tuple[ConstantValue, ...], ...]


class PastState(NamedTuple):
    """The state at a past position, restricted to resources with ids above `after` and up to `up_to`."""

    position: int
    after: int = 0
    up_to: int | None = None


class SelectionDelta(NamedTuple):
    """A change of an LMR's selection counts: `more` (1 or -1) is added for each resource of a selection. `past`: the
    state on which the selection is evaluated; None: the current state."""

    lmr: int
    selection: Selection
    more: int
    past: PastState | None = None


PROVIDER_OWNER = 0
"""The owner of rules that belong to no LMR. They are evaluated only to check that this does not take too long."""

RangeKey = tuple[Pattern, int]
"""The key of the range rules of an LMR: their pattern, and the LMR."""
ConstantRange = tuple[ConstantValue, ConstantValue]
"""The least and the greatest constant of range rules."""
CountDeltas = dict[tuple[int, int], int]
"""By LMR and resource, the change of the selection count, if it is not 0."""


class PrecomputeBasis(NamedTuple):
    """The data from which deltas were derived. If it has changed when the lock is held, they are derived again."""

    schema_version: int
    gone: tuple[tuple[int, str, int | None], ...]
    """Removed rules: id, text, and the position at which each was suspended."""
    ranges: tuple[tuple[RangeKey, ConstantRange | None, ConstantRange | None], ...]
    """The constant ranges of LMRs in range groups, before and after."""


class RuleChange(NamedTuple):
    """A change of rules: the removed ones and the new ones."""

    gone: Collection[int]
    new: Sequence[PlannedRule]


class Outdated(Exception):
    """The rules or the schema have changed since the results were precomputed."""


@dataclass
class Precomputed:
    """The effect of a change of rules on the selection counts of LMRs, as of a position."""

    basis: PrecomputeBasis
    deltas: Sequence[SelectionDelta]
    position: int
    selected: dict[Selection, set[int]]
    """For each selection of the current state, its resources."""
    totals: CountDeltas

    def changes(
        self, connection: Connection, state: State, change: RuleChange, schema: SchemaInForce, vocabulary: Vocabulary
    ) -> list[tuple[int, int, int]]:
        """Return the current changes: LMR, resource, and change of the selection count. The caller must hold the lock
        and must not have changed any rules yet."""
        basis, _ = derive_deltas(connection, change, schema)
        if basis != self.basis:
            raise Outdated
        with db.limit_time_under_lock():
            self.catch_up(connection, state.position, schema, vocabulary, MAX_SECONDS_UNDER_LOCK)
        return [(lmr, resource, count) for (lmr, resource), count in self.totals.items()]

    def catch_up_without_lock(self, engine: Engine, schema: SchemaInForce, vocabulary: Vocabulary) -> None:
        """Catch up with the changes of others, without the lock."""
        with engine.connect() as reader, reader.begin():
            use_read_only_snapshot(reader)
            with db.reject_slow_statements(TOO_COSTLY_MESSAGE):
                self.catch_up(reader, read_state(reader).position, schema, vocabulary, MAX_EVALUATION_SECONDS)

    def catch_up(
        self, connection: Connection, position: int, schema: SchemaInForce, vocabulary: Vocabulary, seconds: float
    ) -> None:
        """Evaluate what the changes since the last position may affect. No statement may take longer than `seconds`."""
        if position == self.position or not self.selected:
            self.position = position
            return
        db.limit_time(connection, seconds)
        selections = list(self.selected)
        watched_groups = _watched_groups(connection, selections, schema, vocabulary)
        changed = db.changed_since(connection, self.position)
        found: list[tuple[Selection, set[int], set[int]]] = []
        with db.pinned_plans(connection):
            for index, nodes in watched_groups.affected(changed).items():
                selection, group = selections[index], watched_groups.groups[index]
                statement, values = _recheck(group, selection)
                values |= group_parameters(group, nodes, self.position, 0)
                rows = db.evaluate(connection, statement, {name: values[name] for name in statement.numbered[1]})
                before, now = self.selected[selection], {resource for resource, matched in rows if matched}
                lost = {resource for resource, matched in rows if not matched and resource in before}
                found.append((selection, now - before, lost))
        db.limit_time(connection, 0)
        for selection, gained, lost in found:
            self._update(selection, gained, lost)
        self.position = position

    def _update(self, selection: Selection, gained: set[int], lost: set[int]) -> None:
        """Update the counts for resources that entered or left a selection."""
        self.selected[selection] = (self.selected[selection] - lost) | gained
        for delta in self.deltas:
            if delta.past is None and delta.selection == selection:
                _count(self.totals, delta.lmr, gained, delta.more)
                _count(self.totals, delta.lmr, lost, -delta.more)


def _count(totals: CountDeltas, lmr: int, resources: Iterable[int], more: int) -> None:
    if lmr == PROVIDER_OWNER:
        return
    for resource in resources:
        count = totals.get((lmr, resource), 0) + more
        if count:
            totals[lmr, resource] = count
        else:
            del totals[lmr, resource]


def precompute(
    engine: Engine,
    change: RuleChange,
    schema: SchemaInForce,
    vocabulary: Vocabulary,
    seconds: float = MAX_EVALUATION_SECONDS,
) -> Precomputed:
    """Evaluate the effect of a change of rules on a database snapshot. Raise `TooCostly` if it takes too long."""
    deadline = time.monotonic() + seconds
    with engine.connect() as reader, reader.begin():
        use_read_only_snapshot(reader)
        state = read_state(reader)
        if state.schema_version != schema.version:
            raise Outdated
        basis, deltas = derive_deltas(reader, change, schema)
        evaluation = _Evaluation(reader, [delta.selection for delta in deltas], schema, vocabulary, deadline)
        selected: dict[Selection, set[int]] = {}
        totals: CountDeltas = {}
        with db.reject_slow_statements(TOO_COSTLY_MESSAGE):
            for delta in deltas:
                if delta.past is not None:
                    found = evaluation.as_of(delta.selection, delta.past)
                else:
                    if delta.selection not in selected:
                        selected[delta.selection] = evaluation.now(delta.selection)
                    found = selected[delta.selection]
                _count(totals, delta.lmr, found, delta.more)
    return Precomputed(basis, deltas, state.position, selected, totals)


class _Evaluation:
    """Evaluates selections with one connection, up to a deadline."""

    def __init__(
        self,
        connection: Connection,
        selections: Sequence[Selection],
        schema: SchemaInForce,
        vocabulary: Vocabulary,
        deadline: float,
    ) -> None:
        self._connection = connection
        self._deadline = deadline
        patterns = {selection.pattern for selection in selections}
        self._names = read_names(RuleGraph(connection), patterns, schema.schema, vocabulary, None)
        self._compiled: dict[tuple[Pattern, int, bool], db.CompiledStatement] = {}

    def now(self, selection: Selection) -> set[int]:
        return self._run(selection, False, {})

    def as_of(self, selection: Selection, past: PastState) -> set[int]:
        found = self._run(selection, True, {"position": past.position})
        return {number for number in found if past.after < number and (past.up_to is None or number <= past.up_to)}

    def _run(self, selection: Selection, past: bool, values: dict[str, Any]) -> set[int]:
        key = (selection.pattern, len(selection.alternatives), past)
        statement = self._compiled.get(key)
        if statement is None:
            statement = self._compiled[key] = self._compile(selection, past)
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TooCostly(TOO_COSTLY_MESSAGE)
        db.limit_time(self._connection, left)
        rows = db.evaluate(self._connection, statement, values | _constant_values(selection))
        return {resource for (resource,) in rows}

    def _compile(self, selection: Selection, past: bool) -> db.CompiledStatement:
        state, _, _ = statement_states(self._names)
        if past:
            state = replace(state, make=db.statements_as_of)
        pattern = selection.pattern
        found = [
            matches(state, pattern, constants, best_starting_leaf(pattern)) for constants in _constant_lists(selection)
        ]
        return db.compile_statement(
            found[0] if len(found) == 1 else select(union(*found).subquery("found").c.resource_id)
        )


def _constant_lists(selection: Selection) -> list[list[BindParameter[Any]]]:
    return [constant_parameters(selection.pattern, f"constant{n}_") for n in range(len(selection.alternatives))]


def _constant_values(selection: Selection) -> dict[str, ConstantValue]:
    return {
        f"constant{n}_{index}": value
        for n, constants in enumerate(selection.alternatives)
        for index, value in enumerate(constants)
    }


def _watched_groups(
    connection: Connection, selections: Sequence[Selection], schema: SchemaInForce, vocabulary: Vocabulary
) -> Groups:
    """Return the patterns of selections as groups, in order, to find which of them a change affects."""
    names = read_names(RuleGraph(connection), {s.pattern for s in selections}, schema.schema, vocabulary, None)
    groups = [CompiledGroup(Group(0, selection.pattern, None, ()), names) for selection in selections]
    return Groups((0, 0), names, groups, KnownGroups({}, {}), 0)


def _recheck(group: CompiledGroup, selection: Selection) -> tuple[db.CompiledStatement, dict[str, Any]]:
    now, _, _ = statement_states(group.names)
    since = replace(now, make=db.statements_since)
    statement = db.compile_statement(recheck(now, since, selection.pattern, _constant_lists(selection)))
    return statement, statement.fixed | _constant_values(selection)


# Deriving the effect of a change of rules


def derive_deltas(
    connection: Connection, change: RuleChange, schema: SchemaInForce
) -> tuple[PrecomputeBasis, list[SelectionDelta]]:
    """Return the selection deltas of a change of rules, and the basis from which they were derived."""
    graph, suspensions, counts = RuleGraph(connection), Suspensions(connection), SelectionCounts(connection)
    suspended = suspensions.read(change.gone)
    stored = graph.rules(change.gone)
    gone = tuple((r.id, r.text, suspended[r.id].position if r.id in suspended else None) for r in stored)
    kept = suspensions.kept_ends(list(suspended))
    active = [rule.id for rule in stored if rule.id not in suspended]
    deltas: list[SelectionDelta] = []
    new_constants: dict[RangeKey, list[ConstantValue]] = defaultdict(list)

    patterns = {group.group_id: Pattern.from_json(group.pattern) for group in graph.read_groups()} if active else {}
    owners = {rule.id: rule.owner for rule in stored}
    for rule_id, group_id, constants in counts.ends_of_each(active):
        pattern = patterns[group_id]
        if not pattern.is_range:
            deltas.append(SelectionDelta(owners[rule_id], Selection(pattern, (constants,)), -1))
    touched = {(patterns[group], lmr): group for group, lmr in counts.touched(active) if patterns[group].is_range}
    for item in change.new:
        for pattern, constants in dict.fromkeys(conjunctions_of(item)):
            if pattern.is_range:
                new_constants[pattern, item.owner].append(constants[0])
            else:
                deltas.append(SelectionDelta(item.owner, Selection(pattern, (constants,)), 1))
    known = graph.read_known() if new_constants else KnownGroups({}, {})
    for pattern, lmr in new_constants:
        if found := known.groups.get(GroupKey(True, _digest(change.new, pattern))):
            touched[pattern, lmr] = found[0]
    ranges = _ranges(counts, touched, new_constants, change.gone)
    for key, before, after in ranges:
        deltas += _range_deltas(key, before, after, None)
    deltas += _suspended_deltas(kept, set(suspended))
    return PrecomputeBasis(schema.version, gone, tuple(ranges)), deltas


def conjunctions_of(item: PlannedRule) -> Iterable[tuple[Pattern, tuple[ConstantValue, ...]]]:
    """Yield the conjunctions of a new rule, with their constants as the database compares them."""
    for part in item.plan:
        found = [constant_of(part.triggering[index], item.constants) for index in part.leaves]
        values = [constant.value for constant in found if constant is not None]
        yield part.pattern, tuple(int(value) if isinstance(value, bool) else value for value in values)  # type: ignore[misc]


def _digest(new: Iterable[PlannedRule], pattern: Pattern) -> str:
    return next(part.digest for item in new for part in item.plan if part.pattern == pattern)


def _ranges(
    counts: SelectionCounts,
    touched: Mapping[RangeKey, int],
    new_constants: Mapping[RangeKey, list[ConstantValue]],
    gone: Collection[int],
) -> list[tuple[RangeKey, ConstantRange | None, ConstantRange | None]]:
    """Return by pattern and LMR the constant ranges before and after, if they differ."""
    pairs = {(group, lmr) for (_, lmr), group in touched.items()}
    before: dict[tuple[int, int], ConstantRange] = {key: range_.reach for key, range_ in counts.ranges(pairs).items()}
    left = counts.ranges_without(pairs, gone)
    found: list[tuple[RangeKey, ConstantRange | None, ConstantRange | None]] = []
    for key in {**touched, **new_constants}:
        group = touched.get(key)
        was = before.get((group, key[1])) if group is not None else None
        remaining = left.get((group, key[1])) if group is not None else None
        values = [*(remaining or ()), *new_constants.get(key, ())]
        now = (min(values), max(values)) if values else None
        if was != now:
            found.append((key, was, now))
    return sorted(found, key=repr)


def _range_deltas(
    key: RangeKey, before: ConstantRange | None, after: ConstantRange | None, past: PastState | None
) -> list[SelectionDelta]:
    pattern, lmr = key
    return [
        SelectionDelta(lmr, Selection(pattern, tuple(dict.fromkeys((value,) for value in constant_range))), more, past)
        for constant_range, more in ((before, -1), (after, 1))
        if constant_range is not None
    ]


def _suspended_deltas(kept: Sequence[KeptEnd], gone: Collection[int]) -> list[SelectionDelta]:
    """Return the deltas for the matches of suspended rules that are removed. Range rules that were suspended together
    are counted together, so the remaining ones still count."""
    deltas = []
    units: dict[tuple[int, int, int], list[KeptEnd]] = defaultdict(list)
    for end in kept:
        if end.ranged:
            units[end.owner, end.unit, end.as_of].append(end)
        elif end.rule_id in gone:
            selection = Selection(Pattern.from_json(end.pattern), (end.constants,))
            deltas.append(SelectionDelta(end.owner, selection, -1, PastState(end.as_of, end.after, end.up_to)))
    for (owner, _, as_of), ends in units.items():
        before = [end.constants[0] for end in ends]
        after = [end.constants[0] for end in ends if end.rule_id not in gone]
        pattern = Pattern.from_json(ends[0].pattern)
        past = PastState(as_of, ends[0].after, ends[0].up_to)
        deltas += _range_deltas((pattern, owner), _constant_range(before), _constant_range(after), past)
    return deltas


def _constant_range(values: Sequence[ConstantValue]) -> ConstantRange | None:
    return (min(values), max(values)) if values else None
