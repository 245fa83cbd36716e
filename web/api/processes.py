"""/real/processes: programs in the mode run, with their solutions and logs."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from flask import Response, jsonify, make_response, request
from werkzeug.routing import BaseConverter

from mdv.errors import Forbidden
from mdv.inspect.processes import find_process, list_log, list_processes, list_solutions, process_iri
from mdv.mdp.real.reading import note_read
from web.auth import require_admin, require_reader
from web.json_bodies import JSON
from web.models import ListQuery, ProcessesQuery, ProcessShown, ProcessStarted, StopQuery
from web.negotiate import negotiate_type
from web.number_params import read_after, read_before
from web.openapi import describe_json, describe_problems, object_schema, page_schema
from web.routing import RouteGroup
from web.services import services
from web.use_cases.processes import FollowedProcess, may_steer, read_event_id, stop_process_of
from web.use_cases.programs import EVENTS, NDJSON, client_connection, stream_events


class ProcessConverter(BaseConverter):
    """A process in a path: its IRI, or the part after `urn:mdv:real:process/`."""

    regex = "(?:urn:mdv:real:process/)?[^/]+"
    part_isolating = False


routes = RouteGroup("processes", "Processes: programs in the mode run")
routes.blueprint.record_once(lambda setup: setup.app.url_map.converters.update(process=ProcessConverter))

LIVE_STATES = ("ready", "waiting", "calling", "full")

_PROCESSES = describe_json(page_schema(ProcessShown.model_json_schema()), "A page of processes")
_SOLUTIONS = describe_json(page_schema(object_schema(n="integer", binding="object")), "A page of solutions")
_SOLUTIONS["content"][NDJSON] = _SOLUTIONS["content"][EVENTS] = {"schema": {"type": "string"}}
_LOG = describe_json(
    page_schema(object_schema(id="integer", solutions="integer", at="string", kind="string")), "A page of entries"
)


@routes.route("GET", "/real/processes", "List processes", {200: _PROCESSES} | describe_problems(),
              query=ProcessesQuery)  # fmt: skip
def processes(query: ProcessesQuery) -> dict[str, Any]:
    """Lists the processes of programs, the newest first. `state`: one state, or `live` for all that have not ended.
    `root`: the processes that descend from one. `stalled`: only waiting processes may write what it waits for."""
    require_reader()
    states = None if query.state is None else LIVE_STATES if query.state == "live" else (query.state,)
    with services().engine.connect() as connection:
        found = list_processes(connection, read_before(query.after), query.limit + 1, query.root, query.caller, states)
    items = found[: query.limit]
    return {"items": items, "next": str(items[-1]["number"]) if len(found) > query.limit else None}


@routes.route("GET", "/real/processes/<process:process>/solutions", "List the solutions of a process",
              {200: _SOLUTIONS} | describe_problems(404, 406), query=ListQuery)  # fmt: skip
def solutions(query: ListQuery, process: str) -> Response:
    """Lists solutions in order. A process with 1,000 unread solutions pauses. Those up to `after` and those of a page
    count as read if the caller may stop the process. With `Accept: application/x-ndjson` or `text/event-stream`, the
    events of the process are sent until it ends, from the beginning or after `Last-Event-ID`."""
    caller = require_reader()
    iri, s = process_iri(process), services()
    media_type = negotiate_type([JSON, NDJSON, EVENTS])
    with s.engine.connect() as connection:
        counts = may_steer(caller, find_process(connection, iri))
    if media_type != JSON:
        _, solution, entry = read_event_id(request.headers.get("Last-Event-ID", "")) or ("", 0, 0)
        followed = FollowedProcess(s, iri, solution=solution or read_after(query.after), entry=entry)
        followed.counts = counts
        return stream_events(followed.events(client_connection()), [], media_type, ExitStack())
    with s.engine.begin() as connection:
        found = list_solutions(connection, iri, read_after(query.after), query.limit + 1)
        items = found[: query.limit]
        last = items[-1]["n"] if items else read_after(query.after)
        has_resumed = counts and note_read(connection, iri, last)
    if has_resumed:
        s.wake_programs()
    return jsonify({"items": items, "next": str(last) if len(found) > query.limit else None})


@routes.route("GET", "/real/processes/<process:process>/log", "List the log of a process",
              {200: _LOG} | describe_problems(404), query=ListQuery)  # fmt: skip
def log(query: ListQuery, process: str) -> dict[str, Any]:
    """Lists entries in order: `log` (of `primitive:log`), `warning`, `commit` (a slice that changed documents), and
    `call` (the digest of the body of an action)."""
    require_reader()
    iri = process_iri(process)
    with services().engine.connect() as connection:
        find_process(connection, iri)
        found = list_log(connection, iri, read_after(query.after), query.limit + 1)
    items = found[: query.limit]
    return {"items": items, "next": str(items[-1]["id"]) if len(found) > query.limit else None}


@routes.route("GET", "/real/processes/<process:process>", "Get a process", {200: ProcessShown} | describe_problems(404))
def process(process: str) -> dict[str, Any]:
    """A process is given by its IRI, or by the part after `urn:mdv:real:process/`."""
    require_reader()
    with services().engine.connect() as connection:
        return find_process(connection, process)


@routes.route("DELETE", "/real/processes/<process:process>", "Stop a process",
              {202: ProcessStarted} | describe_problems(403, 404), query=StopQuery)  # fmt: skip
def stop(query: StopQuery, process: str) -> Response:
    """Stops a process: what it has not committed is dropped. `message` is added to its activity document. With
    `family=true`, all processes that descend from the same one are stopped, also if this one has ended."""
    caller = require_admin()
    iri, s = process_iri(process), services()
    with s.engine.connect() as connection:
        found = find_process(connection, iri)
    if not may_steer(caller, found):
        raise Forbidden(f"The token {caller.name!r} is limited, so it can stop its own processes alone.")
    stop_process_of(s, iri, query.message, query.family)
    return make_response({"process": iri, "state": "stopping", "warnings": []}, 202)
