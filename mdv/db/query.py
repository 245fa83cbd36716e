"""Read query results within a time limit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from mdv.db.engine import driver
from mdv.db.filter import CompiledStatement
from mdv.errors import TooCostly

FETCH_SIZE = 100
"""Number of rows in one fetch."""


class TimeLimit:
    """A time limit for a read with any number of statements. Without a connection, only the local clock is checked."""

    def __init__(self, connection: Connection | None, seconds: float, what: str) -> None:
        self._connection, self._what = connection, what
        self._until = time.monotonic() + seconds

    def renew(self) -> None:
        """Limit the next statement to the remaining time. Raise `TooCostly` if none remains."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TooCostly(self._what)
        if self._connection is not None:
            within = {"most": f"{max(1, int(left * 1000))}ms"}
            self._connection.execute(text("select set_config('statement_timeout', :most, true)"), within)


@contextmanager
def time_limited_read(connection: Connection, seconds: float, what: str) -> Iterator[TimeLimit]:
    """Read one snapshot in a read-only transaction. The time limit holds for each statement, and for all statements
    together if `renew` is called before each. `what` is the message of the error if it is exceeded."""
    if not connection.in_transaction():
        connection.execute(text("set transaction isolation level repeatable read, read only"))
    connection.execute(text("select set_config('jit', 'off', true)"))
    limit = TimeLimit(connection, seconds, what)
    limit.renew()
    try:
        yield limit
    except OperationalError as error:
        if isinstance(error.orig, psycopg.errors.QueryCanceled):
            raise TooCostly(what) from None
        raise
    except psycopg.errors.QueryCanceled:
        raise TooCostly(what) from None


def read_rows(connection: Connection, made: CompiledStatement, limit: TimeLimit | None = None) -> Sequence[Any]:
    """Return the rows of a statement, within the remaining time."""
    if limit is not None:
        limit.renew()
    return connection.exec_driver_sql(made.sql, made.fixed).all()


def stream_rows(connection: Connection, made: CompiledStatement, limit: TimeLimit) -> Iterator[Any]:
    """Yield the rows of a statement within the remaining time, with only a few in memory."""
    with driver(connection).cursor(name="rows") as cursor:
        limit.renew()
        cursor.execute(made.sql, made.fixed)  # a server-side cursor: this only plans the statement
        limit.renew()
        while part := cursor.fetchmany(FETCH_SIZE):
            yield from part
            limit.renew()
