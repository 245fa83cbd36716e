"""Suspend rules that exceed their time limit: they are no longer evaluated, and their matches stay as they were.

A suspended rule is removed from the rule graph, so that the filter does not evaluate it. Its matches as of the previous
position still count for its LMR. `suspended_ends` stores what is needed to compute them when the rule is resumed,
changed or removed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import log2

import structlog
from sqlalchemy import Connection

from mdv.db import filter as db
from mdv.db.publish import RuleNotices
from mdv.db.rule_graph import RuleGraph
from mdv.db.suspensions import EVENT_SUSPENDED, Suspensions
from mdv.mdp.provider import Provider
from mdv.mdp.rule_cache import RuleOverBudget
from mdv.mdp.selection_counts import RuleSelectionCounts
from mdv.mdp.transaction import Transaction
from mdv.metrics import RULES_SUSPENDED

log = structlog.get_logger()

MAX_LOGGED_RULES = 20
"""How many rules a log message names."""


def suspend_group(connection: Connection, group_id: int, seconds: float, provider: Provider) -> list[int]:
    """Suspend the rules of a group that took longer than `seconds` in one transaction. Return their ids."""
    tx = Transaction(provider, connection)
    tx.lock()
    ids = Suspensions(connection).rules_of_group(group_id)
    _suspend(tx, ids, over_budget_reason(seconds), seconds, without_notices=False)
    return ids


def suspend_over_budget(error: RuleOverBudget, provider: Provider) -> list[int]:
    """Suspend the rules that exceeded their time limit, in a separate transaction. Return their ids.

    A group of many rules may take longer than one rule. Its limit is raised first, without suspending a rule.
    """
    with provider.engine.begin() as connection:
        members = RuleGraph(connection).members(error.group_id)
        allowed = provider.rules.seconds * (1 + log2(max(1, members)))
        if error.seconds < allowed:
            provider.rules.limits[error.group_id] = allowed
            return []
        ids = suspend_group(connection, error.group_id, error.seconds, provider)
    RULES_SUSPENDED.inc(len(ids))
    log.warning("rules suspended", rules=ids[:MAX_LOGGED_RULES], count=len(ids), seconds=error.seconds)
    return ids


def over_budget_reason(seconds: float) -> str:
    """Return the reason of a suspension for exceeding the time limit."""
    return (
        f"Evaluating the rule took longer than {seconds:g} s in one transaction. Change the rule: compare a property "
        "with a constant, or join the variables by references. Or resume it as it is."
    )


def suspend_rules(
    connection: Connection,
    ids: Collection[int],
    reason: str,
    seconds: float | None,
    provider: Provider,
    without_notices: bool = False,
) -> int:
    """Suspend rules that are not suspended yet. Return the position. `without_notices`: publish no notices."""
    tx = Transaction(provider, connection)
    tx.lock()
    return _suspend(tx, ids, reason, seconds, without_notices)


def _suspend(tx: Transaction, ids: Collection[int], reason: str, seconds: float | None, without_notices: bool) -> int:
    connection, state = tx.connection, tx.state
    suspensions, graph = Suspensions(connection), RuleGraph(connection)
    active = sorted(set(ids) - suspensions.read(ids).keys())
    if not active:
        return state.position
    counts = RuleSelectionCounts(connection, replace(state, position=tx.position))
    counts.note(tx.groups(), active)
    suspensions.add(active, state.position, tx.position, counts.ranged, reason, seconds)
    graph.drop(graph.detach(active))
    db.clear_results(connection)
    tx.advance_rules(state.last_rule, state.last_atomic_rule, regrouped=True)
    counts.freeze(tx.groups(), suspensions.kept_ends(active))
    if state.lmrs:
        notices = RuleNotices.of(() if without_notices else ((rule.owner, rule.id) for rule in graph.rules(active)))
        suspensions.note(notices, tx.position, EVENT_SUSPENDED, reason)
        tx.publish_rules(EVENT_SUSPENDED, notices)
    db.clear_results(connection)
    return tx.position
