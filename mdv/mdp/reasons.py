"""Reasons: which resources an LMR selects more, or no more, when its rules change.

What the filter finds changes reasons by itself. When rules come and go, what they match has to be found: a rule's
results are one reason more, or less, for each of its end rules. Of rules that match stretches of constants, all of an
LMR's in one group are one reason together, since only its least and its greatest constant count; so these are compared
before and after.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from sqlalchemy import Connection

from mdv.db import filter as db
from mdv.db.exchange import Exchange
from mdv.db.publish import Publication
from mdv.db.reasons import Range, Reasons, Touched
from mdv.db.state import State
from mdv.db.vocabulary import Vocabulary
from mdv.mdp.evaluate import FEW, End, evaluate_ends, evaluate_whole_group
from mdv.mdp.groups import CompiledGroup, Groups
from mdv.mdp.publish import ToldOf, strong_numbers
from mdv.mdp.schemas import SchemaInForce


class RuleReasons:
    """The reasons that change with some rules, in one transaction: `withdraw` before, `grant` after they change."""

    def __init__(self, connection: Connection, state: State) -> None:
        self._connection = connection
        self._state = state
        self._db = Reasons(connection)
        self._groups: dict[int, CompiledGroup] = {}
        self._before: dict[tuple[int, int], Range] = {}
        self._touched: set[tuple[int, int]] = set()

    def withdraw(self, groups: Groups, rules: Collection[int]) -> None:
        """What these rules match now is about to have a reason less each."""
        self._groups |= groups.by_id
        self._note_touched(self._db.touched(rules))
        db.clear(self._connection)
        self._evaluate(groups, self._db.ends(rules))
        self._db.change(rules, -1, self._ranged())

    def grant(self, groups: Groups, rules: Collection[int], known: Iterable[End]) -> None:
        """What these rules match has a reason more each. The results of their end rules stand in `result_objects`
        already, but for those that were `known` before."""
        self._groups |= groups.by_id
        self._note_touched(self._db.touched(rules))
        self._evaluate(groups, known)
        self._db.change(rules, 1, self._ranged())
        self._compare_ranges(groups, new=False)

    def grant_new(self, groups: Groups, rules: Collection[int], known: Iterable[End], touched: Touched) -> None:
        """The same for rules that have just been added, so that ranges can only grow. `touched`: the groups that they
        end in, each with the LMRs that may have rules there: so nothing has to be asked, unless there are ranges."""
        self._groups |= groups.by_id
        self._note_touched(touched)
        self._evaluate(groups, known)
        ranged = self._ranged()
        self._db.change(rules, 1, ranged)
        self._db.extend_ranges(rules, ranged)
        self._compare_ranges(groups, new=True)

    def settle(self, groups: Groups) -> None:
        """After `withdraw`, where the rules are gone and nothing comes instead."""
        self._compare_ranges(groups, new=False)

    def publish(self, schema: SchemaInForce, vocabulary: Vocabulary) -> ToldOf:
        """Tell LMRs what changed for them."""
        strong = strong_numbers(schema, vocabulary)
        exchange = Exchange(self._connection)
        publication = Publication(exchange, self._state.position, self._state.last_offset, strong)
        told = ToldOf(publication, publication.of_rules())
        exchange.send()
        return told

    def _note_touched(self, touched: Touched) -> None:
        fresh = {(group, lmr) for group, lmr in touched if self._is_ranged(group)} - self._touched
        self._touched |= fresh
        self._before |= self._db.ranges(fresh)

    def _is_ranged(self, group: int) -> bool:
        return self._groups[group].group.pattern.is_range

    def _ranged(self) -> set[int]:
        return {group for group, _ in self._touched}

    def _evaluate(self, groups: Groups, ends: Iterable[End]) -> None:
        """Find what these end rules match, but for ranges."""
        evaluate_ends(self._connection, groups, [end for end in ends if not self._is_ranged(end.group_id)], self._state)

    def _compare_ranges(self, groups: Groups, new: bool) -> None:
        """Count what the ranges matched as less, and what they match now as more, where they are not the same."""
        if not self._touched:
            return
        if not new:
            self._db.make_ranges(self._touched)
        after = self._db.ranges(self._touched)
        changed: dict[int, list[tuple[Range, int]]] = defaultdict(list)
        for key in self._touched:
            if self._before.get(key) != after.get(key):
                changed[key[0]] += [(self._before[key], -1)] if key in self._before else []
                changed[key[0]] += [(after[key], 1)] if key in after else []
        for group_id, ranges in changed.items():
            self._count_ranges(groups, self._groups[group_id], ranges)

    def _count_ranges(self, groups: Groups, group: CompiledGroup, ranges: list[tuple[Range, int]]) -> None:
        if len(ranges) > FEW and group.group.group_id in groups.by_id:
            db.clear(self._connection)
            evaluate_whole_group(self._connection, groups, group.group.group_id, 0, self._state)
            self._db.change_by_ranges(ranges)
            return
        for range_, more in ranges:
            least, greatest = range_.ends
            values = {"least": least, "greatest": greatest, "lmr": range_.lmr_id, "more": more}
            db.keep(self._connection, group.range_reasons, values)


def recount(connection: Connection, groups: Groups, state: State) -> None:
    """Find all reasons of all LMRs from nothing: what differs from what was counted becomes reasons more or less."""
    reasons = Reasons(connection)
    ranged = {number for number, group in groups.by_id.items() if group.group.pattern.is_range}
    touched = reasons.begin_anew(ranged)
    db.clear(connection)
    for number in groups.by_id:
        evaluate_whole_group(connection, groups, number, 0, state)
    reasons.add_all()
    reasons.make_ranges(touched)
    reasons.change_by_ranges((range_, 1) for range_ in reasons.ranges(touched).values())
    db.clear(connection)
