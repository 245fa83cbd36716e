"""Tend: what nobody will ask for any more goes, a little at a time.

A slow LMR harms nobody: its feed is kept for a time, and up to a length; then it has to take a snapshot. Before that, a
long feed is made shorter by what was superseded in it.
"""

from __future__ import annotations

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from mdv.db.batch import forget_runs
from mdv.db.feed import Feed
from mdv.db.figures import forget_figures
from mdv.db.jobs import age_jobs, forget_jobs
from mdv.db.lmrs import list_lmrs
from mdv.db.people import forget_failures

log = structlog.get_logger()

SNAPSHOT_SECONDS = 3600.0
"""A snapshot that is not fetched within this time has to be taken again."""
COMPACT_EVENTS = 20_000
"""A feed with more events is looked at for what was superseded."""
PAGE = 500
JOB_SECONDS = 7 * 86400.0
FAILURE_SECONDS = 86400.0
SOME_JOBS = 5000
"""So many are dropped in one transaction."""


def tend(engine: Engine, feed_seconds: float, feed_events: int, job_seconds: float = JOB_SECONDS) -> int:
    """Drop what is older, or more, than is kept of feeds, jobs and batches; how many events went."""
    gone, after = 0, 0
    with engine.begin() as connection:
        age_jobs(connection)
        forget_runs(connection)
        forget_figures(connection)
        forget_failures(connection, FAILURE_SECONDS)
    while _forget(engine, job_seconds) == SOME_JOBS:
        pass
    while True:
        with engine.begin() as connection:
            page = list_lmrs(connection, after, PAGE)
        for lmr in page:
            with engine.begin() as connection:
                gone += Feed(connection).trim(lmr.id, feed_seconds, feed_events)
        if len(page) < PAGE:
            break
        after = page[-1].id
    with engine.begin() as connection:
        feed = Feed(connection)
        feed.trim_publications(feed_seconds)
        feed.drop_stale_snapshots(SNAPSHOT_SECONDS)
        large = feed.largest(COMPACT_EVENTS)
    for lmr_id, events in large:
        if events >= 2 * _compacted.get(lmr_id, 0):
            _compact(engine, lmr_id)
    return gone


def _forget(engine: Engine, seconds: float) -> int:
    with engine.begin() as connection:
        return forget_jobs(connection, seconds, SOME_JOBS)


_compacted: dict[int, int] = {}
"""How many events feeds had after this process compacted them: it is not tried again before they have doubled."""


def _compact(engine: Engine, lmr_id: int) -> None:
    try:
        with engine.begin() as connection:
            _compacted[lmr_id] = Feed(connection).compact(lmr_id)
    except OperationalError as error:
        # It was given up after a while. The feed stays as long as it is, within its limits.
        log.warning("a feed was not compacted", lmr=lmr_id, reason=str(error.orig))
        _compacted[lmr_id] = 2**62
