"""/jobs: how far a change is, and another try for those that failed by no fault of their own."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from mdv.db.jobs import DOCUMENT_KINDS, NEWEST, JobStatus, has_newer, list_jobs, read_job, retry_job
from mdv.db.state import lock_state
from mdv.errors import Conflict, NotFound
from web.auth import lmr_reader, reader, whole_admin
from web.calls import Calls
from web.models import JobState, Page
from web.numbers import after_number
from web.openapi import json_answer, page, problems
from web.queue import lmr_uri
from web.services import services

calls = Calls("jobs", "How far a change is")


class JobsQuery(Page):
    """Which jobs, and how many."""

    state: Literal["queued", "done", "failed", "dead"] | None = Field(
        None,
        description="only those; `queued`: also those that are being carried out; `dead`: those of the failed that can "
        "be tried again",
    )


@calls.call("GET", "/jobs", "A page of jobs, the newest first",
            {200: json_answer(page(JobState.model_json_schema()), "A page")} | problems(), query=JobsQuery)  # fmt: skip
def list_(query: JobsQuery) -> dict[str, Any]:
    """Ended jobs are kept for a week (`MDV_KEEP_JOBS_SECONDS`)."""
    reader()
    before = after_number(query.after) or NEWEST
    with services().single.connect() as connection:
        found = list_jobs(connection, query.state, before, query.limit + 1)
    more = str(found[query.limit - 1].number) if len(found) > query.limit else None
    return {"items": [shown(job) for job in found[: query.limit]], "next": more}


@calls.call("GET", "/jobs/<job>", "A job's state", {200: JobState} | problems(404))
def get(job: str) -> dict[str, Any]:
    """`queued`, `running`, `done` with the result, or `failed` with the problem."""
    caller = lmr_reader()
    status = find_job(job)
    # An LMR sees its own; of others it learns nothing.
    if caller.lmr is not None and status.uri != lmr_uri(caller.lmr):
        raise NotFound(f"There is no job {status.id}.")
    return shown(status)


@calls.call("POST", "/jobs/<job>/retry", "Try a dead letter again", {200: JobState} | problems(404, 409))
def retry(job: str) -> dict[str, Any]:
    """For a job that failed inside MDV as often as it was tried. Refused where the document was changed since: it would
    become what it was."""
    whole_admin()
    return shown(retry_dead(job))


def retry_dead(job: str) -> JobStatus:
    """Let a dead letter wait again."""
    status = find_job(job)
    if not status.dead:
        raise Conflict(f"The job {status.id} is {status.state}: only a dead letter can be tried again.")
    with services().engine.begin() as connection:
        lock_state(connection)  # nothing changes between the look and the retry
        if status.kind in (*DOCUMENT_KINDS, "schema") and has_newer(connection, status.id):
            raise Conflict(f"{status.uri} was changed since the job came: register what it should be now.")
        retry_job(connection, status.id)
    services().forget_news(status.id)
    services().wake_for(status.kind)
    return find_job(job)


def find_job(text: str) -> JobStatus:
    """The job of that id."""
    try:
        number = UUID(text)
    except ValueError:
        raise NotFound(f"{text!r} is not the id of a job.") from None
    with services().single.connect() as connection:
        status = read_job(connection, number)
    if status is None:
        raise NotFound(f"There is no job {number}.")
    return status


def shown(status: JobStatus) -> dict[str, Any]:
    waits = status.state == "queued" and status.attempts > 0
    return {
        "id": str(status.id),
        "kind": status.kind,
        "state": status.state,
        "document": status.uri,
        "created_at": status.created_at.isoformat(),
        "ended_at": status.ended_at.isoformat() if status.ended_at else None,
        "attempts": status.attempts,
        "priority": status.priority,
        "request": status.request,
        "next_attempt_at": status.not_before.isoformat() if waits else None,
        "dead": status.dead,
        "result": status.result,
        "problem": status.problem,
    }
