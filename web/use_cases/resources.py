"""Return a resource as JSON or RDF."""

from __future__ import annotations

from typing import Any

from flask import Response

from mdv.errors import NotFound
from mdv.inspect.eca_log import find_origins, origins_json
from mdv.inspect.sql.documents import StoredStatements
from mdv.inspect.sql.resources import list_resource_documents
from web.json_bodies import JSON
from web.responses import resource_response
from web.services import services
from web.streams import STREAM_THRESHOLD_STATEMENTS


def one_resource(uri: str, media_type: str, with_documents: bool) -> Response:
    """Return the statements of all documents about a resource."""
    stored, reading = StoredStatements(uri), services().engine.connect
    with reading() as connection:
        few = stored.few(connection, STREAM_THRESHOLD_STATEMENTS)
        more: dict[str, Any] = {}
        if with_documents:
            more["documents"] = list_resource_documents(connection, uri)
        if with_documents and media_type == JSON:
            more["origins"] = origins_json(find_origins(connection, uri), few)
        prefixes = services().schemas.now(connection).schema.prefixes
    if few is not None and not few:
        raise NotFound(f"No document describes {uri}.")
    return resource_response(uri, stored, few, reading, media_type, prefixes, **more)
