"""Search the cache of an LMR. Recent changes are indexed first."""

from __future__ import annotations

from mdv.inspect.search import search
from mdv.inspect.sql.cache_search import CacheSearch, reading_cache_index
from mdv.lmr.search_index import update_cache_index
from web.labels import reader_languages
from web.lmr.services import query_slot, require_snapshot
from web.search_view import UPDATE_SECONDS, SearchParameters, SearchResult


def run_cache_search(parameters: SearchParameters) -> SearchResult:
    """Return a page of results in the languages of the caller."""
    cache = require_snapshot().cache
    with query_slot():
        up_to_date = update_cache_index(cache, UPDATE_SECONDS)
        with cache.reading() as connection, reading_cache_index(connection) as position:
            schema = cache.schema(connection).schema
            request = parameters.resolve(schema)
            page = search(CacheSearch(connection), request, schema.label_properties, reader_languages())
    return SearchResult(page, schema, position, up_to_date)
