"""Send the requests of processes to services, each in its own thread, so that a slow service does not block others.

A request is claimed by deferring its next attempt, in a transaction that ends before anything is sent. If the worker
dies, the request can be claimed again after the lease. A service may then get it twice, with the same Idempotency-Key.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Lock, Thread

import structlog
from sqlalchemy import Engine

from mdv.db.real.service_calls import (
    CallAttempt,
    ClaimedCall,
    claim_call,
    record_attempt,
    seconds_until_call,
)
from mdv.failpoints import ANSWERED_CALL, CLAIMED_CALL, hit_failpoint
from mdv.webhooks.send import WebhookResponse, send
from mdv.webhooks.sign import signature_headers

MAX_CONCURRENT_CALLS = 16
LEASE_SECONDS = 60.0
"""After this time, a claimed request is considered lost. It is much longer than an HTTP request can take."""
CALLING_THREAD = "service"
"""The name of threads that send a request."""
MAX_ATTEMPTS = 5
MAX_RETRY_SECONDS = 300.0
MAX_ANSWER_BYTES = 2**20
ACCEPTED_TYPES = "text/turtle, application/n-triples;q=0.9, application/rdf+xml;q=0.8, application/ld+json;q=0.8"

UNSIGNED = "MDV_REAL_SERVICE_SECRET is not set, so requests to services cannot be signed"

log = structlog.get_logger()

PostFunction = Callable[[str, bytes, dict[str, str]], WebhookResponse]


class ServiceSender:
    """Sends the requests of one process of MDV. `secret` signs them. `private`: services may be in a private network.
    `resumed` is called when a process of a program can go on."""

    def __init__(
        self,
        engine: Engine,
        secret: str = "",
        private: bool = False,
        resumed: Callable[[], object] = lambda: None,
        post: PostFunction | None = None,
    ) -> None:
        self._engine, self._secret, self._resumed = engine, secret, resumed
        self._post = post or (
            lambda url, body, headers: send(url, body, headers, private, most_read=MAX_ANSWER_BYTES)
        )  # fmt: skip
        self._wakeups: SimpleQueue[bool] = SimpleQueue()
        self._in_flight = 0
        self._lock = Lock()
        self._thread: Thread | None = None

    def wake(self) -> None:
        """Start sending the requests that are due, without waiting for them."""
        self._wakeups.put(False)
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = Thread(target=self._run, name="services", daemon=True)
                self._thread.start()

    def work(self) -> int:
        """Send all requests that are due or become due meanwhile. Return the number of attempts."""
        attempts = 0
        while True:
            attempts += self._start_due()
            if not self._in_flight:
                return attempts
            self._wait(None)

    def _run(self) -> None:
        seconds: float | None = None
        while True:
            self._wait(seconds)
            try:
                self.work()
                with self._engine.begin() as connection:
                    seconds = seconds_until_call(connection)
            except Exception as error:  # for example no database: the next wake-up tries again
                log.warning("could not send requests to services", reason=(str(error).splitlines() or [repr(error)])[0])
                seconds = 5.0

    def _wait(self, seconds: float | None) -> None:
        """Wait until a request may be due, an attempt has ended, or the time is over."""
        try:
            has_ended = self._wakeups.get(timeout=None if seconds is None else max(0.05, seconds))
        except Empty:
            return
        while True:
            self._in_flight -= has_ended
            if self._wakeups.empty():
                return
            has_ended = self._wakeups.get()

    def _start_due(self) -> int:
        started = 0
        while self._in_flight < MAX_CONCURRENT_CALLS:
            with self._engine.begin() as connection:
                call = claim_call(connection, LEASE_SECONDS)
            if call is None:
                break
            hit_failpoint(CLAIMED_CALL)
            Thread(target=self._deliver, args=(call,), name=CALLING_THREAD, daemon=True).start()
            self._in_flight += 1
            started += 1
        return started

    def _deliver(self, call: ClaimedCall) -> None:
        try:
            attempt = judge(self._send(call), call.attempts)
            hit_failpoint(ANSWERED_CALL)
            with self._engine.begin() as connection:
                has_resumed = record_attempt(connection, call, attempt)
            log.info("service", call=str(call.id), state=attempt.state, attempt=call.attempts, status=attempt.status,
                     reason=attempt.reason)  # fmt: skip
            if has_resumed:
                self._resumed()
        except Exception as error:
            log.error("could not record the answer of a service", call=str(call.id), exc_info=error)
        finally:
            self._wakeups.put(True)

    def _send(self, call: ClaimedCall) -> WebhookResponse:
        if not self._secret:
            return WebhookResponse(400, UNSIGNED)  # not sent, and not tried again
        if call.attempts > MAX_ATTEMPTS:
            return WebhookResponse(None, "The worker died during the last attempt. Its result is unknown.")
        body, number = call.body.encode(), str(call.id)
        try:
            signature = signature_headers(number, int(time.time()), body, [self._secret])
        except ValueError:
            return WebhookResponse(400, "MDV_REAL_SERVICE_SECRET is not whsec_ and a key in base64")
        headers = {"Content-Type": "text/turtle; charset=utf-8", "Accept": ACCEPTED_TYPES, "Idempotency-Key": number}
        headers |= signature
        try:
            return self._post(call.endpoint, body, headers)
        except Exception as error:
            log.error("could not call a service", call=number, exc_info=error)
            return WebhookResponse(None, f"Internal error in MDV: {type(error).__name__}.")


def judge(response: WebhookResponse, attempts: int) -> CallAttempt:
    """Return what an answer means: an answer, a failure, or another attempt after 2, 8, 32 and 128 s.

    >>> judge(WebhookResponse(503, "It answered 503."), 1)[:3], judge(WebhookResponse(503, "It answered 503."), 5)[0]
    (('waiting', 503, 'It answered 503.'), 'failed')
    >>> judge(WebhookResponse(403, "It answered 403: no."), 1)[:3]
    ('failed', 403, 'It answered 403: no.')
    """
    status, reason = response.status, response.reason
    if response.is_success and reason is None:
        return CallAttempt("answered", status, None, response.media_type, response.body or b"")
    is_temporary = status is None or status in (408, 425, 429) or status >= 500
    if is_temporary and attempts < MAX_ATTEMPTS:
        seconds = min(MAX_RETRY_SECONDS, max(2.0 * 4.0 ** (attempts - 1), response.retry_after or 0.0))
        return CallAttempt("waiting", status, reason, seconds=seconds)
    return CallAttempt("failed", status, reason or "The service gave no answer.")
