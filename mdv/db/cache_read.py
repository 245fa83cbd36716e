"""Read an LMR's cache for queries, in SQLite or Postgres."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Subquery,
    Table,
    column,
    select,
    table,
)
from sqlalchemy.exc import OperationalError

from mdv.db.cache import chunked, is_sqlite
from mdv.db.cache_tables import resources, statements, vocabulary
from mdv.db.query import FETCH_SIZE, TimeLimit
from mdv.db.query import time_limited_read as reading_postgres
from mdv.errors import TooCostly
from mdv.model import RDF_TYPE, RDFS_RESOURCE, Statement, Term

_ASKED = ("resource_id", "target_id", "property_id", "datatype_id", "value", "lang", "number", "instant", "truth")

ALL_STATEMENTS = table(statements.name, *(column(name, statements.c[name].type) for name in _ASKED))
"""Global and local statements, without the columns that queries do not use: the cost of compiling a query grows with
the columns of its tables."""

_INSTRUCTIONS = 20_000
"""SQLite instructions between two checks of the time limit: about a millisecond."""


@contextmanager
def time_limited_read(connection: Connection, seconds: float, what: str) -> Iterator[TimeLimit]:
    """Read one snapshot within a time limit. `what` is the message of the error if it is exceeded."""
    with (_reading_sqlite if is_sqlite(connection) else reading_postgres)(connection, seconds, what) as limit:
        yield limit


@contextmanager
def _reading_sqlite(connection: Connection, seconds: float, what: str) -> Iterator[TimeLimit]:
    if not connection.in_transaction():
        connection.begin()
    session = cast("sqlite3.Connection", connection.connection.driver_connection)
    until = time.monotonic() + seconds
    session.set_progress_handler(lambda: time.monotonic() > until, _INSTRUCTIONS)
    try:
        yield TimeLimit(None, seconds, what)
    except (OperationalError, sqlite3.OperationalError) as error:
        if time.monotonic() > until and "interrupted" in str(error):
            raise TooCostly(what) from None
        raise
    finally:
        session.set_progress_handler(None, 0)


def read_rows(connection: Connection, statement: Select[Any], limit: TimeLimit) -> Sequence[Any]:
    """Return the rows of a statement, within the remaining time."""
    limit.renew()
    return connection.execute(statement).all()


def stream_rows(connection: Connection, statement: Select[Any], limit: TimeLimit) -> Iterator[Any]:
    """Yield the rows of a statement within the remaining time, with only a few in memory."""
    limit.renew()
    options = {"stream_results": True, "yield_per": FETCH_SIZE}
    with connection.execute(statement, execution_options=options) as rows:
        for part in rows.partitions():
            yield from part
            limit.renew()


def find_resource_ids(connection: Connection, uris: Collection[str]) -> dict[str, int]:
    """Return the IDs of those URIs that are in the cache."""
    return _numbers(connection, resources, uris)


def find_vocabulary_ids(connection: Connection, uris: Collection[str]) -> dict[str, int]:
    """Return the IDs of those properties and datatypes that are in the cache."""
    return _numbers(connection, vocabulary, uris)


def _numbers(connection: Connection, names: Table, uris: Collection[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for some in chunked(uris):
        rows = connection.execute(select(names.c.uri, names.c.id).where(names.c.uri.in_(some)))
        found |= {row.uri: row.id for row in rows}
    return found


def read_classes(connection: Connection, numbers: Collection[int]) -> dict[int, list[str]]:
    """Return the direct classes of these resources."""
    s, found = statements.c, dict[int, list[str]]()
    for some in chunked(numbers):
        rows = (
            select(s.resource_id, resources.c.uri)
            .join_from(statements, resources, resources.c.id == s.target_id)
            .where(s.resource_id.in_(some), s.property_id == select_type_id())
            .distinct()
            .order_by(s.resource_id, resources.c.uri)
        )
        for number, uri in connection.execute(rows):
            found.setdefault(number, []).append(uri)
    return {number: found.get(number, [RDFS_RESOURCE]) for number in numbers}


def read_statements(connection: Connection, numbers: Collection[int], most: int) -> list[Statement] | None:
    """Return the distinct global and local statements about these resources; None if there are more than `most`."""
    found: list[Statement] = []
    for some in chunked(numbers):
        rows = select_encoded(statements.c.resource_id.in_(some)).limit(most + 1 - len(found)).subquery("said")
        found += map(decode_statement, connection.execute(select_named(rows)))
        if len(found) > most:
            return None
    return list(dict.fromkeys(found))


def select_type_id() -> Any:
    """Return the ID of rdf:type as a subquery."""
    return select(vocabulary.c.id).where(vocabulary.c.uri == RDF_TYPE).scalar_subquery()


def select_encoded(which: ColumnElement[bool]) -> Select[Any]:
    """Select statements with IDs in place of URIs."""
    s = statements.c
    return select(s.resource_id, s.property_id, s.target_id, s.value, s.lang, s.datatype_id).where(which)


def select_named(rows: Subquery) -> Select[Any]:
    """Select the URIs of encoded statements. `decode_statement` reads the rows."""
    target, subject = resources.alias("target"), resources.alias("subject")
    name, datatype = vocabulary.alias("name"), vocabulary.alias("datatype")
    return (
        select(subject.c.uri, name.c.uri, target.c.uri, rows.c.value, rows.c.lang, datatype.c.uri)
        .join_from(rows, subject, subject.c.id == rows.c.resource_id)
        .join(name, name.c.id == rows.c.property_id)
        .outerjoin(target, target.c.id == rows.c.target_id)
        .outerjoin(datatype, datatype.c.id == rows.c.datatype_id)
    )


def decode_statement(row: Any) -> Statement:
    s, p, o, value, lang, kind = row
    return Statement(s, p, Term.uri(o) if o is not None else Term.literal(value, lang, kind))
