"""Read documents: their versions, statements and atoms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Connection,
    RowMapping,
    Select,
    Subquery,
    case,
    func,
    select,
    text,
    union_all,
)

from mdv.backbone.etag import document_etag
from mdv.db.tables import (
    document_versions,
    documents,
    filter_data,
    filter_data_history,
    resources,
    transactions,
    vocabulary,
)
from mdv.inspect.sql.encoded_statements import decode_statement, decode_statements, encoded_columns, select_decoded
from mdv.model import BLANK_MARK, RDF_TYPE, Statement

LATEST = None
MAX_ROWS_READ_UNCOUNTED = 1000
"""Up to this many rows are read without counting them first."""


@dataclass(frozen=True, slots=True)
class DocumentVersion:
    """A version of a document: its position, its time, the numbers of changed resources, and its cause: the name of a
    kind of causes, the agent, and the caller. `origin`: with a backbone, the life and number of its operation."""

    uri: str
    version: int
    position: int
    present: bool
    at: datetime
    inserted: int
    updated: int
    deleted: int
    unchanged: int
    cause: str
    agent: str | None
    by: str | None
    origin: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """A document without its statements. `digest`: of its statements, with a backbone."""

    id: int
    uri: str
    version: int
    position: int
    present: bool
    prefixes: dict[str, str]
    digest: int | None = None

    @property
    def etag(self) -> str:
        return document_etag(self.version, self.digest)


def read_document(connection: Connection, uri: str, version: int | None = LATEST) -> DocumentInfo | None:
    """Return the latest or a given version of a document; None if it does not exist."""
    d, v = documents.c, document_versions.c
    # The digest of the latest version appears and disappears with the backbone.
    digest = case((v.version == d.version, d.digest), else_=v.digest)
    query = select(d.id, d.uri, v.version, v.position, v.present, v.prefixes, digest).join_from(
        documents, document_versions, v.document_id == d.id
    )
    row = connection.execute(
        query.where(d.uri == uri, v.version == (d.version if version is None else version))
    ).one_or_none()
    return DocumentInfo(*row) if row else None


def read_document_statements(
    connection: Connection, document: DocumentInfo, most: int | None = None
) -> list[Statement]:
    """Return the statements of a version of a document; with `most`, only those of its first resources."""
    rows = _rows_of(document)
    some = (
        select(rows).order_by(rows.c.resource_id, rows.c.property_id).limit(most) if most is not None else select(rows)
    )
    return decode_statements(connection, some.subquery())


def count_statements(connection: Connection, document: DocumentInfo) -> int:
    """Return the number of statements of a version of a document."""
    return connection.execute(select(func.count()).select_from(_rows_of(document))).scalar_one()


def _rows_of(document: DocumentInfo) -> Subquery:
    now, then = filter_data.c, filter_data_history.c
    current = select(*encoded_columns(now)).where(now.document_id == document.id, now.position <= document.position)
    past = select(*encoded_columns(then)).where(
        then.document_id == document.id, then.position <= document.position, then.until_position > document.position
    )
    return union_all(current, past).subquery()


class StoredStatements:
    """The statements of a version of a document, or those of all documents about a resource (given by its URI)."""

    def __init__(self, of: str | DocumentInfo) -> None:
        self._every = select(_rows_of(of)) if isinstance(of, DocumentInfo) else _rows_about(of)
        self._rows = self._every.distinct().subquery()

    def few(self, connection: Connection, most: int) -> list[Statement] | None:
        """Return all statements; None if there are more than `most` rows. Many rows are counted before they are
        read."""
        first = min(most, MAX_ROWS_READ_UNCOUNTED)
        found = decode_statements(connection, self._every.limit(first + 1).subquery())
        if len(found) > first:
            counted = select(func.count()).select_from(self._every.limit(most + 1).subquery())
            if connection.execute(counted).scalar_one() > most:
                return None
            found = decode_statements(connection, self._every.subquery())
        return list(dict.fromkeys(found))

    def chunks(self, connection: Connection, size: int) -> Iterator[list[Statement]]:
        """Yield the statements in the order of serialization, in lists of `size`."""
        subject, name, target, value, lang, datatype = select_decoded(self._rows).selected_columns
        order = (
            func.strpos(subject, BLANK_MARK) > 0, subject, name != RDF_TYPE, name, target.is_not(None), target, value,
            lang.nulls_first(), datatype.nulls_first(),
        )  # fmt: skip
        query = select_decoded(self._rows).order_by(*order)
        options = {"stream_results": True, "yield_per": size}
        with connection.execute(query, execution_options=options) as rows:
            for part in rows.partitions():
                yield [decode_statement(row) for row in part]

    def properties(self, connection: Connection) -> list[str]:
        """Return the properties of the statements."""
        used = select(self._rows.c.property_id).distinct()
        return list(connection.scalars(select(vocabulary.c.uri).where(vocabulary.c.id.in_(used)).order_by("uri")))

    def find_value(self, connection: Connection, pattern: str) -> str | None:
        """Return the subject of a statement whose value matches a regular expression; None if there is none."""
        found = select(self._rows.c.resource_id).where(self._rows.c.value.regexp_match(pattern)).limit(1)
        return connection.scalar(select(resources.c.uri).where(resources.c.id == found.scalar_subquery()))


def _rows_about(uri: str) -> Select[Any]:
    now = filter_data.c
    resource = select(resources.c.id).where(resources.c.uri == uri).scalar_subquery()
    return select(*encoded_columns(now)).where(now.resource_id == resource)


def list_documents(
    connection: Connection, after: str, limit: int, prefix: str = "", present: bool = True
) -> Sequence[RowMapping]:
    """Return a page of the present or the deleted documents whose URIs start with `prefix`, ordered by URI."""
    d = documents.c
    query = select(d.uri, d.version, d.position).where(d.present.is_(present), d.uri > after)
    query = query.order_by(d.uri).limit(limit)
    if prefix:
        # In code point order, all URIs with the prefix are below the prefix plus the last code point.
        query = query.where(d.uri >= prefix, d.uri < prefix + chr(0x10FFFF))
    return connection.execute(query).mappings().all()


def list_versions(connection: Connection, uri: str, before: int, limit: int) -> list[DocumentVersion]:
    """Return a page of a document's versions, newest first."""
    d, v = documents.c, document_versions.c
    query = (
        select(d.uri, v.version, v.position, v.present, transactions.c.at,
               v.inserted, v.updated, v.deleted, v.unchanged, v.cause, v.agent, v.changed_by,
               v.origin_life, v.origin_seq)
        .join_from(documents, document_versions, v.document_id == d.id)
        .join(transactions, transactions.c.position == v.position)
        .where(d.uri == uri, v.version < before)
        .order_by(v.version.desc())
        .limit(limit)
    )  # fmt: skip
    rows = [[*row[:-2], None if row[-2] is None else (row[-2], row[-1])] for row in connection.execute(query)]
    return [DocumentVersion(*row) for row in rows]


def list_atoms(
    connection: Connection, document: DocumentInfo, after: tuple[str, str, str, str], limit: int
) -> Sequence[RowMapping]:
    """Return a page of a document's atoms, as in Figure 4 of the paper."""
    # As in the figure, the row of the resource itself comes before the rows of its properties.
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
