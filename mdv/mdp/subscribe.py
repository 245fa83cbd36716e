"""Subscriptions of LMRs, and the removal of an LMR.

When a call returns, the feed contains the matches of a new rule, or the difference if a rule was changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.db import lmrs as db
from mdv.db.jobs import Job
from mdv.db.lmrs import Lmr, StoredSubscription
from mdv.db.replica.lmrs import find_lasting_ids
from mdv.db.rule_graph import RuleGraph, StoredRule
from mdv.db.state import lock_state
from mdv.db.suspensions import Suspension, Suspensions
from mdv.errors import NotFound
from mdv.mdp.adopt_lmr import adopt_lmr
from mdv.mdp.lmr_definitions import announce_removal, announce_rules, refuse_unless_home
from mdv.mdp.lmrs import get_lmr
from mdv.mdp.plan import digests_of
from mdv.mdp.provider import Provider
from mdv.mdp.rule_cache import NamedRules, RuleCache
from mdv.mdp.rules.operations import AddRules, ChangeRule, RemoveRules, carry_out
from mdv.mdp.rules.planning import PROVIDER_OWNER, RuleDraft
from mdv.mdp.rules.remove import remove_rules
from mdv.mdp.schemas import SchemaCache

ACTIVE, SUSPENDED = "active", "suspended"
"""The states of a subscription."""


PROVIDER_AS_OWNER = Lmr(PROVIDER_OWNER, "this MDP", 0, None, None, datetime.fromtimestamp(0, UTC), paused=False)
"""The provider as the owner of its own rules. It is no LMR: it has no feed."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A rule of an LMR. `position`: of the transaction that added or last changed it."""

    id: int
    name: str | None
    rule: str
    position: int
    by: str | None = None
    """Who added it or last changed its rule."""
    rule_id: int = 0
    """The ID of its rule. That of the subscription is the same at every home of the LMR."""
    suspended: Suspension | None = None
    """Set if it is suspended: since when and why."""
    token: str | None = None
    """Of the change, if there is a backbone."""

    def as_dict(self) -> dict[str, Any]:
        """Return the subscription as a JSON object.

        >>> Subscription(7, None, "search Book b register b", 12).as_dict()["state"]
        'active'
        """
        body = {"id": self.id, "name": self.name, "rule": self.rule, "position": self.position, "by": self.by}
        body |= {} if self.token is None else {"token": self.token}
        if self.suspended is None:
            return body | {"state": ACTIVE}
        return body | {"state": SUSPENDED, "suspended": self.suspended.as_dict()}


def delete_lmr(connection: Connection, lmr: Lmr, provider: Provider) -> dict[str, Any]:
    """Delete an LMR with all its rules, at all members. Return the position and the token of the change."""
    state = lock_state(connection)
    provider.is_in_backbone = state.replica is not None
    token = announce_removal(connection, lmr, provider)
    rule_ids = db.list_rule_ids(connection, lmr.id)
    position = state.position
    if rule_ids:
        position = remove_rules(connection, rule_ids, provider, without_notices=True)
    db.delete_lmr(connection, lmr.id)
    return {"position": position} | _with_token(token)


def _with_token(token: str | None) -> dict[str, Any]:
    return {} if token is None else {"token": token}


def subscribe(
    connection: Connection,
    lmr: Lmr,
    drafts: Sequence[tuple[str | None, str]],
    provider: Provider,
    by: str | None = None,
) -> list[Subscription]:
    """Add subscriptions, each given as name and rule text: all or none. `by`: the caller."""
    ready = [RuleDraft(lmr.id, name, text, by) for name, text in drafts]
    added = carry_out(connection, AddRules(ready), provider)
    numbers = [rule.id for rule in added]
    token = announce_rules(connection, lmr, provider, numbers)
    ids = find_lasting_ids(connection, lmr.id, numbers) if token is not None else {}
    return [
        Subscription(ids.get(rule.id, rule.id), draft.name, draft.text, rule.position, by, rule.id, token=token)
        for rule, draft in zip(added, ready, strict=True)
    ]


def get_subscription(connection: Connection, lmr: Lmr, number: int) -> Subscription:
    found = db.find_lmr_rule(connection, lmr.id, number)
    if found is None and lmr.id == PROVIDER_OWNER:
        raise NotFound(f"The provider has no rule {number}. `mdv rule list` lists its rules.")
    if found is None:
        raise NotFound(f"The LMR {lmr.name} has no subscription {number}. `mdv subscriptions` lists its subscriptions.")
    return with_suspensions(connection, [found])[0]


def find_subscription(
    connection: Connection, lmr: Lmr, rule: str, schemas: SchemaCache, rules: RuleCache
) -> int | None:
    """Return the id of an LMR's subscription to this rule, however it is written; None if there is none."""
    _, plans, constants = rules.read(rule, schemas.now(connection), NamedRules.stored(connection, lmr.id))
    digests = {digests_of(plan, constants)[-1] for plan in plans}
    found = RuleGraph(connection).look_for(digests)().rules
    return db.find_rule_with_ends(connection, lmr.id, found.values()) if len(found) == len(digests) else None


def list_subscriptions(connection: Connection, lmr: Lmr, after: int, limit: int) -> list[Subscription]:
    """Return up to `limit` subscriptions of an LMR with an id greater than `after`."""
    return with_suspensions(connection, db.list_lmr_rules(connection, lmr.id, after, limit))


def with_suspensions(connection: Connection, rows: Sequence[StoredSubscription]) -> list[Subscription]:
    """Return subscriptions with their states.

    A subscription whose first matches are still being published is active.
    """
    found = Suspensions(connection).read([row[-1] for row in rows])
    suspended = {number: suspension for number, suspension in found.items() if not suspension.pending}
    return [Subscription(*row, suspended.get(row[-1])) for row in rows]


def list_searching_rules(connection: Connection, subscription: Subscription) -> list[StoredRule]:
    """Return the rules that search a subscription. It cannot be removed before them."""
    return [rule for _, rule in RuleGraph(connection).searching([subscription.rule_id])]


def change_subscription(
    connection: Connection, lmr: Lmr, number: int, text: str, provider: Provider, by: str | None = None
) -> Subscription:
    """Change the rule of a subscription. Only the difference is published. `by`: the caller."""
    before = get_subscription(connection, lmr, number)
    rule = before.rule_id
    changed = carry_out(connection, ChangeRule(rule, text, by), provider)
    token = announce_rules(connection, lmr, provider, [rule]) if text != before.rule else None
    by = before.by if text == before.rule else by
    return Subscription(number, before.name, text, changed.position, by, rule, token=token)


def resume_subscription(connection: Connection, lmr: Lmr, number: int, provider: Provider) -> Subscription:
    """Resume a suspended subscription: evaluate it again. Only the difference is published."""
    before = get_subscription(connection, lmr, number)
    if before.suspended is None:
        return before
    return change_subscription(connection, lmr, number, before.rule, provider)


def unsubscribe(connection: Connection, lmr: Lmr, numbers: Sequence[int], provider: Provider) -> dict[str, Any]:
    """Remove subscriptions, all or none. Return the position and the token of the change."""
    rules = [get_subscription(connection, lmr, number).rule_id for number in numbers]
    position = carry_out(connection, RemoveRules(rules), provider)
    return {"position": position} | _with_token(announce_rules(connection, lmr, provider, removed=numbers))


class LmrJob(NamedTuple):
    """A job that changes an LMR or its rules. `by`: the caller."""

    connection: Connection
    lmr: Lmr
    request: dict[str, Any]
    provider: Provider
    by: str | None


def _run_subscribe(job: LmrJob) -> dict[str, Any]:
    drafts = [(name, text) for name, text in job.request["drafts"]]
    added = subscribe(job.connection, job.lmr, drafts, job.provider, job.by)
    return {"ids": [one.id for one in added], "position": added[-1].position} | _with_token(added[-1].token)


def _run_change(job: LmrJob) -> dict[str, Any]:
    number, rule = job.request["id"], job.request["rule"]
    return change_subscription(job.connection, job.lmr, number, rule, job.provider, job.by).as_dict()


def _run_resume(job: LmrJob) -> dict[str, Any]:
    return resume_subscription(job.connection, job.lmr, job.request["id"], job.provider).as_dict()


def _run_unsubscribe(job: LmrJob) -> dict[str, Any]:
    return unsubscribe(job.connection, job.lmr, job.request["ids"], job.provider)


def _run_forget(job: LmrJob) -> dict[str, Any]:
    return delete_lmr(job.connection, job.lmr, job.provider)


def _run_adopt(job: LmrJob) -> dict[str, Any]:
    return adopt_lmr(job.connection, job.lmr, job.provider, job.request["term"])._asdict()


RULE_JOBS: dict[str, Callable[[LmrJob], dict[str, Any]]] = {
    "subscribe": _run_subscribe,
    "change": _run_change,
    "resume": _run_resume,
    "unsubscribe": _run_unsubscribe,
    "forget": _run_forget,
    "adopt": _run_adopt,
}
"""The jobs that change an LMR or its rules, by kind."""

ANYWHERE = frozenset({"forget", "adopt"})
"""Those that also run where the LMR is not at home."""


def run_rule_job(connection: Connection, job: Job, provider: Provider) -> dict[str, Any]:
    """Run a job that changes an LMR or its rules. Return its result."""
    owner = job.options["lmr"]
    lmr = PROVIDER_AS_OWNER if owner == PROVIDER_OWNER else get_lmr(connection, str(owner))
    if job.kind not in ANYWHERE:
        refuse_unless_home(connection, lmr, provider)
    return RULE_JOBS[job.kind](LmrJob(connection, lmr, json.loads(job.body or b"{}"), provider, job.by))
