"""/explain: why a resource is, or is not, at an LMR."""

from __future__ import annotations

from typing import Any

from mdv.db.lmrs import Lmr
from mdv.errors import BadRequest, Forbidden
from mdv.mdp.because import Why
from mdv.mdp.subscribe import SELF, get_lmr
from mdv.mdp.why import explain_resource
from web.auth import lmr_reader
from web.calls import Calls
from web.models import WhyQuery
from web.openapi import json_answer, problems, record
from web.services import services

calls = Calls("explain", "Why a resource is, or is not, at an LMR")

_WHY = json_answer(
    record(resource="string", held="boolean", selected="boolean", described="boolean", position="integer"), "Why"
)


@calls.call("GET", "/explain", "Why a resource is, or is not, at an LMR", {200: _WHY} | problems(404, 422),
            query=WhyQuery)  # fmt: skip
def explain(query: WhyQuery) -> dict[str, Any]:
    """The rules that select it, with the values that satisfy their predicates; the chain of strong references that
    leads to it; or the first predicate that fails."""
    caller = lmr_reader()
    s = services()
    name = query.lmr
    if name == SELF:
        if caller.lmr is None:
            raise BadRequest(f"{SELF!r} is an LMR that calls with its own token.")
        name = str(caller.lmr)
    with s.engine.connect() as connection:
        if caller.lmr is not None and name not in (caller.name, str(caller.lmr)):
            raise Forbidden(f"The token of the LMR {caller.name!r} does not tell about others.")
        lmr = get_lmr(connection, name)
    return {**told_why(lmr, query.uri).as_dict(), "lmr": lmr.name}


def told_why(lmr: Lmr, uri: str) -> Why:
    """Why a resource is, or is not, at an LMR."""
    s = services()
    with s.engine.connect() as connection:
        return explain_resource(connection, lmr.id, uri, s.schemas, s.vocabulary, s.rules)
