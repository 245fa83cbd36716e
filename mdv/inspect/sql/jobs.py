"""Read the job queue: pages of jobs, bursts of jobs, and whether there was activity."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, func, select

from mdv.db.engine import driver
from mdv.db.jobs import read_jobs
from mdv.db.lmrs import read_lmr_names
from mdv.db.load_sql import load_sql
from mdv.db.tables import jobs, mdp_state
from mdv.mdp.jobs import JobStatus, lmr_uri

_MAX_JOB_NUMBER = 2**63 - 1
"""Greater than the number of any job."""
MAX_FAILED_COUNTED = 10_000
"""Up to this many failed jobs are counted and listed for a time range."""
BURST_GAP_SECONDS = 60.0
"""A job that is submitted later than this after the one before starts another burst."""
MIN_BURST_JOBS = 5
"""Fewer jobs are listed one by one."""
BURST_WINDOWS = (200, 2_000, 20_000)
"""How many of the newest jobs are read to find bursts: more of them only if the first ones do not fill the list."""
FAILED_STATES = ("failed", "dead")


@dataclass(frozen=True, slots=True)
class BurstKey:
    """What the jobs of a burst have in common, and the numbers of its first and last job."""

    kind: str
    by: str
    dry_run: bool
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class JobBurst:
    """Jobs of one kind that one caller submitted shortly after each other: their number (a lower bound if `more`), and
    how many of them failed and wait. `numbers`: of all jobs if there are fewer than `MIN_BURST_JOBS`, else of the
    newest."""

    key: BurstKey
    more: bool
    jobs: int
    failed: int
    waiting: int
    since: datetime
    until: datetime
    numbers: list[int]

    @property
    def is_small(self) -> bool:
        return self.jobs < MIN_BURST_JOBS

    @property
    def done(self) -> int:
        return self.jobs - self.failed - self.waiting


def list_jobs(connection: Connection, state: str | None, before: int | None, limit: int) -> list[JobStatus]:
    """List jobs with a number below `before`, newest first. Running jobs have the state `queued` here."""
    query = (
        select(jobs.c.id).where(jobs.c.number < (before or _MAX_JOB_NUMBER)).order_by(jobs.c.number.desc()).limit(limit)
    )
    if state is not None:
        query = query.where(jobs.c.state.in_(_states(state)))
    return read_jobs(connection, list(connection.execute(query).scalars()))


def list_failed_jobs(connection: Connection, seconds: float, before: int | None, limit: int) -> list[JobStatus]:
    """List the failed jobs and dead letters that ended in the last `seconds`, newest first."""
    return read_jobs(connection, _failed_jobs(connection, seconds, before, limit))


def count_failed_jobs(connection: Connection, seconds: float) -> int:
    """Count the failed jobs and dead letters that ended in the last `seconds`, up to `MAX_FAILED_COUNTED`."""
    return len(_failed_jobs(connection, seconds, None, MAX_FAILED_COUNTED))


def _failed_jobs(connection: Connection, seconds: float, before: int | None, limit: int) -> list[UUID]:
    limits = {"before": before or _MAX_JOB_NUMBER, "most": MAX_FAILED_COUNTED, "limit": limit}
    return _ids(connection, "failed_jobs", seconds=seconds, **limits)


def list_bursts(connection: Connection, limit: int) -> list[JobBurst]:
    """List the newest bursts of jobs. A burst of fewer than `MIN_BURST_JOBS` counts as that many lines of the list."""
    found: list[JobBurst] = []
    _rows(connection, "pin")
    for most in BURST_WINDOWS:
        ((read, least),) = _rows(connection, "count_newest", most=most)
        limits = {"most": most, "gap": BURST_GAP_SECONDS, "least": MIN_BURST_JOBS, "rows": limit}
        found = [
            JobBurst(key := BurstKey(*row[:5]), read == most and key.first == least, *row[5:])
            for row in _rows(connection, "bursts", **limits)
        ]
        lines = sum(len(burst.numbers) for burst in found)
        if read < most or (lines >= limit and not any(burst.more for burst in found)):
            break
    return found


def read_jobs_by_number(connection: Connection, numbers: Collection[int]) -> dict[int, JobStatus]:
    """Return the status of jobs by number. Jobs that were deleted meanwhile are missing."""
    found = read_jobs(connection, _ids(connection, "ids", numbers=list(numbers)))
    return {job.number: job for job in found}


def list_jobs_of_burst(
    connection: Connection, burst: BurstKey, state: str | None, before: int | None, limit: int
) -> list[JobStatus]:
    """List the jobs of a burst, newest first."""
    values = {
        "first": burst.first, "last": burst.last, "before": before or _MAX_JOB_NUMBER, "most": BURST_WINDOWS[-1],
        "kind": burst.kind, "by": burst.by, "dry_run": burst.dry_run, "limit": limit,
        "states": None if state is None else list(_states(state)),
    }  # fmt: skip
    return read_jobs(connection, _ids(connection, "jobs_of_burst", **values))


def _states(state: str) -> tuple[str, ...]:
    """Return the stored states. To callers, a dead letter has failed."""
    return FAILED_STATES if state == "failed" else (state,)


def last_activity(connection: Connection) -> tuple[int, int]:
    """Return the number of the last job and the position. Any activity changes one of them."""
    last = select(func.coalesce(func.max(jobs.c.number), 0)).scalar_subquery()
    number, position = connection.execute(select(last, mdp_state.c.position)).one()
    return number, position


def count_dead_letters(connection: Connection) -> int:
    """Return the number of dead letters."""
    return connection.execute(select(func.count()).where(jobs.c.state == "dead")).scalar_one()


def read_lmr_names_of_jobs(connection: Connection, some: Sequence[JobStatus]) -> dict[str, str]:
    """Return the names of the LMRs of jobs, by job URI. Removed LMRs are missing."""
    wanted = {job.uri.rpartition(":")[2] for job in some if job.uri.startswith(lmr_uri(0)[:-1])}
    return {lmr_uri(number): name for number, name in read_lmr_names(connection, map(int, wanted)).items()}


def _ids(connection: Connection, name: str, **values: Any) -> list[UUID]:
    return [number for (number,) in _rows(connection, name, **values)]


def _rows(connection: Connection, name: str, **values: Any) -> list[Any]:
    return list(driver(connection).execute(load_sql("jobs", __package__)[name], values))
