"""/filter: the filter, to be looked at."""

from __future__ import annotations

from typing import Any

from mdv.mdp.trace import trace as trace_document
from web.auth import reader
from web.calls import Calls
from web.models import FilterTrace, TraceQuery
from web.openapi import problems
from web.services import services

calls = Calls("filter", "The filter, to be looked at")


@calls.call(
    "GET", "/filter/trace", "Replay the filter on a document", {200: FilterTrace} | problems(404, 422), query=TraceQuery
)
def trace(query: TraceQuery) -> dict[str, Any]:
    """The paper's algorithm (section 3.4) on a registered document and the rules of now: its table ResultObjects,
    iteration by iteration as in Figure 9, then what end rules found. Changes nothing. An iteration shows at most 1,000
    rows, and there are at most 50; `truncated` tells that something was cut off.
    """
    reader()
    with services().engine.connect() as connection:
        return trace_document(connection, query.document, services().schemas).as_dict()
