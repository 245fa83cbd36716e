"""Reading: documents, versions, resources and atoms as they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, Subquery, func, literal, select, text, union_all
from sqlalchemy.sql.expression import ColumnElement

from mdv.db.tables import (
    document_versions,
    documents,
    filter_data,
    filter_data_history,
    resources,
    transactions,
    vocabulary,
)
from mdv.model import RDF_TYPE, RDFS_RESOURCE, Statement, Term

LATEST = None


@dataclass(frozen=True, slots=True)
class DocumentVersion:
    """A version of a document: when it came, and what it changed."""

    uri: str
    version: int
    position: int
    present: bool
    at: datetime
    inserted: int
    updated: int
    deleted: int
    unchanged: int


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """A document without its statements."""

    id: int
    uri: str
    version: int
    position: int
    present: bool
    prefixes: dict[str, str]


def read_document(connection: Connection, uri: str, version: int | None = LATEST) -> DocumentInfo | None:
    """A document, or one version of it; None where there is no such thing."""
    d, v = documents.c, document_versions.c
    query = select(d.id, d.uri, v.version, v.position, v.present, v.prefixes).join_from(
        documents, document_versions, v.document_id == d.id
    )
    row = connection.execute(
        query.where(d.uri == uri, v.version == (d.version if version is None else version))
    ).one_or_none()
    return DocumentInfo(*row) if row else None


def document_statements(connection: Connection, document: DocumentInfo, most: int | None = None) -> list[Statement]:
    """What the document says in that version; the statements of its first resources, up to `most`."""
    rows = _rows_of(document)
    some = (
        select(rows).order_by(rows.c.resource_id, rows.c.property_id).limit(most) if most is not None else select(rows)
    )
    return decode(connection, some.subquery())


def count_statements(connection: Connection, document: DocumentInfo) -> int:
    """How many statements the document has in that version."""
    return connection.execute(select(func.count()).select_from(_rows_of(document))).scalar_one()


def _rows_of(document: DocumentInfo) -> Subquery:
    now, then = filter_data.c, filter_data_history.c
    current = select(*encoded(now)).where(now.document_id == document.id, now.position <= document.position)
    past = select(*encoded(then)).where(
        then.document_id == document.id, then.position <= document.position, then.until_position > document.position
    )
    return union_all(current, past).subquery()


def resource_statements(connection: Connection, uri: str) -> list[Statement]:
    """What all documents together say of a resource."""
    now = filter_data.c
    resource = select(resources.c.id).where(resources.c.uri == uri).scalar_subquery()
    rows = select(*encoded(now)).where(now.resource_id == resource).distinct()
    return decode(connection, rows.subquery())


def resource_documents(connection: Connection, uri: str) -> list[str]:
    """The documents that describe a resource."""
    resource = select(resources.c.id).where(resources.c.uri == uri).scalar_subquery()
    described = select(filter_data.c.document_id).where(filter_data.c.resource_id == resource)
    return list(connection.scalars(select(documents.c.uri).where(documents.c.id.in_(described)).order_by("uri")))


def list_documents(
    connection: Connection, after: str, limit: int, prefix: str = "", present: bool = True
) -> Sequence[RowMapping]:
    """A page of the documents that are there, or were once, by URI; of those that begin with `prefix`."""
    d = documents.c
    query = select(d.uri, d.version, d.position).where(d.present.is_(present), d.uri > after)
    query = query.order_by(d.uri).limit(limit)
    if prefix:
        # By code point, whatever is behind the prefix comes before the prefix with this behind it.
        query = query.where(d.uri >= prefix, d.uri < prefix + chr(0x10FFFF))
    return connection.execute(query).mappings().all()


def list_versions(connection: Connection, uri: str, before: int, limit: int) -> list[DocumentVersion]:
    """A page of a document's versions, newest first."""
    d, v = documents.c, document_versions.c
    query = (
        select(d.uri, v.version, v.position, v.present, transactions.c.at,
               v.inserted, v.updated, v.deleted, v.unchanged)
        .join_from(documents, document_versions, v.document_id == d.id)
        .join(transactions, transactions.c.position == v.position)
        .where(d.uri == uri, v.version < before)
        .order_by(v.version.desc())
        .limit(limit)
    )  # fmt: skip
    return [DocumentVersion(*row) for row in connection.execute(query)]


def list_resources(
    connection: Connection, classes: Sequence[str] | None, after: int, limit: int
) -> list[tuple[int, str, list[str]]]:
    """A page of (number, URI, direct classes) of the instances of any of `classes`, or of all described resources.

    rdfs:Resource is the class of everything.
    """
    f, r = filter_data.c, resources.c
    if classes is None or RDFS_RESOURCE in classes:
        described = select(literal(1)).where(f.resource_id == r.id).exists()
        page = select(r.id).where(r.id > after, described).order_by(r.id).limit(limit)
    else:
        page = _instances(classes, after, limit)
    ids = list(connection.scalars(page))
    typed = direct_classes(connection, ids)
    names = connection.execute(select(r.id, r.uri).where(r.id.in_(ids)).order_by(r.id))
    return [(number, uri, typed.get(number, [RDFS_RESOURCE])) for number, uri in names]


def _instances(classes: Sequence[str], after: int, limit: int) -> Select[Any]:
    f, r = filter_data.c, resources.c
    type_id = select(vocabulary.c.id).where(vocabulary.c.uri == RDF_TYPE).scalar_subquery()
    of_class = [
        select(f.resource_id)
        .where(f.target_id == select(r.id).where(r.uri == c).scalar_subquery())
        .where(f.property_id == type_id, f.resource_id > after)
        .distinct()
        .order_by(f.resource_id)
        .limit(limit)
        .subquery()
        for c in classes
    ]
    every = union_all(*(select(part.c.resource_id) for part in of_class)).subquery()
    return select(every.c.resource_id).distinct().order_by(every.c.resource_id).limit(limit)


def direct_classes(connection: Connection, ids: Sequence[int]) -> dict[int, list[str]]:
    f = filter_data.c
    query = (
        select(f.resource_id, resources.c.uri)
        .join_from(filter_data, resources, resources.c.id == f.target_id)
        .where(f.resource_id.in_(ids))
        .where(f.property_id == select(vocabulary.c.id).where(vocabulary.c.uri == RDF_TYPE).scalar_subquery())
        .distinct()
        .order_by(f.resource_id, resources.c.uri)
    )
    found: dict[int, list[str]] = {}
    for number, uri in connection.execute(query):
        found.setdefault(number, []).append(uri)
    return found


def list_atoms(
    connection: Connection, document: DocumentInfo, after: tuple[str, str, str, str], limit: int
) -> Sequence[RowMapping]:
    """A page of a document's atoms, as in the paper's Figure 4."""
    # As in the figure, the row of the resource itself comes before those of its properties.
    query = text(
        "select uri_reference, class, property, value"
        " from (select distinct * from filter_data_view where document_id = :document) atoms"
        " where (uri_reference, class, property <> 'rdf#subject', property, value)"
        "     > (:a, :b, cast(:c as text) not in ('', 'rdf#subject'), :c, :d)"
        " order by uri_reference, class, property <> 'rdf#subject', property, value limit :limit"
    )
    a, b, c, d = after
    rows = connection.execute(query, {"document": document.id, "a": a, "b": b, "c": c, "d": d, "limit": limit})
    return rows.mappings().all()


def encoded(columns: Any) -> tuple[ColumnElement[Any], ...]:
    return (columns.resource_id, columns.property_id, columns.target_id, columns.value, columns.lang,
            columns.datatype_id)  # fmt: skip


def decode(connection: Connection, rows: Any) -> list[Statement]:
    target, subject, name, datatype = (
        resources.alias("target"),
        resources.alias("subject"),
        vocabulary.alias("name"),
        vocabulary.alias("datatype"),
    )
    query = (
        select(subject.c.uri, name.c.uri, target.c.uri, rows.c.value, rows.c.lang, datatype.c.uri)
        .join_from(rows, subject, subject.c.id == rows.c.resource_id)
        .join(name, name.c.id == rows.c.property_id)
        .outerjoin(target, target.c.id == rows.c.target_id)
        .outerjoin(datatype, datatype.c.id == rows.c.datatype_id)
    )
    return [
        Statement(s, p, Term("uri", o) if o is not None else Term("literal", value, lang, kind))
        for s, p, o, value, lang, kind in connection.execute(query)
    ]
