"""The stored cache of an LMR: its state, resources, statements, staged events and local documents.

Everything works on both SQLite and Postgres. Rows are written in bulk: with `executemany` on SQLite, with COPY on
Postgres. Long lists of values are split, since databases limit the number of parameters of a statement.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import sqlalchemy
from sqlalchemy import Connection, Engine, Table, bindparam, delete, event, exists, func, insert, select, true, update
from sqlalchemy.sql.expression import ColumnElement

from mdv.db.cache_tables import (
    CACHE_FORMAT,
    GLOBAL_DOCUMENT,
    lmr_home,
    lmr_state,
    local_documents,
    metadata,
    resources,
    search_state,
    staged,
    statements,
    suspended_rules,
    vocabulary,
)
from mdv.db.engine import driver, make_engine
from mdv.db.postgres_copy import copy_rows
from mdv.feed import bucket_of
from mdv.model import BLANK_MARK, Statement, Term

MAX_VALUES_PER_QUERY = 2000
"""Limit of IDs or URIs in one query."""
EVENTS_PER_STAGED_ROW = 500
"""Limit of events in one row of `staged`."""
SQLITE_BUSY_TIMEOUT_SECONDS = 60
LANE_FEED, LANE_REPAIR = 0, 1
"""Staged events belong to the feed, or to buckets that are fetched again."""

T = TypeVar("T")
Json = dict[str, Any]
StatementKey = tuple[int, int | None, int | None, str | None, str | None]
"""A statement about a known resource: property, target, datatype, value, language."""
TypedColumns = tuple[str | None, str | None, bool | None]
CacheRow = tuple[object, ...]


class CacheState(NamedTuple):
    """The state of the cache."""

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
        """The cursor of the next feed request; None: request a snapshot."""
        return self.staged_cursor or self.cursor


class CacheHome(NamedTuple):
    """The home of an LMR in a backbone. `home`: its URL; None: the first in the settings. `term`: of the last attempt
    to get another one. `vector`: the changes that are applied. `seen`: those that may be. `adoptions`: newest first."""

    home: str | None = None
    term: int = 0
    vector: Mapping[str, int] = MappingProxyType({})
    seen: Mapping[str, int] = MappingProxyType({})
    adoptions: Sequence[Json] = ()


class KnownResource(NamedTuple):
    """A resource that has a row in the cache."""

    id: int
    present: bool
    selected: bool


class StoredStatementInfo(NamedTuple):
    """The columns of a stored statement besides its key."""

    hash: int
    strong: bool


def chunked(values: Iterable[T], size: int = MAX_VALUES_PER_QUERY) -> Iterator[list[T]]:
    """Yield `values` in lists of at most `size`.

    >>> list(chunked("abc", 2))
    [['a', 'b'], ['c']]
    """
    rest = iter(values)
    while part := list(islice(rest, size)):
        yield part


# -- connections


def make_cache_engine(url: str) -> Engine:
    """Return an engine for `sqlite:///path` or `postgresql://…`."""
    name = sqlalchemy.make_url(url)
    if name.get_backend_name() == "postgresql":
        return make_engine(url, pool_size=8, max_overflow=56)
    engine = sqlalchemy.create_engine(name, pool_size=8, max_overflow=120)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, record: object) -> None:
    # `_begin_sqlite` begins transactions; the driver would begin them too late.
    connection.isolation_level = None
    for pragma in (f"busy_timeout={SQLITE_BUSY_TIMEOUT_SECONDS * 1000}", "journal_mode=WAL", "synchronous=NORMAL",
                   "cache_size=-65536", "temp_store=memory", "journal_size_limit=67108864"):  # fmt: skip
        connection.execute(f"pragma {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that writes takes the write lock when it begins: SQLite cannot wait for it after a read.
    writes = connection.get_execution_options().get("mdv_writes", False)
    connection.exec_driver_sql("begin immediate" if writes else "begin")


def writing_engine(engine: Engine) -> Engine:
    """Return `engine` for transactions that write."""
    return engine.execution_options(mdv_writes=True)


def snapshot_engine(engine: Engine) -> Engine:
    """Return `engine` for transactions that read one snapshot, regardless of concurrent writes."""
    # In SQLite, every read transaction does.
    return engine if engine.dialect.name == "sqlite" else engine.execution_options(isolation_level="REPEATABLE READ")


def is_sqlite(connection: Connection) -> bool:
    return connection.dialect.name == "sqlite"


# -- tables


def existing_tables(connection: Connection) -> set[str]:
    """Return the names of the cache's tables that exist."""
    return set(sqlalchemy.inspect(connection).get_table_names()) & metadata.tables.keys()


def stored_format(connection: Connection) -> int | None:
    """Return the format of the existing cache."""
    return connection.execute(select(lmr_state.c.format)).scalar_one_or_none()


def count_local_documents(connection: Connection) -> int:
    return connection.execute(select(func.count()).select_from(local_documents)).scalar_one()


def create_tables(connection: Connection) -> None:
    metadata.create_all(connection)
    _create_search(connection)
    connection.execute(insert(lmr_state).values(one=True, format=CACHE_FORMAT))


def upgrade_tables(connection: Connection) -> None:
    """Upgrade a cache of an older format that only lacks tables. The next feed request is for a snapshot."""
    metadata.create_all(connection)
    _create_search(connection)
    write_state(
        connection, format=CACHE_FORMAT, cursor=None, staged_cursor=None, staged_offset=0, staged_snapshot=False
    )


def drop_tables(connection: Connection) -> None:
    metadata.drop_all(connection)
    connection.exec_driver_sql("drop table if exists search_texts")


def _create_search(connection: Connection) -> None:
    """Create the search index. Its state names no label properties, so that all resources are indexed first."""
    connection.exec_driver_sql("drop table if exists search_texts")
    for statement in _SEARCH_TABLES_SQLITE if is_sqlite(connection) else _SEARCH_TABLES_POSTGRES:
        connection.exec_driver_sql(statement)
    connection.execute(delete(search_state))
    connection.execute(insert(search_state).values(one=True, label_properties=[]))


_SEARCH_TABLES_SQLITE = (
    "create virtual table search_texts using fts5"
    "(words, labels, classes, tokenize = 'ascii', detail = 'column', columnsize = 0)",
)
_SEARCH_TABLES_POSTGRES = (
    "create table search_texts (resource_id bigint primary key, words tsvector not null)",
    "create index search_texts_words on search_texts using gin (words)",
)


# -- state


def read_state(connection: Connection) -> CacheState:
    return CacheState(*connection.execute(_STATE).one())


def lock_state(connection: Connection) -> CacheState:
    """Return the state and lock it against other writers."""
    return CacheState(*connection.execute(_STATE.with_for_update()).one())


def write_state(connection: Connection, **values: object) -> None:
    connection.execute(update(lmr_state).values(**values))


def read_home(connection: Connection) -> CacheHome:
    row = connection.execute(select(*(lmr_home.c[name] for name in CacheHome._fields))).one_or_none()
    return CacheHome(*row) if row is not None else CacheHome()


def write_home(connection: Connection, home: CacheHome) -> None:
    connection.execute(delete(lmr_home))
    connection.execute(insert(lmr_home).values(
        one=True, home=home.home, term=home.term, vector=dict(home.vector), seen=dict(home.seen),
        adoptions=list(home.adoptions),
    ))  # fmt: skip


def read_schema_body(connection: Connection) -> Json | None:
    """Return the schema as JSON, as it was received."""
    body: Json | None = connection.execute(select(lmr_state.c.schema)).scalar_one()
    return body


_STATE = select(*(lmr_state.c[name] for name in CacheState._fields))


# -- resources and names


def find_resources(connection: Connection, uris: Collection[str]) -> dict[str, KnownResource]:
    """Return those of `uris` that have a row."""
    c = resources.c
    found: dict[str, KnownResource] = {}
    for part in chunked(uris):
        query = select(c.uri, c.id, c.present, c.selected).where(c.uri.in_(part))
        found.update((uri, KnownResource(number, *rest)) for uri, number, *rest in connection.execute(query).all())
    return found


def last_resource_id(connection: Connection) -> int:
    last: int = connection.execute(select(func.coalesce(func.max(resources.c.id), 0))).scalar_one()
    return last


def insert_resources(connection: Connection, rows: Iterable[tuple[int, str, bool, bool, int]]) -> None:
    """Insert rows: ID, URI, whether it is present and selected, and the number of strong references to it."""
    made = [(number, uri, bucket_of(uri), int(here), int(selected), referrers)
            for number, uri, here, selected, referrers in rows]  # fmt: skip
    insert_rows(connection, resources, ("id", "uri", "bucket", "present", "selected", "referrers"), made)


def get_or_create_resources(connection: Connection, uris: Collection[str]) -> dict[str, int]:
    """Return the IDs of all `uris`, and insert rows for new ones."""
    ids = {uri: known.id for uri, known in find_resources(connection, uris).items()}
    missing = sorted(set(uris) - ids.keys())
    if missing:
        new = dict(zip(missing, range(last_resource_id(connection) + 1, 2**62), strict=False))
        insert_resources(connection, ((number, uri, False, False, 0) for uri, number in new.items()))
        ids |= new
    return ids


def get_or_create_names(connection: Connection, names: Collection[str]) -> dict[str, int]:
    """Return the IDs of properties and datatypes, and insert rows for new ones."""
    wanted = set(names)
    found: dict[str, int] = {}
    for part in chunked(wanted):
        query = select(vocabulary.c.uri, vocabulary.c.id).where(vocabulary.c.uri.in_(part))
        found.update((row.uri, row.id) for row in connection.execute(query))
    missing = sorted(wanted - found.keys())
    if missing:
        last = connection.execute(select(func.coalesce(func.max(vocabulary.c.id), 0))).scalar_one()
        new = dict(zip(missing, range(last + 1, 2**31), strict=False))
        connection.execute(insert(vocabulary), [{"id": number, "uri": name} for name, number in new.items()])
        found |= new
    return found


def read_vocabulary(connection: Connection) -> dict[str, int]:
    """Return the IDs of all properties and datatypes."""
    return {row.uri: row.id for row in connection.execute(select(vocabulary.c.uri, vocabulary.c.id))}


# -- statements

_COLUMNS = ("document_id", "resource_id", "target_id", "hash", "property_id", "datatype_id", "strong", "value", "lang",
            "number", "instant", "truth")  # fmt: skip


_RESOURCE_ID = _COLUMNS.index("resource_id")


def insert_statements(connection: Connection, rows: Sequence[CacheRow]) -> None:
    """Insert rows, with values in the order of the table's columns."""
    insert_rows(connection, statements, _COLUMNS, rows)
    _mark_changed(connection, {row[_RESOURCE_ID] for row in rows})


def read_statements(connection: Connection, ids: Collection[int]) -> dict[int, dict[StatementKey, StoredStatementInfo]]:
    """Return the MDP's statements about these resources."""
    s = statements.c
    found: dict[int, dict[StatementKey, StoredStatementInfo]] = defaultdict(dict)
    for part in chunked(ids):
        query = select(s.resource_id, s.property_id, s.target_id, s.datatype_id, s.value, s.lang, s.hash, s.strong)
        query = query.where(s.resource_id.in_(part), s.document_id == GLOBAL_DOCUMENT)
        for resource, name, target, datatype, value, lang, hash_, strong in connection.execute(query).all():
            found[resource][name, target, datatype, value, lang] = StoredStatementInfo(hash_, strong)
    return found


def delete_statements_of(connection: Connection, ids: Iterable[int]) -> None:
    """Delete all of the MDP's statements about these resources."""
    s = statements.c
    for part in chunked(ids):
        connection.execute(delete(statements).where(s.resource_id.in_(part), s.document_id == GLOBAL_DOCUMENT))
        _mark_changed(connection, part)


def delete_statements(connection: Connection, which: Sequence[tuple[int, int]]) -> None:
    """Delete statements of the MDP, given by resource and hash."""
    if which:
        s = statements.c
        statement = delete(statements).where(s.resource_id == bindparam("r"), s.hash == bindparam("h"),
                                             s.document_id == GLOBAL_DOCUMENT)  # fmt: skip
        connection.execute(statement, [{"r": resource, "h": hash_} for resource, hash_ in which])
        _mark_changed(connection, {resource for resource, _ in which})


def _mark_changed(connection: Connection, ids: Collection[object]) -> None:
    """Note resources whose statements have changed, for the search index. They are indexed later."""
    if not ids:
        return
    if is_sqlite(connection):
        sql = "insert or ignore into search_pending select value from json_each(?)"
        connection.exec_driver_sql(sql, (json.dumps(list(ids)),))
    else:
        sql = "insert into search_pending select unnest(%(ids)s::bigint[]) on conflict do nothing"
        connection.exec_driver_sql(sql, {"ids": list(ids)})


def insert_rows(connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[CacheRow]) -> None:
    """Insert rows in bulk."""
    if not rows:
        return
    if not is_sqlite(connection):
        copy_rows(driver(connection), f"{table.name} ({', '.join(columns)})", rows)
        return
    # NULLs and booleans are slow in the driver, so rows are grouped by their NULL columns, and booleans are integers.
    by_shape: dict[tuple[bool, ...], list[CacheRow]] = defaultdict(list)
    for row in rows:
        by_shape[tuple([value is None for value in row])].append(tuple([value for value in row if value is not None]))
    for shape, alike in by_shape.items():
        given = [column for column, is_null in zip(columns, shape, strict=True) if not is_null]
        marks = ", ".join("?" * len(given))
        sql = f"insert into {table.name} ({', '.join(given)}) values ({marks})"  # noqa: S608
        connection.exec_driver_sql(sql, alike)


# -- presence, selection and references


def set_present(connection: Connection, ids: Iterable[int], present: bool) -> None:
    for part in chunked(ids):
        connection.execute(update(resources).where(resources.c.id.in_(part)).values(present=present))


def set_selected(connection: Connection, ids: Iterable[int], selected: bool) -> None:
    for part in chunked(ids):
        connection.execute(update(resources).where(resources.c.id.in_(part)).values(selected=selected))


def clear_selected(connection: Connection, buckets: Collection[int] | None) -> set[int]:
    """Mark no resource (of these buckets) as selected. Return those that were selected but are not present."""
    c = resources.c
    absent = set(connection.execute(select(c.id).where(c.selected, ~c.present, _within(buckets))).scalars())
    connection.execute(update(resources).where(c.selected, _within(buckets)).values(selected=False))
    return absent


def update_referrers(connection: Connection, changes: Mapping[int, int]) -> None:
    """Add to the numbers of strong references, by target."""
    by_change: dict[int, list[int]] = defaultdict(list)
    for number, change in changes.items():
        if change:
            by_change[change].append(number)
    c = resources.c
    for change, ids in by_change.items():
        for part in chunked(ids):
            connection.execute(update(resources).where(c.id.in_(part)).values(referrers=c.referrers + change))


def iter_present_ids(connection: Connection, buckets: Collection[int] | None) -> Iterator[int]:
    """Yield the IDs of present resources (of these buckets), page by page, so that rows may be changed meanwhile."""
    c = resources.c
    last = 0
    while True:
        query = select(c.id).where(c.present, c.id > last, _within(buckets)).order_by(c.id).limit(MAX_VALUES_PER_QUERY)
        found = connection.execute(query).scalars().all()
        yield from found
        if len(found) < MAX_VALUES_PER_QUERY:
            return
        last = found[-1]


def _within(buckets: Collection[int] | None) -> ColumnElement[bool]:
    return true() if buckets is None else resources.c.bucket.in_(list(buckets))


# -- suspended rules


def clear_suspended(connection: Connection) -> None:
    """Delete all suspended rules."""
    connection.execute(delete(suspended_rules))


def update_suspended(connection: Connection, changes: Mapping[int, str | None]) -> None:
    """Store why rules are suspended, by rule; None: the rule is active."""
    for part in chunked(changes):
        connection.execute(delete(suspended_rules).where(suspended_rules.c.rule_id.in_(part)))
    rows = [(rule, reason) for rule, reason in changes.items() if reason is not None]
    insert_rows(connection, suspended_rules, ("rule_id", "reason"), rows)


# -- changes of the schema


def set_property_strength(connection: Connection, property_id: int, strong: bool) -> dict[int, int]:
    """Make the references of a property strong or weak. Return the number of changed references by target. References
    to blank nodes are always strong."""
    s = statements.c
    c = resources.c
    blank = exists(select(c.id).where(c.id == s.target_id, c.uri.contains(BLANK_MARK, autoescape=True)))
    concerned = (
        (s.property_id == property_id) & (s.document_id == GLOBAL_DOCUMENT) & s.target_id.is_not(None)
        & (s.strong != strong) & ~blank
    )  # fmt: skip
    counts = select(s.target_id, func.count()).where(concerned).group_by(s.target_id)
    found: dict[int, int] = dict(connection.execute(counts).all())
    connection.execute(update(statements).where(concerned).values(strong=strong))
    return found


def iter_values(connection: Connection, property_id: int) -> Iterator[list[str]]:
    """Yield the distinct values of a property, page by page, so that rows may be changed meanwhile."""
    s = statements.c
    start = func.substr(s.value, 1, 64)
    here = (s.property_id == property_id) & s.value.is_not(None)
    last: str | None = None
    while True:
        query = select(start).where(here, true() if last is None else start > last)
        starts = connection.execute(query.distinct().order_by(start).limit(MAX_VALUES_PER_QUERY)).scalars().all()
        if not starts:
            return
        yield list(connection.execute(select(s.value).where(here, start.in_(starts)).distinct()).scalars())
        last = starts[-1]


def update_typed_values(connection: Connection, property_id: int, typed: Mapping[str, TypedColumns]) -> None:
    """Set the typed columns of a property's values, by value."""
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


# -- staged events


def stage_events(connection: Connection, events: Iterable[Mapping[str, Any]], lane: int) -> None:
    """Store events that are applied later."""
    parts = (
        json.dumps(part, ensure_ascii=False, separators=(",", ":")) for part in chunked(events, EVENTS_PER_STAGED_ROW)
    )
    rows = [{"lane": lane, "events": part} for part in parts]
    if rows:
        connection.execute(insert(staged), rows)


def iter_staged_events(connection: Connection, lane: int) -> Iterator[list[Json]]:
    """Yield staged events in order, page by page."""
    last = 0
    c = staged.c
    query = select(c.number, c.events).where(c.lane == lane, c.number > bindparam("last")).order_by(c.number).limit(4)
    while rows := connection.execute(query, {"last": last}).all():
        yield [event for row in rows for event in json.loads(row.events)]
        last = rows[-1].number


def last_staged_event(connection: Connection, lane: int) -> Json | None:
    """Return the event that was staged last."""
    c = staged.c
    row = connection.execute(select(c.events).where(c.lane == lane).order_by(c.number.desc()).limit(1)).one_or_none()
    return json.loads(row.events)[-1] if row is not None else None


def clear_staged(connection: Connection, lane: int) -> None:
    connection.execute(delete(staged).where(staged.c.lane == lane))


# -- local documents


class LocalDocument(NamedTuple):
    """A local document without its statements."""

    id: int
    uri: str
    content: bytes
    prefixes: dict[str, str]


def find_local_document(connection: Connection, uri: str) -> LocalDocument | None:
    row = connection.execute(select(local_documents).where(local_documents.c.uri == uri)).one_or_none()
    return LocalDocument(row.id, row.uri, row.content, dict(row.prefixes)) if row is not None else None


def upsert_local_document(connection: Connection, uri: str, content: bytes, prefixes: Mapping[str, str]) -> int:
    """Insert or update a document's row, and return its ID."""
    values = {"uri": uri, "content": content, "prefixes": dict(prefixes)}
    known = find_local_document(connection, uri)
    if known is not None:
        connection.execute(update(local_documents).where(local_documents.c.id == known.id).values(**values))
        return known.id
    number: int = connection.execute(select(func.coalesce(func.max(local_documents.c.id), 0) + 1)).scalar_one()
    connection.execute(insert(local_documents).values(id=number, **values))
    return number


def delete_local_document(connection: Connection, number: int) -> None:
    connection.execute(delete(local_documents).where(local_documents.c.id == number))


def delete_local_statements(connection: Connection, number: int) -> set[int]:
    """Delete the statements of a local document. Return the resources that they mention."""
    s = statements.c
    named = connection.execute(select(s.resource_id, s.target_id).where(s.document_id == number)).all()
    connection.execute(delete(statements).where(s.document_id == number))
    _mark_changed(connection, {row.resource_id for row in named})
    return {number for row in named for number in row if number is not None}


def read_local_statements(connection: Connection, number: int) -> list[Statement]:
    """Return the statements of a local document."""
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
    """Return a page of the URIs of local documents after `after`, ordered by code point."""
    c = local_documents.c
    query = select(c.uri).where(c.uri > after).order_by(c.uri).limit(limit)
    return list(connection.execute(query).scalars())
