"""/explain: why an LMR holds a resource or not."""

from __future__ import annotations

from typing import Any

from mdv.errors import BadRequest, Forbidden
from mdv.inspect.eca_log import list_origins
from mdv.mdp.lmrs import SELF_NAME, get_lmr
from web.auth import require_reader_or_lmr
from web.models import ExplainQuery
from web.openapi import describe_json, describe_problems, object_schema
from web.routing import RouteGroup
from web.services import services
from web.use_cases.lmrs import explain_at_lmr

routes = RouteGroup("explain", "Explains why an LMR holds a resource or not")

_EXPLANATION = describe_json(
    object_schema(resource="string", held="boolean", selected="boolean", described="boolean", position="integer"), "Why"
)


@routes.route("GET", "/explain", "Explain why an LMR holds a resource or not",
            {200: _EXPLANATION} | describe_problems(404, 422), query=ExplainQuery)  # fmt: skip
def explain(query: ExplainQuery) -> dict[str, Any]:
    """Returns the rules that select the resource, with the values that satisfy their predicates; or the chain of strong
    references that leads to it; or the first predicate that fails. `origins`: which of its statements were inserted by
    event-condition-action rules and updates, and why."""
    caller = require_reader_or_lmr()
    s = services()
    name = query.lmr
    if name == SELF_NAME:
        if caller.lmr is None:
            raise BadRequest(
                f"{SELF_NAME!r} stands for the LMR of the token, but this token does not belong to an LMR."
            )
        name = str(caller.lmr)
    with s.engine.connect() as connection:
        if caller.lmr is not None and name not in (caller.name, str(caller.lmr)):
            raise Forbidden(f"The token of the LMR {caller.name!r} allows explanations for this LMR only.")
        lmr = get_lmr(connection, name)
        origins = list_origins(connection, query.uri)
    return {**explain_at_lmr(lmr, query.uri).as_dict(), "lmr": lmr.name, "origins": origins}
