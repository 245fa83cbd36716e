"""Recent changes of an MDP, with one line for many changes that belong together."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import Connection

from mdv.db.jobs import read_jobs
from mdv.inspect.sql.batch_runs import ListedRun, list_runs
from mdv.inspect.sql.jobs import JobBurst, list_bursts
from mdv.mdp.jobs import JobStatus

Activity = JobStatus | JobBurst | ListedRun
"""A job, many jobs of one caller, or a run of `mdv batch`."""


def read_activity(connection: Connection, limit: int) -> list[Activity]:
    """Return the last activities, newest first; runs in progress before all others."""
    bursts = list_bursts(connection, limit)
    single = read_jobs(connection, [number for burst in bursts for number in burst.ids or ()])
    found: list[Activity] = [*list_runs(connection, limit), *single]
    found += [burst for burst in bursts if burst.ids is None]
    return sorted(found, key=_order, reverse=True)[:limit]


def jobs_of(activities: Iterable[Activity]) -> list[JobStatus]:
    """Return those activities that are single jobs."""
    return [activity for activity in activities if isinstance(activity, JobStatus)]


def _order(activity: Activity) -> tuple[bool, datetime]:
    if isinstance(activity, JobStatus):
        return False, activity.ended_at or activity.created_at
    return isinstance(activity, ListedRun) and activity.is_running, activity.until
