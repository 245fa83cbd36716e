"""Tend: what nobody will ask for any more goes, a little at a time.

A slow LMR harms nobody: its feed is kept for a time, and up to a length; then it has to take a snapshot. Before that, a
long feed is made shorter by what was superseded in it.
"""

from __future__ import annotations

from sqlalchemy import Engine

from mdv.db.feed import Feed
from mdv.db.lmrs import list_lmrs

SNAPSHOT_SECONDS = 3600.0
"""A snapshot that is not fetched within this time has to be taken again."""
COMPACT_EVENTS = 20_000
"""A feed with more events is looked at for what was superseded."""
PAGE = 500


def tend(engine: Engine, feed_seconds: float, feed_events: int) -> int:
    """Drop what is older, or more, than is kept of feeds; how many events went."""
    gone, after = 0, 0
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
    for lmr_id, _ in large:
        with engine.begin() as connection:
            Feed(connection).compact(lmr_id)
    return gone
