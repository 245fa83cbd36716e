"""What a request handler of an LMR needs: the cache, what keeps it current, and the MDP."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from flask import current_app, request

from mdv.config import Config
from mdv.errors import NotAllowed, Unauthenticated, Unavailable
from mdv.lmr.mdp import Mdp
from mdv.lmr.store import Cache
from mdv.lmr.sync import Sync
from mdv.lmr.told import Teller, Told
from web.lmr.counts import Counter
from web.lmr.sessions import Attempts, Ended, SignedIn, find_session

ASKING = 8
"""So many callers may wait for the MDP's answer at a time."""
ANSWERING = 16
"""So many queries may be answered at a time: some take long, and there must be threads left for everything else."""
WAITERS = 20
"""So many callers may wait for a position at once: each holds one of the server's threads, and others are to be
served meanwhile."""


@dataclass
class LmrServices:
    """The parts that the threads of one LMR share."""

    config: Config
    cache: Cache
    mdp: Mdp
    sync: Sync
    _stop: threading.Event = field(default_factory=threading.Event)
    asking: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(ASKING))
    answering: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(ANSWERING))
    attempts: Attempts = field(default_factory=Attempts)
    ended: Ended = field(default_factory=Ended)
    _waiters: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(WAITERS))

    def __post_init__(self) -> None:
        self._teller = Teller(self.mdp)
        self.counter = Counter(self.cache)

    def start(self) -> None:
        """Begin to keep the cache current."""
        threading.Thread(target=self.sync.run, args=(self._stop,), name="sync", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    @property
    def has_begun(self) -> bool:
        """Whether the MDP has ever told its state."""
        status = self.sync.status
        return status.cursor is not None or status.position > 0

    def told(self) -> Told | None:
        """What the MDP says of this LMR, or said last: it is not asked while it is known not to answer."""
        return self._teller.told(self.sync.status.last_error is None)

    def told_last(self) -> Told | None:
        """What it said last; nobody is asked."""
        return self._teller.known

    def ask_again(self) -> None:
        """What the MDP says has changed."""
        self._teller.forget()

    @property
    def tokens(self) -> list[tuple[str, str]]:
        """What opens this LMR, each with words for it."""
        own = (("with the LMR’s token", self.config.lmr_token), ("with the admin token", self.config.admin_token))
        return [(words, token) for words, token in own if token]

    def opens(self, secret: str) -> bool:
        """Whether this is one of the tokens; how long that takes does not tell how much of it is right."""
        given = secret.encode("utf-8", "replace")
        return any(hmac.compare_digest(given, token.encode()) for _, token in self.tokens)

    def cookie_name(self) -> str:
        """Cookies know no ports: of the LMRs of one host each has a name of its own."""
        port = request.host.rpartition(":")[2]
        return f"mdv_lmr_{port}" if port.isascii() and port.isdecimal() else "mdv_lmr"

    def find_person(self, secret: str) -> SignedIn | None:
        return None if secret in self.ended else find_session(secret, self.tokens)

    def wait_for(self, position: int, seconds: float) -> None:
        """Wait until a position is applied, unless too many do so already."""
        if self.sync.status.position < position and self._waiters.acquire(blocking=False):
            try:
                self.sync.wait_for(position, seconds)
            finally:
                self._waiters.release()


def lmr() -> LmrServices:
    """The services of the LMR that handles this request."""
    return cast(LmrServices, current_app.extensions["mdv"])


def begun() -> LmrServices:
    """The same, once there is something to answer from: without a schema no name would have a meaning."""
    s = lmr()
    if not s.has_begun:
        said = s.sync.status.last_error
        raise Unavailable(
            "The first snapshot of the MDP is not here yet"
            + (f", and it does not come: {said}" if said else "; try again soon.")
        )
    return s


@contextmanager
def asking_mdp() -> Iterator[None]:
    """What the MDP says is the caller's answer, but for this: that it refuses the LMR is no fault of the caller's. Few
    may wait for it at a time, so that there are threads left for those who read."""
    if not lmr().asking.acquire(blocking=False):
        raise Unavailable(f"The MDP at {lmr().mdp.url} is slow, and others wait for it already; try again soon.")
    try:
        yield
    except NotAllowed as error:
        raise Unavailable(f"The MDP at {lmr().mdp.url} refuses this LMR: {error.detail}") from error
    finally:
        lmr().asking.release()


@contextmanager
def answering() -> Iterator[None]:
    """What may take long to answer, a bounded number of times at once."""
    if not lmr().answering.acquire(blocking=False):
        raise Unavailable(
            "Many queries are being answered just now, and more would keep everybody waiting; try again soon."
        )
    try:
        yield
    finally:
        lmr().answering.release()


def user() -> None:
    """Whoever has the LMR's token, or the admin's."""
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Unauthenticated()
    if not lmr().opens(secret.strip()):
        raise Unauthenticated("This token does not open this LMR.")


def reader() -> None:
    """Whoever may read."""
    if not lmr().config.public_read or "Authorization" in request.headers:
        user()
