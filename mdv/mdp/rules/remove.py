"""Remove rules."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sqlalchemy import Connection

from mdv.db import filter as db
from mdv.db.publish import RuleNotices
from mdv.db.rule_graph import RuleGraph, StoredRule
from mdv.db.suspensions import EVENT_RESUMED, Suspensions
from mdv.errors import Conflict, NotFound
from mdv.mdp.precompute import MAX_SECONDS_UNDER_LOCK, Precomputed, RuleChange
from mdv.mdp.provider import Provider
from mdv.mdp.rules.add import MAX_RESULTS_PER_TRANSACTION
from mdv.mdp.rules.planning import concerns_lmrs
from mdv.mdp.selection_counts import RuleSelectionCounts
from mdv.mdp.transaction import Transaction

REMOVED_REASON = "The rule was removed."


def remove_rules(
    connection: Connection,
    ids: Collection[int],
    provider: Provider,
    without_notices: bool = False,
    precomputed: Precomputed | None = None,
) -> int:
    """Remove rules, and the atomic rules that no other rule uses. Return the position of the change.

    `without_notices`: nothing is published, because the owner of the rules is removed, too. Raise `SlowUnderLock` if
    finding the matches of the rules takes too long, unless they were precomputed.
    """
    tx, graph = Transaction(provider, connection), RuleGraph(connection)
    tx.lock()
    state = tx.state
    found = _removable(graph, ids)
    suspensions = Suspensions(connection)
    suspended = suspensions.read(ids)
    notices = RuleNotices.of((found[number].owner, number) for number, one in suspended.items() if one.noticed)
    has_subscribers = not without_notices and concerns_lmrs(state, (rule.owner for rule in found.values()))
    counts = RuleSelectionCounts(connection, replace(state, position=tx.position))
    groups = tx.groups()
    changes: list[tuple[int, int, int]] | None = None
    with db.limit_time_under_lock():
        if not has_subscribers:
            pass
        elif precomputed is not None:
            change = RuleChange(ids, ())
            changes = precomputed.changes(connection, state, change, tx.schema, provider.vocabulary)
            counts.note(groups, ids)
        elif suspended:
            raise db.SlowUnderLock
        else:
            db.limit_time(connection, MAX_SECONDS_UNDER_LOCK)
            counts.subtract_matches(groups, ids)
    graph.execute("delete_searches", ids=list(ids))
    regrouped = graph.drop(graph.detach(list(ids)))
    graph.execute("delete_rules", ids=list(ids))
    db.clear_results(connection)
    tx.advance_rules(state.last_rule, state.last_atomic_rule, regrouped)
    if has_subscribers:
        with db.limit_time_under_lock():
            if changes is None:
                counts.settle(tx.groups())
                if counts.changed > MAX_RESULTS_PER_TRANSACTION:
                    raise db.SlowUnderLock
            else:
                counts.add_precomputed_matches(tx.groups(), (), changes)
        suspensions.note(notices, tx.position, EVENT_RESUMED, REMOVED_REASON)
        tx.publish_rules(EVENT_RESUMED, notices)
        db.clear_results(connection)
    return tx.position


def _removable(graph: RuleGraph, ids: Collection[int]) -> dict[int, StoredRule]:
    """Return the rules with these ids. Raise an error if one is missing, or if another rule searches one of them."""
    found = {rule.id: rule for rule in graph.rules(ids)}
    for missing in sorted(set(ids) - found.keys()):
        raise NotFound(f"There is no rule {missing}.")
    for searched, rule in graph.searching(ids):
        if rule.id not in found:
            raise Conflict(
                f"Rule {rule.name or rule.id} searches rule {found[searched].name}. Change or remove it first.",
                rule=rule.id, searched=searched,
            )  # fmt: skip
    return found
