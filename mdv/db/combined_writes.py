"""Combine several writes into one statement with CTEs, which is planned once and returns one result.

All writes see the same snapshot, so none of them may read rows that another one writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from mdv.db.pipeline import PendingResult, Pipeline

MAX_PREPARED_ROWS = 40
"""Statements with up to this many rows are prepared. Larger ones rarely have the same shape twice."""

WriteShape = tuple[str, str, str, str, int, int]
"""One write: its beginning in three parts, its end, the number of rows, and the number of values in a row."""

RESULT_CTE = "answered"
"""The name of the CTE of the write that returns rows."""


class CombinedWrites:
    """Collects writes that are sent as one statement."""

    def __init__(self) -> None:
        self._shapes: list[WriteShape] = []
        self._values: list[str | None] = []
        self._rows = 0

    def insert(self, target: str, rows: Sequence[Sequence[str | None]]) -> None:
        """Insert rows into `target`, a table with its columns. Without rows, do nothing."""
        self._add("insert into", target, "values", "", rows)

    def add(self, table: str, key: str, column: str, more: Iterable[tuple[int, int]], answer: str = "") -> None:
        """Add numbers to a column of the rows `t` of `table` with these keys. `answer`: the columns to return."""
        rows = [(str(one), str(count)) for one, count in more if count]
        if rows:
            changed = f"{table} t set {column} = t.{column} + m.more::int from"
            end = f") as m (key, more) where t.{key} = m.key::bigint" + (f" returning {answer}" if answer else "")
            self._add("update", changed, "(values", end, rows)

    def set(self, table: str, values: Mapping[str, str]) -> None:
        """Set columns of the one row of `table`."""
        self._add("update", table, f"set ({', '.join(values)}) = row", "", [tuple(values.values())])

    def empty(self, *tables: str) -> None:
        """Delete all rows of these tables."""
        self._shapes += [("delete from", table, "", "", 0, 0) for table in tables]

    def queue(self, pipeline: Pipeline, then: str) -> PendingResult:
        """Queue the writes in the pipeline. The result is that of `then`, a select."""
        return pipeline.queue(_statement(tuple(self._shapes), then), self._values, self._rows <= MAX_PREPARED_ROWS)

    def _add(self, verb: str, what: str, how: str, end: str, rows: Sequence[Sequence[str | None]]) -> None:
        if rows:
            self._shapes.append((verb, what, how, end, len(rows), len(rows[0])))
            self._rows += len(rows)
            for row in rows:
                self._values += row


@lru_cache(maxsize=200)
def _statement(shapes: tuple[WriteShape, ...], then: str) -> str:
    r"""Return the SQL text for some writes.

    >>> one, other = ("insert into", "a", "values", "", 2, 1), ("insert into", "b", "values", "", 1, 2)
    >>> print(_statement((one, other), "select 1"))
    with w0 as (insert into a values ($1), ($2)),
    w1 as (insert into b values ($3, $4))
    select 1
    """
    writes, used = [], 0
    for number, (verb, what, how, end, rows, width) in enumerate(shapes):
        firsts = range(used + 1, used + rows * width + 1, width or 1)
        values = ", ".join("(" + ", ".join(f"${first + at}" for at in range(width)) + ")" for first in firsts)
        used += rows * width
        name = RESULT_CTE if "returning" in end else f"w{number}"
        writes.append(f"{name} as ({verb} {what} {how} {values}{end})")
    return "with " + ",\n".join(writes) + f"\n{then}" if writes else then
