"""/jobs: how far a change is."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from mdv.db.jobs import JobStatus, read_job
from mdv.errors import NotFound
from web.auth import lmr_reader
from web.calls import Calls
from web.models import JobState
from web.openapi import problems
from web.queue import lmr_uri
from web.services import services

calls = Calls("jobs", "How far a change is")


@calls.call("GET", "/jobs/<job>", "A job's state", {200: JobState} | problems(404))
def get(job: str) -> dict[str, Any]:
    """`queued`, `running`, `done` with the result, or `failed` with the problem."""
    caller = lmr_reader()
    try:
        number = UUID(job)
    except ValueError:
        raise NotFound(f"{job!r} is not the id of a job.") from None
    with services().single.connect() as connection:
        status = read_job(connection, number)
    # An LMR sees its own; of others it learns nothing.
    if status is None or (caller.lmr is not None and status.uri != lmr_uri(caller.lmr)):
        raise NotFound(f"There is no job {number}.")
    return shown(status)


def shown(status: JobStatus) -> dict[str, Any]:
    return {
        "id": str(status.id),
        "kind": status.kind,
        "state": status.state,
        "document": status.uri,
        "created_at": status.created_at.isoformat(),
        "ended_at": status.ended_at.isoformat() if status.ended_at else None,
        "attempts": status.attempts,
        "result": status.result,
        "problem": status.problem,
    }
