"""The schema's versions as stored."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from sqlalchemy import Connection, Text, cast, func, insert, literal_column, select, update

from mdv.db.engine import driver
from mdv.db.tables import (
    documents,
    filter_data,
    lmrs,
    mdp_state,
    news,
    resources,
    schema_versions,
    transactions,
    vocabulary,
)
from mdv.model import Statement, Term

StoredSchema = tuple[list[Statement], dict[str, str]]


def read_schema_version(connection: Connection, version: int) -> StoredSchema:
    """The statements and prefixes of a version; version 0 is the empty schema that every MDP begins with."""
    query = select(schema_versions.c.statements, schema_versions.c.prefixes).where(schema_versions.c.version == version)
    row = connection.execute(query).one_or_none()
    if row is None:
        return [], {}
    return [Statement(s, p, Term(**o)) for s, p, o in row.statements], dict(row.prefixes)


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A version of the schema: where in the history it stands, since when, and how many statements it has."""

    version: int
    position: int
    at: datetime
    statements: int


def list_schema_versions(connection: Connection, before: int, limit: int) -> list[SchemaVersion]:
    """A page of the schema's versions, newest first, those below `before`."""
    v = schema_versions.c
    query = select(v.version, v.position, v.at, func.jsonb_array_length(v.statements)).where(v.version < before)
    return [SchemaVersion(*row) for row in connection.execute(query.order_by(v.version.desc()).limit(limit))]


def keep_schema_version(
    connection: Connection, version: int, position: int, statements: Sequence[Statement], prefixes: Mapping[str, str]
) -> None:
    """Make a version the present one, as the transaction at `position`."""
    encoded = [[s, p, o.as_dict()] for s, p, o in statements]
    values = {"version": version, "position": position, "statements": encoded, "prefixes": dict(prefixes)}
    connection.execute(insert(schema_versions).values(values))
    connection.execute(insert(transactions).values(position=position, cause="schema"))
    connection.execute(update(mdp_state).values(position=position, schema_version=version))


@dataclass(frozen=True, slots=True)
class Concerned:
    """An LMR that hears more than the schema: of how many resources that its rules come to match, or cease to, how many
    resources it is sent, and how many leave it."""

    lmr: str
    matched: int
    unmatched: int
    sent: int
    left: int


@dataclass(frozen=True, slots=True)
class Told:
    """What the last publication told: of how many resources, to how many LMRs, and the first of these."""

    matched: int = 0
    unmatched: int = 0
    sent: int = 0
    left: int = 0
    lmrs: int = 0
    concerned: tuple[Concerned, ...] = ()


_LEFT, _PUT, _UNMATCH, _MATCH = -1, 2, 3, 4
"""Kinds of news: what leaves an LMR, and the others as in the feed."""


def count_news(connection: Connection, most: int) -> Told:
    """What the last publication told, with the `most` first LMRs by name that heard of resources."""
    n = news.c
    counts = [func.count(n.resource_id.distinct()).filter(n.kind == kind) for kind in (_MATCH, _UNMATCH, _PUT, _LEFT)]
    told_of = connection.execute(select(*counts)).one()
    told = (
        select(lmrs.c.name, *counts)
        .join_from(news, lmrs, lmrs.c.id == n.lmr_id)
        .where(n.kind.in_((_LEFT, _PUT, _UNMATCH, _MATCH)))
        .group_by(lmrs.c.name)
        .order_by(lmrs.c.name)
        .limit(most)
    )
    all_lmrs = connection.scalar(select(func.count()).select_from(lmrs)) or 0
    concerned = tuple(Concerned(*row) for row in connection.execute(told))
    matched, unmatched, sent, left = (int(count) for count in told_of)
    return Told(matched, unmatched, sent, left, all_lmrs, concerned)


class StoredValue(NamedTuple):
    """A stored statement with the row that holds it and the typed values that it has."""

    document: str
    row: str
    statement: Statement
    typed: tuple[Decimal | None, Decimal | None, bool | None]


def stored_values(connection: Connection, properties: Collection[str] | None) -> Iterator[StoredValue]:
    """Every statement with one of `properties` (None: any), document by document. Reads the whole table once."""
    f = filter_data.c
    subject, target = resources.alias("subject"), resources.alias("target")
    name, datatype = vocabulary.alias("name"), vocabulary.alias("datatype")
    query = (
        select(documents.c.uri, cast(literal_column("filter_data.ctid"), Text), subject.c.uri, name.c.uri, target.c.uri,
               f.value, f.lang, datatype.c.uri, f.number, f.instant, f.truth)
        .join_from(filter_data, documents, documents.c.id == f.document_id)
        .join(subject, subject.c.id == f.resource_id)
        .join(name, name.c.id == f.property_id)
        .outerjoin(target, target.c.id == f.target_id)
        .outerjoin(datatype, datatype.c.id == f.datatype_id)
        .order_by(f.document_id)
    )  # fmt: skip
    if properties is not None:
        query = query.where(name.c.uri.in_(properties))
    rows = connection.execute(query.execution_options(yield_per=5000))
    for document, row, s, p, o, value, lang, kind, number, instant, truth in rows:
        term = Term("uri", o) if o is not None else Term("literal", value, lang, kind)
        yield StoredValue(document, row, Statement(s, p, term), (number, instant, truth))


def retype_values(connection: Connection, rows: Iterable[tuple[str, object, object, object]]) -> None:
    """Give rows, each named by its place, new typed values."""
    session = driver(connection)
    session.execute(
        "create temporary table if not exists retyped (row tid, number numeric, instant numeric, truth boolean)"
        " on commit drop"
    )
    changed = list(rows)
    with session.cursor() as cursor, cursor.copy("copy retyped from stdin") as copy:
        for row in changed:
            copy.write_row(row)
    session.execute(
        "update filter_data f set number = r.number, instant = r.instant, truth = r.truth"
        " from retyped r where f.ctid = r.row"
    )
    session.execute("truncate retyped")
