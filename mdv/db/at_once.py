"""Several writes as one statement, which costs one planning and one answer.

They see the same state, so none may look for what another one writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from mdv.db.exchange import Answer, Exchange

PREPARED = 40
"""A statement of up to so many rows is prepared: larger ones are seldom of the same shape twice."""

Shape = tuple[str, str, str, str, int, int]
"""One write: its beginning in three parts, its end, and how many rows of how many values stand between."""

ANSWER = "answered"
"""What the answer of the write is called that has one."""


class AtOnce:
    """Writes that are gathered, and sent together."""

    def __init__(self) -> None:
        self._shapes: list[Shape] = []
        self._values: list[str | None] = []
        self._rows = 0

    def insert(self, target: str, rows: Sequence[Sequence[str | None]]) -> None:
        """Rows into `target`, a table with its columns; nothing at all where there is none."""
        self._add("insert into", target, "values", "", rows)

    def add(self, table: str, key: str, column: str, more: Iterable[tuple[int, int]], answer: str = "") -> None:
        """Add so much to a column of the rows `t` of `table` with these keys. `answer`: what is to be known of each."""
        rows = [(str(one), str(count)) for one, count in more if count]
        if rows:
            changed = f"{table} t set {column} = t.{column} + m.more::int from"
            end = f") as m (key, more) where t.{key} = m.key::bigint" + (f" returning {answer}" if answer else "")
            self._add("update", changed, "(values", end, rows)

    def set(self, table: str, values: Mapping[str, str]) -> None:
        """Set columns of the one row of `table`."""
        self._add("update", table, f"set ({', '.join(values)}) = row", "", [tuple(values.values())])

    def empty(self, *tables: str) -> None:
        """Leave nothing in these tables."""
        self._shapes += [("delete from", table, "", "", 0, 0) for table in tables]

    def ask(self, exchange: Exchange, then: str) -> Answer:
        """Write when the exchange takes place; the answer is that of `then`, a select."""
        return exchange.ask(_statement(tuple(self._shapes), then), self._values, self._rows <= PREPARED)

    def _add(self, verb: str, what: str, how: str, end: str, rows: Sequence[Sequence[str | None]]) -> None:
        if rows:
            self._shapes.append((verb, what, how, end, len(rows), len(rows[0])))
            self._rows += len(rows)
            for row in rows:
                self._values += row


@lru_cache(maxsize=200)
def _statement(shapes: tuple[Shape, ...], then: str) -> str:
    r"""The statement of some writes.

    >>> one, other = ("insert into", "a", "values", "", 2, 1), ("insert into", "b", "values", "", 1, 2)
    >>> print(_statement((one, other), "select 1"))
    with w0 as (insert into a values ($1), ($2)),
    w1 as (insert into b values ($3, $4))
    select 1
    """
    writes, place = [], 0
    for number, (verb, what, how, end, rows, width) in enumerate(shapes):
        firsts = range(place + 1, place + rows * width + 1, width or 1)
        values = ", ".join("(" + ", ".join(f"${first + at}" for at in range(width)) + ")" for first in firsts)
        place += rows * width
        name = ANSWER if "returning" in end else f"w{number}"
        writes.append(f"{name} as ({verb} {what} {how} {values}{end})")
    return "with " + ",\n".join(writes) + f"\n{then}" if writes else then
