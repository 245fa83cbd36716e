"""What queries read: rows of a statement within a time, and what belongs to the resources that it found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import Connection, select, text
from sqlalchemy.exc import OperationalError

from mdv.db.filter import Compiled
from mdv.db.read import decode, direct_classes, encoded
from mdv.db.tables import filter_data
from mdv.errors import TooCostly
from mdv.model import RDFS_RESOURCE, Statement


@contextmanager
def reading(connection: Connection, seconds: float, what: str) -> Iterator[None]:
    """Read one moment and change nothing; each statement may take so many seconds. `what` says what took longer."""
    if not connection.in_transaction():
        connection.execute(text("set transaction isolation level repeatable read, read only"))
    within = {"most": f"{max(1, int(seconds * 1000))}ms"}
    connection.execute(
        text("select set_config('statement_timeout', :most, true), set_config('jit', 'off', true)"), within
    )
    try:
        yield
    except OperationalError as error:
        if isinstance(error.orig, psycopg.errors.QueryCanceled):
            raise TooCostly(what) from None
        raise
    except psycopg.errors.QueryCanceled:
        raise TooCostly(what) from None


def read_rows(connection: Connection, made: Compiled) -> Sequence[Any]:
    """The rows of a statement."""
    return connection.exec_driver_sql(made.sql, made.fixed).all()


def read_one_by_one(connection: Connection, made: Compiled) -> Iterator[Any]:
    """The rows of a statement, a few of them in memory at a time."""
    options = {"stream_results": True, "max_row_buffer": 100}
    with connection.exec_driver_sql(made.sql, made.fixed, execution_options=options) as rows:
        yield from rows


def classes_of(connection: Connection, numbers: Sequence[int]) -> dict[int, list[str]]:
    """The direct classes of these resources."""
    found = direct_classes(connection, numbers)
    return {number: found.get(number, [RDFS_RESOURCE]) for number in numbers}


def statements_of(connection: Connection, numbers: Sequence[int]) -> list[Statement]:
    """What all documents together say of these resources."""
    rows = select(*encoded(filter_data.c)).where(filter_data.c.resource_id.in_(numbers)).distinct()
    return decode(connection, rows.subquery())
