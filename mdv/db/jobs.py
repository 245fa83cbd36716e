"""The job queue. The table `jobs` is authoritative; Redis only wakes up workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb
from sqlalchemy import Connection, select

from mdv.db.engine import driver, pipelined
from mdv.db.load_sql import load_sql
from mdv.db.tables import jobs
from mdv.errors import TooMany


class JobQueue(Enum):
    """Which task of the workers runs a job: `DOCUMENTS` in batches, `RULES` one at a time. `mdv
    replicate` runs those of `BACKBONE`."""

    DOCUMENTS = "documents"
    RULES = "rules"
    BACKBONE = "backbone"


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of jobs. `is_superseded`: a later job for the same URI makes a retry of this one wrong. `is_batched`: many
    jobs run in one transaction."""

    name: str
    queue: JobQueue
    is_superseded: bool = False
    is_batched: bool = False


JOB_KINDS = {
    kind.name: kind
    for kind in (
        JobKind("register", JobQueue.DOCUMENTS, is_superseded=True, is_batched=True),
        JobKind("delete", JobQueue.DOCUMENTS, is_superseded=True, is_batched=True),
        JobKind("edit", JobQueue.DOCUMENTS, is_superseded=True),
        JobKind("update", JobQueue.DOCUMENTS),
        JobKind("detached", JobQueue.DOCUMENTS),
        JobKind("compensate", JobQueue.DOCUMENTS),
        JobKind("subscribe", JobQueue.RULES),
        JobKind("change", JobQueue.RULES),
        JobKind("resume", JobQueue.RULES),
        JobKind("unsubscribe", JobQueue.RULES),
        JobKind("forget", JobQueue.RULES),
        JobKind("adopt", JobQueue.RULES),
        JobKind("schema", JobQueue.RULES, is_superseded=True),
        JobKind("eca", JobQueue.RULES),
        JobKind("verify", JobQueue.BACKBONE),
        JobKind("repair", JobQueue.BACKBONE),
    )
}
"""Every kind of jobs. `mdv.mdp.worker` runs them."""


def kinds_of(queue: JobQueue) -> tuple[str, ...]:
    """Return the names of the kinds in a queue.

    >>> kinds_of(JobQueue.DOCUMENTS)
    ('register', 'delete', 'edit', 'update', 'detached', 'compensate')
    """
    return tuple(kind.name for kind in JOB_KINDS.values() if kind.queue is queue)


PRIORITIES = range(8)
"""As in RFC 9218: 0 is the most urgent, 7 the least."""
PRIORITY_INTERACTIVE, PRIORITY_BACKGROUND = 3, 5
"""The priority of a job whose caller waits for its end, and of one whose caller does not."""
INTERACTIVE_PRIORITIES = PRIORITIES[:4]
BACKGROUND_PRIORITIES = PRIORITIES[4:]
"""A claim takes jobs from one half only, so that interactive jobs are not blocked by bulk loads."""

MAX_WAITING_JOBS_PER_URI = 100
"""Limit of waiting jobs for one document or LMR. Every claim has to skip all of them but the first."""
JOB_OVERHEAD_BYTES = 500
"""The size that is counted for a job in addition to its body."""
MAX_CLAIM_BYTES = 64 * 1024 * 1024
"""Limit of the job bodies that one claim loads into memory. A single larger job is claimed alone."""


@dataclass(frozen=True, slots=True)
class Job:
    """A claimed job. `kind`: the name of one of `JOB_KINDS`. `uri`: of the document or LMR that it changes."""

    id: UUID
    kind: str
    uri: str
    body: bytes | None
    media_type: str | None
    options: dict[str, Any]
    attempts: int
    priority: int = PRIORITY_INTERACTIVE
    request: str | None = None
    """The ID of the request that submitted it."""
    deaths: int = 0
    """How many workers died while they ran it."""
    waited: float = 0.0
    """Seconds since it was submitted."""

    @property
    def by(self) -> str | None:
        """The caller, for the history of the changed document, rule or schema."""
        return self.options.get("by")

    @property
    def weight(self) -> int:
        return len(self.body or b"") + JOB_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The state of a job: queued, running, done with a result, or failed with a problem. `dead`: it is a dead letter,
    which failed for a reason other than its content and can be retried."""

    id: UUID
    number: int
    kind: str
    state: str
    uri: str
    result: dict[str, Any] | None
    problem: dict[str, Any] | None
    created_at: datetime
    ended_at: datetime | None
    attempts: int
    priority: int
    request: str | None
    not_before: datetime
    dead: bool


class QueueSummary(NamedTuple):
    """Waiting jobs: their number, their bytes, the age of the oldest in seconds, and their number by caller."""

    jobs: int
    bytes: int
    oldest: float
    by_caller: dict[str, int]


class JobOutcome(NamedTuple):
    """The outcome of a claimed job: a result or a problem. `dead`: the problem is not caused by the job itself."""

    job: Job
    result: dict[str, Any] | None
    problem: dict[str, Any] | None
    dead: bool = False

    @property
    def state(self) -> str:
        return "dead" if self.dead else self.public_state

    @property
    def public_state(self) -> str:
        """The state that callers see."""
        return "failed" if self.result is None else "done"


def add_job(
    connection: Connection,
    kind: str,
    uri: str,
    caller: str,
    body: bytes | None = None,
    media_type: str | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    priority: int = PRIORITY_INTERACTIVE,
    request: str | None = None,
    idempotency_key: str | None = None,
    request_hash: bytes | None = None,
) -> UUID:
    """Queue a job and return its ID. Raise `TooMany` if too many jobs for the same URI are waiting."""
    given = {
        "kind": kind, "uri": uri, "priority": priority, "body": body, "media_type": media_type,
        "options": Jsonb(options or {}), "caller": caller, "request": request, "key": idempotency_key,
        "hash": request_hash, "most": MAX_WAITING_JOBS_PER_URI,
    }  # fmt: skip
    row = _run(connection, "add", given).fetchone()
    if row is None:
        raise TooMany(
            f"{MAX_WAITING_JOBS_PER_URI} changes of {uri} are already waiting. Nothing was changed; try later."
        )
    return UUID(str(row[0]))


def find_idempotent_job(connection: Connection, caller: str, key: str) -> tuple[UUID, bytes] | None:
    """Return the job that was submitted with an Idempotency-Key, and the hash of that request."""
    query = select(jobs.c.id, jobs.c.request_hash).where(jobs.c.caller == caller, jobs.c.idempotency_key == key)
    row = connection.execute(query).one_or_none()
    return (row[0], row[1]) if row else None


# Running jobs


def claim_jobs(
    connection: Connection,
    most: int,
    queue: JobQueue = JobQueue.DOCUMENTS,
    priorities: Sequence[int] = PRIORITIES,
    otherwise: Sequence[int] = (-1,),
    most_bytes: int = MAX_CLAIM_BYTES,
) -> list[Job]:
    """Claim waiting jobs of a queue with some priorities, or of the `otherwise` priorities if there are none.

    The claim is a row lock of this transaction: if the worker dies, the jobs are waiting again. Of several jobs for
    one document or LMR only the first is claimed, so that they run in the order of submission.
    """
    given = {
        "kinds": list(kinds_of(queue)), "first": priorities[0], "last": priorities[-1], "other_first": otherwise[0],
        "other_last": otherwise[-1], "most": most, "bytes": most_bytes, "weight": JOB_OVERHEAD_BYTES,
    }  # fmt: skip
    return [Job(*row) for row in _run(connection, "claim", given)]


def claim_jobs_by_id(connection: Connection, ids: Sequence[UUID]) -> list[Job]:
    """Claim these jobs, except those that are claimed by another worker or have finished."""
    return [Job(*row) for row in _run(connection, "claim_by_id", {"ids": list(ids)})]


def mark_jobs_started(connection: Connection, ids: Sequence[UUID]) -> None:
    """Record that jobs are about to run. `finish_jobs` and `clear_jobs_started` delete the record."""
    _run(connection, "begin", {"ids": list(ids)})


def clear_jobs_started(connection: Connection, ids: Sequence[UUID]) -> None:
    """Delete the record that jobs are running: their worker did not die."""
    _run(connection, "clear_started", {"ids": list(ids)})


def finish_jobs(connection: Connection, endings: Sequence[JobOutcome]) -> None:
    """Store the outcomes of claimed jobs in one round trip. This is the last step of a transaction."""
    if not endings:
        return
    ids = [ending.job.id for ending in endings]
    given = {
        "ids": ids,
        "states": [ending.state for ending in endings],
        "results": [None if ending.result is None else Jsonb(ending.result) for ending in endings],
        "problems": [None if ending.problem is None else Jsonb(ending.problem) for ending in endings],
    }
    with pipelined(driver(connection)):
        _run(connection, "pin", {})
        _run(connection, "end", given)
        clear_jobs_started(connection, ids)


def postpone_job(connection: Connection, job: Job, problem: dict[str, Any], seconds: float) -> None:
    """Count a failed attempt of a claimed job, and retry it after `seconds`."""
    with pipelined(driver(connection)):
        _run(connection, "postpone", {"id": job.id, "problem": Jsonb(problem), "seconds": seconds})
        clear_jobs_started(connection, [job.id])


def defer_job(connection: Connection, job: Job, seconds: float) -> None:
    """Retry a claimed job after `seconds`, without counting an attempt."""
    with pipelined(driver(connection)):
        _run(connection, "defer", {"id": job.id, "seconds": seconds})
        clear_jobs_started(connection, [job.id])


# Reading jobs


def read_job(connection: Connection, job_id: UUID) -> JobStatus | None:
    """Return the status of a job. A queued job that is locked by a running transaction is running.

    This inspects the lock and takes none itself: workers skip locked jobs.
    """
    found = read_jobs(connection, [job_id])
    return found[0] if found else None


def read_jobs(connection: Connection, ids: list[UUID]) -> list[JobStatus]:
    """Return the status of jobs, newest first. Unknown jobs are missing."""
    return [JobStatus(*row) for row in _run(connection, "read", {"ids": ids})]


def retry_job(connection: Connection, job_id: UUID) -> bool:
    """Queue a dead letter again. Return False if the job is not a dead letter."""
    return bool(_run(connection, "retry", {"id": job_id}).rowcount)


def has_newer_job(connection: Connection, job_id: UUID) -> bool:
    """True if a later job for the same URI is waiting or done."""
    ((newer,),) = _run(connection, "newer", {"id": job_id}).fetchall()
    return bool(newer)


def summarize_queue(connection: Connection, most: int) -> QueueSummary:
    """Summarize the first `most` waiting jobs."""
    (row,) = _run(connection, "waiting", {"most": most}).fetchall()
    return QueueSummary(*row)


def raise_aged_priorities(connection: Connection) -> int:
    """Raise the priority of jobs that waited for a minute, within their half of the priorities. Return their number."""
    return int(
        _run(connection, "age", {"urgent": INTERACTIVE_PRIORITIES[0], "patient": BACKGROUND_PRIORITIES[0]}).rowcount
    )


def delete_old_jobs(connection: Connection, seconds: float, most: int) -> int:
    """Delete at most `most` jobs that ended longer ago than `seconds`. Return the number of deleted jobs."""
    return int(_run(connection, "delete_old", {"seconds": seconds, "most": most}).rowcount)


def _run(connection: Connection, name: str, given: Mapping[str, Any]) -> Any:
    return driver(connection).execute(load_sql("jobs")[name], given, prepare=True)
