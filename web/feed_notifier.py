"""Wake long polls and streams when their feed has new events.

Redis notifies that something was published; the database knows for which LMRs. If Redis is unavailable, each process
polls the database every second, independent of the number of waiting requests.
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

from mdv.mdp.feed_progress import list_published, read_feed_end
from workers.messages import PUBLISHED_CHANNEL

log = structlog.get_logger()

MAX_POLLS_PER_LMR = 10
"""Concurrent long polls of one LMR at one process."""
FEED_POLL_SECONDS = 1.0
"""Interval at which the database is polled without a notification."""


class FeedSignal(threading.Event):
    """Set when a feed has new events."""

    is_ended = False
    """True if the poll must end because the LMR has started too many others."""


class FeedNotifier:
    """Watches all feeds for one process. It starts with the first waiting request."""

    def __init__(self, engine: Engine, client: redis.Redis) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._redis = client
        self._signals: dict[int, set[FeedSignal]] = defaultdict(set)
        self._polls: dict[int, dict[FeedSignal, None]] = defaultdict(dict)
        """The signals of long polls by LMR, oldest first."""
        self._lock = threading.Lock()
        self._started = False
        self._position = 0
        self.closed = False
        """True if this process is about to exit and waiting requests must end."""

    @contextmanager
    def signal(self, lmr: int) -> Iterator[FeedSignal]:
        """Yield a signal that is set when the LMR has new events. No event after the call is missed."""
        self._start()
        signal = FeedSignal()
        with self._lock:
            self._signals[lmr].add(signal)
        if self.closed:
            signal.set()
        try:
            yield signal
        finally:
            with self._lock:
                self._signals[lmr].discard(signal)
                if not self._signals[lmr]:
                    del self._signals[lmr]

    @contextmanager
    def poll(self, lmr: int) -> Iterator[FeedSignal]:
        """Yield a signal for a long poll. At the limit per LMR, the oldest poll is ended: its client may have
        disconnected unnoticed, and must not block new polls."""
        with self.signal(lmr) as signal:
            lmr_polls = self._polls[lmr]
            if len(lmr_polls) >= MAX_POLLS_PER_LMR:
                oldest = next(iter(lmr_polls))
                del lmr_polls[oldest]
                oldest.is_ended = True
                oldest.set()
            lmr_polls[signal] = None
            try:
                yield signal
            finally:
                lmr_polls.pop(signal, None)
                if not lmr_polls and self._polls.get(lmr) is lmr_polls:
                    del self._polls[lmr]

    def close(self) -> None:
        """Wake all waiting requests for the last time."""
        self.closed = True
        with self._lock:
            signals = [signal for some in self._signals.values() for signal in some]
        for signal in signals:
            signal.set()

    def _start(self) -> None:
        with self._lock:
            if self._started:
                return
            self._started = True
        with self._engine.connect() as connection:
            self._position = read_feed_end(connection).position
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def _watch(self) -> None:
        while True:
            try:
                with self._redis.pubsub(ignore_subscribe_messages=True) as subscription:  # type: ignore[no-untyped-call]
                    subscription.subscribe(PUBLISHED_CHANNEL)
                    while True:
                        subscription.get_message(timeout=FEED_POLL_SECONDS)
                        self._poll()
            except redis.RedisError as error:
                log.warning("Redis unavailable; polling the database every second", reason=str(error))
                time.sleep(FEED_POLL_SECONDS)
                self._poll()

    def _poll(self) -> None:
        """Wake the requests of LMRs with events since the last poll."""
        try:
            with self._engine.connect() as connection:
                published = list_published(connection, self._position)
        except Exception as error:  # no error may end the watching thread
            log.warning("polling the feeds failed", reason=str(error).splitlines()[0])
            return
        for tx, lmrs in published:
            self._position = tx
            with self._lock:
                signals = [signal for lmr in lmrs for signal in self._signals.get(lmr, ())]
            for signal in signals:
                signal.set()
