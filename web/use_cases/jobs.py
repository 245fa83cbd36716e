"""Find a job by the text of its id, and retry a dead letter."""

from __future__ import annotations

from uuid import UUID

from mdv.errors import NotFound
from mdv.mdp import jobs
from mdv.mdp.jobs import JobStatus
from web.services import services


def find_job(text: str) -> JobStatus:
    """Return the job with this id, or raise NotFound."""
    try:
        number = UUID(text)
    except ValueError:
        raise NotFound(f"{text!r} is not the id of a job.") from None
    with services().single.connect() as connection:
        return jobs.get_job(connection, number)


def retry_dead_letter(text: str) -> JobStatus:
    """Queue a dead letter again and wake a worker."""
    job = find_job(text)
    with services().engine.begin() as connection:
        jobs.retry_dead_letter(connection, job)
    services().clear_job_result(job.id)
    services().wake_worker_for(job.kind)
    return find_job(text)
