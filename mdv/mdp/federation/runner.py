"""`mdv federation serve`: handle the messages of a federation, and call the neighbours whose URLs are known.

    inbox → StoredSite → outbox        one thread
    call with a long poll → inbox      one thread for each neighbour that this MDP calls
    call when the outbox has messages  another one, since the long poll may wait

One process of an MDP does this; another one that is started waits until the first has ended.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import structlog
from sqlalchemy import Connection

from mdv.db.federation.lock import hold_federation_lock
from mdv.db.federation.site_store import (
    LinkRow,
    SiteRow,
    count_inbox,
    forget_federation,
    list_links,
    neighbours_with_messages,
    read_link,
    read_site,
    store_link_error,
)
from mdv.errors import MdvError, NotAllowed, NotFound, SiteWasRestored
from mdv.failpoints import RECEIVED_EXCHANGE, SENT_EXCHANGE, hit_failpoint
from mdv.mdp.federation.exchange import ExchangeBody, accept_exchange, make_exchange, restart_link
from mdv.mdp.federation.stored_site import StoredSite
from mdv.mdp.provider import Provider
from mdv.mdp.transaction import Transaction
from mdv.replication.federation_client import FederationClient
from mdv.replication.member_url import check_member_url

log = structlog.get_logger()

MAX_WAIT_SECONDS = 20.0
"""How long a call waits at the neighbour for messages."""
TICK_SECONDS = 1.0
"""How often time limits are checked, and the database without a notification."""
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.1, 10.0
"""The pause after a failure. It doubles with each further one."""
LEAVE_SECONDS = 30.0
"""How long a site that leaves waits until its neighbours have its last messages."""


class FederationRunner:
    """Keeps an MDP up to date with its federation. `published`: notifies all processes of the MDP of a commit."""

    def __init__(
        self, provider: Provider, published: Callable[[], object], allows_plain: bool,
        wait_seconds: float = MAX_WAIT_SECONDS,
    ) -> None:  # fmt: skip
        self.provider, self.engine = provider, provider.engine
        self.allows_plain, self.wait_seconds = allows_plain, wait_seconds
        self.published = published
        self.stopping = threading.Event()
        self._site = StoredSite(provider, published)
        self._wake = threading.Event()
        self._callers: dict[str, list[_Caller]] = {}
        self._leaving_since: float | None = None

    def stop(self) -> None:
        self.stopping.set()
        self._wake.set()

    def wake(self) -> None:
        """Look at the inbox and the outbox now: something was committed."""
        self._wake.set()

    def run(self) -> None:
        """Work until `stop` is called."""
        while not self.stopping.is_set():
            try:
                with hold_federation_lock(self.engine, self.stopping) as check_lock:
                    if check_lock is not None:
                        self._run(check_lock)
            except Exception as error:  # the database is away, and with it the lock
                log.warning("the federation is interrupted", reason=reason_of(error))
                self.stopping.wait(TICK_SECONDS)
            finally:
                self._end_callers()

    def _run(self, check_lock: Callable[[], object]) -> None:
        ticked, pause = 0.0, FIRST_PAUSE_SECONDS
        while not self.stopping.is_set():
            self._wake.clear()
            is_tick = time.monotonic() - ticked >= TICK_SECONDS
            if is_tick:
                check_lock()
                ticked = time.monotonic()
            with self.engine.connect() as connection:
                site = read_site(connection)
                has_rows = site is not None and count_inbox(connection, 1) > 0
            if site is not None and (has_rows or is_tick):
                try:
                    self._site.work()
                    pause = FIRST_PAUSE_SECONDS
                except Exception as error:
                    log.warning("a message of the federation cannot be handled", reason=reason_of(error))
                    self._site.note_failure(error)
                    self.stopping.wait(pause)
                    pause = min(2 * pause, MAX_PAUSE_SECONDS)
            self._tend(site)
            self._wake.wait(TICK_SECONDS)

    def _tend(self, site: SiteRow | None) -> None:
        """Call new neighbours, no longer call those that are gone, and wake the calls that have something to send."""
        links: dict[str, LinkRow] = {}
        waiting: set[str] = set()
        if site is not None:
            with self.engine.connect() as connection:
                links = {link.name: link for link in list_links(connection) if link.url is not None}
                waiting = neighbours_with_messages(connection)
        for name in self._callers.keys() - links.keys():
            for caller in self._callers.pop(name):
                caller.end()
        for name, link in links.items():
            if name not in self._callers:
                self._callers[name] = [_Caller(self, link, polls) for polls in (True, False)]
        for name in waiting & self._callers.keys():
            for caller in self._callers[name]:
                caller.wake()
        if site is not None and site.leaving:
            self._finish_leaving(bool(waiting))

    def _finish_leaving(self, has_messages: bool) -> None:
        """Forget the federation, once the neighbours have the last messages or do not answer."""
        self._leaving_since = self._leaving_since or time.monotonic()
        if has_messages and time.monotonic() - self._leaving_since < LEAVE_SECONDS:
            return
        with self.engine.begin() as connection:
            Transaction(self.provider, connection).lock()
            forget_federation(connection)
        self._leaving_since = None
        self.published()

    def _end_callers(self) -> None:
        for callers in self._callers.values():
            for caller in callers:
                caller.end()
        self._callers.clear()


class _Caller:
    """A thread that calls one neighbour. `polls`: it waits there for messages; else it only sends."""

    def __init__(self, runner: FederationRunner, link: LinkRow, polls: bool) -> None:
        self._runner, self._name, self._url, self._polls = runner, link.name, link.url or "", polls
        self._ended, self._wake = threading.Event(), threading.Event()
        self._client: FederationClient | None = None
        self._thread = threading.Thread(target=self._run, name=f"neighbour {link.name}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    @property
    def _is_over(self) -> bool:
        return self._ended.is_set() or self._runner.stopping.is_set()

    def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._is_over:
            try:
                if not self._polls:
                    self._wake.wait(TICK_SECONDS)
                    self._wake.clear()
                if not self._is_over and self._has_reason():
                    self._exchange()
                pause = FIRST_PAUSE_SECONDS
            except Exception as error:  # a neighbour that is away or misbehaves must not end the thread
                self._note_failure(error)
                self._ended.wait(pause * random.uniform(0.7, 1.3))
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
        if self._client is not None:
            self._client.close()

    def _has_reason(self) -> bool:
        """True if this thread has something to do: one that does not poll sends only."""
        if self._polls:
            return True
        with self._runner.engine.connect() as connection:
            return self._name in neighbours_with_messages(connection)

    def _exchange(self) -> None:
        site, call = self._make()
        if site is None or call is None:
            return
        if self._client is None:
            url = check_member_url(self._url, self._runner.allows_plain)
            self._client = FederationClient(url, site.name, site.private_key)
        hit_failpoint(SENT_EXCHANGE)
        try:
            answer = self._client.exchange(call.to_json(), self._runner.wait_seconds if self._polls else 0)
        except SiteWasRestored as error:
            with self._runner.engine.begin() as connection:
                restart_link(connection, self._name, str(error.extra.get("epoch")))
            self._runner.wake()
            return
        except (NotAllowed, NotFound):
            if site.leaving:  # it has handled our last message
                self._forget()
                return
            raise
        with self._runner.engine.begin() as connection:
            accept_exchange(connection, ExchangeBody.from_json(answer))
        hit_failpoint(RECEIVED_EXCHANGE)
        self._runner.wake()

    def _make(self) -> tuple[SiteRow | None, ExchangeBody | None]:
        with self._runner.engine.connect() as connection:
            return make_call(connection, self._name)

    def _forget(self) -> None:
        with self._runner.engine.begin() as connection:
            Transaction(self._runner.provider, connection).lock()
            forget_federation(connection)
        self._runner.wake()

    def _note_failure(self, error: Exception) -> None:
        reason = reason_of(error)
        try:
            with self._runner.engine.begin() as connection:
                store_link_error(connection, self._name, reason)
        except Exception as other:
            log.warning("a failed call is not recorded", neighbour=self._name, reason=reason_of(other))
        log.warning("calling a neighbour failed", neighbour=self._name, reason=reason)


def make_call(connection: Connection, name: str) -> tuple[SiteRow | None, ExchangeBody | None]:
    """Return this site, and the next call to a neighbour."""
    site, link = read_site(connection), read_link(connection, name)
    return site, None if site is None or link is None else make_exchange(connection, site, link)


def reason_of(error: Exception) -> str:
    """Return the first line of an error."""
    text = error.detail if isinstance(error, MdvError) else f"{type(error).__name__}: {error}"
    return text.splitlines()[0][:300] if text else type(error).__name__
