"""Return a resource as JSON or RDF."""

from __future__ import annotations

from flask import Response

from mdv.errors import NotFound
from mdv.inspect.sql.documents import StoredStatements
from mdv.inspect.sql.resources import list_resource_documents
from web.responses import resource_response
from web.services import services
from web.streams import STREAM_THRESHOLD_STATEMENTS


def one_resource(uri: str, media_type: str, with_documents: bool) -> Response:
    """Return the statements of all documents about a resource."""
    stored, reading = StoredStatements(uri), services().engine.connect
    with reading() as connection:
        few = stored.few(connection, STREAM_THRESHOLD_STATEMENTS)
        more = {"documents": list_resource_documents(connection, uri)} if with_documents else {}
        prefixes = services().schemas.now(connection).schema.prefixes
    if few is not None and not few:
        raise NotFound(f"No document describes {uri}.")
    return resource_response(uri, stored, few, reading, media_type, prefixes, **more)
