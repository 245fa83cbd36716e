"""Reading an LMR's cache, in SQLite or Postgres: for queries, for lists of resources, and for its status."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    Table,
    and_,
    case,
    column,
    distinct,
    func,
    literal,
    literal_column,
    select,
    table,
    tuple_,
    union_all,
)
from sqlalchemy.exc import OperationalError

from mdv.db.browse import CHARACTERS, Bounded, Literal
from mdv.db.cache import in_parts, is_sqlite
from mdv.db.cache_tables import local_documents, resources, statements, vocabulary
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


@dataclass(frozen=True, slots=True)
class Standing:
    """What a cache knows of a URI. `present`: it came from the MDP; `local`: local metadata describes it; with neither
    it is only spoken of. `referrers`: strong references that hold it."""

    number: int
    present: bool
    selected: bool
    referrers: int
    local: bool


@dataclass(frozen=True, slots=True)
class Said:
    """A literal, and whether only local metadata says it."""

    literal: Literal
    local: bool


@dataclass(frozen=True, slots=True)
class Linked:
    """The other end of a reference. `here`: something is said of it in the cache; `after` is where its page goes on."""

    property: str
    uri: str
    here: bool
    strong: bool
    local: bool
    after: tuple[int, int]


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


# For pages: nothing here reads more than a page and what its bounds say


def count_instances(connection: Connection, classes: Collection[str], most: int) -> Bounded:
    """How many instances some classes have together; at most so many are counted."""
    s = statements.c
    numbers = list(resource_numbers(connection, classes).values())
    if not numbers:
        return Bounded(0, False)
    some = select(s.resource_id).where(s.target_id.in_(numbers), s.property_id == _type_number()).limit(most).subquery()
    looked, found = connection.execute(select(func.count(), func.count(distinct(some.c.resource_id)))).one()
    return Bounded(found, looked >= most)


def find_beginning(connection: Connection, beginning: str, after: str, limit: int) -> list[tuple[int, str]]:
    """A page of the (number, URI) that begin so."""
    r = resources.c
    page = select(r.id, r.uri).where(r.uri >= beginning, r.uri < beginning + "\U0010ffff", r.uri > after)
    return [(number, uri) for number, uri in connection.execute(page.order_by(r.uri).limit(limit))]


def standings(connection: Connection, numbers: Sequence[int]) -> dict[int, Standing]:
    """How these resources, not many, stand in the cache."""
    r, s = resources.c, statements.c
    local = select(literal_column("1")).where(s.resource_id == r.id, s.document_id != literal_column("0")).exists()
    rows = connection.execute(select(r.id, r.present, r.selected, r.referrers, local).where(r.id.in_(numbers)))
    return {row[0]: Standing(*row) for row in rows}


def literals(connection: Connection, resource: int, after: tuple[int, int], limit: int) -> list[tuple[int, Said]]:
    """A page of the literals of a resource, long ones cut, each with the number of its property: by that and by its
    hash the pages go."""
    s = statements.c
    key = (s.property_id, s.hash)
    page = (
        select(*key, func.min(s.document_id).label("document_id"))
        .where(s.resource_id == resource, s.value.is_not(None), tuple_(*key) > tuple_(*_constants(after)))
        .group_by(*key)
        .order_by(*key)
        .limit(limit)
        .subquery()
    )
    its = statements.alias("its")
    name, datatype = vocabulary.alias("name"), vocabulary.alias("datatype")
    same = [its.c.resource_id == resource, *(its.c[part.name] == part for part in page.c)]
    rows = (
        select(name.c.uri, its.c.hash, func.substr(its.c.value, 1, CHARACTERS), func.length(its.c.value), its.c.lang,
               datatype.c.uri, its.c.document_id, its.c.property_id)
        .join_from(page, its, and_(*same))
        .join(name, name.c.id == its.c.property_id)
        .outerjoin(datatype, datatype.c.id == its.c.datatype_id)
        .order_by(its.c.property_id, its.c.hash)
    )  # fmt: skip
    return [
        (number, Said(Literal(iri, hash_, text, length, length <= CHARACTERS, lang, kind), document != 0))
        for iri, hash_, text, length, lang, kind, document, number in connection.execute(rows)
    ]


def whole_value(connection: Connection, resource: int, property_iri: str, hash_: int) -> str | None:
    """A literal in full."""
    s = statements.c
    number = select(vocabulary.c.id).where(vocabulary.c.uri == property_iri).scalar_subquery()
    which = (s.resource_id == resource, s.property_id == number, s.hash == hash_, s.value.is_not(None))
    return connection.scalar(select(s.value).where(*which).limit(1))


def references(connection: Connection, resource: int, after: tuple[int, int], limit: int) -> list[Linked]:
    """A page of what a resource refers to, its classes aside."""
    s = statements.c
    which = [s.resource_id == resource, s.target_id.is_not(None), s.property_id != _type_number()]
    return _linked(connection, which, s.target_id, after, limit)


def referrers(connection: Connection, resource: int, after: tuple[int, int], limit: int) -> list[Linked]:
    """A page of what refers to a resource."""
    return _linked(connection, [statements.c.target_id == resource], statements.c.resource_id, after, limit)


def strong_referrers(
    connection: Connection, resource: int, properties: Collection[str] | None, limit: int
) -> list[tuple[str, str]]:
    """Some of the (URI, property) that hold a resource by strong references, which only these properties (None: any)
    can be."""
    s = statements.c
    page = select(s.resource_id, s.property_id).where(s.target_id == resource, s.strong)
    if properties is not None:
        page = page.where(s.property_id.in_(list(vocabulary_numbers(connection, properties).values())))
    some = page.distinct().limit(limit).subquery()
    rows = (
        select(resources.c.uri, vocabulary.c.uri)
        .join_from(some, resources, resources.c.id == some.c.resource_id)
        .join(vocabulary, vocabulary.c.id == some.c.property_id)
        .order_by(resources.c.uri, vocabulary.c.uri)
    )
    return [(uri, name) for uri, name in connection.execute(rows)]


def describing_documents(connection: Connection, resource: int, limit: int) -> list[str]:
    """Some of the local documents that describe a resource."""
    s = statements.c
    ids = select(s.document_id).where(s.resource_id == resource, s.document_id != literal_column("0"))
    page = select(local_documents.c.uri).where(local_documents.c.id.in_(ids)).order_by(local_documents.c.uri)
    return list(connection.scalars(page.limit(limit)))


def _linked(
    connection: Connection, which: Sequence[ColumnElement[bool]], other: Any, after: tuple[int, int], limit: int
) -> list[Linked]:
    s = statements.c
    key = (s.property_id, other)
    strength = func.max(case((s.strong, 1), else_=0)).label("strong")
    page = (
        select(s.property_id, other.label("other"), strength, func.min(s.document_id).label("document"))
        .where(*which, tuple_(*key) > tuple_(*_constants(after)))
        .group_by(*key)
        .order_by(*key)
        .limit(limit)
        .subquery()
    )
    its = statements.alias("its")
    here = select(literal_column("1")).where(its.c.resource_id == resources.c.id).exists()
    rows = (
        select(page, vocabulary.c.uri, resources.c.uri, here)
        .join_from(page, vocabulary, vocabulary.c.id == page.c.property_id)
        .join(resources, resources.c.id == page.c.other)
        .order_by(page.c.property_id, page.c.other)
    )
    return [
        Linked(name, uri, found, bool(strong), document != 0, (number, other_number))
        for number, other_number, strong, document, name, uri, found in connection.execute(rows)
    ]


def _constants(numbers: Sequence[int]) -> list[ColumnElement[int]]:
    return [literal(number, BigInteger) for number in numbers]


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
