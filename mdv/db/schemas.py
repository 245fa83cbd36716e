"""Stored versions of the schema."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from sqlalchemy import ARRAY, Connection, Text, any_, cast, func, insert, literal, literal_column, select, update

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
    """Return the statements and prefixes of a version. Version 0 is the empty schema of a new MDP."""
    query = select(schema_versions.c.statements, schema_versions.c.prefixes).where(schema_versions.c.version == version)
    row = connection.execute(query).one_or_none()
    if row is None:
        return [], {}
    return [Statement(s, p, Term(**o)) for s, p, o in row.statements], dict(row.prefixes)


def store_schema_version(
    connection: Connection,
    version: int,
    position: int,
    statements: Sequence[Statement],
    prefixes: Mapping[str, str],
    by: str | None,
) -> None:
    """Store a new current version, as the transaction at `position`. `by`: the caller."""
    encoded = [[s, p, o.as_dict()] for s, p, o in statements]
    values = {
        "version": version, "position": position, "statements": encoded, "prefixes": dict(prefixes), "changed_by": by,
    }  # fmt: skip
    connection.execute(insert(schema_versions).values(values))
    connection.execute(insert(transactions).values(position=position, cause="schema"))
    connection.execute(update(mdp_state).values(position=position, schema_version=version))


@dataclass(frozen=True, slots=True)
class AffectedLmr:
    """An LMR that receives more events than the schema: the number of resources that its rules match now and did not,
    or no longer match, that it is sent, and that leave its closure."""

    lmr: str
    matched: int
    unmatched: int
    sent: int
    left: int


@dataclass(frozen=True, slots=True)
class PublicationSummary:
    """The last publication: numbers of resources, number of LMRs, and the first of the affected LMRs."""

    matched: int = 0
    unmatched: int = 0
    sent: int = 0
    left: int = 0
    lmrs: int = 0
    concerned: tuple[AffectedLmr, ...] = ()


_LEFT, _PUT, _UNMATCH, _MATCH = -1, 2, 3, 4
"""Kinds of rows in `news`: -1 for resources that leave an LMR, the others as in the feed."""


def summarize_publication(connection: Connection, most: int) -> PublicationSummary:
    """Summarize the last publication, with the first `most` affected LMRs by name."""
    n = news.c
    counts = [func.count(n.resource_id.distinct()).filter(n.kind == kind) for kind in (_MATCH, _UNMATCH, _PUT, _LEFT)]
    totals = connection.execute(select(*counts)).one()
    by_lmr = (
        select(lmrs.c.name, *counts)
        .join_from(news, lmrs, lmrs.c.id == n.lmr_id)
        .where(n.kind.in_((_LEFT, _PUT, _UNMATCH, _MATCH)))
        .group_by(lmrs.c.name)
        .order_by(lmrs.c.name)
        .limit(most)
    )
    all_lmrs = connection.scalar(select(func.count()).select_from(lmrs)) or 0
    concerned = tuple(AffectedLmr(*row) for row in connection.execute(by_lmr))
    matched, unmatched, sent, left = (int(count) for count in totals)
    return PublicationSummary(matched, unmatched, sent, left, all_lmrs, concerned)


class StoredValue(NamedTuple):
    """A stored statement with its row ID and its typed values."""

    document: str
    row: str
    statement: Statement
    typed: tuple[Decimal | None, Decimal | None, bool | None]


def iter_stored_values(connection: Connection, properties: Collection[str] | None) -> Iterator[StoredValue]:
    """Yield every statement with one of `properties` (None: any), document by document. Reads the whole table once."""
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
        query = query.where(name.c.uri == any_(literal(list(properties), ARRAY(Text))))
    rows = connection.execute(query.execution_options(yield_per=5000))
    for document, row, s, p, o, value, lang, kind, number, instant, truth in rows:
        term = Term("uri", o) if o is not None else Term("literal", value, lang, kind)
        yield StoredValue(document, row, Statement(s, p, term), (number, instant, truth))


def update_typed_values(connection: Connection, rows: Iterable[tuple[str, object, object, object]]) -> None:
    """Set the typed values of rows, each given by its row ID (ctid)."""
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
