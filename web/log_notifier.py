"""Wake requests that wait for changes of the log or the vector of the backbone.

Redis notifies that something was committed; each waiting request then looks at the database. Without Redis, it looks
every second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import redis
import structlog
from sqlalchemy import Connection, Engine

from workers.messages import PUBLISHED_CHANNEL

log = structlog.get_logger()

POLL_SECONDS = 1.0


class LogNotifier:
    """Watches the commits of an MDP for one process. It starts with the first waiting request."""

    def __init__(self, engine: Engine, client: redis.Redis) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._redis = client
        self._changed = threading.Condition()
        self._count = 0
        self._started = False
        self.closed = False

    def close(self) -> None:
        """End all waits, because this process is about to exit."""
        self.closed = True
        self._notify()

    def wait_until(self, holds: Callable[[Connection], bool], deadline: float) -> bool:
        """Wait until a condition of the database holds, or until the deadline. Return whether it holds."""
        self._start()
        while True:
            count = self._count
            with self._engine.connect() as connection:
                if holds(connection):
                    return True
            left = deadline - time.monotonic()
            if left <= 0 or self.closed:
                return False
            with self._changed:
                if self._count == count:
                    self._changed.wait(min(left, POLL_SECONDS))

    def _start(self) -> None:
        with self._changed:
            if self._started:
                return
            self._started = True
        threading.Thread(target=self._watch, name="log watch", daemon=True).start()

    def _watch(self) -> None:
        while True:
            try:
                with self._redis.pubsub(ignore_subscribe_messages=True) as subscription:  # type: ignore[no-untyped-call]
                    subscription.subscribe(PUBLISHED_CHANNEL)
                    while True:
                        if subscription.get_message(timeout=POLL_SECONDS) is not None:
                            self._notify()
            except redis.RedisError as error:
                log.warning("Redis unavailable; waiting requests look every second", reason=str(error))
                time.sleep(POLL_SECONDS)

    def _notify(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()
