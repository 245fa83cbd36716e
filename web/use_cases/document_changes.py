"""Changes of documents: queue a job, wait for it, and answer with its result."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

from flask import Response, make_response

from mdv.accounts.callers import Caller
from mdv.errors import MdvError
from web.job_queue import PendingJob, accepted_response, enqueue_job, has_ended
from web.negotiate import prefer_wait, request_etags
from web.services import services
from web.use_cases.documents import incoming_references
from web.use_cases.eca import reactions_option, with_tree
from web.use_cases.own_writes import prefer_replicas, wait_for_replicas
from workers.messages import JobMessage

DRY_RUN_WAIT_SECONDS = 30


def answer_change(
    kind: str,
    uri: str,
    caller: Caller,
    dry_run: bool = False,
    eca: str = "on",
    body: bytes | None = None,
    media_type: str | None = None,
    confirms: bool = False,
    default_wait: int | None = None,
) -> Response:
    """Queue a job, once per Idempotency-Key, and answer immediately or when it has finished. `confirms`: the document
    gets a new version even if nothing changes. `default_wait`: without `Prefer: wait`."""
    options: dict[str, Any] = {
        "dry_run": dry_run,
        "conditions": {
            "if_match": request_etags("If-Match"),
            "if_none_match": request_etags("If-None-Match"),
            "resource_prefixes": caller.resource_prefixes,
        },
    } | reactions_option(caller, eca)
    if confirms:
        options["confirms"] = True
    wait_seconds = prefer_wait(services().config.max_wait_seconds)
    wait_seconds = default_wait if wait_seconds is None else wait_seconds
    wait = DRY_RUN_WAIT_SECONDS if dry_run and wait_seconds is None else wait_seconds
    deadline = time.monotonic() + (wait or 0)
    job_id, status = enqueue_job(kind, uri, caller, options, wait or 0, body, media_type, keyed=not dry_run)
    if status is None or not has_ended(status):
        return accepted_response(PendingJob(job_id, uri, status))
    if dry_run and kind == "delete" and status.result is not None:
        references = [reference._asdict() for reference in incoming_references(uri)]
        status = status._replace(result=status.result | {"references": references})
    if status.problem is None and status.result is not None:
        status = status._replace(result=wait_for_replicas(status.result, prefer_replicas(), deadline))
    return _ended(status, wait_seconds)


def _ended(status: JobMessage, wait: int | None) -> Response:
    if status.problem is not None:
        raise MdvError.from_problem(with_tree(status.problem))
    result = with_tree(status.result or {})
    is_real = not result.get("dry_run")
    response = make_response(result, 201 if is_real and result.get("created") else 200)
    if is_real:
        response.set_etag(result.get("etag") or str(result["version"]))
    if response.status_code == 201:
        response.headers["Location"] = f"/api/v1/documents?uri={quote(result['document'], safe='')}"
    if wait is not None:
        response.headers["Preference-Applied"] = f"wait={wait}"
    return response
