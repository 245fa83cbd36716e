"""The overview of an MDP: its status, and what happens at the moment."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from mdv.db.batch import BatchProgress, list_running
from mdv.db.suspensions import ListedSuspension, Suspensions
from mdv.inspect.sql.jobs import list_jobs, read_lmr_names_of_jobs
from mdv.inspect.sql.status import Status, read_status
from mdv.mdp.jobs import JobStatus

__all__ = ["ListedSuspension", "Overview", "read_overview"]


@dataclass(frozen=True, slots=True)
class Overview:
    """The status of an MDP, its last jobs, its running batches and its first suspended rules. `lmr_names`: the names of
    LMRs by the URIs of jobs about them."""

    status: Status
    recent_jobs: list[JobStatus]
    batches: list[BatchProgress]
    lmr_names: dict[str, str]
    suspended: list[ListedSuspension]


def read_overview(connection: Connection, max_jobs: int, max_suspended: int) -> Overview:
    """Read the overview with the last `max_jobs` jobs and the first `max_suspended` suspended rules."""
    status = read_status(connection)
    recent = list_jobs(connection, None, None, max_jobs)
    return Overview(
        status=status,
        recent_jobs=recent,
        batches=list_running(connection),
        lmr_names=read_lmr_names_of_jobs(connection, recent),
        suspended=Suspensions(connection).page(0, max_suspended),
    )
