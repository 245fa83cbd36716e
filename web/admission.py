"""Admission: when too much waits, changes are refused at the door, with a word on when to come again."""

from __future__ import annotations

import threading
import time

from sqlalchemy import Engine

from mdv.db.jobs import URGENT, Waiting, look_at_waiting
from mdv.errors import TooMany
from mdv.figures import REFUSED

LOOK_AGAIN = 1.0
"""Seconds for which what was seen of the queue is believed."""
URGENT_SHARE = 2
"""So many times the limit may wait before those are refused who wait themselves."""
LONGEST = 60


class Admission:
    """One process's view of the queue. Several processes together may let in a little more."""

    def __init__(self, engine: Engine, most: int, most_bytes: int) -> None:
        self._engine = engine
        self._most = most
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._looked_at = float("-inf")
        self._seen = Waiting(0, 0, 0.0)
        self._admitted = 0

    def check(self, priority: int) -> None:
        """Let a change in, or raise TooMany."""
        with self._lock:
            now = time.monotonic()
            if now - self._looked_at > LOOK_AGAIN:
                with self._engine.connect() as connection:
                    self._seen = look_at_waiting(connection, URGENT_SHARE * self._most)
                self._looked_at, self._admitted = now, 0
            share = URGENT_SHARE if priority in URGENT else 1
            waiting = self._seen.jobs + self._admitted
            if waiting < share * self._most and self._seen.bytes < share * self._most_bytes:
                self._admitted += 1
                return
        REFUSED.inc()
        seconds = round(min(max(1.0, self._seen.oldest / 2), LONGEST))
        raise TooMany(
            f"{waiting:,} changes wait already, the first for {self._seen.oldest:.0f} s; nothing was changed. "
            f"Try again in {seconds} s.",
            retry_after=seconds,
        )
