"""/real/explain and /real/actions: what a program would do, and the actions that programs can call."""

from __future__ import annotations

from typing import Any

from mdv.inspect.explain_program import explain_program
from mdv.inspect.real_actions import action_json, list_actions
from web.auth import require_reader
from web.json_bodies import describe_json_body, read_json_body
from web.models import ProgramExplainBody, ProgramExplained, RealActionShown, RealActionsQuery
from web.negotiate import run_program_turn
from web.number_params import read_after
from web.openapi import describe_json, describe_problems, page_schema
from web.routing import RouteGroup
from web.services import services
from web.use_cases.programs import check_into, program_slot

routes = RouteGroup("real-plans", "Plans of programs, and the actions that they can call")

MAX_BODY_BYTES = 512 * 1024
_ACTIONS = describe_json(page_schema(RealActionShown.model_json_schema()), "A page of actions")
_EXAMPLE = {"code": "rdf:type(?host, ex:CycleProvider) AND -ex:serverPort(?host, 5874)",
            "prefixes": {"ex": "http://mdv.example/schema#"}}  # fmt: skip


@routes.route(
    "POST",
    "/real/explain",
    "Explain a program",
    {200: ProgramExplained} | describe_problems(408, 413, 415, 422, 429),
    body=describe_json_body(ProgramExplainBody, _EXAMPLE),
    reads=True,
)
def explain_real() -> dict[str, Any]:
    """Returns the plan of a program, how many statements each of its reads matches, and what it may read and write. The
    bodies of the actions that it calls are included. The program is not run."""
    caller = require_reader()
    body = read_json_body(ProgramExplainBody, MAX_BODY_BYTES)
    s = services()
    into = check_into(body.into, caller)
    with s.single.connect() as connection:
        schema = s.schemas.now(connection)
    with program_slot(s, caller), s.engine.connect() as connection:
        session = connection.connection.driver_connection
        return run_program_turn(explain_program, session, schema, body.code, body.prefixes, into, body.inputs)


@routes.route(
    "GET",
    "/real/actions",
    "List actions",
    {200: _ACTIONS} | describe_problems(422),
    query=RealActionsQuery,
)
def real_actions(query: RealActionsQuery) -> dict[str, Any]:
    """Lists the stored actions with the names of their inputs and outputs: what CALL, SPAWN and EXPAND can name.
    `problem` says why one cannot be called."""
    require_reader()
    s = services()
    with s.single.connect() as connection:
        schema = s.schemas.now(connection)
    after = read_after(query.after)
    with s.engine.connect() as connection:
        session = connection.connection.driver_connection
        found = run_program_turn(list_actions, session, schema, after, query.limit + 1, query.holding or "")
    items = [action_json(action) for action in found[: query.limit]]
    return {"items": items, "next": str(found[query.limit - 1].id) if len(found) > query.limit else None}
