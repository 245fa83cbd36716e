"""Sessions at an LMR: kept by the browser alone, since an LMR has no table of people.

    cookie = when it began . something random . signature

It is signed with a key made from the token that it began with: when that token changes, it ends.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

LONGEST_SECONDS = 12 * 3600.0
LONGEST_COOKIE = 200

MOST_ENDED = 10_000
"""Sessions that are remembered to have been ended."""

WINDOW_SECONDS = 900.0
MOST_OF_AN_ADDRESS = 20
"""Attempts that may fail within the window;"""
MOST_ADDRESSES = 10_000
"""and of so many addresses they are remembered."""


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Somebody who has shown a token."""

    name: str
    role: str
    csrf: str


def begin_session(token: str) -> str:
    """What the cookie of somebody who has shown this token holds."""
    told = f"{int(time.time())}.{secrets.token_urlsafe(18)}"
    return f"{told}.{_signature(token, 'session', told)}"


def find_session(cookie: str, tokens: Iterable[tuple[str, str]]) -> SignedIn | None:
    """Who has signed in, where one of these (words for it, token) began the session and it has not ended.

    >>> cookie = begin_session("a")
    >>> find_session(cookie, [("with a", "a")]).role
    'with a'
    >>> find_session(cookie, [("with b", "b")]), find_session(cookie[:-1], [("with a", "a")]), find_session("x", [])
    (None, None, None)
    """
    told, _, shown = cookie[:LONGEST_COOKIE].rpartition(".")
    began = told.partition(".")[0]
    if not (began.isascii() and began.isdecimal()) or not -60 <= time.time() - int(began) < LONGEST_SECONDS:
        return None
    for words, token in tokens:
        if hmac.compare_digest(shown.encode("utf-8", "replace"), _signature(token, "session", told).encode()):
            return SignedIn("Signed in", words, _signature(token, "form", told))
    return None


def _signature(token: str, use: str, told: str) -> str:
    key = hmac.digest(token.encode(), b"mdv lmr pages", "sha256")
    return hmac.digest(key, f"{use} {told}".encode("utf-8", "replace"), "sha256").hex()


class Ended:
    """Sessions that were ended before their time; a bounded number of them, the oldest are forgotten first."""

    def __init__(self, most: int = MOST_ENDED) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._cookies: OrderedDict[str, None] = OrderedDict()

    def end(self, cookie: str) -> None:
        """
        >>> ended = Ended(most=2)
        >>> for cookie in "abc":
        ...     ended.end(cookie)
        >>> ["a" in ended, "b" in ended, "c" in ended]
        [False, True, True]
        """
        with self._lock:
            self._cookies[cookie[:LONGEST_COOKIE]] = None
            while len(self._cookies) > self._most:
                self._cookies.popitem(last=False)

    def __contains__(self, cookie: str) -> bool:
        return cookie[:LONGEST_COOKIE] in self._cookies


class Attempts:
    """Attempts to sign in that failed, by address; a bounded number of them."""

    def __init__(self, most: int = MOST_OF_AN_ADDRESS, seconds: float = WINDOW_SECONDS) -> None:
        self._most, self._seconds = most, seconds
        self._lock = threading.Lock()
        self._failed: OrderedDict[str, list[float]] = OrderedDict()

    def may_try(self, address: str) -> bool:
        """Whether another attempt is looked at. It counts as failed until it is forgiven.

        >>> attempts = Attempts(most=2)
        >>> [attempts.may_try("a"), attempts.may_try("a"), attempts.may_try("a"), attempts.may_try("b")]
        [True, True, False, True]
        >>> attempts.forgive("a")
        >>> attempts.may_try("a")
        True
        """
        now = time.monotonic()
        with self._lock:
            recent = [at for at in self._failed.pop(address, []) if now - at < self._seconds]
            is_free = len(recent) < self._most
            self._failed[address] = [*recent, now] if is_free else recent
            while len(self._failed) > MOST_ADDRESSES:
                self._failed.popitem(last=False)
            return is_free

    def forgive(self, address: str) -> None:
        with self._lock:
            self._failed.pop(address, None)
