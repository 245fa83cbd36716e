"""Jobs: what is to be done, in the order in which it came. Redis carries the wake-up; the truth is here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Boolean, ColumnElement, Connection, bindparam, case, func, insert, literal_column, select, update

from mdv.db.tables import jobs

DOCUMENT_KINDS = ("register", "delete")
RULE_KINDS = ("subscribe", "change", "unsubscribe")


@dataclass(frozen=True, slots=True)
class Job:
    """Something to be carried out: of `DOCUMENT_KINDS` on the document `uri`, or of `RULE_KINDS` for an LMR."""

    id: UUID
    kind: str
    uri: str
    body: bytes | None
    media_type: str | None
    options: dict[str, Any]
    attempts: int


@dataclass(frozen=True, slots=True)
class JobStatus:
    """How far a job is: queued, running, done with a result, or failed with a problem."""

    id: UUID
    kind: str
    state: str
    uri: str
    result: dict[str, Any] | None
    problem: dict[str, Any] | None
    created_at: datetime
    ended_at: datetime | None
    attempts: int


def add_job(
    connection: Connection,
    kind: str,
    uri: str,
    caller: str,
    body: bytes | None = None,
    media_type: str | None = None,
    options: dict[str, Any] | None = None,
    idempotency_key: str | None = None,
    request_hash: bytes | None = None,
) -> UUID:
    """Queue a job."""
    new = insert(jobs).values(
        kind=kind, uri=uri, body=body, media_type=media_type, options=options or {}, caller=caller,
        idempotency_key=idempotency_key, request_hash=request_hash,
    )  # fmt: skip
    job_id: UUID = connection.execute(new.returning(jobs.c.id)).scalar_one()
    return job_id


def find_key(connection: Connection, caller: str, key: str) -> tuple[UUID, bytes] | None:
    """The job that an Idempotency-Key stands for, and the hash of the request it came with."""
    query = select(jobs.c.id, jobs.c.request_hash).where(jobs.c.caller == caller, jobs.c.idempotency_key == key)
    row = connection.execute(query).one_or_none()
    return (row[0], row[1]) if row else None


MAX_CLAIMED_BYTES = 64 * 1024 * 1024
"""The texts that one claim takes into memory; a single larger one is taken alone."""


def claim_jobs(
    connection: Connection,
    limit: int,
    only: UUID | None = None,
    without: Collection[UUID] = (),
    kinds: Collection[str] = DOCUMENT_KINDS,
) -> list[Job]:
    """Take up to `limit` waiting jobs of these kinds for this transaction; if it dies, they wait again.

    Of several jobs for one document, or one LMR, only the first is taken, so that they are carried out in the order
    they came.
    """
    ids = _claim(connection, limit, only, without, kinds)
    if not ids:
        return []
    columns = (jobs.c.id, jobs.c.kind, jobs.c.uri, jobs.c.body, jobs.c.media_type, jobs.c.options, jobs.c.attempts)
    rows = connection.execute(select(*columns).where(jobs.c.id.in_(ids)).order_by(jobs.c.priority, jobs.c.number))
    return [Job(*row) for row in rows]


def _claim(
    connection: Connection, limit: int, only: UUID | None, without: Collection[UUID], kinds: Collection[str]
) -> list[UUID]:
    earlier = jobs.alias("earlier")
    has_earlier = (
        select(earlier.c.id)
        .where(earlier.c.state == "queued", earlier.c.uri == jobs.c.uri, earlier.c.number < jobs.c.number)
        .exists()
    )
    query = (
        select(jobs.c.id, func.coalesce(func.octet_length(jobs.c.body), 0))
        .where(jobs.c.state == "queued", jobs.c.kind.in_(kinds), ~has_earlier)
        .order_by(jobs.c.priority, jobs.c.number)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    if only is not None:
        query = query.where(jobs.c.id == only)
    if without:
        query = query.where(jobs.c.id.not_in(without))
    claimed: list[UUID] = []
    total = 0
    for job_id, size in connection.execute(query):
        total += size
        if claimed and total > MAX_CLAIMED_BYTES:
            break
        claimed.append(job_id)
    return claimed


class Ending(NamedTuple):
    """How a claimed job ended: with a result, or with a problem."""

    job: Job
    result: dict[str, Any] | None
    problem: dict[str, Any] | None


def end_jobs(connection: Connection, endings: Sequence[Ending]) -> None:
    """Write down how claimed jobs ended, in one round trip; their bodies are no longer needed."""
    if not endings:
        return
    ended = (
        update(jobs)
        .where(jobs.c.id == bindparam("job"))
        .values(
            state=bindparam("ended_as"),
            result=bindparam("with_result"),
            problem=bindparam("with_problem"),
            attempts=jobs.c.attempts + 1,
            body=None,
            ended_at=func.now(),
        )
    )
    rows = [
        {
            "job": ending.job.id,
            "ended_as": "failed" if ending.result is None else "done",
            "with_result": ending.result,
            "with_problem": ending.problem,
        }
        for ending in endings
    ]
    connection.execute(ended, rows)


def count_attempt(connection: Connection, job: Job) -> int:
    """One more attempt at a claimed job has failed for no fault of its document: how many that makes."""
    connection.execute(update(jobs).where(jobs.c.id == job.id).values(attempts=job.attempts + 1))
    return job.attempts + 1


def read_job(connection: Connection, job_id: UUID) -> JobStatus | None:
    """A job's status. One that waits and is locked by a running transaction is being carried out.

    This looks at who holds the lock and takes none itself: a worker would pass by a job that a reader holds.
    """
    columns = (jobs.c.id, jobs.c.kind, case((_locked(), "running"), else_=jobs.c.state), jobs.c.uri, jobs.c.result,
               jobs.c.problem, jobs.c.created_at, jobs.c.ended_at, jobs.c.attempts)  # fmt: skip
    row = connection.execute(select(*columns).where(jobs.c.id == job_id)).one_or_none()
    return JobStatus(*row) if row else None


def _locked() -> ColumnElement[bool]:
    # A row's xmax is the transaction that locks it, or one that did so and has ended; a running one locks its number.
    return literal_column(
        "(jobs.state = 'queued' and exists (select from pg_locks held where held.locktype = 'transactionid'"
        " and held.transactionid = jobs.xmax and held.granted))",
        Boolean,
    )


def count_waiting(connection: Connection) -> int:
    """How many jobs wait or are being carried out."""
    return connection.execute(select(func.count()).where(jobs.c.state == "queued")).scalar_one()
