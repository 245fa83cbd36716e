"""Recent changes of an MDP, with one line for many changes that belong together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from mdv.inspect.sql.batch_runs import ListedRun, list_runs
from mdv.inspect.sql.jobs import JobBurst, list_bursts, read_jobs_by_number
from mdv.mdp.jobs import JobStatus


@dataclass(frozen=True, slots=True)
class ListedBurst:
    """A burst of jobs with its newest job."""

    burst: JobBurst
    newest: JobStatus

    @property
    def until(self) -> datetime:
        return self.burst.until


Activity = JobStatus | ListedBurst | ListedRun
"""A job, many jobs of one caller, or a run of `mdv batch`."""


def read_activity(connection: Connection, limit: int) -> list[Activity]:
    """Return the last activities, newest first; runs in progress before all others."""
    bursts = list_bursts(connection, limit)
    jobs = read_jobs_by_number(connection, [number for burst in bursts for number in burst.numbers])
    found: list[Activity] = [*list_runs(connection, limit)]
    for burst in bursts:
        read = [jobs[number] for number in burst.numbers if number in jobs]
        found += read if burst.is_small else [ListedBurst(burst, newest) for newest in read]
    return sorted(found, key=_order, reverse=True)[:limit]


def jobs_of(activities: Iterable[Activity]) -> list[JobStatus]:
    """Return the jobs that the activities show."""
    shown = (activity.newest if isinstance(activity, ListedBurst) else activity for activity in activities)
    return [job for job in shown if isinstance(job, JobStatus)]


def _order(activity: Activity) -> tuple[bool, datetime]:
    if isinstance(activity, JobStatus):
        return False, activity.ended_at or activity.created_at
    return isinstance(activity, ListedRun) and activity.is_running, activity.until
