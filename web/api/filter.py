"""/filter: replay of the filter."""

from __future__ import annotations

from typing import Any

from mdv.inspect.filter_replay import replay_filter as trace_document
from web.auth import require_reader
from web.models import FilterTrace, TraceQuery
from web.openapi import describe_problems
from web.routing import RouteGroup
from web.services import services

routes = RouteGroup("filter", "Replay of the filter")


@routes.route(
    "GET",
    "/filter/trace",
    "Replay the filter on a document",
    {200: FilterTrace} | describe_problems(404, 422),
    query=TraceQuery,
)
def trace(query: TraceQuery) -> dict[str, Any]:
    """Runs the paper's algorithm (section 3.4) on a registered document and the current rules. Returns the table
    ResultObjects by iteration, as in Figure 9, and the results of the end rules. Changes nothing. At most 50 iterations
    with 1,000 rows each are returned; `truncated` is true if there are more.
    """
    require_reader()
    with services().engine.connect() as connection:
        return trace_document(connection, query.document, services().schemas).as_dict()
