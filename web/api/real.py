"""/real: run and check programs in ReAL."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

from flask import Response, make_response, request

from mdv.accounts.callers import Caller
from mdv.errors import Forbidden, ProgramStopped, TooMany
from mdv.inspect.processes import find_process
from mdv.inspect.run_program import ProgramRun, check_code
from mdv.mdp.real.program_text import mark_json
from mdv.mdp.real.start import PROCESS_PREFIX
from web.auth import require_reader
from web.json_bodies import JSON, describe_json_body, read_json_body
from web.models import ProcessStarted, ProgramBody, ProgramCheckBody, ProgramChecked
from web.negotiate import negotiate_type, run_in_thread
from web.openapi import describe_json, describe_problems, object_schema
from web.routing import RouteGroup
from web.services import Services, services
from web.use_cases.processes import FollowedProcess, ProgramOptions, read_event_id, start_process_of
from web.use_cases.programs import (
    EVENTS,
    NDJSON,
    Event,
    client_connection,
    complete_refusals,
    later_events,
    prepare_program,
    program_slot,
    stream_events,
    stream_program,
    take_turn,
)

routes = RouteGroup("real", "Programs in the resource action language")

MAX_BODY_BYTES = 512 * 1024
MAX_FOLLOWED_PER_CALLER = 64
"""Programs in mode run that one caller follows at the same time in one process."""
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
    {200: _ANSWER, 202: ProcessStarted} | describe_problems(403, 406, 408, 413, 415, 422, 429),
    body=describe_json_body(ProgramBody, _EXAMPLE),
    reads=True,
)
def run() -> Response:
    """Runs a program. Mode `read` refuses changes outside `{ }`; mode `sandbox` (the default) keeps them in memory,
    reports them and drops them. Mode `run` changes documents: the program is a process, whose IRI is in the header
    `Location`. With `Prefer: respond-async` it answers 202 at once; read its solutions at
    `/real/processes/P/solutions`.

    With `Accept: application/x-ndjson` or `text/event-stream`, events are sent as they happen, and no faster than they
    are read: `solution` (`n`, `binding`), `effect` (`change`, `document`, `statement`), `commit` (`position`), `log`
    (`message`), `warning` (`message`, `span`).
    The last one is `end` (`solutions`, `effects`, `position`, in mode sandbox `difference` by document) or `error`
    (`problem`). Closing the connection ends the program. In mode `run`, server-sent events have an ID: the same call
    with it as `Last-Event-ID` goes on after that event, if it comes within 5 seconds.

    An error of a program is answered by 422 with `span`, `solutions`, `effects`, `position`, and `limit` if a limit
    ended it. After the first events of a stream, it is an event."""
    caller = require_reader()
    body = read_json_body(ProgramBody, MAX_BODY_BYTES)
    media_type = negotiate_type([JSON, NDJSON, EVENTS])
    s = services()
    if body.mode == "run":
        with complete_refusals(s):
            return _run_process(caller, body, media_type)
    with ExitStack() as stack, complete_refusals(s):
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


def _run_process(caller: Caller, body: ProgramBody, media_type: str) -> Response:
    """Run a program as a process, and answer with its solutions."""
    s = services()
    is_async = "respond-async" in request.headers.get("Prefer", "").lower()
    resumed = read_event_id(request.headers.get("Last-Event-ID", ""))
    options = ProgramOptions(body.into, body.binding, body.prefixes, body.limit, not is_async)
    if is_async:
        started = start_process_of(s, caller, body.code, options)
        warnings = [mark_json(body.code, mark) for mark in started.warnings]
        answer = make_response({"process": started.iri, "state": "ready", "warnings": warnings}, 202)
        return _with_location(answer, started.iri)
    with ExitStack() as stack:
        if not stack.enter_context(s.waits.slot(f"programs of {caller.name}", MAX_FOLLOWED_PER_CALLER)):
            raise TooMany(
                f"{MAX_FOLLOWED_PER_CALLER} programs of this caller are already followed at this process. Try again in"
                " a few seconds, or use `Prefer: respond-async`."
            )
        if resumed is not None and media_type == EVENTS:
            iri, solution, entry = resumed
            with s.engine.connect() as connection:
                if find_process(connection, iri)["caller"] != caller.by:
                    raise Forbidden("`Last-Event-ID` names a process of another caller.")
            followed = FollowedProcess(s, iri, body.code, (), solution, entry)
        else:
            started = start_process_of(s, caller, body.code, options)
            followed = FollowedProcess(s, started.iri, body.code, started.warnings)
            followed.is_new = True
        if media_type == JSON:
            return _with_location(_whole_answer(s, followed), followed.iri)
        events = followed.events(client_connection(), followed.leave if media_type == EVENTS else followed.stop)
        first = next(events)
        if followed.problem is not None and not followed.solution:
            raise followed.problem
        closing = stack.pop_all()
    return _with_location(stream_events(events, first, media_type, closing), followed.iri)


def _with_location(answer: Response, iri: str) -> Response:
    answer.headers["Location"] = f"/api/v1/real/processes/{iri.removeprefix(PROCESS_PREFIX)}"
    return answer


def _whole_answer(s: Services, program: ProgramRun | FollowedProcess) -> Response:
    solutions: list[str] = []
    warnings: list[Event] = []
    end: Event = {}
    characters = 0
    client = client_connection()
    if isinstance(program, FollowedProcess):
        events_of = program.events(client, program.stop)
    else:
        events_of = later_events(s, program, client)
    for events in events_of:
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
                position=_position(program),
            )  # fmt: skip
    if program.problem is not None:
        raise program.problem
    end.pop("solutions", None)
    rest = json.dumps({**end, "warnings": warnings}, separators=(",", ":"))
    return Response(
        ['{"solutions":[', ",".join(solutions), "],", rest[1:]], content_type=JSON, headers={"Vary": "Accept"}
    )


def _position(program: ProgramRun | FollowedProcess) -> int:
    if isinstance(program, FollowedProcess):
        return program.position
    return program.view.position if program.view is not None else 0
