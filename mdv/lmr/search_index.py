"""Update the search index of a cache: index the resources that have changed, in small transactions."""

from __future__ import annotations

import threading
import time

import structlog

from mdv.db.cache_search import index_next, is_indexed
from mdv.lmr.cache import Cache

RESOURCES_PER_TRANSACTION = 200
INTERVAL_SECONDS = 2.0

log = structlog.get_logger()


def update_cache_index(cache: Cache, seconds: float) -> bool:
    """Index changed resources for about `seconds`. Return True if all changes before the call are indexed.

    It returns False if the feed is being applied all the time: a search does not wait for a snapshot.
    """
    until = time.monotonic() + seconds
    with cache.reading() as connection:
        if is_indexed(connection, cache.schema(connection).schema.label_properties):
            return True
    while True:
        with cache.writing_within(until - time.monotonic()) as connection:
            if connection is None:
                return False
            labels = cache.schema(connection).schema.label_properties
            more = index_next(connection, labels, RESOURCES_PER_TRANSACTION)
        if not more:
            return True
        if time.monotonic() >= until:
            return False


def keep_index_current(cache: Cache, stop: threading.Event) -> None:
    """Update the index every few seconds until `stop` is set."""
    while not stop.wait(INTERVAL_SECONDS):
        try:
            while not update_cache_index(cache, INTERVAL_SECONDS) and not stop.is_set():
                pass
        except Exception as error:  # the database may be unreachable; the next round tries again
            log.warning("indexing_failed", detail=str(error))
