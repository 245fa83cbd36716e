"""Retention: delete old feed events, jobs, snapshots, metrics and sign-in failures, in small transactions.

A feed is kept for a limited time and up to a limited length. An LMR that falls further behind must take a snapshot.
Before that, a long feed is compacted: superseded events are removed.
"""

from __future__ import annotations

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from mdv.db.batch import delete_old_runs
from mdv.db.eca.runs import delete_old_runs as delete_old_rule_runs
from mdv.db.feed import Feed
from mdv.db.jobs import delete_old_jobs, raise_aged_priorities
from mdv.db.lmrs import list_lmrs
from mdv.db.metrics import delete_old_metrics
from mdv.db.real.processes import delete_old_processes
from mdv.db.users import delete_old_failures

log = structlog.get_logger()

SNAPSHOT_TTL_SECONDS = 3600.0
"""A snapshot that is not fetched completely within this time is deleted and must be taken again."""
MIN_EVENTS_TO_COMPACT = 20_000
"""A feed with more events is compacted."""
LMRS_PER_PAGE = 500
JOB_RETENTION_SECONDS = 7 * 86400.0
SIGN_IN_FAILURE_RETENTION_SECONDS = 86400.0
RUN_RETENTION_SECONDS = 7 * 86400.0
"""How long runs of event-condition-action rules are kept. The changes of the rules stay recorded for ever."""
JOBS_PER_TRANSACTION = 5000
"""How many jobs, or runs, are deleted in one transaction."""


def apply_retention(
    engine: Engine, feed_seconds: float, feed_events: int, job_seconds: float = JOB_RETENTION_SECONDS
) -> int:
    """Delete what exceeds the retention of feeds, jobs, processes and batches. Return the number of deleted events."""
    deleted, after = 0, 0
    with engine.begin() as connection:
        raise_aged_priorities(connection)
        delete_old_runs(connection)
        delete_old_metrics(connection)
        delete_old_failures(connection, SIGN_IN_FAILURE_RETENTION_SECONDS)
    while _delete_jobs(engine, job_seconds) == JOBS_PER_TRANSACTION:
        pass
    while _delete_runs(engine) == JOBS_PER_TRANSACTION:
        pass
    while _delete_processes(engine, job_seconds) >= JOBS_PER_TRANSACTION:
        pass
    while True:
        with engine.begin() as connection:
            page = list_lmrs(connection, after, LMRS_PER_PAGE)
        for lmr in page:
            with engine.begin() as connection:
                deleted += Feed(connection).trim(lmr.id, feed_seconds, feed_events)
        if len(page) < LMRS_PER_PAGE:
            break
        after = page[-1].id
    with engine.begin() as connection:
        feed = Feed(connection)
        feed.trim_publications(feed_seconds)
        feed.drop_stale_snapshots(SNAPSHOT_TTL_SECONDS)
        large = feed.largest(MIN_EVENTS_TO_COMPACT)
    for lmr_id, events in large:
        if events >= 2 * _compacted.get(lmr_id, 0):
            _compact(engine, lmr_id)
    return deleted


def _delete_jobs(engine: Engine, seconds: float) -> int:
    with engine.begin() as connection:
        return delete_old_jobs(connection, seconds, JOBS_PER_TRANSACTION)


def _delete_processes(engine: Engine, seconds: float) -> int:
    with engine.begin() as connection:
        return delete_old_processes(connection, seconds, JOBS_PER_TRANSACTION)


def _delete_runs(engine: Engine) -> int:
    with engine.begin() as connection:
        return delete_old_rule_runs(connection, RUN_RETENTION_SECONDS, JOBS_PER_TRANSACTION)


_compacted: dict[int, int] = {}
"""By LMR, the length of the feed after this process last compacted it. It is compacted again when it has doubled."""


def _compact(engine: Engine, lmr_id: int) -> None:
    try:
        with engine.begin() as connection:
            _compacted[lmr_id] = Feed(connection).compact(lmr_id)
    except OperationalError as error:
        # Compaction timed out. The feed keeps its length, within the retention limits.
        log.warning("feed compaction failed", lmr=lmr_id, reason=str(error.orig))
        _compacted[lmr_id] = 2**62
