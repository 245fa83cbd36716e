"""Deliver: send the messages of webhooks, each in a thread of its own, so that no receiver holds up anybody else.

A message is claimed by putting off its next attempt, in a transaction that ends before anything is sent. Whoever dies
with it leaves it to be claimed again after `LOST`; a receiver may then hear it twice, under the same id.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from threading import Lock, Thread

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from mdv.db import webhooks as db
from mdv.db.webhooks import Message
from mdv.mdp.webhooks import KEPT, is_spent, letter_of, settle
from mdv.webhooks.send import Answer, send

log = structlog.get_logger()

MOST_AT_ONCE = 16
MOST_OF_ONE_LMR = 2
"""At once, so that the slow receivers of one LMR do not take the turn of others."""
LOOKED_SECONDS = 5.0
"""How long it is remembered whether there are webhooks at all."""
TRIMMED_SECONDS = 3600.0
LOST = timedelta(seconds=60)
"""When a message that was claimed is taken for lost: well after any exchange has ended."""

SPENT = Answer(None, "The worker that made the last attempt ended without telling what came of it.")

Send = Callable[[str, bytes, dict[str, str]], Answer]


class Deliveries:
    """The messages that one process sends. `told` hears of each attempt: delivered, waiting or dead."""

    def __init__(
        self,
        engine: Engine,
        private: bool = False,
        *,
        post: Send | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        chance: Callable[[], float] = random.random,
        told: Callable[[str], None] = lambda state: None,
    ) -> None:
        self._engine = engine
        self._post = post or (lambda url, body, headers: send(url, body, headers, private))
        self._clock, self._chance, self._told = clock, chance, told
        self._news: SimpleQueue[Message | None] = SimpleQueue()
        self._on_the_way: Counter[int] = Counter()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._wanted, self._looked = False, float("-inf")
        self._trimmed = float("-inf")

    def are_wanted(self) -> bool:
        """Whether there is any webhook to be told, as of some seconds ago."""
        now = time.monotonic()
        if now - self._looked > LOOKED_SECONDS:
            self._looked = now
            try:
                with self._engine.connect() as connection:
                    self._wanted = db.any_active(connection)
            except DBAPIError as error:
                log.warning("webhooks were not looked for; the sweep will", reason=str(error.orig))
        return self._wanted

    def wake(self) -> None:
        """Something may be due: let it be sent, without waiting for it."""
        self._news.put(None)
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = Thread(target=self._run, name="webhooks", daemon=True)
                self._thread.start()

    def work(self) -> int:
        """Send all that is due, and what becomes due by that; how many attempts it took."""
        attempts = 0
        while True:
            attempts += self._begin_what_is_due()
            if not self._on_the_way.total():
                return attempts
            self._hear()

    def _run(self) -> None:
        while True:
            self._hear()
            try:
                self.work()
            except Exception as error:  # the database is away, say: the next wake-up tries again
                reason = (str(error).splitlines() or [repr(error)])[0]
                log.warning("messages of webhooks were not looked for", reason=reason)

    def _hear(self) -> None:
        """Wait until something may be due, or a message has ended."""
        ended = self._news.get()
        while True:
            if ended is not None:
                self._on_the_way -= Counter({ended.lmr_id: 1})
            if self._news.empty():
                return
            ended = self._news.get()

    def _begin_what_is_due(self) -> int:
        begun = 0
        self._trim()
        with self._engine.begin() as connection:
            db.make_messages(connection, self._clock())
        while self._on_the_way.total() < MOST_AT_ONCE:
            now = self._clock()
            busy = [lmr for lmr, count in self._on_the_way.items() if count >= MOST_OF_ONE_LMR]
            with self._engine.begin() as connection:
                message = db.claim(connection, now, now + LOST, busy)
            if message is None:
                break
            Thread(target=self._deliver, args=(message,), name="webhook", daemon=True).start()
            self._on_the_way[message.lmr_id] += 1
            begun += 1
        return begun

    def _trim(self) -> None:
        if time.monotonic() - self._trimmed > TRIMMED_SECONDS:
            with self._engine.begin() as connection:
                db.trim_old(connection, self._clock() - KEPT)
            self._trimmed = time.monotonic()

    def _deliver(self, message: Message) -> None:
        try:
            answer = SPENT if is_spent(message) else self._attempt(message)
            with self._engine.begin() as connection:
                state = settle(connection, message, answer, self._clock(), self._chance)
            if state is not None:
                self._told(state)
                log.info("webhook", webhook=message.webhook_id, lmr=message.lmr, message=str(message.id), state=state,
                         attempt=message.attempts, status=answer.status, reason=answer.reason)  # fmt: skip
        except Exception as error:
            log.error("what came of a message is not written down", message=str(message.id), exc_info=error)
        finally:
            self._news.put(message)

    def _attempt(self, message: Message) -> Answer:
        letter = letter_of(message, self._clock())
        try:
            return self._post(message.url, letter.body, letter.headers)
        except Exception as error:
            log.error("a message could not be sent", message=str(message.id), exc_info=error)
            return Answer(None, f"MDV itself failed: {type(error).__name__}.")
