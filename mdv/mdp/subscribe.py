"""Subscriptions of LMRs, and the removal of an LMR.

When a call returns, the feed contains the matches of a new rule, or the difference if a rule was changed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from mdv.db import lmrs as db
from mdv.db.jobs import Job
from mdv.db.lmrs import Lmr
from mdv.db.rule_graph import RuleGraph, StoredRule
from mdv.db.state import lock_state
from mdv.db.suspensions import Suspension, Suspensions
from mdv.errors import NotFound
from mdv.mdp.lmrs import get_lmr
from mdv.mdp.provider import Provider
from mdv.mdp.rules.operations import AddRules, ChangeRule, RemoveRules, carry_out
from mdv.mdp.rules.planning import RuleDraft
from mdv.mdp.rules.remove import remove_rules

ACTIVE, SUSPENDED = "active", "suspended"
"""The states of a subscription."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A rule of an LMR. `position`: of the transaction that added or last changed it."""

    id: int
    name: str | None
    rule: str
    position: int
    suspended: Suspension | None = None
    """Set if it is suspended: since when and why."""

    def as_dict(self) -> dict[str, Any]:
        """Return the subscription as a JSON object.

        >>> Subscription(7, None, "search Book b register b", 12).as_dict()["state"]
        'active'
        """
        body = {"id": self.id, "name": self.name, "rule": self.rule, "position": self.position}
        if self.suspended is None:
            return body | {"state": ACTIVE}
        return body | {"state": SUSPENDED, "suspended": self.suspended.as_dict()}


def delete_lmr(connection: Connection, lmr: Lmr, provider: Provider) -> int:
    """Delete an LMR with all its rules. Return the position of the change."""
    state = lock_state(connection)
    rule_ids = db.list_rule_ids(connection, lmr.id)
    position = state.position
    if rule_ids:
        position = remove_rules(connection, rule_ids, provider, without_notices=True)
    db.delete_lmr(connection, lmr.id)
    return position


def subscribe(
    connection: Connection, lmr: Lmr, drafts: Sequence[tuple[str | None, str]], provider: Provider
) -> list[Subscription]:
    """Add subscriptions, each given as name and rule text: all or none."""
    ready = [RuleDraft(lmr.id, name, text) for name, text in drafts]
    added = carry_out(connection, AddRules(ready), provider)
    return [
        Subscription(rule.id, draft.name, draft.text, rule.position) for rule, draft in zip(added, ready, strict=True)
    ]


def get_subscription(connection: Connection, lmr: Lmr, number: int) -> Subscription:
    found = db.find_lmr_rule(connection, lmr.id, number)
    if found is None:
        raise NotFound(f"The LMR {lmr.name} has no subscription {number}. `mdv subscriptions` lists its subscriptions.")
    return with_suspensions(connection, [found])[0]


def list_subscriptions(connection: Connection, lmr: Lmr, after: int, limit: int) -> list[Subscription]:
    """Return up to `limit` subscriptions of an LMR with an id greater than `after`."""
    return with_suspensions(connection, db.list_lmr_rules(connection, lmr.id, after, limit))


def with_suspensions(connection: Connection, rows: Sequence[tuple[int, str | None, str, int]]) -> list[Subscription]:
    """Return subscriptions with their states, given as rows of id, name, rule and position.

    A subscription whose first matches are still being published is active.
    """
    found = Suspensions(connection).read([row[0] for row in rows])
    suspended = {number: suspension for number, suspension in found.items() if not suspension.pending}
    return [Subscription(*row, suspended.get(row[0])) for row in rows]


def list_searching_rules(connection: Connection, subscription: Subscription) -> list[StoredRule]:
    """Return the rules that search a subscription. It cannot be removed before them."""
    return [rule for _, rule in RuleGraph(connection).searching([subscription.id])]


def change_subscription(connection: Connection, lmr: Lmr, number: int, text: str, provider: Provider) -> Subscription:
    """Change the rule of a subscription. Only the difference is published."""
    before = get_subscription(connection, lmr, number)
    changed = carry_out(connection, ChangeRule(number, text), provider)
    return Subscription(number, before.name, text, changed.position)


def resume_subscription(connection: Connection, lmr: Lmr, number: int, provider: Provider) -> Subscription:
    """Resume a suspended subscription: evaluate it again. Only the difference is published."""
    before = get_subscription(connection, lmr, number)
    if before.suspended is None:
        return before
    return change_subscription(connection, lmr, number, before.rule, provider)


def unsubscribe(connection: Connection, lmr: Lmr, numbers: Sequence[int], provider: Provider) -> int:
    """Remove subscriptions, all or none. Return the position of the change."""
    for number in numbers:
        get_subscription(connection, lmr, number)
    return carry_out(connection, RemoveRules(numbers), provider)


def run_rule_job(connection: Connection, job: Job, provider: Provider) -> dict[str, Any]:
    """Run a job that changes an LMR or its rules. Return its result."""
    request = json.loads(job.body or b"{}")
    lmr = get_lmr(connection, str(job.options["lmr"]))
    if job.kind == "forget":
        return {"position": delete_lmr(connection, lmr, provider)}
    if job.kind == "subscribe":
        added = subscribe(connection, lmr, [(name, text) for name, text in request["drafts"]], provider)
        return {"ids": [one.id for one in added], "position": added[-1].position}
    if job.kind == "change":
        return change_subscription(connection, lmr, request["id"], request["rule"], provider).as_dict()
    if job.kind == "resume":
        return resume_subscription(connection, lmr, request["id"], provider).as_dict()
    return {"position": unsubscribe(connection, lmr, request["ids"], provider)}
