"""The services that request handlers of an LMR share: the cache, its synchronisation, and the MDP."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from flask import Flask, current_app, request

from mdv.config import Config
from mdv.errors import NotAllowed, Unauthenticated, Unavailable
from mdv.inspect.sql.cache import read_labels
from mdv.lmr.cache import Cache
from mdv.lmr.homes import Homes
from mdv.lmr.mdp_client import MdpClient
from mdv.lmr.mdp_info import LmrInfo, LmrInfoCache
from mdv.lmr.search_index import keep_index_current
from mdv.lmr.sync import Sync
from web.lmr.cache_counts import CachedCounts
from web.lmr.sessions import EndedSessions, LmrSession, SignInAttempts, find_session

REQUEST_THREADS = 64
"""Concurrent requests. The limits below leave threads free for requests that do not wait."""
MAX_MDP_REQUESTS = 8
"""Requests that wait for a response of the MDP."""
MAX_QUERIES = 16
"""Queries and cache checks."""
MAX_LOCAL_WRITES = 8
"""Changes of local metadata, which run one at a time."""
MAX_POSITION_WAITERS = 20
"""Requests that wait for a position."""


@dataclass
class LmrServices:
    """The shared services of one LMR process."""

    config: Config
    cache: Cache
    homes: Homes
    sync: Sync
    _stop: threading.Event = field(default_factory=threading.Event)
    mdp_slots: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MAX_MDP_REQUESTS))
    query_slots: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MAX_QUERIES))
    write_slots: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MAX_LOCAL_WRITES))
    attempts: SignInAttempts = field(default_factory=SignInAttempts)
    ended: EndedSessions = field(default_factory=EndedSessions)
    _waiters: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MAX_POSITION_WAITERS))

    def __post_init__(self) -> None:
        self._mdp_info = LmrInfoCache(lambda: self.mdp)
        self.counter = CachedCounts(self.cache)

    @property
    def mdp(self) -> MdpClient:
        """The MDP where this LMR is at home."""
        return self.homes.current

    def start(self) -> None:
        """Start the threads that keep the cache and its search index up to date."""
        threading.Thread(target=self.sync.run, args=(self._stop,), name="sync", daemon=True).start()
        threading.Thread(target=keep_index_current, args=(self.cache, self._stop), name="search", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    @property
    def has_snapshot(self) -> bool:
        """True if a snapshot has been applied."""
        status = self.sync.status
        return status.cursor is not None or status.position > 0

    def mdp_info(self) -> LmrInfo | None:
        """Return what the MDP reports about this LMR. While the MDP is unreachable, return the last known values."""
        return self._mdp_info.current(self.sync.status.last_error is None)

    def cached_mdp_info(self) -> LmrInfo | None:
        """Return the last known values, without a request."""
        return self._mdp_info.known

    def invalidate_mdp_info(self) -> None:
        """Drop the known values: they have changed at the MDP."""
        self._mdp_info.forget()

    @property
    def tokens(self) -> list[tuple[str, str]]:
        """The tokens that are accepted, each with a description."""
        tokens = (("with the LMR’s token", self.config.lmr_token), ("with the admin token", self.config.admin_token))
        return [(description, token) for description, token in tokens if token]

    def accepts(self, secret: str) -> bool:
        """True if the secret is an accepted token. Compares in constant time."""
        given = secret.encode("utf-8", "replace")
        return any(hmac.compare_digest(given, token.encode()) for _, token in self.tokens)

    def cookie_name(self) -> str:
        """Return the cookie name with the port: cookies do not distinguish ports, and a host may run several LMRs."""
        port = request.host.rpartition(":")[2]
        return f"mdv_lmr_{port}" if port.isascii() and port.isdecimal() else "mdv_lmr"

    def find_user(self, secret: str) -> LmrSession | None:
        found = find_session(secret, self.tokens)
        return None if found is None or found.session_id in self.ended else found

    def read_labels(self, uris: Sequence[str], languages: Sequence[str]) -> dict[str, str]:
        """Return the labels of resources in the cache, by URI."""
        with self.cache.reading() as connection:
            properties = self.cache.schema(connection).schema.label_properties
            return read_labels(connection, uris, properties, languages)

    def wait_for(self, position: int, seconds: float) -> None:
        """Wait until a position is applied, unless too many requests are already waiting."""
        if self.sync.status.position < position and self._waiters.acquire(blocking=False):
            try:
                self.sync.wait_for(position, seconds)
            finally:
                self._waiters.release()

    def wait_for_token(self, token: tuple[str, int], seconds: float) -> bool:
        """Wait until the change of a token is applied, and return whether it is. If too many requests are already
        waiting, it does not wait."""
        if not self._waiters.acquire(blocking=False):
            return self.sync.wait_for_token(token, 0)
        try:
            return self.sync.wait_for_token(token, seconds)
        finally:
            self._waiters.release()


def lmr() -> LmrServices:
    """Return the services of the current LMR application."""
    return cast(LmrServices, current_app.extensions["mdv"])


def require_snapshot() -> LmrServices:
    """Return the services, or raise Unavailable before the first snapshot: without a schema, names have no meaning."""
    s = lmr()
    if not s.has_snapshot:
        error = s.sync.status.last_error
        raise Unavailable(
            "The first snapshot is not complete yet."
            + (f" The last attempt failed: {error}" if error else " Try again in a few seconds.")
        )
    return s


@contextmanager
def mdp_request_slot() -> Iterator[None]:
    """Hold a slot for a request to the MDP. Few requests may wait for the MDP at a time, so that threads remain for
    reads. Errors of the MDP are passed to the caller, except a rejected LMR token, which is not the caller's fault."""
    if not lmr().mdp_slots.acquire(blocking=False):
        raise Unavailable(
            f"The MDP at {lmr().mdp.url} is slow, and {MAX_MDP_REQUESTS} requests are already waiting for it. Try again"
            " in a few seconds."
        )
    try:
        yield
    except NotAllowed as error:
        raise Unavailable(f"The MDP at {lmr().mdp.url} rejects this LMR: {error.detail}") from error
    finally:
        lmr().mdp_slots.release()


@contextmanager
def query_slot() -> Iterator[None]:
    """Hold a slot for a query or a check, which may take long."""
    if not lmr().query_slots.acquire(blocking=False):
        raise Unavailable("Too many queries are running. Try again in a few seconds.")
    try:
        yield
    finally:
        lmr().query_slots.release()


@contextmanager
def local_write_slot() -> Iterator[None]:
    """Hold a slot for a change of local metadata."""
    if not lmr().write_slots.acquire(blocking=False):
        raise Unavailable(
            f"{MAX_LOCAL_WRITES} changes of local metadata are already waiting. Try again in a few seconds."
        )
    try:
        yield
    finally:
        lmr().write_slots.release()


def is_authenticated_request(app: Flask, environ: dict[str, Any]) -> bool:
    """True if the request has a valid token or session. Uses only the request and the settings."""
    with app.request_context(environ):
        secret = request.headers.get("Authorization", "").partition(" ")[2].strip()
        cookie = request.cookies.get(lmr().cookie_name(), "")
        return lmr().accepts(secret) or bool(cookie and lmr().find_user(cookie))


def require_user() -> None:
    """Raise Unauthenticated unless the request has the LMR's token or the admin token."""
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Unauthenticated()
    if not lmr().accepts(secret.strip()):
        raise Unauthenticated("The token is not valid for this LMR.")


def require_reader() -> None:
    """Raise Unauthenticated unless the caller may read."""
    if not lmr().config.public_read or "Authorization" in request.headers:
        require_user()
