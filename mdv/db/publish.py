"""Publication's statements, run: from what the filter found to events in the feeds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import psycopg
from sqlalchemy import Connection

from mdv.db.engine import driver, together
from mdv.db.statements import statements


class References(NamedTuple):
    """Strong references that came, as sources and targets; and the targets of those that went."""

    sources: Sequence[int] = ()
    targets: Sequence[int] = ()
    lost: Collection[int] = ()


class Published(NamedTuple):
    """How many events there were, for how many LMRs."""

    events: int
    lmrs: int


class Publication:
    """One publication, within the transaction at `tx`. Nothing is waited for until its answer is asked."""

    def __init__(self, connection: Connection, tx: int, last_offset: int, strong: Iterable[int]) -> None:
        self._session: psycopg.Connection[Any] = driver(connection)
        self._sql = statements("publish")
        self._tx = tx
        self._last_offset = last_offset
        self._strong = numbers_field(strong)

    def of_changes(
        self, changed: Iterable[int], gone: Collection[int], references: References
    ) -> Callable[[], Published]:
        """After a run of the filter: what changed, what is gone, and which strong references came and went."""
        with together(self._session):
            self._run("begin_publication")
            self._run("count_reasons")
            if gone:
                self._run("note_gone", gone=numbers_field(gone))
            return self._finish(changed, references)

    def of_rules(self) -> Callable[[], Published]:
        """After rules came, changed or went: the reasons that `reason_changes` holds."""
        with together(self._session):
            self._run("begin_publication")
            self._run("count_rule_reasons")
            self._run("clear_reason_changes")
            return self._finish((), References())

    def of_schema(self, stronger: Collection[int], weaker: Collection[int]) -> Callable[[], Published]:
        """After a change of the schema: the reasons that `reason_changes` holds, and properties that became strong, or
        ceased to be. Every LMR is told the schema."""
        with together(self._session):
            self._run("begin_publication")
            self._run("count_rule_reasons")
            self._run("clear_reason_changes")
            if stronger:
                self._run("note_new_strong", stronger=numbers_field(stronger), strong=self._strong)
            if weaker:
                self._run("doubt_weaker", weaker=numbers_field(weaker))
                self._run("doubt_onward", strong=self._strong)
            return self._finish((), References(), schema=True)

    def _finish(self, changed: Iterable[int], references: References, schema: bool = False) -> Callable[[], Published]:
        sources, targets = numbers_field(references.sources), numbers_field(references.targets)
        self._run("enter", sources=sources, targets=targets, strong=self._strong)
        self._run("doubt", lost=numbers_field(references.lost), strong=self._strong)
        self._run("trust", strong=self._strong)
        if schema:
            self._run("note_leaving")
        self._run("leave")
        self._run("note_changed", changed=numbers_field(changed))
        told = self._run("write_feed", tx=self._tx, last_offset=self._last_offset, schema=schema)
        return cache(lambda: Published(*(told.fetchone() or (0, 0))))

    def told_of(self) -> dict[int, list[int]]:
        """By resource, the LMRs that were told of it."""
        return dict(self._run("told_of").fetchall())

    def names_told(self, most: int) -> list[str]:
        """The names of those that were told of something."""
        return [name for (name,) in self._run("names_told", tx=self._tx, most=most).fetchall()]

    def _run(self, name: str, **values: object) -> psycopg.Cursor[Any]:
        return self._session.execute(self._sql[name], values, prepare=True)


def numbers_field(numbers: Iterable[int]) -> str:
    """Numbers as an array is written, which is faster than a list of them.

    >>> numbers_field([3, 4])
    '{3,4}'
    """
    return "{" + ",".join(map(str, numbers)) + "}"
