"""Local metadata: documents that are registered at an LMR, in every query there and in no message to the MDP.

They take the same way as an MDP's (gate, parse, name blank nodes, validate) and are replaced whole. Their statements
keep nothing global and fetch nothing; the feed does not touch them, whatever schema it brings.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection

from mdv.db import cache as db
from mdv.db.cache_collect import drop_rows
from mdv.errors import InvalidDocument, NotFound
from mdv.lmr.schema import SchemaInForce
from mdv.lmr.store import Cache
from mdv.model import Document, Statement
from mdv.rdf.blank import name_blank_nodes
from mdv.rdf.digest import content_hash, statement_hash
from mdv.rdf.gate import MAX_BYTES, gate
from mdv.rdf.locate import locate
from mdv.rdf.parse import parse
from mdv.rdf.syntax import syntax_of_media_type
from mdv.rdf.validate import refuse_reserved, validate


class PutLocal(NamedTuple):
    """What became of a local document."""

    uri: str
    created: bool
    changed: bool
    statements: int


def put_local(cache: Cache, uri: str, body: bytes, media_type: str | None, max_bytes: int = MAX_BYTES) -> PutLocal:
    """Register a local document, or replace it; every error is found before anything is changed."""
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
        raise InvalidDocument(error.detail, locate(error.flaws, gated), **error.extra) from None
    with cache.writing() as connection:
        db.lock_state(connection)
        now = cache.schema(connection)
        if now.edition != schema.edition:
            validate(document, now.schema)
        return _store(cache, connection, document, now)


def get_local(cache: Cache, uri: str) -> Document:
    """A local document: its statements in a fixed order."""
    with cache.reading() as connection:
        known = _known(connection, uri)
        return Document(uri, tuple(sorted(db.local_statements(connection, known.id), key=_order)), known.prefixes)


def local_edition(cache: Cache, uri: str) -> str | None:
    """What changes when a local document does; None where there is none."""
    with cache.reading() as connection:
        known = db.find_local_document(connection, uri)
        return known.content.hex() if known is not None else None


def delete_local(cache: Cache, uri: str) -> None:
    """A local document and all that it said go."""
    with cache.writing() as connection:
        db.lock_state(connection)
        known = _known(connection, uri)
        named = db.drop_local_statements(connection, known.id)
        db.drop_local_document(connection, known.id)
        drop_rows(connection, named)


def list_local(cache: Cache, after: str = "", limit: int = 100) -> list[str]:
    """The URIs of local documents, from the one after `after`."""
    with cache.reading() as connection:
        return db.list_local_documents(connection, after, limit)


def _known(connection: Connection, uri: str) -> db.LocalDocument:
    known = db.find_local_document(connection, uri)
    if known is None:
        raise NotFound(f"No local document {uri} is registered here.")
    return known


def _store(cache: Cache, connection: Connection, document: Document, schema: SchemaInForce) -> PutLocal:
    content = content_hash(document.statements)
    known = db.find_local_document(connection, document.uri)
    if known is not None and known.content == content:
        return PutLocal(document.uri, False, False, len(document.statements))
    number = db.keep_local_document(connection, document.uri, content, document.prefixes)
    named = db.drop_local_statements(connection, number) if known is not None else set()
    _insert(cache, connection, number, document.statements, schema)
    drop_rows(connection, named)
    return PutLocal(document.uri, known is None, True, len(document.statements))


def _insert(
    cache: Cache, connection: Connection, number: int, statements: tuple[Statement, ...], schema: SchemaInForce
) -> None:
    uris = {s.subject for s in statements} | {s.object.value for s in statements if s.object.is_uri}
    ids = db.number_uris(connection, uris)
    datatypes = {s.object.datatype for s in statements if s.object.datatype is not None}
    names = cache.names(connection, {s.property for s in statements} | datatypes)
    rows: list[db.Row] = []
    for statement in statements:
        subject, name, term = statement
        keyed = schema.typed_keys(name, term)
        target, value = (ids[term.value], None) if term.is_uri else (None, term.value)
        datatype = names[term.datatype] if term.datatype is not None else None
        rows.append((number, ids[subject], target, statement_hash(statement), names[name], datatype, False, value,
                     term.lang, *keyed))  # fmt: skip
    db.insert_statements(connection, rows)


def _order(statement: Statement) -> tuple[str, ...]:
    subject, name, (kind, value, lang, datatype) = statement
    return subject, name, kind, value, lang or "", datatype or ""
