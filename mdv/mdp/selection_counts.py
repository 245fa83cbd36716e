"""Selection counts: update how often an LMR's rules select a resource, when its rules change.

An LMR selects a resource while its count is above zero. Changes of documents update the counts through the filter.
When rules are added or removed, their matches must be evaluated: each match of an end rule adds or subtracts one. The
range rules of an LMR in one group count as one together, since only their least and greatest constants matter. So the
ranges are compared before and after.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from sqlalchemy import Connection

from mdv.db import filter as db
from mdv.db.selection_counts import GroupLmrPairs, LmrRange, SelectionCounts
from mdv.db.state import State
from mdv.db.suspensions import ConstantValue, KeptEnd
from mdv.mdp.evaluate import MAX_RULES_EVALUATED_SINGLY, EvaluableEnd, evaluate_ends, evaluate_whole_group
from mdv.mdp.groups import CompiledGroup, Groups


class RuleSelectionCounts:
    """Updates the counts for a change of rules, in one transaction. Call `subtract_matches` before and `add_matches`
    after the rules change."""

    def __init__(self, connection: Connection, state: State) -> None:
        self._connection = connection
        self._state = state
        self._db = SelectionCounts(connection)
        self._groups: dict[int, CompiledGroup] = {}
        self._before: dict[tuple[int, int], LmrRange] = {}
        self._touched: set[tuple[int, int]] = set()

    def subtract_matches(self, groups: Groups, rules: Collection[int]) -> None:
        """Subtract the matches of these rules, before they are removed or changed."""
        self._groups |= groups.by_id
        self._record_touched(self._db.touched(rules))
        db.clear_results(self._connection)
        self._evaluate(groups, self._db.ends(rules))
        self._db.change(rules, -1, self._ranged())

    def add_matches(self, groups: Groups, rules: Collection[int], known: Iterable[EvaluableEnd]) -> None:
        """Add the matches of these rules. The results of their end rules are in `result_objects` already, except those
        of end rules that existed before (`known`)."""
        self._groups |= groups.by_id
        self._record_touched(self._db.touched(rules))
        self._evaluate(groups, known)
        self._db.change(rules, 1, self._ranged())
        self._compare_ranges(groups, new=False)

    def add_new_matches(
        self, groups: Groups, rules: Collection[int], known: Iterable[EvaluableEnd], touched: GroupLmrPairs
    ) -> None:
        """Like `add_matches`, for new rules, which can only extend ranges. `touched`: the groups of their end rules,
        each with the LMRs that may have rules there. This saves a query unless there are ranges."""
        self._groups |= groups.by_id
        self._record_touched(touched)
        self._evaluate(groups, known)
        ranged = self._ranged()
        self._db.change(rules, 1, ranged)
        self._db.extend_ranges(rules, ranged)
        self._compare_ranges(groups, new=True)

    def add_precomputed_matches(
        self, groups: Groups, rules: Collection[int], changes: Iterable[tuple[int, int, int]]
    ) -> None:
        """Like `add_matches`, for precomputed changes of counts. `rules`: the new rules."""
        self._groups |= groups.by_id
        self._record_touched(self._db.touched(rules))
        self._db.make_ranges(self._touched)
        self._db.add_counted(changes)

    def add(self, changes: Iterable[tuple[int, int, int]]) -> None:
        """Add precomputed changes of counts, for rules that do not change."""
        self._db.add_counted(changes)

    def note(self, groups: Groups, rules: Collection[int]) -> None:
        """Record the ranges of rules that will be removed and whose matches are computed already."""
        self._groups |= groups.by_id
        self._record_touched(self._db.touched(rules))

    def freeze(self, groups: Groups, kept: Iterable[KeptEnd]) -> None:
        """Keep the matches of suspended rules (`kept`) counted. Call it after `note` and the removal of the rules.

        A range that they shared with other rules is counted separately from now on.
        """
        self._db.make_ranges(self._touched)
        after = self._db.ranges(self._touched)
        suspended: dict[tuple[int, int], list[ConstantValue]] = defaultdict(list)
        for end in kept:
            if end.ranged:
                suspended[end.unit, end.owner].append(end.constants[0])
        for key, range_ in after.items():
            frozen = range_.with_ends(min(suspended[key]), max(suspended[key]))
            separate = [(self._before[key], -1), (range_, 1), (frozen, 1)]
            self._count_ranges(groups, self._groups[key[0]], separate)

    @property
    def changed(self) -> int:
        """The number of changed counts so far."""
        return self._db.changed()

    @property
    def ranged(self) -> set[int]:
        """The range groups among the recorded groups."""
        return self._ranged()

    def settle(self, groups: Groups) -> None:
        """Finish a removal of rules, after `subtract_matches`."""
        self._compare_ranges(groups, new=False)

    def _record_touched(self, touched: GroupLmrPairs) -> None:
        fresh = {(group, lmr) for group, lmr in touched if self._is_ranged(group)} - self._touched
        self._touched |= fresh
        self._before |= self._db.ranges(fresh)

    def _is_ranged(self, group: int) -> bool:
        return self._groups[group].group.pattern.is_range

    def _ranged(self) -> set[int]:
        return {group for group, _ in self._touched}

    def _evaluate(self, groups: Groups, ends: Iterable[EvaluableEnd]) -> None:
        """Evaluate these end rules, except range rules."""
        evaluate_ends(self._connection, groups, [end for end in ends if not self._is_ranged(end.group_id)], self._state)

    def _compare_ranges(self, groups: Groups, new: bool) -> None:
        """Subtract the matches of the old ranges and add those of the new ones, if they differ."""
        if not self._touched:
            return
        if not new:
            self._db.make_ranges(self._touched)
        after = self._db.ranges(self._touched)
        changed: dict[int, list[tuple[LmrRange, int]]] = defaultdict(list)
        for key in self._touched:
            if self._before.get(key) != after.get(key):
                changed[key[0]] += [(self._before[key], -1)] if key in self._before else []
                changed[key[0]] += [(after[key], 1)] if key in after else []
        for group_id, ranges in changed.items():
            self._count_ranges(groups, self._groups[group_id], ranges)

    def _count_ranges(self, groups: Groups, group: CompiledGroup, ranges: list[tuple[LmrRange, int]]) -> None:
        if len(ranges) > MAX_RULES_EVALUATED_SINGLY and group.group.group_id in groups.by_id:
            db.clear_results(self._connection)
            evaluate_whole_group(self._connection, groups, group.group.group_id, 0, self._state)
            self._db.change_by_ranges(ranges)
            return
        for range_, more in ranges:
            least, greatest = range_.ends
            values = {"least": least, "greatest": greatest, "lmr": range_.lmr_id, "more": more}
            db.execute_statement(self._connection, group.range_counts, values)


def recount_selections(connection: Connection, groups: Groups, state: State) -> None:
    """Recompute all counts of all LMRs. The differences to the stored counts become changes of counts."""
    counts = SelectionCounts(connection)
    ranged = {number for number, group in groups.by_id.items() if group.group.pattern.is_range}
    touched = counts.restart(ranged)
    db.clear_results(connection)
    for number in groups.by_id:
        evaluate_whole_group(connection, groups, number, 0, state)
    counts.add_all()
    counts.make_ranges(touched)
    counts.change_by_ranges((range_, 1) for range_ in counts.ranges(touched).values())
    db.clear_results(connection)
