"""Actions that the API and the pages of an LMR share. Each waits until the cache has the change made at the MDP."""

from __future__ import annotations

from typing import Any

from mdv.errors import NotFound
from mdv.lmr.checksum import VerifyResult
from web.lmr.services import LmrServices, lmr, mdp_request_slot
from web.number_params import read_subscription_id


def compare_with_mdp() -> VerifyResult:
    """Compare checksums with the MDP and fetch differing buckets again."""
    with mdp_request_slot():
        found = lmr().sync.verify()
    if found is None:
        raise NotFound("The cache cannot be compared before the first snapshot. Try again when it is complete.")
    return found


def add_subscription(rule: str, name: str | None) -> dict[str, Any]:
    s = lmr()
    with mdp_request_slot():
        made = s.mdp.subscribe(rule, name)
    return _wait_until_applied(s, made)


def change_subscription(number: str, rule: str) -> dict[str, Any]:
    s = lmr()
    with mdp_request_slot():
        changed = s.mdp.change(str(read_subscription_id(number)), rule)
    return _wait_until_applied(s, changed)


def resume_subscription(number: str) -> dict[str, Any]:
    s = lmr()
    with mdp_request_slot():
        resumed = s.mdp.resume(str(read_subscription_id(number)))
    return _wait_until_applied(s, resumed)


def end_subscription(number: str) -> dict[str, Any]:
    s = lmr()
    with mdp_request_slot():
        ended = s.mdp.unsubscribe(str(read_subscription_id(number)))
    return _wait_until_applied(s, ended)


def _wait_until_applied(s: LmrServices, done: dict[str, Any]) -> dict[str, Any]:
    s.invalidate_mdp_info()
    s.wait_for(int(done["position"]), s.config.max_wait_seconds)
    return done
