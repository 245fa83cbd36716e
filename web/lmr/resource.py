"""One resource of the cache as JSON or RDF."""

from __future__ import annotations

from flask import Response

from mdv.errors import NotFound
from mdv.inspect.sql.cache import CachedStatements
from mdv.lmr.cache import Cache
from web.responses import resource_response
from web.streams import STREAM_THRESHOLD_STATEMENTS


def cached_resource(cache: Cache, uri: str, media_type: str) -> Response:
    """Return the statements of the MDP and of local metadata about a resource."""
    stored = CachedStatements(uri)
    with cache.reading() as connection:
        few = stored.few(connection, STREAM_THRESHOLD_STATEMENTS)
        prefixes = cache.schema(connection).schema.prefixes
    if few is not None and not few:
        raise NotFound(f"{uri} is not in this cache. Run `mdv explain` to find out why.")
    return resource_response(uri, stored, few, cache.reading, media_type, prefixes)
