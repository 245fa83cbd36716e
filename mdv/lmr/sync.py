"""Keep a cache current: request the feed and apply its pages in an endless loop. All failures are retried.

One thread executes `run`, which uses long polls. A caller that waits for a position without events for this LMR would
have to wait for the end of the long poll. So `wait_for` sends another request without waiting (`poll_now`). Of two
responses for the same cursor the first is applied; the other does not match the cursor of the cache any more and is
dropped. The request has its own thread, so that an MDP that does not answer does not delay the caller.
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

from mdv.backbone.etag import has_token
from mdv.errors import MdvError, MustRefetch, NotAllowed, NotHome, Unavailable
from mdv.lmr.apply import Applied, apply
from mdv.lmr.cache import Cache
from mdv.lmr.change_home import get_adopted
from mdv.lmr.checksum import FeedSource, VerifyResult, verify
from mdv.lmr.homes import Homes

LONG_POLL_SECONDS = 25.0
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.1, 10.0
NOT_ALLOWED_RETRY_SECONDS = 30.0
VERIFY_INTERVAL_SECONDS = 3600.0
HOME_SECONDS, PATIENCE_SECONDS = 30.0, 300.0
"""How long the home may be silent, and how long others may lack changes, by default."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SyncStatus:
    """The state of the synchronisation. `position` is applied; `up_to_date` is as of the last contact with the MDP."""

    position: int
    cursor: str | None
    up_to_date: bool = False
    taking_snapshot: bool = False
    last_contact: datetime | None = None
    last_error: str | None = None
    last_verified: datetime | None = None
    mended: int = 0
    """How many buckets were fetched again since the start."""
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When `up_to_date` last changed, or when the process started."""


class Sync:
    """Synchronises one cache with the feed of one MDP. With several `Homes`, another one becomes the home if the
    present one does not answer for `home_seconds`. After `patience` seconds, one that lacks changes is accepted."""

    def __init__(
        self,
        cache: Cache,
        mdp: FeedSource | Homes,
        *,
        home_seconds: float = HOME_SECONDS,
        patience: float = PATIENCE_SECONDS,
        wait: float = LONG_POLL_SECONDS,
        verify_seconds: float = VERIFY_INTERVAL_SECONDS,
        min_pause: float = MIN_RETRY_SECONDS,
        max_pause: float = MAX_RETRY_SECONDS,
        not_allowed_pause: float = NOT_ALLOWED_RETRY_SECONDS,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._cache = cache
        self._mdp = mdp
        self._home_seconds, self._patience = home_seconds, patience
        self._heard = self._home_lost = time.monotonic()
        has_others = isinstance(mdp, Homes) and len(mdp.urls) > 1
        self._wait = min(wait, home_seconds / 2) if has_others else wait
        self._verify_seconds = verify_seconds
        self._pauses = (min_pause, max_pause, not_allowed_pause)
        self._jitter = jitter
        self._applying = threading.RLock()
        self._polling = threading.Lock()
        self._poll_running = threading.Lock()
        self._changed = threading.Condition()
        state = cache.state()
        self._status = SyncStatus(state.position, state.cursor, taking_snapshot=state.cursor is None)

    @property
    def status(self) -> SyncStatus:
        return self._status

    # -- one step

    def step(self, wait: float = 0) -> Applied:
        """Send one request and apply the page. If the feed cannot continue from the cursor, the next step requests a
        snapshot."""
        mdp, cursor = self._place()
        try:
            page = mdp.feed(cursor, wait=wait)
            with self._applying:
                applied = apply(self._cache, page, after=cursor)
                if page["events"]:
                    log.info("applied", position=applied.position, events=len(page["events"]))
                self._heard = time.monotonic()
                self._note(last_contact=datetime.now(UTC), last_error=None,
                           **({"up_to_date": applied.up_to_date} if applied.moved else {}))  # fmt: skip
        except MustRefetch as error:
            with self._applying:
                if self._cache.state().next_cursor == cursor:
                    self._refetch(error)
            return Applied(False, self._status.position, False, 0)
        except MdvError as error:
            self._note(last_error=error.detail, up_to_date=False)
            raise
        return applied

    def _place(self) -> tuple[FeedSource, str | None]:
        """Return the MDP that is the home, and the cursor for it."""
        if isinstance(self._mdp, Homes):
            return self._mdp.place()
        return self._mdp, self._cache.state().next_cursor

    def poll_now(self) -> None:
        """Send a request without waiting, in addition to a long poll that may be open."""
        with self._polling:
            self.step()

    def _refetch(self, error: MdvError) -> None:
        self._heard = time.monotonic()
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

    # -- the loop

    def run(self, stop: threading.Event) -> None:
        """Keep the cache current until `stop` is set. All failures are retried.

        A long poll is used only when the cache is up to date. Otherwise its state would be unknown for the duration of
        the poll.
        """
        first, longest, not_allowed = self._pauses
        pause = first
        verify_at = time.monotonic() + self._verify_seconds
        while not stop.is_set():
            try:
                cursor = self._cache.state().next_cursor
                self.step(self._wait if self._status.up_to_date else 0)
                if not self._status.up_to_date and self._cache.state().next_cursor == cursor:
                    raise Unavailable("The MDP reports more events but does not send them.")
                if time.monotonic() >= verify_at:
                    verify_at = time.monotonic() + self._verify_seconds
                    self.verify()
                pause = first
            except NotAllowed as error:
                log.error("mdp_refuses", detail=error.detail)
                self._heard = time.monotonic()
                stop.wait(not_allowed * (0.5 + self._jitter() / 2))
            except Exception as error:
                if self._change_home_if_lost(error):
                    pause = first
                    continue
                known = isinstance(error, MdvError)
                log.warning("sync_failed", detail=str(error), pause=pause, exc_info=None if known else error)
                if not known:
                    self._note(last_error=f"{type(error).__name__}: {error}", up_to_date=False)
                stop.wait(pause * (0.5 + self._jitter() / 2))
                pause = min(2 * pause, longest)

    # -- another home

    def _change_home_if_lost(self, error: Exception) -> bool:
        """Get another home if the present one has not answered for long, or says that it is none. Return True if there
        is another one."""
        now = time.monotonic()
        is_home = not isinstance(error, NotHome)
        if is_home and now - self._heard < self._home_seconds:
            self._home_lost = self._heard
            return False
        hint = str(error.extra.get("url", "")) if isinstance(error, NotHome) else None
        return self.change_home(hint, now - self._home_lost >= self._patience)

    def change_home(self, hint: str | None, accept_older: bool) -> bool:
        """Ask the MDPs that can become the home, one after the other, first the one with the URL `hint`. Return True if
        one of them is the home now."""
        if not isinstance(self._mdp, Homes):
            return False
        previous = self._mdp.current.url
        for mdp in self._mdp.candidates(hint):
            try:
                with self._applying:
                    change = get_adopted(self._cache, previous, mdp, accept_older)
                    self._heard = self._home_lost = time.monotonic()
                    self._note(last_contact=datetime.now(UTC), last_error=None, up_to_date=False)
            except MdvError as error:
                log.warning("not_adopted", mdp=mdp.url, detail=error.detail)
                continue
            log.warning("home_changed", previous=previous, home=mdp.url, term=change.term, buckets=change.buckets,
                        bytes=change.size, seconds=change.seconds, problems=change.problems)  # fmt: skip
            return True
        return False

    # -- waiting

    def wait_for(self, position: int, seconds: float) -> bool:
        """Wait until `position` is applied. Return True if it is, False after the timeout."""
        return self._wait_until(lambda: self._status.position >= position, seconds)

    def wait_for_token(self, token: tuple[str, int], seconds: float) -> bool:
        """Wait until the change of a token is applied, which any member of the backbone may have made."""
        return self._wait_until(lambda: has_token(self._cache.home().vector, token), seconds)

    def _wait_until(self, holds: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        pause = 0.05
        while not holds():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._poll_in_thread()
            with self._changed:
                self._changed.wait_for(holds, min(pause, left))
            pause = min(2 * pause, 2.0)
        return True

    def _poll_in_thread(self) -> None:
        """Start a thread that sends a request, unless one is already running."""
        if self._poll_running.acquire(blocking=False):
            try:
                threading.Thread(target=self._poll_quietly, name="poke", daemon=True).start()
            except RuntimeError:  # no thread can be started
                self._poll_running.release()

    def _poll_quietly(self) -> None:
        try:
            self.poll_now()
        except MdvError as error:
            log.debug("poke_failed", detail=error.detail)
        except Exception as error:  # `run` has the same failure and reports it
            log.warning("poke_failed", detail=str(error))
        finally:
            self._poll_running.release()

    # -- checksum

    def verify(self) -> VerifyResult | None:
        """Compare the cache with the checksum of the MDP, and fetch buckets that differ again."""
        with self._applying:
            try:
                found = verify(self._cache, self._place()[0])
            except MustRefetch as error:
                self._refetch(error)
                return None
            if found is not None:
                if found.mended:
                    log.warning("buckets_differed", buckets=found.mended, position=found.position)
                self._note(last_verified=datetime.now(UTC), mended=self._status.mended + len(found.mended))
            return found
