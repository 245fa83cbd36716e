"""The overview of an MDP: its status, and what happens at the moment."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from mdv.db.suspensions import ListedSuspension, Suspensions
from mdv.inspect.activity import Activity, jobs_of, read_activity
from mdv.inspect.sql.jobs import count_failed_jobs, read_lmr_names_of_jobs
from mdv.inspect.sql.status import MAX_ROWS_COUNTED, Status, find_lmrs_behind, read_status

__all__ = ["ListedSuspension", "Overview", "read_overview"]


@dataclass(frozen=True, slots=True)
class Overview:
    """The status of an MDP, its last activities and its first suspended rules. `failed`: jobs that failed in the time
    range. `lmr_names`: the names of LMRs by the URIs of jobs about them."""

    status: Status
    failed: int
    lmrs_behind: int
    activities: list[Activity]
    lmr_names: dict[str, str]
    suspended: list[ListedSuspension]


def read_overview(connection: Connection, seconds: float, max_activities: int, max_suspended: int) -> Overview:
    """Read the overview with the failed jobs of the last `seconds`, the last `max_activities` activities and the first
    `max_suspended` suspended rules."""
    status = read_status(connection)
    activities = read_activity(connection, max_activities)
    return Overview(
        status=status,
        failed=count_failed_jobs(connection, seconds),
        lmrs_behind=len(find_lmrs_behind(connection, 0, MAX_ROWS_COUNTED)),
        activities=activities,
        lmr_names=read_lmr_names_of_jobs(connection, jobs_of(activities)),
        suspended=Suspensions(connection).page(0, max_suspended),
    )
