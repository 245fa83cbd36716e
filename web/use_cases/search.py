"""Search the resources of an MDP. Recent changes are indexed first."""

from __future__ import annotations

from mdv.inspect.search import search
from mdv.inspect.sql.search import StoreSearch, reading_index
from mdv.mdp.search_index import update_search_index
from web.labels import reader_languages
from web.negotiate import run_in_thread
from web.search_view import UPDATE_SECONDS, SearchParameters, SearchResult
from web.services import services


def run_search(parameters: SearchParameters) -> SearchResult:
    """Return a page of results in the languages of the caller."""
    s = services()
    up_to_date = update_search_index(s.engine, s.schemas, UPDATE_SECONDS, apart=run_in_thread)
    with s.engine.connect() as connection, reading_index(connection) as position:
        schema = s.schemas.now(connection).schema
        request, labels = parameters.resolve(schema), schema.label_properties
        page = search(StoreSearch(connection), request, labels, reader_languages(), run_in_thread)
    return SearchResult(page, schema, position, up_to_date)
