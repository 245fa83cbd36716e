"""The lock that lets one process of an MDP replicate at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, text

LOCK_KEY = 0x6D64_765F_6262
RETRY_SECONDS = 1.0

_TRY = text("select pg_try_advisory_lock(:key)")
_ALIVE = text("select 1")
_RELEASE = text("select pg_advisory_unlock(:key)")


@contextmanager
def hold_replication_lock(engine: Engine, stop: threading.Event) -> Iterator[Callable[[], object] | None]:
    """Wait for the lock, and hold it in the block. Yield a function that raises an error if it was lost; None if `stop`
    was set before. The lock is of a connection, so it goes when this process ends."""
    with hold_process_lock(engine, LOCK_KEY, stop) as check:
        yield check


@contextmanager
def hold_process_lock(engine: Engine, key: int, stop: threading.Event) -> Iterator[Callable[[], object] | None]:
    """The same for any key."""
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        while not stop.is_set():
            if connection.execute(_TRY, {"key": key}).scalar_one():
                yield lambda: connection.execute(_ALIVE)
                connection.execute(_RELEASE, {"key": key})
                return
            stop.wait(RETRY_SECONDS)
        yield None
