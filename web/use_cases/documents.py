"""Documents: a version as RDF, and the references of other documents to its resources."""

from __future__ import annotations

from flask import Response
from sqlalchemy import Connection

from mdv.errors import TooLarge
from mdv.inspect.sql.documents import DocumentInfo, StoredStatements, read_document
from mdv.inspect.sql.incoming_references import MAX_REFERENCES_LISTED, IncomingReference, list_incoming_references
from mdv.rdf.stream import make_stream_writer
from mdv.rdf.syntax import Syntax
from web.negotiate import rdf_response, run_in_thread, serialise_statements
from web.services import services
from web.streams import STREAM_CHUNK_ITEMS, STREAM_THRESHOLD_STATEMENTS, stream_statements


def document_response(document: DocumentInfo, syntax: Syntax) -> Response:
    """Return a version of a document in a syntax, with its own prefixes and those of the schema."""
    stored, reading = StoredStatements(document), services().engine.connect
    with reading() as connection:
        few = stored.few(connection, STREAM_THRESHOLD_STATEMENTS)
        prefixes = _prefixes(connection, document)
    if few is None:
        return stream_statements(stored, reading, syntax, prefixes, document.uri)
    return rdf_response(serialise_statements(few, syntax, prefixes, document.uri), syntax)


def document_text(document: DocumentInfo, syntax: Syntax, most: int) -> bytes:
    """Return the text of a version, at most `most` bytes."""
    stored, text = StoredStatements(document), bytearray()
    with services().engine.connect() as connection:
        prefixes = _prefixes(connection, document)
        few = stored.few(connection, STREAM_THRESHOLD_STATEMENTS)
        if few is not None:
            return serialise_statements(few, syntax, prefixes, document.uri)
        for piece in make_stream_writer(syntax, prefixes, document.uri).pieces(
            stored.chunks(connection, STREAM_CHUNK_ITEMS), run_in_thread
        ):
            text += piece
            if len(text) > most:
                raise TooLarge(
                    f"The text of {document.uri} is larger than the limit of {most:,} bytes. Download it instead."
                )
    return bytes(text)


def _prefixes(connection: Connection, document: DocumentInfo) -> dict[str, str]:
    return dict(services().schemas.now(connection).schema.prefixes) | document.prefixes


def incoming_references(uri: str) -> list[IncomingReference]:
    """Return the first references of other documents to resources that only this document describes."""
    with services().engine.connect() as connection:
        document = read_document(connection, uri)
        return list_incoming_references(connection, document.id, MAX_REFERENCES_LISTED) if document is not None else []
