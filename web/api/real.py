"""/real: run and check programs in ReAL."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import structlog
from flask import Response, request, stream_with_context

from mdv.accounts.callers import Caller
from mdv.errors import BadRequest, MdvError, ProgramStopped, TooMany, Unavailable
from mdv.inspect.run_program import (
    RUN_IS_NOT_AVAILABLE,
    ProgramRequest,
    ProgramRun,
    ProgramWriter,
    check_code,
    mark_json,
    read_binding,
)
from mdv.mdp.write_limits import WriteLimits
from mdv.rdf.parse import is_absolute_iri
from web.auth import require_reader
from web.errors import unexpected
from web.json_bodies import JSON, describe_json_body, read_json_body
from web.models import ProgramBody, ProgramCheckBody, ProgramChecked
from web.negotiate import negotiate_type, run_in_thread, run_program_turn
from web.openapi import describe_json, describe_problems, object_schema
from web.routing import RouteGroup
from web.services import MAX_PROGRAMS, MAX_PROGRAMS_PER_CALLER, Services, services

routes = RouteGroup("real", "Programs in the resource action language")
log = structlog.get_logger()

NDJSON, EVENTS = "application/x-ndjson", "text/event-stream"
MAX_BODY_BYTES = 512 * 1024
MAX_JSON_SOLUTIONS = 100_000
MAX_JSON_CHARACTERS = 50_000_000
"""Limits of an answer as JSON, which is kept until the program ends."""
POLL_SECONDS = 0.25
"""Interval at which a waiting program looks for changes."""
SEND_SECONDS = 60.0
"""Time limit for a client to accept a part of the answer."""
ANSWER_SECONDS = 900.0
"""Time limit for a client to accept the whole answer."""

Event = dict[str, Any]

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
        if not stack.enter_context(s.programs.slot(caller.name)):
            raise TooMany(
                f"{MAX_PROGRAMS} programs, or {MAX_PROGRAMS_PER_CALLER} of this caller, are already running at this"
                " process. Try again in a few seconds."
            )
        program = _prepare(s, body, caller)
        if media_type == JSON:
            return _whole_answer(s, program)
        first: list[Event] = []
        while not (first or program.is_waiting or program.is_over):
            first = _take_turn(s, program)
        if program.problem is not None and not program.solutions:
            raise program.problem
        closing = stack.pop_all()
    return _stream(s, program, first, media_type, closing)


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


def _prepare(s: Services, body: ProgramBody, caller: Caller) -> ProgramRun:
    into = body.into or f"urn:mdv:real:{quote(caller.name, safe='')}"
    if not is_absolute_iri(into) or "#" in into:
        raise BadRequest(f"`into` must be the URI of a document, without a fragment, not {into[:100]!r}.")
    writer = ProgramWriter(
        caller.name, into, caller.role == "admin", WriteLimits(caller.document_prefixes, caller.resource_prefixes)
    )
    asked = ProgramRequest(
        body.code, body.mode == "read", read_binding(body.binding), body.prefixes, body.limit, s.config.max_wait_seconds
    )
    with s.single.connect() as connection:
        schema = s.schemas.now(connection)
    return run_in_thread(ProgramRun, asked, writer, schema, uuid4().hex[:12])


def _take_turn(s: Services, program: ProgramRun) -> list[Event]:
    """Return the events of a turn. The connection is given back before they are sent."""
    with s.engine.connect() as connection:
        return run_program_turn(program.turn, connection.connection.driver_connection)


def _rest(s: Services, program: ProgramRun, client: Any) -> Iterator[list[Event]]:
    """Yield the events of further turns until the program is over, or the client is gone. An empty list: no news."""
    until = time.monotonic() + ANSWER_SECONDS
    while not program.is_over:
        if time.monotonic() > until:
            detail = f"The answer was not accepted within {ANSWER_SECONDS:g} s, which ended the program."
            raise ProgramStopped(detail, limit="seconds", solutions=program.solutions)
        if s.feed_notifier.closed:
            raise Unavailable("The server is restarting, which ended the program. Run it again in a few seconds.")
        if _is_disconnected(client):
            log.info("program ended by its client", solutions=program.solutions)
            return
        if program.is_waiting:
            time.sleep(max(0.0, min(POLL_SECONDS, program.wait_until - time.monotonic())))
        yield _take_turn(s, program)


def _whole_answer(s: Services, program: ProgramRun) -> Response:
    solutions: list[str] = []
    warnings: list[Event] = []
    end: Event = {}
    characters = 0
    for events in _rest(s, program, _client()):
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


def _stream(s: Services, program: ProgramRun, first: list[Event], media_type: str, closing: ExitStack) -> Response:
    write = _ndjson if media_type == NDJSON else _server_sent
    client = _client()
    if client is not None:  # disconnect clients that do not read
        closing.callback(_restore_timeout, client, client.gettimeout())
        client.settimeout(SEND_SECONDS)

    def chunks() -> Iterator[bytes]:
        if first:
            yield write(first)
        elif media_type == EVENTS:
            yield b": running\n\n"  # a comment, so that the client sees the beginning of the answer
        try:
            for events in _rest(s, program, client):
                if events:
                    yield write(events)
        except MdvError as error:
            yield write([{"type": "error", "problem": error.problem()}])
        except Exception as error:
            yield write([{"type": "error", "problem": unexpected(error).problem()}])

    response = Response(
        stream_with_context(chunks()), content_type=media_type, headers={"Vary": "Accept", "Cache-Control": "no-store"}
    )
    response.call_on_close(closing.close)
    return response


def _ndjson(events: list[Event]) -> bytes:
    return "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events).encode()


def _server_sent(events: list[Event]) -> bytes:
    parts = []
    for event in events:
        data = json.dumps({name: value for name, value in event.items() if name != "type"}, separators=(",", ":"))
        parts.append(f"event: {event['type']}\ndata: {data}\n\n")
    return "".join(parts).encode()


def _restore_timeout(connection: Any, seconds: float | None) -> None:
    if connection.fileno() >= 0:
        connection.settimeout(seconds)


def _client() -> Any:
    """Return the connection of the client, if the server tells it."""
    return request.environ.get("gunicorn.socket") or request.environ.get("werkzeug.socket")


def _is_disconnected(connection: Any) -> bool:
    """True if the client has closed the connection."""
    if connection is None:
        return False
    try:
        if connection.fileno() < 0:
            return True
        readable, _, _ = select.select([connection], [], [], 0)
        return bool(readable) and not connection.recv(1, socket.MSG_PEEK)
    except ValueError:  # a connection with TLS cannot be looked at
        return False
    except OSError:
        return True
