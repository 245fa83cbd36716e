"""Reading an LMR's cache, in SQLite or Postgres: for queries, for lists of resources, and for its status."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    column,
    distinct,
    func,
    literal_column,
    select,
    table,
    union_all,
)
from sqlalchemy.exc import OperationalError

from mdv.db.cache import in_parts, is_sqlite
from mdv.db.cache_tables import resources, statements, vocabulary
from mdv.db.query import reading as reading_postgres
from mdv.errors import TooCostly
from mdv.model import RDF_TYPE, RDFS_RESOURCE, Statement, Term

_ASKED = ("resource_id", "target_id", "property_id", "datatype_id", "value", "lang", "number", "instant", "truth")

ALL_STATEMENTS = table(statements.name, *(column(name, statements.c[name].type) for name in _ASKED))
"""The statements of the MDP and local ones together, without what queries never look at: each mention of a table in a
query costs by its columns."""

_INSTRUCTIONS = 20_000
"""Of SQLite between two looks at the clock: about a millisecond."""


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """What a cache holds: all that came from the MDP; of that, what rules select, and what is here for strong
    references alone; and what local metadata describes."""

    resources: int
    roots: int
    strong: int
    local: int


@contextmanager
def reading(connection: Connection, seconds: float, what: str) -> Iterator[None]:
    """Read one moment; it may take so many seconds. `what` says what took longer."""
    if is_sqlite(connection):
        with _reading_sqlite(connection, seconds, what):
            yield
        return
    with reading_postgres(connection, seconds, what):
        yield


@contextmanager
def _reading_sqlite(connection: Connection, seconds: float, what: str) -> Iterator[None]:
    if not connection.in_transaction():
        connection.begin()
    session = cast("sqlite3.Connection", connection.connection.driver_connection)
    until = time.monotonic() + seconds
    session.set_progress_handler(lambda: time.monotonic() > until, _INSTRUCTIONS)
    try:
        yield
    except (OperationalError, sqlite3.OperationalError) as error:
        if time.monotonic() > until and "interrupted" in str(error):
            raise TooCostly(what) from None
        raise
    finally:
        session.set_progress_handler(None, 0)


def read_rows(connection: Connection, statement: Select[Any]) -> Sequence[Any]:
    """The rows of a statement."""
    return connection.execute(statement).all()


def read_one_by_one(connection: Connection, statement: Select[Any]) -> Iterator[Any]:
    """The rows of a statement, a few of them in memory at a time."""
    options = {"stream_results": True, "max_row_buffer": 100}
    with connection.execute(statement, execution_options=options) as rows:
        yield from rows


def resource_numbers(connection: Connection, uris: Collection[str]) -> dict[str, int]:
    """The numbers of those URIs that the cache speaks of."""
    return _numbers(connection, resources, uris)


def vocabulary_numbers(connection: Connection, uris: Collection[str]) -> dict[str, int]:
    """The numbers of those properties and datatypes that the cache knows."""
    return _numbers(connection, vocabulary, uris)


def _numbers(connection: Connection, names: Table, uris: Collection[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for some in in_parts(uris):
        rows = connection.execute(select(names.c.uri, names.c.id).where(names.c.uri.in_(some)))
        found |= {row.uri: row.id for row in rows}
    return found


def classes_of(connection: Connection, numbers: Collection[int]) -> dict[int, list[str]]:
    """The direct classes of these resources."""
    s, found = statements.c, dict[int, list[str]]()
    for some in in_parts(numbers):
        rows = (
            select(s.resource_id, resources.c.uri)
            .join_from(statements, resources, resources.c.id == s.target_id)
            .where(s.resource_id.in_(some), s.property_id == _type_number())
            .distinct()
            .order_by(s.resource_id, resources.c.uri)
        )
        for number, uri in connection.execute(rows):
            found.setdefault(number, []).append(uri)
    return {number: found.get(number, [RDFS_RESOURCE]) for number in numbers}


def statements_of(connection: Connection, numbers: Collection[int]) -> list[Statement]:
    """What the MDP and local metadata say of these resources, each statement once."""
    return [
        statement
        for some in in_parts(numbers)
        for statement in _decoded(connection, statements.c.resource_id.in_(some))
    ]


def resource_statements(connection: Connection, uri: str) -> list[Statement]:
    """What the MDP and local metadata say of a resource."""
    number = select(resources.c.id).where(resources.c.uri == uri).scalar_subquery()
    return _decoded(connection, statements.c.resource_id == number)


def list_resources(
    connection: Connection, classes: Sequence[str] | None, after: int, limit: int
) -> list[tuple[int, str, list[str]]]:
    """A page of (number, URI, direct classes) of the instances of any of `classes`, or of all described resources.

    rdfs:Resource is the class of everything.
    """
    s, r = statements.c, resources.c
    if classes is None or RDFS_RESOURCE in classes:
        described = select(literal_column("1")).where(s.resource_id == r.id).exists()
        page = select(r.id).where(r.id > after, described).order_by(r.id).limit(limit)
    else:
        page = _instances(connection, classes, after, limit)
    ids = list(connection.scalars(page))
    typed = classes_of(connection, ids)
    names = connection.execute(select(r.id, r.uri).where(r.id.in_(ids)).order_by(r.id))
    return [(number, uri, typed[number]) for number, uri in names]


def count_cache(connection: Connection) -> CacheCounts:
    """How much is in the cache."""
    r, s = resources.c, statements.c
    # Written as the index has it.
    present = select(func.count(), func.count().filter(r.selected)).where(literal_column("present"))
    whole, roots = connection.execute(present.select_from(resources)).one()
    local = connection.scalar(select(func.count(distinct(s.resource_id))).where(s.document_id != literal_column("0")))
    return CacheCounts(whole, roots, whole - roots, local or 0)


def _instances(connection: Connection, classes: Sequence[str], after: int, limit: int) -> Select[Any]:
    """The first instances of each class, and of these the first: the index has them in this order."""
    s = statements.c
    of_class = [
        select(s.resource_id)
        .where(s.target_id == number, s.property_id == _type_number(), s.resource_id > after)
        .distinct()
        .order_by(s.resource_id)
        .limit(limit)
        .subquery()
        for number in resource_numbers(connection, classes).values()
    ]
    if not of_class:
        return select(s.resource_id).where(literal_column("1") == literal_column("0"))
    every = union_all(*(select(part.c.resource_id) for part in of_class)).subquery()
    return select(every.c.resource_id).distinct().order_by(every.c.resource_id).limit(limit)


def _type_number() -> Any:
    return select(vocabulary.c.id).where(vocabulary.c.uri == RDF_TYPE).scalar_subquery()


def _decoded(connection: Connection, which: ColumnElement[bool]) -> list[Statement]:
    s = statements.c
    rows = (
        select(s.resource_id, s.property_id, s.target_id, s.value, s.lang, s.datatype_id)
        .where(which)
        .distinct()
        .subquery("said")
    )
    target, subject = resources.alias("target"), resources.alias("subject")
    name, datatype = vocabulary.alias("name"), vocabulary.alias("datatype")
    query = (
        select(subject.c.uri, name.c.uri, target.c.uri, rows.c.value, rows.c.lang, datatype.c.uri)
        .join_from(rows, subject, subject.c.id == rows.c.resource_id)
        .join(name, name.c.id == rows.c.property_id)
        .outerjoin(target, target.c.id == rows.c.target_id)
        .outerjoin(datatype, datatype.c.id == rows.c.datatype_id)
    )
    return [
        Statement(s, p, Term.uri(o) if o is not None else Term.literal(value, lang, kind))
        for s, p, o, value, lang, kind in connection.execute(query)
    ]
