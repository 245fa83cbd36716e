"""Turns: few callers at a time hand in their changes, so that everybody else has a turn soon.

A web process does one thing at a time. With very many changes in hand at once, each of which asks the database several
times, a reader of a feed would wait for all of them before each of its own questions. It is no limit to what can be
waited for: who has handed in its change waits beside, and costs nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

AT_ONCE = 4
LONGEST = 1.0
"""Seconds after which one goes ahead all the same: the database may hang, and then nobody's turn would end."""


class Turns:
    """Those of one process."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._free = threading.Semaphore(at_once)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn, and have it."""
        mine = self._free.acquire(timeout=LONGEST)
        try:
            yield
        finally:
            if mine:
                self._free.release()
