"""Sessions of LMR pages, stored only in signed cookies: an LMR has no table of users.

The cookie holds a random id and the start time, signed with the token that was used to sign in. If that token changes,
the session ends.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from itsdangerous import BadData, Signer, TimestampSigner

MAX_SESSION_SECONDS = 12 * 3600
MAX_COOKIE_CHARS = 200

MAX_ENDED_SESSIONS = 10_000
"""Maximum number of signed-out sessions that are remembered."""

WINDOW_SECONDS = 900.0
MAX_FAILURES_PER_IP = 20
"""Failed attempts of one IP address within the window."""
MAX_ADDRESSES = 10_000
"""Maximum number of addresses that are remembered."""


@dataclass(frozen=True, slots=True)
class LmrSession:
    """The session of a user who signed in with a token."""

    name: str
    role: str
    csrf: str
    session_id: str


def begin_session(token: str) -> str:
    """Return the cookie of a new session that was started with this token."""
    return TimestampSigner(token, "mdv lmr session", **_SIGNING).sign(secrets.token_urlsafe(18)).decode()


def find_session(cookie: str, tokens: Iterable[tuple[str, str]]) -> LmrSession | None:
    """Return the session of a cookie that was signed with one of the tokens (description, token) and has not expired.

    >>> cookie = begin_session("a")
    >>> find_session(cookie, [("with a", "a")]).role
    'with a'
    >>> find_session(cookie, [("with b", "b")]), find_session(cookie[:-1], [("with a", "a")]), find_session("x", [])
    (None, None, None)
    """
    shown = cookie[:MAX_COOKIE_CHARS].encode("utf-8", "replace")
    for description, token in tokens:
        with suppress(BadData):
            session_id = TimestampSigner(token, "mdv lmr session", **_SIGNING).unsign(
                shown, max_age=MAX_SESSION_SECONDS
            )
            csrf = Signer(token, "mdv lmr form", **_SIGNING).get_signature(session_id)
            return LmrSession("Signed in", description, csrf.decode(), session_id.decode())
    return None


_SIGNING: dict[str, Any] = {"key_derivation": "hmac", "digest_method": hashlib.sha256}


class EndedSessions:
    """Ids of sessions that were signed out before they expired. The oldest are forgotten at the limit.

    Ids instead of cookies: the same signature can be written in several ways.
    """

    def __init__(self, limit: int = MAX_ENDED_SESSIONS) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._ids: OrderedDict[str, None] = OrderedDict()

    def end(self, session_id: str) -> None:
        """
        >>> ended = EndedSessions(limit=2)
        >>> for session_id in "abc":
        ...     ended.end(session_id)
        >>> ["a" in ended, "b" in ended, "c" in ended]
        [False, True, True]
        """
        with self._lock:
            self._ids[session_id] = None
            while len(self._ids) > self._limit:
                self._ids.popitem(last=False)

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._ids


class SignInAttempts:
    """Failed sign-in attempts by IP address, bounded in number."""

    def __init__(self, limit: int = MAX_FAILURES_PER_IP, seconds: float = WINDOW_SECONDS) -> None:
        self._limit, self._seconds = limit, seconds
        self._lock = threading.Lock()
        self._failed: OrderedDict[str, list[float]] = OrderedDict()

    def allow_attempt(self, address: str) -> bool:
        """True if another attempt is allowed. It counts as failed until `forgive` is called.

        >>> attempts = SignInAttempts(limit=2)
        >>> [attempts.allow_attempt(address) for address in "aaab"]
        [True, True, False, True]
        >>> attempts.forgive("a")
        >>> attempts.allow_attempt("a")
        True
        """
        now = time.monotonic()
        with self._lock:
            recent = [at for at in self._failed.pop(address, []) if now - at < self._seconds]
            is_free = len(recent) < self._limit
            self._failed[address] = [*recent, now] if is_free else recent
            while len(self._failed) > MAX_ADDRESSES:
                self._failed.popitem(last=False)
            return is_free

    def forgive(self, address: str) -> None:
        with self._lock:
            self._failed.pop(address, None)
