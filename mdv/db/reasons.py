"""Reasons of LMRs to select resources, as they change with rules."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from decimal import Decimal
from typing import Any, NamedTuple

import psycopg
from sqlalchemy import Connection, Select

from mdv.db.copy import array_field
from mdv.db.engine import driver
from mdv.db.filter import Compiled, compiled
from mdv.db.statements import statements
from mdv.db.tables import reason_changes

Touched = Collection[tuple[int, int]]
"""Groups, each with an LMR that has, or had, rules in it."""


class StoredEnd(NamedTuple):
    """An end rule that is stored, with its group and its constants."""

    rule_id: int
    group_id: int
    constants: tuple[Decimal | str, ...]

    @property
    def values(self) -> dict[str, Decimal | str]:
        """The constants as the parameters of its group."""
        return {f"constant{number}": value for number, value in enumerate(self.constants)}


class Range(NamedTuple):
    """Of an LMR's rules in a group that match stretches of constants, the least constant and the greatest."""

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


class Reasons:
    """The statements about reasons, for one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._session: psycopg.Connection[Any] = driver(connection)
        self._sql = statements("reasons")

    def ends(self, rules: Iterable[int]) -> list[StoredEnd]:
        """Where these rules end."""
        found: dict[tuple[int, int], list[Decimal | str]] = defaultdict(list)
        for end, group, place, number, value in self._run("read_ends", ids=list(rules)).fetchall():
            constants = found[end, group]
            if place is not None:
                constants.append(value if number is None else number)
        return [StoredEnd(end, group, tuple(constants)) for (end, group), constants in found.items()]

    def touched(self, rules: Iterable[int]) -> set[tuple[int, int]]:
        """The groups and LMRs that these rules concern."""
        return set(self._run("touch", ids=list(rules)).fetchall())

    def change(self, rules: Iterable[int], more: int, ranged: Iterable[int]) -> None:
        """Count what was found for the end rules of these rules; `ranged` are groups that are counted otherwise."""
        self._run("change_reasons", ids=list(rules), more=more, ranged=array_field(ranged))

    def ranges(self, touched: Touched) -> dict[tuple[int, int], Range]:
        rows = self._run("read_ranges", **_columns(touched)).fetchall() if touched else ()
        return {(row[0], row[1]): Range(*row) for row in rows}

    def extend_ranges(self, rules: Iterable[int], ranged: Collection[int]) -> None:
        """Let ranges include the constants of rules that are new."""
        if ranged:
            self._run("extend_ranges", ids=list(rules), ranged=array_field(ranged))

    def make_ranges(self, touched: Touched) -> None:
        """Make ranges anew from the rules that there are."""
        if touched:
            self._run("forget_ranges", **_columns(touched))
            self._run("make_ranges", **_columns(touched))

    def change_by_ranges(self, ranges: Iterable[tuple[Range, int]]) -> None:
        """Count, by how far values reach, what these ranges match: as more, or as less."""
        items = [dict(range_._asdict(), more=more) for range_, more in ranges]
        self._run("change_range_reasons", ranges=json.dumps(items, default=str))

    def begin_anew(self, ranged: Collection[int]) -> set[tuple[int, int]]:
        """Take every reason for gone; the groups and LMRs that have ranges."""
        self._run("subtract_present")
        self._run("forget_all_ranges")
        return set(self._run("every_range", ranged=array_field(ranged)).fetchall())

    def add_all(self) -> None:
        """Count what was found for all end rules."""
        self._run("add_all")

    def _run(self, name: str, **values: object) -> psycopg.Cursor[Any]:
        return self._session.execute(self._sql[name], values, prepare=True)


def keep_reasons(found: Select[Any]) -> Compiled:
    """The statement that keeps `found`: an LMR, a resource, and how many reasons more."""
    return compiled(reason_changes.insert().from_select(["lmr_id", "resource_id", "more"], found))


def _columns(touched: Touched) -> dict[str, str]:
    return {"groups": array_field(g for g, _ in touched), "lmrs": array_field(lmr for _, lmr in touched)}
