"""/search: resources by words of their URIs, labels and values."""

from __future__ import annotations

from typing import Any

from web.auth import require_reader
from web.models import SearchAnswer, SearchQuery
from web.openapi import describe_problems
from web.routing import RouteGroup
from web.search_view import SearchParameters, search_answer
from web.use_cases.search import run_search

routes = RouteGroup("search", "Search by words")


@routes.route(
    "GET", "/search", "Search resources", {200: SearchAnswer} | describe_problems(404, 422), query=SearchQuery
)
def search(query: SearchQuery) -> dict[str, Any]:
    """Finds the resources that have all words of `q` in their URI, labels and other literals, in any document. Case
    and accents do not matter. `pass*` finds all words that start with `pass`. Resources whose labels have all words
    come first.

    If `q` is the start of a URI, such as `http://mdv.example/`, finds the resources whose URIs start with it, ordered
    by URI. If there are none, its words are searched.

    Changes that were complete before the request are found, unless the index has a backlog, for example after a batch.
    Then `up_to_date` is false. A query has at most 10 words. Of each resource, 2,000 values, 50,000 characters of each,
    and 10,000 distinct words are indexed.
    """
    require_reader()
    return search_answer(run_search(SearchParameters(query.q, query.class_, query.after, query.limit)))
