"""Pace (the paper's question at the end of section 4): how much a worker takes at once.

A document alone when it is quiet; when it is busy, what waits, up to what takes about `GOAL` seconds. A larger batch
costs less for each document, and lets everybody wait longer who came too late for it. What a byte costs is measured
from batch to batch: it depends on the documents, on the rules, and on the machine.
"""

from __future__ import annotations

GOAL = 0.3
"""Seconds that a batch should take."""
MOST = 1000
"""Documents in a batch."""
FIRST_BYTES = 100_000.0
LEAST_BYTES = 10_000.0
MOST_BYTES = 64 * 1024 * 1024.0
"""The texts that are taken into memory at once; a single larger one is taken alone."""


class Pace:
    """What one worker has learnt of its batches.

    >>> pace = Pace()
    >>> pace.bytes
    100000
    >>> pace.learn(100_000, 0.1)
    >>> pace.bytes
    150000
    >>> pace.learn(100_000, 3.0)
    >>> pace.bytes
    18750
    """

    def __init__(self, goal: float = GOAL) -> None:
        self._goal = goal
        self._cost = goal / FIRST_BYTES

    @property
    def bytes(self) -> int:
        """What the next batch may weigh."""
        return int(min(max(self._goal / self._cost, LEAST_BYTES), MOST_BYTES))

    def learn(self, size: int, seconds: float) -> None:
        """A batch of that weight has taken so long."""
        self._cost = (self._cost + seconds / size) / 2
