"""Admission: when too much waits, changes are refused at the door, with a word on when to come again.

No caller takes more than half of the room, so that one who sends without end does not lock out the others. Whoever
waits for the answer, and so cannot send without end, has twice the room.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

from sqlalchemy import Engine

from mdv.db.jobs import WEIGHT, Waiting, look_at_waiting
from mdv.errors import TooMany
from mdv.figures import REFUSED

LOOK_AGAIN, BEFORE_REFUSING = 1.0, 0.05
"""Seconds for which what was seen of the queue is believed, and before somebody is refused for it: much of what was let
in since may be done already."""
ROOM_OF_WAITING = 2
LONGEST = 60


class Admission:
    """One process's view of the queue. Several processes together may let in a little more."""

    def __init__(self, engine: Engine, most: int, most_bytes: int) -> None:
        self._engine = engine
        self._most = most
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._looked_at = float("-inf")
        self._seen = Waiting(0, 0, 0.0, {})
        self._jobs: Counter[str] = Counter()
        self._bytes = 0

    def check(self, caller: str, waits: bool, size: int) -> None:
        """Let a change of so many bytes in, or raise TooMany. `waits`: its caller waits until it is carried out."""
        room = ROOM_OF_WAITING if waits else 1
        most, most_bytes = room * self._most, room * self._most_bytes
        with self._lock:
            for believed in (LOOK_AGAIN, BEFORE_REFUSING):
                self._look(believed)
                jobs, own = self._jobs.total(), self._jobs[caller]
                if jobs < most and own < max(1, most // 2) and self._bytes < most_bytes:
                    self._jobs[caller] += 1
                    self._bytes += size + WEIGHT
                    return
        REFUSED.inc()
        seconds = round(min(max(1.0, self._seen.oldest / 2), LONGEST))
        mine = f", {own:,} of them of this caller" if own and own != jobs else ""
        raise TooMany(
            f"{jobs:,} changes wait already{mine}; nothing was changed. Try again in {seconds} s.", retry_after=seconds
        )

    def _look(self, believed: float) -> None:
        """See what waits, if what was seen is older; in between, what was let in is added."""
        now = time.monotonic()
        if now - self._looked_at <= believed:
            return
        with self._engine.connect() as connection:
            self._seen = look_at_waiting(connection, ROOM_OF_WAITING * self._most)
        self._looked_at, self._bytes = now, self._seen.bytes
        self._jobs = Counter(self._seen.by_caller)
