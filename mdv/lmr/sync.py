"""Keep a cache current: ask the feed, apply what it answers, for ever, whatever happens in between.

One thread runs `run`, which holds a long poll. Whoever waits for a position that does not concern this LMR would wait
for that poll to end; so for them the MDP is asked once more (`poke`), without waiting. Of two answers to the same
cursor the first is applied, and the other finds the cache elsewhere and is dropped. That takes a thread of its own, so
that an MDP that does not answer holds nobody longer than they would wait.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import structlog

from mdv.errors import MdvError, MustRefetch, NotAllowed, Unavailable
from mdv.lmr.apply import Applied, apply
from mdv.lmr.checksum import Source, Verified, verify
from mdv.lmr.store import Cache

WAIT = 25.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
NOT_ALLOWED_PAUSE = 30.0
VERIFY_SECONDS = 3600.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SyncStatus:
    """How it goes. `position` is what is applied; `up_to_date`: as far as was known at the last contact."""

    position: int
    cursor: str | None
    up_to_date: bool = False
    taking_snapshot: bool = False
    last_contact: datetime | None = None
    last_error: str | None = None
    last_verified: datetime | None = None
    mended: int = 0
    """How many buckets were fetched again so far."""
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When it became up to date, or ceased to be; at most since it was started."""


class Sync:
    """The way from one MDP's feed to one cache."""

    def __init__(
        self,
        cache: Cache,
        mdp: Source,
        *,
        wait: float = WAIT,
        verify_seconds: float = VERIFY_SECONDS,
        first_pause: float = FIRST_PAUSE,
        longest_pause: float = LONGEST_PAUSE,
        not_allowed_pause: float = NOT_ALLOWED_PAUSE,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._cache = cache
        self._mdp = mdp
        self._wait = wait
        self._verify_seconds = verify_seconds
        self._pauses = (first_pause, longest_pause, not_allowed_pause)
        self._jitter = jitter
        self._applying = threading.RLock()
        self._poking = threading.Lock()
        self._asking = threading.Lock()
        self._changed = threading.Condition()
        state = cache.state()
        self._status = SyncStatus(state.position, state.cursor, taking_snapshot=state.cursor is None)

    @property
    def status(self) -> SyncStatus:
        return self._status

    # -- one step

    def step(self, wait: float = 0) -> Applied:
        """One request, and its answer applied. A cursor from which the feed cannot go on leads to a snapshot, with the
        next step."""
        asked = self._cache.state().next_cursor
        try:
            page = self._mdp.feed(asked, wait=wait)
            with self._applying:
                applied = apply(self._cache, page, after=asked)
                if page["events"]:
                    log.info("applied", position=applied.position, events=len(page["events"]))
                self._note(last_contact=datetime.now(UTC), last_error=None,
                           **({"up_to_date": applied.up_to_date} if applied.moved else {}))  # fmt: skip
        except MustRefetch as error:
            with self._applying:
                if self._cache.state().next_cursor == asked:
                    self._refetch(error)
            return Applied(False, self._status.position, False, 0)
        except MdvError as error:
            self._note(last_error=error.detail, up_to_date=False)
            raise
        return applied

    def poke(self) -> None:
        """Ask at once, beside a long poll that may be waiting."""
        with self._poking:
            self.step()

    def _refetch(self, error: MdvError) -> None:
        log.warning("snapshot_needed", reason=error.detail)
        self._cache.refetch()
        self._note(last_contact=datetime.now(UTC), up_to_date=False)

    def _note(self, **values: Any) -> None:
        with self._changed:
            state = self._cache.state()
            was = self._status.up_to_date
            since = self._status.since if values.get("up_to_date", was) == was else datetime.now(UTC)
            self._status = replace(self._status, position=state.position, cursor=state.cursor, since=since,
                                   taking_snapshot=state.cursor is None, **values)  # fmt: skip
            self._changed.notify_all()

    # -- for ever

    def run(self, stop: threading.Event) -> None:
        """Keep the cache current until `stop`. Nothing ends it but that: what fails is tried again.

        Only who has all waits for more: a long poll would leave it unknown for its time whether all is here.
        """
        first, longest, not_allowed = self._pauses
        pause = first
        verify_at = time.monotonic() + self._verify_seconds
        while not stop.is_set():
            try:
                asked = self._cache.state().next_cursor
                self.step(self._wait if self._status.up_to_date else 0)
                if not self._status.up_to_date and self._cache.state().next_cursor == asked:
                    raise Unavailable("The MDP has more to tell and does not tell it.")
                if time.monotonic() >= verify_at:
                    verify_at = time.monotonic() + self._verify_seconds
                    self.verify()
                pause = first
            except NotAllowed as error:
                log.error("mdp_refuses", detail=error.detail)
                stop.wait(not_allowed * (0.5 + self._jitter() / 2))
            except Exception as error:
                known = isinstance(error, MdvError)
                log.warning("sync_failed", detail=str(error), pause=pause, exc_info=None if known else error)
                if not known:
                    self._note(last_error=f"{type(error).__name__}: {error}", up_to_date=False)
                stop.wait(pause * (0.5 + self._jitter() / 2))
                pause = min(2 * pause, longest)

    def wait_for(self, position: int, seconds: float) -> bool:
        """Wait until `position` is applied; whether it is."""
        deadline = time.monotonic() + seconds
        pause = 0.05
        while self._status.position < position:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._ask_aside()
            with self._changed:
                self._changed.wait_for(lambda: self._status.position >= position, min(pause, left))
            pause = min(2 * pause, 2.0)
        return True

    def _ask_aside(self) -> None:
        """Ask in a thread, unless somebody does already."""
        if self._asking.acquire(blocking=False):
            try:
                threading.Thread(target=self._ask, name="poke", daemon=True).start()
            except RuntimeError:  # no thread can be had
                self._asking.release()

    def _ask(self) -> None:
        try:
            self.poke()
        except MdvError as error:
            log.debug("poke_failed", detail=error.detail)
        except Exception as error:  # `run` meets it, too, and tells
            log.warning("poke_failed", detail=str(error))
        finally:
            self._asking.release()

    # -- checksum

    def verify(self) -> Verified | None:
        """Compare with the MDP's checksum, and fetch again what differs."""
        with self._applying:
            try:
                found = verify(self._cache, self._mdp)
            except MustRefetch as error:
                self._refetch(error)
                return None
            if found is not None:
                if found.mended:
                    log.warning("buckets_differed", buckets=found.mended, position=found.position)
                self._note(last_verified=datetime.now(UTC), mended=self._status.mended + len(found.mended))
            return found
