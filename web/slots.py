"""Concurrency limits, in total and per key.

Requests that wait (long polls, streams, changes with `Prefer: wait`) hold a connection of their process. They take a
slot, so that connections remain for requests that do not wait.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Slots:
    """The slots of one process. Used by the greenlets of one thread.

    >>> slots = Slots(limit=3, limit_per_key=2)
    >>> [slots.enter("a"), slots.enter("a"), slots.enter("a"), slots.enter("b", 1), slots.enter("c")]
    [True, True, False, True, False]
    >>> slots.leave("a")
    >>> slots.enter("b", 1), slots.enter("c")
    (False, True)
    """

    def __init__(self, limit: int = sys.maxsize, limit_per_key: int = sys.maxsize) -> None:
        self.limit = limit
        self.limit_per_key = limit_per_key
        self._total = 0
        self._by_key: Counter[str] = Counter()

    def enter(self, key: str, limit: int | None = None) -> bool:
        """Take a slot and return True, or return False if none is free. `limit` overrides `limit_per_key`."""
        if self._total >= self.limit or self._by_key[key] >= (self.limit_per_key if limit is None else limit):
            return False
        self._total += 1
        self._by_key[key] += 1
        return True

    def leave(self, key: str) -> None:
        self._total -= 1
        self._by_key[key] -= 1
        if not self._by_key[key]:
            del self._by_key[key]

    @contextmanager
    def slot(self, key: str, limit: int | None = None) -> Iterator[bool]:
        """Hold a slot within the block. Yields False if none was free."""
        entered = self.enter(key, limit)
        try:
            yield entered
        finally:
            if entered:
                self.leave(key)
