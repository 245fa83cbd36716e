"""/update: change statements with the actions of RDFTL."""

from __future__ import annotations

import time
from typing import Any

from flask import Response, make_response, request

from mdv.errors import BadRequest, TooLarge, UnsupportedMediaType
from mdv.mdp.eca.update import UPDATES_DOCUMENT
from mdv.rdf.parse import check_document_uri
from web.auth import require_admin
from web.job_queue import PendingJob, accepted_response
from web.models import Accepted, UpdateDone, UpdateQuery
from web.negotiate import prefer_wait, read_body
from web.openapi import IDEMPOTENCY_KEY, PREFER, PRIORITY, describe_problems
from web.routing import RouteGroup
from web.services import services
from web.use_cases.eca import DRY_RUN_WAIT_SECONDS, RDFTL, run_update
from web.use_cases.own_writes import prefer_replicas, wait_for_replicas

routes = RouteGroup("update", "Change statements with the actions of RDFTL")

MAX_UPDATE_BYTES = 64 * 1024
"""Larger than the longest text of the language."""
EXAMPLE_UPDATE = "UPDATE (resource(http://mdv.example/doc.rdf#host), serverPort, _ -> 5875)"
BODY: dict[str, Any] = {
    "required": True,
    "content": {RDFTL: {"schema": {"type": "string"}, "example": EXAMPLE_UPDATE}},
}


@routes.route(
    "POST",
    "/update",
    "Execute an update",
    {200: UpdateDone, 202: Accepted} | describe_problems(408, 413, 415, 422, 429),
    query=UpdateQuery,
    headers=(PREFER, PRIORITY, IDEMPOTENCY_KEY),
    body=BODY,
)
def update(query: UpdateQuery) -> Response:
    """Executes actions of RDFTL in one transaction, with the rules that they trigger: all or nothing. Insertions go to
    the document `graph`. Deletions and updates change every document that contains the statement; the token must be
    allowed to write all of them.

    Answers 202 with a job. With `Prefer: wait=SECONDS`, answers 200 when the update is done. `run` is the ID of the run
    of rules, or null if nothing happened; for a dry run, it is the run itself, as by `GET /eca/runs/{run}`.
    """
    caller = require_admin()
    graph = check_document_uri(query.graph or UPDATES_DOCUMENT)
    text = _read_text()
    wait_seconds = prefer_wait(services().config.max_wait_seconds)
    wait = DRY_RUN_WAIT_SECONDS if query.dry_run and wait_seconds is None else wait_seconds
    deadline = time.monotonic() + (wait or 0)
    done = run_update(caller, text, graph, wait or 0, query.dry_run, eca=query.eca)
    if isinstance(done, PendingJob):
        return accepted_response(done)
    response = make_response(wait_for_replicas(done.result, prefer_replicas(), deadline), 200)
    if wait_seconds is not None:
        response.headers["Preference-Applied"] = f"wait={wait_seconds}"
    return response


def _read_text() -> bytes:
    if request.mimetype != RDFTL:
        raise UnsupportedMediaType(
            f"This call requires Content-Type: {RDFTL}, not {request.mimetype or 'no content type'}."
        )
    if (request.content_length or 0) > MAX_UPDATE_BYTES:
        raise _too_large()
    body = read_body(services().config.body_seconds)
    if len(body) > MAX_UPDATE_BYTES:
        raise _too_large()
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(f"The text is not UTF-8: byte {error.start + 1}.") from None
    return body


def _too_large() -> TooLarge:
    return TooLarge(f"The text is larger than the limit of {MAX_UPDATE_BYTES:,} bytes. Split it into several updates.")
