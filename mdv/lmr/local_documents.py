"""Local metadata: documents that are registered at an LMR. Queries at the LMR see them; the MDP does not.

They are checked like documents of an MDP (gate, parse, name blank nodes, validate) and are replaced as a whole. Their
statements neither keep nor fetch global resources. The feed does not change them, also not with a new schema.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection

from mdv.db import cache as db
from mdv.db.cache_gc import delete_unused_rows
from mdv.errors import InvalidDocument, NotFound
from mdv.lmr.cache import Cache
from mdv.lmr.schema import CacheSchema
from mdv.model import Document, Statement
from mdv.rdf.blank import name_blank_nodes
from mdv.rdf.digest import content_hash, statement_hash
from mdv.rdf.gate import MAX_BYTES, gate
from mdv.rdf.locate import locate_flaws
from mdv.rdf.parse import parse
from mdv.rdf.syntax import syntax_of_media_type
from mdv.rdf.validate import refuse_reserved, validate


class LocalPutResult(NamedTuple):
    """The result of registering a local document."""

    uri: str
    created: bool
    changed: bool
    statements: int


def put_local(
    cache: Cache, uri: str, body: bytes, media_type: str | None, max_bytes: int = MAX_BYTES
) -> LocalPutResult:
    """Register or replace a local document. All errors are found before anything is changed."""
    syntax, charset = syntax_of_media_type(media_type)
    gated = gate(body, syntax, charset, max_bytes)
    parsed = parse(gated, uri)
    with cache.reading() as connection:
        schema = cache.schema(connection)
    try:
        refuse_reserved(parsed)
        document = name_blank_nodes(parsed)
        validate(document, schema.schema)
    except InvalidDocument as error:
        raise InvalidDocument(error.detail, locate_flaws(error.flaws, gated), **error.extra) from None
    with cache.writing() as connection:
        db.lock_state(connection)
        now = cache.schema(connection)
        if now.edition != schema.edition:
            validate(document, now.schema)
        return _store(cache, connection, document, now)


def get_local(cache: Cache, uri: str) -> Document:
    """Return a local document, with its statements in a fixed order."""
    with cache.reading() as connection:
        known = _known(connection, uri)
        return Document(
            uri, tuple(sorted(db.read_local_statements(connection, known.id), key=Statement.sort_key)), known.prefixes
        )


def local_etag(cache: Cache, uri: str) -> str | None:
    """Return a value that changes when the local document changes; None if it does not exist."""
    with cache.reading() as connection:
        known = db.find_local_document(connection, uri)
        return known.content.hex() if known is not None else None


def delete_local(cache: Cache, uri: str) -> None:
    """Delete a local document and its statements."""
    with cache.writing() as connection:
        db.lock_state(connection)
        known = _known(connection, uri)
        named = db.delete_local_statements(connection, known.id)
        db.delete_local_document(connection, known.id)
        delete_unused_rows(connection, named)


def list_local(cache: Cache, after: str = "", limit: int = 100) -> list[str]:
    """Return the URIs of local documents after `after`."""
    with cache.reading() as connection:
        return db.list_local_documents(connection, after, limit)


def _known(connection: Connection, uri: str) -> db.LocalDocument:
    known = db.find_local_document(connection, uri)
    if known is None:
        raise NotFound(f"There is no local document {uri}.")
    return known


def _store(cache: Cache, connection: Connection, document: Document, schema: CacheSchema) -> LocalPutResult:
    content = content_hash(document.statements)
    known = db.find_local_document(connection, document.uri)
    if known is not None and known.content == content:
        return LocalPutResult(document.uri, False, False, len(document.statements))
    number = db.upsert_local_document(connection, document.uri, content, document.prefixes)
    named = db.delete_local_statements(connection, number) if known is not None else set()
    _insert(cache, connection, number, document.statements, schema)
    delete_unused_rows(connection, named)
    return LocalPutResult(document.uri, known is None, True, len(document.statements))


def _insert(
    cache: Cache, connection: Connection, number: int, statements: tuple[Statement, ...], schema: CacheSchema
) -> None:
    uris = {s.subject for s in statements} | {s.object.value for s in statements if s.object.is_uri}
    ids = db.get_or_create_resources(connection, uris)
    datatypes = {s.object.datatype for s in statements if s.object.datatype is not None}
    names = cache.names(connection, {s.property for s in statements} | datatypes)
    rows: list[db.CacheRow] = []
    for statement in statements:
        subject, name, term = statement
        keyed = schema.typed_keys(name, term)
        target, value = (ids[term.value], None) if term.is_uri else (None, term.value)
        datatype = names[term.datatype] if term.datatype is not None else None
        rows.append((number, ids[subject], target, statement_hash(statement), names[name], datatype, False, value,
                     term.lang, *keyed))  # fmt: skip
    db.insert_statements(connection, rows)
