"""Runs of programs for the API and the pages: a request becomes a run, whose events are sent as they happen."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import structlog
from flask import Response, request, stream_with_context

from mdv.accounts.callers import Caller
from mdv.errors import BadRequest, InvalidProgram, MdvError, ProgramStopped, TooMany, Unavailable
from mdv.inspect.run_program import ProgramRequest, ProgramRun, ProgramWriter, outcome_of_refused, read_binding
from mdv.mdp.write_limits import WriteLimits
from mdv.rdf.parse import is_absolute_iri
from web.errors import unexpected
from web.negotiate import run_in_thread, run_program_turn
from web.services import MAX_PROGRAMS, MAX_PROGRAMS_PER_CALLER, Services

log = structlog.get_logger()

NDJSON, EVENTS = "application/x-ndjson", "text/event-stream"
POLL_SECONDS = 0.25
"""Interval at which a waiting program looks for changes."""
SEND_SECONDS = 60.0
"""Time limit for a client to accept a part of the answer."""
ANSWER_SECONDS = 900.0
"""Time limit for a client to accept the whole answer."""

Event = dict[str, Any]


@contextmanager
def program_slot(s: Services, caller: Caller) -> Iterator[None]:
    """Hold a slot for a program. Raise `TooMany` if none is free."""
    with s.programs.slot(caller.name) as entered:
        if not entered:
            raise TooMany(
                f"{MAX_PROGRAMS} programs, or {MAX_PROGRAMS_PER_CALLER} of this caller, are already running at this"
                " process. Try again in a few seconds."
            )
        yield


@contextmanager
def complete_refusals(s: Services) -> Iterator[None]:
    """Add to the problem of a text that is refused what that of a program has which an error ended."""
    try:
        yield
    except InvalidProgram as error:
        with s.single.connect() as connection:
            error.extra |= outcome_of_refused(connection)
        raise


def default_document(caller: Caller) -> str:
    """Return the document that the default context of a caller writes to."""
    return f"urn:mdv:real:{quote(caller.name, safe='')}"


def check_into(into: str | None, caller: Caller) -> str:
    """Return the document that a program writes to."""
    found = into or default_document(caller)
    if not is_absolute_iri(found) or "#" in found:
        raise BadRequest(f"`into` must be the URI of a document, without a fragment, not {found[:100]!r}.")
    return found


def prepare_program(
    s: Services,
    caller: Caller,
    code: str,
    *,
    is_read_only: bool,
    into: str | None = None,
    binding: Mapping[str, Any] | None = None,
    prefixes: Mapping[str, str] | None = None,
    limit: int | None = None,
    trace: int = 0,
) -> ProgramRun:
    """Return a run in the mode `read` or `sandbox`, which has not begun."""
    writer = ProgramWriter(
        caller.name, check_into(into, caller), caller.role == "admin",
        WriteLimits(caller.document_prefixes, caller.resource_prefixes),
    )  # fmt: skip
    asked = ProgramRequest(
        code, is_read_only, read_binding(binding or {}), prefixes or {}, limit, s.config.max_wait_seconds, trace
    )
    with s.single.connect() as connection:
        schema = s.schemas.now(connection)
    return run_in_thread(ProgramRun, asked, writer, schema, uuid4().hex[:12])


def take_turn(s: Services, program: ProgramRun) -> list[Event]:
    """Return the events of a turn. The connection is given back before they are sent."""
    with s.engine.connect() as connection:
        return run_program_turn(program.turn, connection.connection.driver_connection)


def later_events(s: Services, program: ProgramRun, client: Any) -> Iterator[list[Event]]:
    """Yield the events of further turns until the program is over, or the client is gone. An empty list: no news."""
    until = time.monotonic() + ANSWER_SECONDS
    while not program.is_over:
        if time.monotonic() > until:
            detail = f"The answer was not accepted within {ANSWER_SECONDS:g} s, which ended the program."
            raise ProgramStopped(detail, limit="seconds", solutions=program.solutions)
        if s.feed_notifier.closed:
            raise Unavailable("The server is restarting, which ended the program. Run it again in a few seconds.")
        if is_disconnected(client):
            log.info("program ended by its client", solutions=program.solutions)
            return
        if program.is_waiting:
            time.sleep(max(0.0, min(POLL_SECONDS, program.wait_until - time.monotonic())))
        yield take_turn(s, program)


def stream_program(
    s: Services, program: ProgramRun, first: list[Event], media_type: str, closing: ExitStack
) -> Response:
    """Return an answer that sends the first events of a program, and the others as they happen."""
    return stream_events(later_events(s, program, client_connection()), first, media_type, closing)


def stream_events(events: Iterator[list[Event]], first: list[Event], media_type: str, closing: ExitStack) -> Response:
    """Return an answer that sends events as they happen, as NDJSON or server-sent events."""
    write = _ndjson if media_type == NDJSON else _server_sent

    def chunks() -> Iterator[bytes]:
        if first:
            yield write(first)
        elif media_type == EVENTS:
            yield b": running\n\n"  # a comment, so that the client sees the beginning of the answer
        try:
            for found in events:
                if found:
                    yield write(found)
        except MdvError as error:
            yield write([{"type": "error", "problem": error.problem()}])
        except Exception as error:
            yield write([{"type": "error", "problem": unexpected(error).problem()}])
        finally:
            close = getattr(events, "close", None)
            if close is not None:
                close()

    return stream_to_client(stream_with_context(chunks()), media_type, closing)


def stream_to_client(parts: Iterator[bytes], media_type: str, closing: ExitStack) -> Response:
    """Return an answer that sends these parts. A client that does not read is disconnected. `closing`: closed at the
    end."""
    client = client_connection()
    if client is not None:
        closing.callback(_restore_timeout, client, client.gettimeout())
        client.settimeout(SEND_SECONDS)
    response = Response(parts, content_type=media_type, headers={"Vary": "Accept", "Cache-Control": "no-store"})
    response.call_on_close(closing.close)
    return response


def _ndjson(events: list[Event]) -> bytes:
    return "".join(
        json.dumps({name: value for name, value in event.items() if name != "id"}, separators=(",", ":")) + "\n"
        for event in events
    ).encode()


def _server_sent(events: list[Event]) -> bytes:
    parts = []
    for event in events:
        shown = {name: value for name, value in event.items() if name not in ("type", "id")}
        place = f"id: {event['id']}\n" if "id" in event else ""
        parts.append(f"{place}event: {event['type']}\ndata: {json.dumps(shown, separators=(',', ':'))}\n\n")
    return "".join(parts).encode()


def _restore_timeout(connection: Any, seconds: float | None) -> None:
    if connection.fileno() >= 0:
        connection.settimeout(seconds)


def client_connection() -> Any:
    """Return the connection of the client, if the server tells it."""
    return request.environ.get("gunicorn.socket") or request.environ.get("werkzeug.socket")


def is_disconnected(connection: Any) -> bool:
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
