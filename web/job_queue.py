"""Queue changes as jobs, once per Idempotency-Key, and wait for their results."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from uuid import UUID

from flask import Response, g, make_response, request
from psycopg.errors import UniqueViolation

from mdv.accounts.callers import Caller
from mdv.errors import BadRequest, MdvError, TooMany
from mdv.mdp.jobs import JobRequest, choose_priority, find_submitted_job, submit_job
from web.services import services
from workers.messages import JobMessage

_KEY = re.compile(r"[\x20-\x7e]{1,255}")


class FinishedJob(NamedTuple):
    """A job that has succeeded, and its result."""

    job: UUID
    result: dict[str, Any]


class PendingJob(NamedTuple):
    """A job that has not finished in time, and its status if it is known. `uri`: of what it changes."""

    job: UUID
    uri: str
    status: JobMessage | None


def enqueue_job(
    kind: str,
    uri: str,
    caller: Caller,
    options: dict[str, Any],
    wait: float,
    body: bytes | None = None,
    media_type: str | None = None,
    keyed: bool = True,
    by: str | None = None,
) -> tuple[UUID, JobMessage | None]:
    """Queue a job. Returns its id, and its status if known after at most `wait` seconds. If too many requests are
    already waiting, it does not wait. `by`: who makes the change, if that is not the caller."""
    key = _idempotency_key()  # an invalid one is refused in a dry run, too
    job = JobRequest(
        kind=kind,
        uri=uri,
        caller=caller.name,
        options=options | {"by": by or caller.by},
        priority=choose_priority(_urgency(request.headers.get("Priority")), waits=wait > 0),
        body=body,
        media_type=media_type,
        request_id=g.request_id,
        idempotency_key=key if keyed else None,
    )
    is_new = True
    try:
        with services().submit_limit.slot():
            services().admission.check(caller.name, wait > 0, len(body or b""))
            with services().single.connect() as connection:
                job_id = submit_job(connection, job)
    except (UniqueViolation, TooMany):
        known = _submitted_before(job)
        if known is None:
            raise
        job_id, is_new = known, False
    else:
        services().wake_worker_for(kind)
    if wait <= 0:
        return job_id, services().wait_for_job(job_id, 0, is_new)
    with services().waits.slot(caller.name) as may_wait:
        return job_id, services().wait_for_job(job_id, wait if may_wait else 0, is_new)


def accepted_response(pending: PendingJob) -> Response:
    """Return the 202 response for a job that has not finished."""
    state = pending.status.state if pending.status else "queued"
    response = make_response({"job": str(pending.job), "state": state, "document": pending.uri}, 202)
    response.headers["Location"] = f"/api/v1/jobs/{pending.job}"
    return response


def run_job(
    kind: str,
    uri: str,
    caller: Caller,
    options: dict[str, Any],
    body: bytes | None,
    media_type: str | None,
    keyed: bool = True,
    by: str | None = None,
) -> FinishedJob | PendingJob:
    """Run a change as a job and wait for its result. Raises an error if the change is rejected."""
    wait = services().config.max_wait_seconds
    job_id, status = enqueue_job(kind, uri, caller, options, wait, body, media_type, keyed, by)
    if status is None or not has_ended(status):
        return PendingJob(job_id, uri, status)
    if status.problem is not None:
        raise MdvError.from_problem(status.problem)
    return FinishedJob(job_id, dict(status.result or {}))


def has_ended(status: JobMessage | None) -> bool:
    return status is not None and status.is_end


def _submitted_before(job: JobRequest) -> UUID | None:
    if job.idempotency_key is None:
        return None
    with services().single.connect() as connection:
        return find_submitted_job(connection, job)


def _idempotency_key() -> str | None:
    key = request.headers.get("Idempotency-Key")
    if key is not None and not _KEY.fullmatch(key):
        raise BadRequest("An Idempotency-Key must have 1 to 255 printable ASCII characters.")
    return key


def _urgency(header: str | None) -> int | None:
    """Return the urgency of a Priority header (RFC 9218); None if it has none.

    >>> _urgency("u=1"), _urgency("i, u=7"), _urgency("u=1, u=2"), _urgency("u=x"), _urgency(None)
    (1, 7, 2, None, None)
    """
    found = re.findall(r"(?:^|,)\s*u=(\d)\s*(?:;[^,]*)?(?=,|$)", header or "")
    return int(found[-1]) if found else None
