"""Read the job queue: pages of jobs, and whether there was activity."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, select

from mdv.db.jobs import read_jobs
from mdv.db.lmrs import read_lmr_names
from mdv.db.tables import jobs, mdp_state
from mdv.mdp.jobs import JobStatus, lmr_uri

_MAX_JOB_NUMBER = 2**63 - 1
"""Greater than the number of any job."""


def list_jobs(connection: Connection, state: str | None, before: int | None, limit: int) -> list[JobStatus]:
    """List jobs with a number below `before`, newest first. Running jobs have the state `queued` here."""
    query = (
        select(jobs.c.id).where(jobs.c.number < (before or _MAX_JOB_NUMBER)).order_by(jobs.c.number.desc()).limit(limit)
    )
    if state == "failed":
        query = query.where(jobs.c.state.in_(("failed", "dead")))
    elif state is not None:
        query = query.where(jobs.c.state == state)
    return read_jobs(connection, list(connection.execute(query).scalars()))


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
