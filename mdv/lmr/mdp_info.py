"""Cached description of this LMR at the MDP: its name and its number of subscriptions. Requests have a short timeout.
If the MDP does not answer, the last known description is used."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from mdv.errors import MdvError
from mdv.lmr.mdp_client import MdpClient

MAX_AGE_SECONDS = 5.0
MDP_TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class LmrInfo:
    """The description of this LMR. `now` is True if it is recent and the MDP answers."""

    name: str
    paused: bool
    subscriptions: int
    now: bool


class LmrInfoCache:
    """Requests the description from the MDP when the cached one is too old. Thread-safe."""

    def __init__(self, mdp: Callable[[], MdpClient]) -> None:
        self._mdp = mdp
        self._lock = threading.Lock()
        self._asked = float("-inf")
        self._known: LmrInfo | None = None

    def current(self, answers: bool = True) -> LmrInfo | None:
        """Return the description; request it if it is too old. `answers` is False if the MDP is known not to answer.

        One thread sends the request; others get the cached description without waiting.
        """
        if not answers:
            self._known = self._last()
        elif time.monotonic() - self._asked > MAX_AGE_SECONDS and self._lock.acquire(blocking=False):
            try:
                self._known = self._ask()
                self._asked = time.monotonic()
            finally:
                self._lock.release()
        return self._known

    @property
    def known(self) -> LmrInfo | None:
        """The cached description, if any. No request is sent."""
        return self._known

    def forget(self) -> None:
        """Invalidate the cached description after a change."""
        self._asked = float("-inf")

    def _ask(self) -> LmrInfo | None:
        try:
            body = self._mdp().about(MDP_TIMEOUT_SECONDS)
            return LmrInfo(str(body["name"]), bool(body["paused"]), int(body["subscriptions"]), True)
        except (MdvError, KeyError, TypeError, ValueError):
            return self._last()

    def _last(self) -> LmrInfo | None:
        return replace(self._known, now=False) if self._known is not None else None
