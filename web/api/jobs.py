"""/jobs: the state of changes, and retry of dead letters."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from mdv.errors import NotFound
from mdv.inspect.sql.jobs import list_jobs
from mdv.mdp.backbone_check_jobs import BACKBONE_URI
from mdv.mdp.jobs import JobStatus, lmr_uri
from web.auth import require_reader, require_reader_or_lmr, require_unlimited_admin
from web.models import JobState, ListQuery
from web.number_params import read_after
from web.openapi import describe_json, describe_problems, page_schema
from web.routing import RouteGroup
from web.services import services
from web.use_cases.backbone_checks import check_progress
from web.use_cases.jobs import find_job, retry_dead_letter

routes = RouteGroup("jobs", "The state of changes")


class JobsQuery(ListQuery):
    """Parameters of the list of jobs."""

    state: Literal["queued", "done", "failed", "dead"] | None = Field(
        None,
        description="only jobs in this state; `queued` includes running jobs; `dead` are the failed jobs that can be "
        "retried",
    )


@routes.route("GET", "/jobs", "List jobs, newest first",
            {200: describe_json(page_schema(JobState.model_json_schema()), "A page of jobs")} | describe_problems(),
            query=JobsQuery)  # fmt: skip
def list_(query: JobsQuery) -> dict[str, Any]:
    """Finished jobs are kept for a week (`MDV_KEEP_JOBS_SECONDS`)."""
    require_reader()
    with services().single.connect() as connection:
        found = list_jobs(connection, query.state, read_after(query.after), query.limit + 1)
    more = str(found[query.limit - 1].number) if len(found) > query.limit else None
    return {"items": [job_as_dict(job) for job in found[: query.limit]], "next": more}


@routes.route("GET", "/jobs/<job>", "Get a job", {200: JobState} | describe_problems(404))
def get(job: str) -> dict[str, Any]:
    """The state is `queued`, `running`, `done` with a result, or `failed` with a problem."""
    caller = require_reader_or_lmr()
    status = find_job(job)
    # An LMR sees only its own jobs.
    if caller.lmr is not None and status.uri != lmr_uri(caller.lmr):
        raise NotFound(f"The job {status.id} does not exist.")
    shown = job_as_dict(status)
    progress = check_progress(services(), str(status.id)) if status.uri == BACKBONE_URI else None
    return shown if progress is None else shown | {"progress": progress}


@routes.route("POST", "/jobs/<job>/retry", "Retry a dead letter", {200: JobState} | describe_problems(404, 409))
def retry(job: str) -> dict[str, Any]:
    """Retries a job whose attempts all failed with internal errors. Rejected if the document was changed since: the
    retry would overwrite the newer version."""
    require_unlimited_admin()
    return job_as_dict(retry_dead_letter(job))


def job_as_dict(status: JobStatus) -> dict[str, Any]:
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
