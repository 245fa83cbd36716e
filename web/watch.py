"""Watch: who waits for a feed is woken when something is in it.

Redis rings when something was published; what, and for whom, the database knows. If Redis is away, the database is
looked at every second: one look a process, however many wait.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import redis
import structlog
from sqlalchemy import Engine

from mdv.db.feed import Feed
from mdv.db.state import read_state
from workers.signals import PUBLISHED

log = structlog.get_logger()

LOOK_AGAIN = 1.0
"""Seconds after which the database is looked at without having been rung for."""


class Watch:
    """One process's watch over all feeds. It begins when somebody waits for the first time."""

    def __init__(self, engine: Engine, client: redis.Redis) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._redis = client
        self._bells: dict[int, set[threading.Event]] = defaultdict(set)
        self._lock = threading.Lock()
        self._started = False
        self._seen = 0
        self.closed = False
        """Whether this process is about to end: who waits is let go."""

    @contextmanager
    def bell(self, lmr: int) -> Iterator[threading.Event]:
        """A bell that rings when there is something new for an LMR. It is heard from the moment it is handed out."""
        self._start()
        bell = threading.Event()
        with self._lock:
            self._bells[lmr].add(bell)
        if self.closed:
            bell.set()
        try:
            yield bell
        finally:
            with self._lock:
                self._bells[lmr].discard(bell)
                if not self._bells[lmr]:
                    del self._bells[lmr]

    def close(self) -> None:
        """Ring every bell for the last time."""
        self.closed = True
        with self._lock:
            bells = [bell for some in self._bells.values() for bell in some]
        for bell in bells:
            bell.set()

    def _start(self) -> None:
        with self._lock:
            if self._started:
                return
            self._started = True
        with self._engine.connect() as connection:
            self._seen = read_state(connection).position
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def _watch(self) -> None:
        while True:
            try:
                with self._redis.pubsub(ignore_subscribe_messages=True) as rung:  # type: ignore[no-untyped-call]
                    rung.subscribe(PUBLISHED)
                    while True:
                        rung.get_message(timeout=LOOK_AGAIN)
                        self._look()
            except redis.RedisError as error:
                log.warning("no bell from Redis; looking every second", reason=str(error))
                time.sleep(LOOK_AGAIN)
                self._look()

    def _look(self) -> None:
        """Ring for those that were told of something since the last look."""
        try:
            with self._engine.connect() as connection:
                published = Feed(connection).published_after(self._seen)
        except Exception as error:  # whatever it is, it must not end the watch
            log.warning("the feeds could not be looked at", reason=str(error).splitlines()[0])
            return
        for tx, lmrs in published:
            self._seen = tx
            with self._lock:
                bells = [bell for lmr in lmrs for bell in self._bells.get(lmr, ())]
            for bell in bells:
                bell.set()
