"""Send webhook messages, each in its own thread, so that a slow receiver does not block others.

A message is claimed by deferring its next attempt, in a transaction that ends before anything is sent. If the process
dies, the message can be claimed again after `CLAIM_TIMEOUT`. A receiver may then get it twice, with the same id.
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
from mdv.mdp.webhooks import MESSAGE_RETENTION, has_no_attempts_left, record_attempt, sign_message
from mdv.webhooks.send import WebhookResponse, send

log = structlog.get_logger()

MAX_CONCURRENT_SENDS = 16
MAX_CONCURRENT_SENDS_PER_LMR = 2
"""Limits the threads that slow receivers of one LMR can occupy."""
WEBHOOK_CHECK_SECONDS = 5.0
"""How long it is cached whether there are active webhooks."""
TRIM_INTERVAL_SECONDS = 3600.0
CLAIM_TIMEOUT = timedelta(seconds=60)
"""After this time, a claimed message is considered lost. It is much longer than an HTTP request can take."""

SENDING_THREAD = "webhook"
"""The name of threads that send a message."""

WORKER_DIED = WebhookResponse(None, "The worker died during the last attempt. Its result is unknown.")

SendFunction = Callable[[str, bytes, dict[str, str]], WebhookResponse]


class WebhookSender:
    """Sends the messages of one process. `on_attempt` is called after each attempt with the state: delivered,
    waiting or dead."""

    def __init__(
        self,
        engine: Engine,
        private: bool = False,
        *,
        post: SendFunction | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        chance: Callable[[], float] = random.random,
        on_attempt: Callable[[str], None] = lambda state: None,
    ) -> None:
        self._engine = engine
        self._post = post or (lambda url, body, headers: send(url, body, headers, private))
        self._clock, self._chance, self._on_attempt = clock, chance, on_attempt
        self._wakeups: SimpleQueue[Message | None] = SimpleQueue()
        self._in_flight: Counter[int] = Counter()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._any_active, self._checked_at = False, float("-inf")
        self._trimmed_at = float("-inf")

    def any_active_webhook(self) -> bool:
        """True if there is an active webhook, as of up to `WEBHOOK_CHECK_SECONDS` ago."""
        now = time.monotonic()
        if now - self._checked_at > WEBHOOK_CHECK_SECONDS:
            self._checked_at = now
            try:
                with self._engine.connect() as connection:
                    self._any_active = db.has_active_webhooks(connection)
            except DBAPIError as error:
                log.warning("could not check for webhooks; will retry", reason=str(error.orig))
        return self._any_active

    def wake(self) -> None:
        """Start sending the messages that are due, without waiting for them."""
        self._wakeups.put(None)
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = Thread(target=self._run, name="webhooks", daemon=True)
                self._thread.start()

    def work(self) -> int:
        """Send all messages that are due or become due meanwhile. Return the number of attempts."""
        attempts = 0
        while True:
            attempts += self._start_due()
            if not self._in_flight.total():
                return attempts
            self._wait()

    def _run(self) -> None:
        while True:
            self._wait()
            try:
                self.work()
            except Exception as error:  # for example no database: the next wake-up tries again
                reason = (str(error).splitlines() or [repr(error)])[0]
                log.warning("could not send webhook messages", reason=reason)

    def _wait(self) -> None:
        """Wait until a message may be due or an attempt has ended."""
        ended = self._wakeups.get()
        while True:
            if ended is not None:
                self._in_flight -= Counter({ended.lmr_id: 1})
            if self._wakeups.empty():
                return
            ended = self._wakeups.get()

    def _start_due(self) -> int:
        started = 0
        self._trim()
        with self._engine.begin() as connection:
            db.create_messages(connection, self._clock())
        while self._in_flight.total() < MAX_CONCURRENT_SENDS:
            now = self._clock()
            busy = [lmr for lmr, count in self._in_flight.items() if count >= MAX_CONCURRENT_SENDS_PER_LMR]
            with self._engine.begin() as connection:
                message = db.claim_message(connection, now, now + CLAIM_TIMEOUT, busy)
            if message is None:
                break
            Thread(target=self._deliver, args=(message,), name=SENDING_THREAD, daemon=True).start()
            self._in_flight[message.lmr_id] += 1
            started += 1
        return started

    def _trim(self) -> None:
        if time.monotonic() - self._trimmed_at > TRIM_INTERVAL_SECONDS:
            with self._engine.begin() as connection:
                db.delete_old_deliveries(connection, self._clock() - MESSAGE_RETENTION)
            self._trimmed_at = time.monotonic()

    def _deliver(self, message: Message) -> None:
        try:
            response = WORKER_DIED if has_no_attempts_left(message) else self._attempt(message)
            with self._engine.begin() as connection:
                state = record_attempt(connection, message, response, self._clock(), self._chance)
            if state is not None:
                self._on_attempt(state)
                log.info("webhook", webhook=message.webhook_id, lmr=message.lmr, message=str(message.id), state=state,
                         attempt=message.attempts, status=response.status, reason=response.reason)  # fmt: skip
        except Exception as error:
            log.error("could not record the result of a webhook message", message=str(message.id), exc_info=error)
        finally:
            self._wakeups.put(message)

    def _attempt(self, message: Message) -> WebhookResponse:
        signed = sign_message(message, self._clock())
        try:
            return self._post(message.url, signed.body, signed.headers)
        except Exception as error:
            log.error("could not send a webhook message", message=str(message.id), exc_info=error)
            return WebhookResponse(None, f"Internal error in MDV: {type(error).__name__}.")
