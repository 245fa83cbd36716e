"""The lock that lets one process of an MDP handle the messages of its federation at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Engine

from mdv.db.replica.lock import hold_process_lock

LOCK_KEY = 0x6D64_765F_6665


@contextmanager
def hold_federation_lock(engine: Engine, stop: threading.Event) -> Iterator[Callable[[], object] | None]:
    """Wait for the lock, and hold it in the block. Yield a function that raises an error if it was lost; None if `stop`
    was set before."""
    with hold_process_lock(engine, LOCK_KEY, stop) as check:
        yield check
