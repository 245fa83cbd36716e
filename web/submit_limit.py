"""Limit the number of requests that submit jobs at the same time.

A web process handles one greenlet at a time. Without this limit, many concurrent submissions, each with several
database round trips, would delay feed readers. Requests that only wait for their job do not count.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

MAX_CONCURRENT_SUBMITS = 4
MAX_WAIT_SECONDS = 1.0
"""After this time a request proceeds without a slot: if the database hangs, no slot would become free."""


class SubmitLimit:
    """The limit of one process."""

    def __init__(self, limit: int = MAX_CONCURRENT_SUBMITS) -> None:
        self._free = threading.Semaphore(limit)

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Hold a slot within the block, waiting for one if necessary."""
        acquired = self._free.acquire(timeout=MAX_WAIT_SECONDS)
        try:
            yield
        finally:
            if acquired:
                self._free.release()
