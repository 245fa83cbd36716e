"""For each LMR and resource, the number of rules that select it, and its changes when rules change."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from decimal import Decimal
from typing import Any, NamedTuple

import psycopg
from sqlalchemy import Connection, Select

from mdv.db.engine import driver
from mdv.db.filter import CompiledStatement, compile_statement
from mdv.db.load_sql import load_sql
from mdv.db.postgres_copy import array_literal, copy_rows
from mdv.db.tables import reason_changes

GroupLmrPairs = Collection[tuple[int, int]]
"""Pairs of a group and an LMR that has, or had, rules in it."""


class EndRule(NamedTuple):
    """A stored end rule, with its group and its constants."""

    rule_id: int
    group_id: int
    constants: tuple[Decimal | str, ...]

    @property
    def values(self) -> dict[str, Decimal | str]:
        """The constants as parameters of the group's statement."""
        return {f"constant{number}": value for number, value in enumerate(self.constants)}


class LmrRange(NamedTuple):
    """The least and the greatest constant of an LMR's rules in a group that match ranges of constants."""

    group_id: int
    lmr_id: int
    operator: str
    least: Decimal | None
    greatest: Decimal | None
    least_text: str | None
    greatest_text: str | None

    @property
    def ends(self) -> tuple[Decimal | str | None, Decimal | str | None]:
        if self.least_text is not None:
            return self.least_text, self.greatest_text
        return self.least, self.greatest

    def with_ends(self, least: Decimal | str, greatest: Decimal | str) -> LmrRange:
        """Return the range with other constants."""
        if isinstance(least, str) or isinstance(greatest, str):
            return self._replace(least_text=str(least), greatest_text=str(greatest))
        return self._replace(least=least, greatest=greatest)

    @property
    def reach(self) -> tuple[Decimal | str, Decimal | str]:
        """The least and the greatest constant, if they exist."""
        least, greatest = self.ends
        assert least is not None and greatest is not None
        return least, greatest


class SelectionCounts:
    """Reads and changes selection counts in one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._session: psycopg.Connection[Any] = driver(connection)
        self._sql = load_sql("selection_counts")

    def ends(self, rules: Iterable[int]) -> list[EndRule]:
        """Return the end rules of these rules."""
        found: dict[tuple[int, int], list[Decimal | str]] = defaultdict(list)
        for end, group, leaf, number, value in self._run("read_ends", ids=list(rules)).fetchall():
            constants = found[end, group]
            if leaf is not None:
                constants.append(value if number is None else number)
        return [EndRule(end, group, tuple(constants)) for (end, group), constants in found.items()]

    def ends_of_each(self, rules: Iterable[int]) -> list[tuple[int, int, tuple[Decimal | str, ...]]]:
        """Return the ends of each of these rules: the rule, the group, and the constants of the end rule."""
        found: dict[tuple[int, int, int], list[Decimal | str]] = defaultdict(list)
        for rule, end, group, leaf, number, value in self._run("read_ends_of_each", ids=list(rules)).fetchall():
            constants = found[rule, end, group]
            if leaf is not None:
                constants.append(value if number is None else number)
        return [(rule, group, tuple(constants)) for (rule, _, group), constants in found.items()]

    def touched(self, rules: Iterable[int]) -> set[tuple[int, int]]:
        """Return the groups and LMRs of these rules."""
        return set(self._run("touch", ids=list(rules)).fetchall())

    def change(self, rules: Iterable[int], more: int, ranged: Iterable[int]) -> None:
        """Store the selection changes from the results of these rules, except for the range groups `ranged`."""
        self._run("change_reasons", ids=list(rules), more=more, ranged=array_literal(ranged))

    def ranges(self, touched: GroupLmrPairs) -> dict[tuple[int, int], LmrRange]:
        rows = self._run("read_ranges", **_columns(touched)).fetchall() if touched else ()
        return {(row[0], row[1]): LmrRange(*row) for row in rows}

    def ranges_without(
        self, touched: GroupLmrPairs, rules: Collection[int]
    ) -> dict[tuple[int, int], tuple[Decimal | str, Decimal | str]]:
        """Return the least and greatest constants of LMRs in groups, without these rules."""
        rows = self._run("ranges_without", **_columns(touched), ids=array_literal(rules)).fetchall() if touched else ()
        return {
            (group, lmr): (least, greatest) if low is None else (low, high)
            for group, lmr, least, greatest, low, high in rows
        }

    def changed(self) -> int:
        """Return the number of selection changes that this transaction has stored."""
        row = self._run("count_changes").fetchone()
        return int(row[0]) if row else 0

    def add_counted(self, changes: Iterable[tuple[int, int, int]]) -> None:
        """Store selection changes that are already counted: LMR, resource, and the difference."""
        copy_rows(self._session, "reason_changes (lmr_id, resource_id, more)", changes)

    def extend_ranges(self, rules: Iterable[int], ranged: Collection[int]) -> None:
        """Extend ranges by the constants of new rules."""
        if ranged:
            self._run("extend_ranges", ids=list(rules), ranged=array_literal(ranged))

    def make_ranges(self, touched: GroupLmrPairs) -> None:
        """Compute ranges again from the current rules."""
        if touched:
            self._run("forget_ranges", **_columns(touched))
            self._run("make_ranges", **_columns(touched))

    def change_by_ranges(self, ranges: Iterable[tuple[LmrRange, int]]) -> None:
        """Store the selection changes from ranges, each with 1 or -1, for the resources whose values match."""
        items = [dict(range_._asdict(), more=more) for range_, more in ranges]
        self._run("change_range_reasons", ranges=json.dumps(items, default=str))

    def restart(self, ranged: Collection[int]) -> set[tuple[int, int]]:
        """Store the removal of all current selections, and delete all ranges. Return the groups and LMRs with
        ranges."""
        self._run("subtract_present")
        self._run("forget_all_ranges")
        return set(self._run("every_range", ranged=array_literal(ranged)).fetchall())

    def add_all(self) -> None:
        """Store the selection changes from the results of all end rules."""
        self._run("add_all")

    def _run(self, name: str, **values: object) -> psycopg.Cursor[Any]:
        return self._session.execute(self._sql[name], values, prepare=True)


def insert_selection_changes(found: Select[Any]) -> CompiledStatement:
    """Return the statement that stores `found`: LMR, resource, and the difference of the selection count."""
    return compile_statement(reason_changes.insert().from_select(["lmr_id", "resource_id", "more"], found))


def _columns(touched: GroupLmrPairs) -> dict[str, str]:
    return {"groups": array_literal(g for g, _ in touched), "lmrs": array_literal(lmr for _, lmr in touched)}
