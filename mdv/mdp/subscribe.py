"""Subscribe: LMRs come and go, and say by rules what they want.

What a new rule matches is in the LMR's feed when the call returns; when a rule changes, only the difference is.
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
from mdv.db.state import lock_state
from mdv.db.vocabulary import Vocabulary
from mdv.errors import BadRequest, NotFound
from mdv.mdp.rules import RuleDraft, Rules, add_rules, change_rule, remove_rules
from mdv.mdp.schemas import Schemas

MAX_NAME = 100
SELF = "self"
"""What an LMR may call itself in an address."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A rule of an LMR. `position`: of the transaction that made it what it is."""

    id: int
    name: str | None
    rule: str
    position: int


def create_lmr(connection: Connection, name: str) -> tuple[Lmr, str]:
    """A new LMR and its token, which is shown this once."""
    if not 0 < len(name) <= MAX_NAME or not name.isprintable() or name != name.strip() or "/" in name:
        raise BadRequest(f"An LMR's name is 1 to {MAX_NAME} characters that can be printed, without a slash.")
    if name.isdecimal() or name in (SELF, ".", ".."):
        raise BadRequest(f"An LMR cannot be called {name}: that means something else in addresses.")
    lock_state(connection)
    return db.create_lmr(connection, name)


def get_lmr(connection: Connection, name: str) -> Lmr:
    """The LMR of that name or number."""
    found = db.find_lmr(connection, name)
    if found is None:
        raise NotFound(f"There is no LMR {name}: `mdv lmr list` shows them.")
    return found


def delete_lmr(connection: Connection, lmr: Lmr, schemas: Schemas, vocabulary: Vocabulary, rules: Rules) -> int:
    """End an LMR with all its rules; the position that this took."""
    state = lock_state(connection)
    mine = db.rule_ids(connection, lmr.id)
    position = state.position
    if mine:
        position = remove_rules(connection, mine, schemas, vocabulary, rules, quietly=True)
    db.delete_lmr(connection, lmr.id)
    return position


def subscribe(
    connection: Connection,
    lmr: Lmr,
    drafts: Sequence[tuple[str | None, str]],
    schemas: Schemas,
    vocabulary: Vocabulary,
    rules: Rules,
) -> list[Subscription]:
    """Subscribe rules, each given as name and text: all or none."""
    ready = [RuleDraft(lmr.id, name, text) for name, text in drafts]
    added = add_rules(connection, ready, schemas, vocabulary, rules)
    return [
        Subscription(rule.id, draft.name, draft.text, rule.position) for rule, draft in zip(added, ready, strict=True)
    ]


def get_subscription(connection: Connection, lmr: Lmr, number: int) -> Subscription:
    found = db.rule_of(connection, lmr.id, number)
    if found is None:
        raise NotFound(f"The LMR {lmr.name} has no subscription {number}.")
    return Subscription(*found)


def change_subscription(
    connection: Connection,
    lmr: Lmr,
    number: int,
    text: str,
    schemas: Schemas,
    vocabulary: Vocabulary,
    rules: Rules,
) -> Subscription:
    """Let a subscription say something else; only the difference is published."""
    before = get_subscription(connection, lmr, number)
    changed = change_rule(connection, number, text, schemas, vocabulary, rules)
    return Subscription(number, before.name, text, changed.position)


def unsubscribe(
    connection: Connection, lmr: Lmr, numbers: Sequence[int], schemas: Schemas, vocabulary: Vocabulary, rules: Rules
) -> int:
    """End subscriptions, all or none; the position that this took."""
    for number in numbers:
        get_subscription(connection, lmr, number)
    return remove_rules(connection, numbers, schemas, vocabulary, rules)


def change_rules(
    connection: Connection, job: Job, schemas: Schemas, vocabulary: Vocabulary, rules: Rules
) -> dict[str, Any]:
    """Carry out a job about an LMR or its rules."""
    asked = json.loads(job.body or b"{}")
    lmr = get_lmr(connection, str(job.options["lmr"]))
    if job.kind == "forget":
        return {"position": delete_lmr(connection, lmr, schemas, vocabulary, rules)}
    if job.kind == "subscribe":
        drafts = [(name, text) for name, text in asked["drafts"]]
        added = subscribe(connection, lmr, drafts, schemas, vocabulary, rules)
        return {"ids": [one.id for one in added], "position": added[-1].position}
    if job.kind == "change":
        changed = change_subscription(connection, lmr, asked["id"], asked["rule"], schemas, vocabulary, rules)
        return {"id": changed.id, "name": changed.name, "position": changed.position}
    return {"position": unsubscribe(connection, lmr, asked["ids"], schemas, vocabulary, rules)}
