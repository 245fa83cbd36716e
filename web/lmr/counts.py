"""How much is in the cache, for pages that look again every few seconds: what takes long is not counted often."""

from __future__ import annotations

import threading
import time

from mdv.db.cache_read import CacheCounts, count_cache
from mdv.lmr.store import Cache

REST = 50
"""After counting there is a rest of so many times what it took."""


class Counter:
    """The last counts of a cache. May be used by several threads at once."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._until = float("-inf")
        self._known: CacheCounts | None = None

    def counts(self, anew: bool = False) -> CacheCounts:
        """The counts, perhaps of a moment ago."""
        with self._lock:
            if anew or self._known is None or time.monotonic() > self._until:
                began = time.monotonic()
                with self._cache.reading() as connection:
                    self._known = count_cache(connection)
                self._until = time.monotonic() + REST * (time.monotonic() - began)
            return self._known
