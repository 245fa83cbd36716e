"""Sizes of the cache for pages that refresh every few seconds. Slow counts are reused for longer."""

from __future__ import annotations

import threading
import time

from mdv.inspect.sql.cache import CacheCounts, count_cache
from mdv.lmr.cache import Cache

RECOUNT_PAUSE_FACTOR = 50
"""Counts are reused for this multiple of the time that counting took."""


class CachedCounts:
    """The last counts of a cache. Thread-safe."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._until = float("-inf")
        self._known: CacheCounts | None = None

    def counts(self, refresh: bool = False) -> CacheCounts:
        """Return the counts, possibly from a short time ago; `refresh` counts again."""
        with self._lock:
            if refresh or self._known is None or time.monotonic() > self._until:
                began = time.monotonic()
                with self._cache.reading() as connection:
                    self._known = count_cache(connection)
                self._until = time.monotonic() + RECOUNT_PAUSE_FACTOR * (time.monotonic() - began)
            return self._known
