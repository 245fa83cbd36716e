"""What the MDP says of this LMR: its name, and what it subscribes. Nobody waits long for it: an MDP that does not
answer is asked again later, and until then what it said last is what is known."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace

from mdv.errors import MdvError
from mdv.lmr.mdp import Mdp

FRESH_SECONDS = 5.0
PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class Told:
    """What the MDP said. `now`: it said so just now, and answers."""

    name: str
    paused: bool
    subscriptions: int
    now: bool


class Teller:
    """Asks the MDP now and then. May be used by several threads at once."""

    def __init__(self, mdp: Mdp) -> None:
        self._mdp = mdp
        self._lock = threading.Lock()
        self._asked = float("-inf")
        self._known: Told | None = None

    def told(self, answers: bool = True) -> Told | None:
        """What is known by now; `answers`: whether it is any use to ask. One asks, and the others do not wait."""
        if not answers:
            self._known = self._last()
        elif time.monotonic() - self._asked > FRESH_SECONDS and self._lock.acquire(blocking=False):
            try:
                self._known = self._ask()
                self._asked = time.monotonic()
            finally:
                self._lock.release()
        return self._known

    @property
    def known(self) -> Told | None:
        """What the MDP said last, if anything; nobody is asked."""
        return self._known

    def forget(self) -> None:
        """Something was changed: ask again."""
        self._asked = float("-inf")

    def _ask(self) -> Told | None:
        try:
            said = self._mdp.about(PATIENCE)
            return Told(str(said["name"]), bool(said["paused"]), int(said["subscriptions"]), True)
        except (MdvError, KeyError, TypeError, ValueError):
            return self._last()

    def _last(self) -> Told | None:
        return replace(self._known, now=False) if self._known is not None else None
