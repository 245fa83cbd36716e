"""The cache of an LMR as stored: its state, numbers of URIs, statements, what is staged, local documents.

Everything works on SQLite and Postgres alike. Rows are written in bulk: by the driver's own loop on SQLite, by COPY on
Postgres. Long lists of numbers are asked in parts, since databases bound the values of a statement.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import sqlalchemy
from sqlalchemy import Connection, Engine, Table, bindparam, delete, event, exists, func, insert, select, true, update
from sqlalchemy.sql.expression import ColumnElement

from mdv.db.cache_tables import (
    FORMAT,
    GLOBAL,
    lmr_state,
    local_documents,
    metadata,
    resources,
    staged,
    statements,
    vocabulary,
)
from mdv.db.copy import copy_rows
from mdv.db.engine import driver, make_engine
from mdv.feed import bucket_of
from mdv.model import BLANK_MARK, Statement, Term

PART = 2000
"""How many numbers or URIs are asked for at once."""
STAGED_EVENTS = 500
"""How many events one row of `staged` holds."""
BUSY_SECONDS = 60
FEED, REPAIR = 0, 1
"""What is staged: the feed, or buckets that are fetched again."""

T = TypeVar("T")
Json = dict[str, Any]
Key = tuple[int, int | None, int | None, str | None, str | None]
"""What a statement says of its resource: property, target, datatype, value, language."""
Typed = tuple[str | None, str | None, bool | None]
Row = tuple[object, ...]


class CacheState(NamedTuple):
    """Where the cache stands."""

    format: int
    cursor: str | None
    position: int
    applied_offset: int
    schema_version: int
    schema_edition: int
    staged_cursor: str | None
    staged_offset: int
    staged_snapshot: bool

    @property
    def next_cursor(self) -> str | None:
        """From where the feed goes on; None: with a snapshot."""
        return self.staged_cursor or self.cursor


class Known(NamedTuple):
    """A resource that has a row."""

    id: int
    present: bool
    selected: bool


class Said(NamedTuple):
    """What is kept of a stored statement beside its key."""

    hash: int
    strong: bool


def in_parts(values: Iterable[T], size: int = PART) -> Iterator[list[T]]:
    """`values` in lists of at most `size`.

    >>> list(in_parts("abc", 2))
    [['a', 'b'], ['c']]
    """
    rest = iter(values)
    while part := list(islice(rest, size)):
        yield part


# -- connections


def make_cache_engine(url: str) -> Engine:
    """An engine for `sqlite:///path` or `postgresql://…`."""
    name = sqlalchemy.make_url(url)
    if name.get_backend_name() == "postgresql":
        return make_engine(url, pool_size=8, max_overflow=56)
    engine = sqlalchemy.create_engine(name, pool_size=8, max_overflow=120)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, record: object) -> None:
    # Transactions are begun below, and not by the driver, which would begin them too late.
    connection.isolation_level = None
    for pragma in (f"busy_timeout={BUSY_SECONDS * 1000}", "journal_mode=WAL", "synchronous=NORMAL",
                   "cache_size=-65536", "temp_store=memory", "journal_size_limit=67108864"):  # fmt: skip
        connection.execute(f"pragma {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # Who will write says so at the beginning: a reader that turns into a writer could not wait for another.
    writes = connection.get_execution_options().get("mdv_writes", False)
    connection.exec_driver_sql("begin immediate" if writes else "begin")


def writer(engine: Engine) -> Engine:
    """`engine` for transactions that write."""
    return engine.execution_options(mdv_writes=True)


def reader(engine: Engine) -> Engine:
    """`engine` for transactions that see one state throughout, whatever is written meanwhile."""
    # SQLite's readers always do.
    return engine if engine.dialect.name == "sqlite" else engine.execution_options(isolation_level="REPEATABLE READ")


def is_sqlite(connection: Connection) -> bool:
    return connection.dialect.name == "sqlite"


# -- tables


def found_tables(connection: Connection) -> set[str]:
    """Which of the cache's tables are there."""
    return set(sqlalchemy.inspect(connection).get_table_names()) & metadata.tables.keys()


def found_format(connection: Connection) -> int | None:
    """The format of the cache that is there."""
    return connection.execute(select(lmr_state.c.format)).scalar_one_or_none()


def count_local_documents(connection: Connection) -> int:
    return connection.execute(select(func.count()).select_from(local_documents)).scalar_one()


def make_tables(connection: Connection) -> None:
    metadata.create_all(connection)
    connection.execute(insert(lmr_state).values(one=True, format=FORMAT))


def drop_tables(connection: Connection) -> None:
    metadata.drop_all(connection)


# -- state


def read_state(connection: Connection) -> CacheState:
    return CacheState(*connection.execute(_STATE).one())


def lock_state(connection: Connection) -> CacheState:
    """The state, in a transaction that no other writer can overtake."""
    return CacheState(*connection.execute(_STATE.with_for_update()).one())


def write_state(connection: Connection, **values: object) -> None:
    connection.execute(update(lmr_state).values(**values))


def read_schema_body(connection: Connection) -> Json | None:
    """The schema as it travelled."""
    body: Json | None = connection.execute(select(lmr_state.c.schema)).scalar_one()
    return body


_STATE = select(*(lmr_state.c[name] for name in CacheState._fields))


# -- numbers


def find_resources(connection: Connection, uris: Collection[str]) -> dict[str, Known]:
    """The rows of those of `uris` that have one."""
    c = resources.c
    found: dict[str, Known] = {}
    for part in in_parts(uris):
        query = select(c.uri, c.id, c.present, c.selected).where(c.uri.in_(part))
        found.update((uri, Known(number, *rest)) for uri, number, *rest in connection.execute(query).all())
    return found


def last_resource(connection: Connection) -> int:
    last: int = connection.execute(select(func.coalesce(func.max(resources.c.id), 0))).scalar_one()
    return last


def insert_resources(connection: Connection, rows: Iterable[tuple[int, str, bool, bool, int]]) -> None:
    """New rows: number, URI, whether it is present and selected, and its strong references."""
    made = [(number, uri, bucket_of(uri), int(here), int(selected), referrers)
            for number, uri, here, selected, referrers in rows]  # fmt: skip
    insert_rows(connection, resources, ("id", "uri", "bucket", "present", "selected", "referrers"), made)


def number_uris(connection: Connection, uris: Collection[str]) -> dict[str, int]:
    """Numbers of all `uris`; those without a row get one."""
    ids = {uri: known.id for uri, known in find_resources(connection, uris).items()}
    missing = sorted(set(uris) - ids.keys())
    if missing:
        new = dict(zip(missing, range(last_resource(connection) + 1, 2**62), strict=False))
        insert_resources(connection, ((number, uri, False, False, 0) for uri, number in new.items()))
        ids |= new
    return ids


def find_names(connection: Connection, names: Collection[str]) -> dict[str, int]:
    """Numbers of properties and datatypes; those without a row get one."""
    wanted = set(names)
    found: dict[str, int] = {}
    for part in in_parts(wanted):
        query = select(vocabulary.c.uri, vocabulary.c.id).where(vocabulary.c.uri.in_(part))
        found.update((row.uri, row.id) for row in connection.execute(query))
    missing = sorted(wanted - found.keys())
    if missing:
        last = connection.execute(select(func.coalesce(func.max(vocabulary.c.id), 0))).scalar_one()
        new = dict(zip(missing, range(last + 1, 2**31), strict=False))
        connection.execute(insert(vocabulary), [{"id": number, "uri": name} for name, number in new.items()])
        found |= new
    return found


def all_names(connection: Connection) -> dict[str, int]:
    """Every property and datatype that was ever used."""
    return {row.uri: row.id for row in connection.execute(select(vocabulary.c.uri, vocabulary.c.id))}


# -- statements

_COLUMNS = ("document_id", "resource_id", "target_id", "hash", "property_id", "datatype_id", "strong", "value", "lang",
            "number", "instant", "truth")  # fmt: skip


def insert_statements(connection: Connection, rows: Sequence[Row]) -> None:
    """Rows in the order of the table's columns."""
    insert_rows(connection, statements, _COLUMNS, rows)


def stored_statements(connection: Connection, ids: Collection[int]) -> dict[int, dict[Key, Said]]:
    """What the MDP said of these resources."""
    s = statements.c
    found: dict[int, dict[Key, Said]] = defaultdict(dict)
    for part in in_parts(ids):
        query = select(s.resource_id, s.property_id, s.target_id, s.datatype_id, s.value, s.lang, s.hash, s.strong)
        query = query.where(s.resource_id.in_(part), s.document_id == GLOBAL)
        for resource, name, target, datatype, value, lang, hash_, strong in connection.execute(query).all():
            found[resource][name, target, datatype, value, lang] = Said(hash_, strong)
    return found


def delete_statements_of(connection: Connection, ids: Iterable[int]) -> None:
    """Everything that the MDP said of these resources goes."""
    s = statements.c
    for part in in_parts(ids):
        connection.execute(delete(statements).where(s.resource_id.in_(part), s.document_id == GLOBAL))


def delete_statements(connection: Connection, which: Sequence[tuple[int, int]]) -> None:
    """Some of what the MDP said goes: by resource and hash."""
    if which:
        s = statements.c
        said = delete(statements).where(s.resource_id == bindparam("r"), s.hash == bindparam("h"),
                                        s.document_id == GLOBAL)  # fmt: skip
        connection.execute(said, [{"r": resource, "h": hash_} for resource, hash_ in which])


def insert_rows(connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Many rows at once."""
    if not rows:
        return
    if not is_sqlite(connection):
        copy_rows(driver(connection), f"{table.name} ({', '.join(columns)})", rows)
        return
    # The driver takes longer for a NULL or a truth than for all the rest of a row, so it gets neither.
    by_shape: dict[tuple[bool, ...], list[Row]] = defaultdict(list)
    for row in rows:
        by_shape[tuple([value is None for value in row])].append(tuple([value for value in row if value is not None]))
    for shape, alike in by_shape.items():
        given = [column for column, is_null in zip(columns, shape, strict=True) if not is_null]
        marks = ", ".join("?" * len(given))
        sql = f"insert into {table.name} ({', '.join(given)}) values ({marks})"  # noqa: S608
        connection.exec_driver_sql(sql, alike)


# -- reasons


def set_present(connection: Connection, ids: Iterable[int], present: bool) -> None:
    for part in in_parts(ids):
        connection.execute(update(resources).where(resources.c.id.in_(part)).values(present=present))


def set_selected(connection: Connection, ids: Iterable[int], selected: bool) -> None:
    for part in in_parts(ids):
        connection.execute(update(resources).where(resources.c.id.in_(part)).values(selected=selected))


def unselect_all(connection: Connection, buckets: Collection[int] | None) -> set[int]:
    """No resource (of these buckets) is selected any more; those that are not here either."""
    c = resources.c
    absent = set(connection.execute(select(c.id).where(c.selected, ~c.present, _within(buckets))).scalars())
    connection.execute(update(resources).where(c.selected, _within(buckets)).values(selected=False))
    return absent


def add_referrers(connection: Connection, changes: Mapping[int, int]) -> None:
    """Count strong references that came or went, by what they lead to."""
    by_change: dict[int, list[int]] = defaultdict(list)
    for number, change in changes.items():
        if change:
            by_change[change].append(number)
    c = resources.c
    for change, ids in by_change.items():
        for part in in_parts(ids):
            connection.execute(update(resources).where(c.id.in_(part)).values(referrers=c.referrers + change))


def present_ids(connection: Connection, buckets: Collection[int] | None) -> Iterator[int]:
    """What is here (in these buckets), in parts, so that it may be changed meanwhile."""
    c = resources.c
    last = 0
    while True:
        query = select(c.id).where(c.present, c.id > last, _within(buckets)).order_by(c.id).limit(PART)
        found = connection.execute(query).scalars().all()
        yield from found
        if len(found) < PART:
            return
        last = found[-1]


def _within(buckets: Collection[int] | None) -> ColumnElement[bool]:
    return true() if buckets is None else resources.c.bucket.in_(buckets)


# -- a schema that changes


def change_strength(connection: Connection, property_id: int, strong: bool) -> dict[int, int]:
    """Make the references of a property strong, or weak; how many changed, by what they lead to. References to blank
    nodes are strong in any case."""
    s = statements.c
    c = resources.c
    blank = exists(select(c.id).where(c.id == s.target_id, c.uri.contains(BLANK_MARK, autoescape=True)))
    concerned = (
        (s.property_id == property_id) & (s.document_id == GLOBAL) & s.target_id.is_not(None)
        & (s.strong != strong) & ~blank
    )  # fmt: skip
    counts = select(s.target_id, func.count()).where(concerned).group_by(s.target_id)
    found: dict[int, int] = dict(connection.execute(counts).all())
    connection.execute(update(statements).where(concerned).values(strong=strong))
    return found


def values_of(connection: Connection, property_id: int) -> Iterator[list[str]]:
    """The distinct values of a property, in parts, so that they may be changed meanwhile."""
    s = statements.c
    start = func.substr(s.value, 1, 64)
    here = (s.property_id == property_id) & s.value.is_not(None)
    last: str | None = None
    while True:
        query = select(start).where(here, true() if last is None else start > last)
        starts = connection.execute(query.distinct().order_by(start).limit(PART)).scalars().all()
        if not starts:
            return
        yield list(connection.execute(select(s.value).where(here, start.in_(starts)).distinct()).scalars())
        last = starts[-1]


def retype(connection: Connection, property_id: int, typed: Mapping[str, Typed]) -> None:
    """Give the values of a property other numbers, instants and truths."""
    if not typed:
        return
    s = statements.c
    change = update(statements).where(
        s.property_id == property_id,
        func.substr(s.value, 1, 64) == func.substr(bindparam("v", type_=s.value.type), 1, 64),
        s.value == bindparam("v"),
    )
    change = change.values(number=bindparam("n"), instant=bindparam("i"), truth=bindparam("t"))
    connection.execute(change, [{"v": value, "n": n, "i": i, "t": t} for value, (n, i, t) in typed.items()])


# -- what is staged


def stage(connection: Connection, events: Iterable[Mapping[str, Any]], lane: int) -> None:
    """Keep events for later."""
    parts = (json.dumps(part, ensure_ascii=False, separators=(",", ":")) for part in in_parts(events, STAGED_EVENTS))
    rows = [{"lane": lane, "events": part} for part in parts]
    if rows:
        connection.execute(insert(staged), rows)


def staged_events(connection: Connection, lane: int) -> Iterator[list[Json]]:
    """What was staged, in parts, in its order."""
    last = 0
    c = staged.c
    query = select(c.number, c.events).where(c.lane == lane, c.number > bindparam("last")).order_by(c.number).limit(4)
    while rows := connection.execute(query, {"last": last}).all():
        yield [event for row in rows for event in json.loads(row.events)]
        last = rows[-1].number


def clear_staged(connection: Connection, lane: int) -> None:
    connection.execute(delete(staged).where(staged.c.lane == lane))


# -- local documents


class LocalDocument(NamedTuple):
    """What is known of a local document without its statements."""

    id: int
    uri: str
    content: bytes
    prefixes: dict[str, str]


def find_local_document(connection: Connection, uri: str) -> LocalDocument | None:
    row = connection.execute(select(local_documents).where(local_documents.c.uri == uri)).one_or_none()
    return LocalDocument(row.id, row.uri, row.content, dict(row.prefixes)) if row is not None else None


def keep_local_document(connection: Connection, uri: str, content: bytes, prefixes: Mapping[str, str]) -> int:
    """Make or change a document's row; its number."""
    values = {"uri": uri, "content": content, "prefixes": dict(prefixes)}
    known = find_local_document(connection, uri)
    if known is not None:
        connection.execute(update(local_documents).where(local_documents.c.id == known.id).values(**values))
        return known.id
    number: int = connection.execute(select(func.coalesce(func.max(local_documents.c.id), 0) + 1)).scalar_one()
    connection.execute(insert(local_documents).values(id=number, **values))
    return number


def drop_local_document(connection: Connection, number: int) -> None:
    connection.execute(delete(local_documents).where(local_documents.c.id == number))


def drop_local_statements(connection: Connection, number: int) -> set[int]:
    """What a local document said goes; the resources that it named."""
    s = statements.c
    named = connection.execute(select(s.resource_id, s.target_id).where(s.document_id == number)).all()
    connection.execute(delete(statements).where(s.document_id == number))
    return {number for row in named for number in row if number is not None}


def local_statements(connection: Connection, number: int) -> list[Statement]:
    """What a local document says."""
    s = statements.c
    subject, target = resources.alias("subject"), resources.alias("target")
    name, datatype = vocabulary.alias("name"), vocabulary.alias("datatype")
    query = (
        select(subject.c.uri, name.c.uri, target.c.uri, s.value, s.lang, datatype.c.uri)
        .join_from(statements, subject, subject.c.id == s.resource_id)
        .join(name, name.c.id == s.property_id)
        .outerjoin(target, target.c.id == s.target_id)
        .outerjoin(datatype, datatype.c.id == s.datatype_id)
        .where(s.document_id == number)
    )
    return [
        Statement(r, p, Term.uri(o) if o is not None else Term.literal(value, lang, kind))
        for r, p, o, value, lang, kind in connection.execute(query)
    ]


def list_local_documents(connection: Connection, after: str, limit: int) -> list[str]:
    """Their URIs, from the one after `after`, by code point."""
    c = local_documents.c
    query = select(c.uri).where(c.uri > after).order_by(c.uri).limit(limit)
    return list(connection.execute(query).scalars())
