"""What the calls and the pages of an LMR do alike: each waits until the cache has what was changed at the MDP."""

from __future__ import annotations

from typing import Any

from mdv.errors import NotFound
from mdv.lmr.checksum import Verified
from web.lmr.services import LmrServices, asking_mdp, lmr
from web.numbers import subscription_number


def compare_with_mdp() -> Verified:
    """Compare with the MDP's checksum, and fetch again what differs."""
    with asking_mdp():
        found = lmr().sync.verify()
    if found is None:
        raise NotFound("Nothing could be compared: a snapshot has to be taken first. Try again when it is there.")
    return found


def add_subscription(rule: str, name: str | None) -> dict[str, Any]:
    s = lmr()
    with asking_mdp():
        made = s.mdp.subscribe(rule, name)
    return _here(s, made)


def change_subscription(number: str, rule: str) -> dict[str, Any]:
    s = lmr()
    with asking_mdp():
        changed = s.mdp.change(str(subscription_number(number)), rule)
    return _here(s, changed)


def end_subscription(number: str) -> dict[str, Any]:
    s = lmr()
    with asking_mdp():
        ended = s.mdp.unsubscribe(str(subscription_number(number)))
    return _here(s, ended)


def _here(s: LmrServices, done: dict[str, Any]) -> dict[str, Any]:
    s.ask_again()
    s.wait_for(int(done["position"]), s.config.max_wait_seconds)
    return done
