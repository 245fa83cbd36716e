"""/real: run and check programs in ReAL."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

from flask import Response

from mdv.errors import BadRequest, ProgramStopped
from mdv.inspect.run_program import RUN_IS_NOT_AVAILABLE, ProgramRun, check_code, mark_json
from web.auth import require_reader
from web.json_bodies import JSON, describe_json_body, read_json_body
from web.models import ProgramBody, ProgramCheckBody, ProgramChecked
from web.negotiate import negotiate_type, run_in_thread
from web.openapi import describe_json, describe_problems, object_schema
from web.routing import RouteGroup
from web.services import Services, services
from web.use_cases.programs import (
    EVENTS,
    NDJSON,
    Event,
    client_connection,
    later_events,
    prepare_program,
    program_slot,
    stream_program,
    take_turn,
)

routes = RouteGroup("real", "Programs in the resource action language")

MAX_BODY_BYTES = 512 * 1024
MAX_JSON_SOLUTIONS = 100_000
MAX_JSON_CHARACTERS = 50_000_000
"""Limits of an answer as JSON, which is kept until the program ends."""

_EXAMPLE = {"code": "rdf:type(?host, ex:CycleProvider) AND ex:serverPort(?host, 5874)",
            "prefixes": {"ex": "http://mdv.example/schema#"}, "mode": "read"}  # fmt: skip
_ANSWER = describe_json(
    object_schema(solutions="array", effects="object", position="integer", warnings="array"),
    "The solutions, the net numbers of effects, and the position that was read; in mode sandbox also the difference",
)
_ANSWER["content"]["application/json"]["schema"]["properties"]["solutions"]["items"] = {"type": "object"}
_ANSWER["content"]["application/json"]["schema"]["properties"]["warnings"]["items"] = {"type": "object"}
_ANSWER["content"][NDJSON] = _ANSWER["content"][EVENTS] = {"schema": {"type": "string"}}


@routes.route(
    "POST",
    "/real",
    "Run a program",
    {200: _ANSWER} | describe_problems(406, 408, 413, 415, 422, 429),
    body=describe_json_body(ProgramBody, _EXAMPLE),
    reads=True,
)
def run() -> Response:
    """Runs a program on the documents as of the current position. It changes nothing: mode `read` refuses changes
    outside `{ }`; mode `sandbox` (the default) keeps them in memory, reports them and drops them. Mode `run` is not
    available yet.

    With `Accept: application/x-ndjson` or `text/event-stream`, events are sent as they happen, and no faster than they
    are read: `solution` (`n`, `binding`), `effect` (`change`, `document`, `statement`), `warning` (`message`, `span`).
    The last one is `end` (`solutions`, `effects`, `position`, in mode sandbox `difference` by document) or `error`
    (`problem`). Closing the connection ends the program.

    An error of a program is answered by 422 with `span`, `solutions`, `effects`, `position`, and `limit` if a limit
    ended it. After the first events of a stream, it is an event."""
    caller = require_reader()
    body = read_json_body(ProgramBody, MAX_BODY_BYTES)
    media_type = negotiate_type([JSON, NDJSON, EVENTS])
    if body.mode == "run":
        raise BadRequest(RUN_IS_NOT_AVAILABLE)
    s = services()
    with ExitStack() as stack:
        stack.enter_context(program_slot(s, caller))
        program = prepare_program(
            s, caller, body.code, is_read_only=body.mode == "read", into=body.into, binding=body.binding,
            prefixes=body.prefixes, limit=body.limit,
        )  # fmt: skip
        if media_type == JSON:
            return _whole_answer(s, program)
        first: list[Event] = []
        while not (first or program.is_waiting or program.is_over):
            first = take_turn(s, program)
        if program.problem is not None and not program.solutions:
            raise program.problem
        closing = stack.pop_all()
    return stream_program(s, program, first, media_type, closing)


@routes.route(
    "POST",
    "/real/check",
    "Check a program",
    {200: ProgramChecked} | describe_problems(408, 413, 415, 422),
    body=describe_json_body(ProgramCheckBody, {"code": "rdf:type(?x, rdfs:Class) AND +rdfs:label(?x, ?y)"}),
    reads=True,
)
def check() -> dict[str, Any]:
    """Returns warnings about a program, with their places. An invalid program is answered by 422 with all errors. The
    program is not run."""
    require_reader()
    body = read_json_body(ProgramCheckBody, MAX_BODY_BYTES)
    with services().single.connect() as connection:
        schema = services().schemas.now(connection).schema
    marks = run_in_thread(check_code, body.code, schema, body.prefixes, body.inputs)
    return {"warnings": [mark_json(body.code, mark) for mark in marks]}


def _whole_answer(s: Services, program: ProgramRun) -> Response:
    solutions: list[str] = []
    warnings: list[Event] = []
    end: Event = {}
    characters = 0
    for events in later_events(s, program, client_connection()):
        for event in events:
            kind = event.pop("type")
            if kind == "solution":
                solutions.append(json.dumps(event["binding"], separators=(",", ":")))
                characters += len(solutions[-1])
            elif kind == "warning":
                warnings.append(event)
            elif kind == "end":
                end = event
        if len(solutions) > MAX_JSON_SOLUTIONS or characters > MAX_JSON_CHARACTERS:
            raise ProgramStopped(
                f"The program has more than {MAX_JSON_SOLUTIONS:,} solutions, or they are too large for an answer as"
                f" JSON. Set `limit`, or ask for {NDJSON}.",
                solutions=len(solutions), effects=program.effects(), limit="solutions",
                position=program.view.position if program.view is not None else 0,
            )  # fmt: skip
    if program.problem is not None:
        raise program.problem
    end.pop("solutions", None)
    rest = json.dumps({**end, "warnings": warnings}, separators=(",", ":"))
    return Response(
        ['{"solutions":[', ",".join(solutions), "],", rest[1:]], content_type=JSON, headers={"Vary": "Accept"}
    )
