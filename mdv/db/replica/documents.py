"""Read documents with their replicated state."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.backbone.document_json import document_from_json, unsigned
from mdv.backbone.document_state import ReplicatedDocument
from mdv.backbone.vector import NO_DOT, Dot
from mdv.db.delta import StoredDocument
from mdv.db.engine import driver
from mdv.db.load_sql import load_sql
from mdv.model import Statement, Term

RowPlace = tuple[int, int]
"""The ID of a document and a position: where a row was written."""


class ReplicatedRow(NamedTuple):
    """A document as it is stored, with its replicated state."""

    stored: StoredDocument
    document: ReplicatedDocument


def find_replicated(connection: Connection, uris: Collection[str]) -> dict[str, ReplicatedRow]:
    """Return those of these documents that are stored."""
    rows = _execute(connection, "find_replicated_documents", uris=list(uris)).fetchall()
    return {row.stored.uri: row for row in map(_document, rows)}


def iter_replicated(connection: Connection, page: int = 5000) -> Iterator[ReplicatedRow]:
    """Yield all documents, also deleted ones."""
    return _iter(connection, "list_replicated_documents", page)


def list_merged(connection: Connection, after: str, most: int) -> list[ReplicatedRow]:
    """Return documents that concurrent operations have changed, in the order of their URIs."""
    return [_document(row) for row in _execute(connection, "list_merged_documents", after=after, most=most).fetchall()]


def refuse_documents(connection: Connection, uris: Collection[str]) -> None:
    """Note documents that may have statements which the schema of the backbone refuses."""
    if uris:
        _execute(connection, "refuse_documents", uris=list(uris))


def list_refused_documents(connection: Connection) -> list[str]:
    """Return the documents that may have statements which the schema of the backbone refuses."""
    return [uri for (uri,) in _execute(connection, "list_refused_documents").fetchall()]


def accept_documents(connection: Connection, uris: Collection[str]) -> None:
    """Forget documents whose statements the schema accepts."""
    if uris:
        _execute(connection, "accept_documents", uris=list(uris))


def iter_sums(connection: Connection) -> Iterator[tuple[str, int, int]]:
    """Yield the URI, the version and the digest of every document."""
    for uri, version, digest in _execute(connection, "list_document_sums").fetchall():
        yield uri, version, unsigned(digest)


def read_rows(connection: Connection, documents: Collection[int]) -> dict[int, dict[Statement, Dot]]:
    """Return the statements of documents by their IDs, with the operations that wrote their rows."""
    found: dict[int, dict[Statement, Dot]] = {number: {} for number in documents}
    for row in _execute(connection, "find_document_statements", documents=list(documents)).fetchall():
        number, subject, name, target, value, lang, datatype, _, life, seq = row
        term = Term.uri(target) if target is not None else Term.literal(value, lang, datatype)
        found[number][Statement(subject, name, term)] = (life, seq) if life is not None else NO_DOT
    return found


def find_origins(connection: Connection, places: Iterable[RowPlace]) -> dict[RowPlace, Dot]:
    """Return the operations that wrote the rows of documents at these positions. Others were there before the
    backbone."""
    wanted = list(places)
    if not wanted:
        return {}
    documents, positions = [document for document, _ in wanted], [position for _, position in wanted]
    rows = _execute(connection, "find_origins", documents=documents, positions=positions).fetchall()
    return {(document, position): (life, seq) for document, position, life, seq in rows if life is not None}


def find_origin_times(connection: Connection, documents: Collection[int]) -> dict[tuple[int, Dot], datetime]:
    """Return when operations were applied here, by the IDs of documents and the operations."""
    rows = _execute(connection, "find_origin_times", documents=list(documents)).fetchall()
    return {(document, (life, seq)): at for document, life, seq, at in rows}


def forget_versions(connection: Connection, documents: Collection[int]) -> None:
    """Delete the history of documents: they are taken over from another member, with its numbers of versions."""
    _execute(connection, "forget_versions", documents=list(documents))


def _iter(connection: Connection, name: str, page: int) -> Iterator[ReplicatedRow]:
    after = ""
    while rows := _execute(connection, name, after=after, most=page).fetchall():
        yield from map(_document, rows)
        after = rows[-1][1]


def _document(row: Any) -> ReplicatedRow:
    number, uri, version, present, content, digest, statements, replica, prefixes = row
    stored = StoredDocument(number, uri, version, present, bytes(content), digest, statements, replica)
    fields = json.loads(replica) if replica is not None else {}
    return ReplicatedRow(stored, document_from_json(version, unsigned(digest or 0), statements or 0, prefixes, fields))


def _execute(connection: Connection, query: str, /, **values: object) -> Any:
    return driver(connection).execute(load_sql("replica")[query], values, prepare=True)
