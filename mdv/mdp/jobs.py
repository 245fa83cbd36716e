"""Jobs for callers: submit a change, read its status, retry a dead letter."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from mdv.db import jobs as db
from mdv.db.jobs import JobStatus
from mdv.db.state import lock_state
from mdv.errors import Conflict, KeyReused, NotFound

__all__ = [
    "JobRequest",
    "JobStatus",
    "choose_priority",
    "find_submitted_job",
    "get_job",
    "lmr_uri",
    "retry_dead_letter",
    "submit_job",
]


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A change that a caller wants to submit as a job. `request_id`: of the HTTP request, for logs."""

    kind: str
    uri: str
    caller: str
    options: Mapping[str, Any]
    priority: int
    body: bytes | None = None
    media_type: str | None = None
    request_id: str | None = None
    idempotency_key: str | None = None

    def digest(self) -> bytes:
        """Return a hash of the change. A key may be used again only for the same change."""
        options = {name: value for name, value in self.options.items() if name != "by"}
        head = json.dumps([self.kind, self.uri, self.media_type, options], sort_keys=True)
        return hashlib.sha256(head.encode() + (self.body or b"")).digest()


def choose_priority(urgency: int | None, waits: bool) -> int:
    """Return the priority of a job: the requested urgency if it is valid, else by whether the caller waits.

    >>> choose_priority(1, waits=True), choose_priority(9, waits=True), choose_priority(None, waits=False)
    (1, 3, 5)
    """
    if urgency is not None and urgency in db.PRIORITIES:
        return urgency
    return db.PRIORITY_INTERACTIVE if waits else db.PRIORITY_BACKGROUND


def submit_job(connection: Connection, job: JobRequest) -> UUID:
    """Queue a job and return its ID. Raises `UniqueViolation` if its idempotency key was used before."""
    return db.add_job(
        connection, job.kind, job.uri, job.caller, job.body, job.media_type, job.options, priority=job.priority,
        request=job.request_id, idempotency_key=job.idempotency_key,
        request_hash=None if job.idempotency_key is None else job.digest(),
    )  # fmt: skip


def find_submitted_job(connection: Connection, job: JobRequest) -> UUID | None:
    """Return the ID of the job that the caller submitted with the same idempotency key, or None. Raise `KeyReused` if
    that was another change."""
    if job.idempotency_key is None:
        return None
    found = db.find_idempotent_job(connection, job.caller, job.idempotency_key)
    if found is None:
        return None
    job_id, digest = found
    if digest != job.digest():
        raise KeyReused()
    return job_id


def lmr_uri(number: int) -> str:
    """Return the URI that identifies an LMR in jobs about its rules."""
    return f"urn:mdv:lmr:{number}"


def get_job(connection: Connection, job_id: UUID) -> JobStatus:
    """Return the status of a job."""
    found = db.read_job(connection, job_id)
    if found is None:
        raise NotFound(f"The job {job_id} does not exist.")
    return found


def retry_dead_letter(connection: Connection, job: JobStatus) -> None:
    """Queue a dead letter again. Raise `Conflict` if it would overwrite a newer change."""
    if not job.dead:
        raise Conflict(f"The job {job.id} is {job.state}. Only dead letters can be retried.")
    lock_state(connection)  # no change can happen between the check and the retry
    if db.JOB_KINDS[job.kind].is_superseded and db.has_newer_job(connection, job.id):
        raise Conflict(f"{job.uri} was changed since the job was submitted. Register the intended version instead.")
    db.retry_job(connection, job.id)
