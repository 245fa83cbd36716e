"""Admission control: reject changes with 429 and Retry-After while too many jobs are waiting.

One caller may use at most half of the limit, so that it cannot lock out others. Callers that wait for the result
(`Prefer: wait`) get twice the limit: they cannot submit without bound.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

from sqlalchemy import Engine

from mdv.db.jobs import JOB_OVERHEAD_BYTES, QueueSummary, summarize_queue
from mdv.errors import TooMany
from mdv.metrics import CHANGES_REFUSED

QUEUE_STATS_TTL_SECONDS, REFUSAL_STATS_TTL_SECONDS = 1.0, 0.05
"""How long queue statistics are reused, normally and before a refusal. Before a refusal they are read again, since many
admitted jobs may have finished."""
WAITING_CALLER_LIMIT_FACTOR = 2
MAX_RETRY_AFTER_SECONDS = 60


class Admission:
    """Admission control of one process. Several processes together may slightly exceed the limits."""

    def __init__(self, engine: Engine, max_jobs: int, max_bytes: int) -> None:
        self._engine = engine
        self._max_jobs = max_jobs
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._stats = QueueSummary(0, 0, 0.0, {})
        self._jobs: Counter[str] = Counter()
        self._bytes = 0

    def check(self, caller: str, waits: bool, size: int) -> None:
        """Admit a change of `size` bytes, or raise TooMany. `waits`: the caller waits for the result."""
        factor = WAITING_CALLER_LIMIT_FACTOR if waits else 1
        max_jobs, max_bytes = factor * self._max_jobs, factor * self._max_bytes
        with self._lock:
            for max_age in (QUEUE_STATS_TTL_SECONDS, REFUSAL_STATS_TTL_SECONDS):
                self._refresh(max_age)
                jobs, own = self._jobs.total(), self._jobs[caller]
                if jobs < max_jobs and own < max(1, max_jobs // 2) and self._bytes < max_bytes:
                    self._jobs[caller] += 1
                    self._bytes += size + JOB_OVERHEAD_BYTES
                    return
        CHANGES_REFUSED.inc()
        seconds = round(min(max(1.0, self._stats.oldest / 2), MAX_RETRY_AFTER_SECONDS))
        share = f", {own:,} of them from this caller" if own and own != jobs else ""
        raise TooMany(
            f"{jobs:,} changes are already waiting{share}. Nothing was changed. Try again in {seconds} s.",
            retry_after=seconds,
        )

    def _refresh(self, max_age: float) -> None:
        """Read the queue statistics if they are older than `max_age`. Admitted changes are added in between."""
        now = time.monotonic()
        if now - self._read_at <= max_age:
            return
        with self._engine.connect() as connection:
            self._stats = summarize_queue(connection, WAITING_CALLER_LIMIT_FACTOR * self._max_jobs)
        self._read_at, self._bytes = now, self._stats.bytes
        self._jobs = Counter(self._stats.by_caller)
