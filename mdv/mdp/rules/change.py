"""Change the text of a rule."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection

from mdv.db import filter as db
from mdv.db.publish import RuleNotices
from mdv.db.rule_graph import RuleGraph
from mdv.db.suspensions import EVENT_RESUMED, Suspensions
from mdv.mdp.evaluate import evaluate_ends
from mdv.mdp.merge import merge_rules
from mdv.mdp.precompute import MAX_SECONDS_UNDER_LOCK, Precomputed, RuleChange
from mdv.mdp.provider import Provider
from mdv.mdp.rules.planning import AddedRule, concerns_lmrs, plan_change
from mdv.mdp.selection_counts import RuleSelectionCounts
from mdv.mdp.transaction import Transaction

RESUMED_REASON = "The rule was evaluated again."


def change_rule(
    connection: Connection,
    rule_id: int,
    text: str,
    provider: Provider,
    precomputed: Precomputed | None = None,
    by: str | None = None,
) -> AddedRule:
    """Change the text of a rule. Rules that search it are updated. Suspended ones among them are resumed. `by`: the
    caller.

    Raise `SlowUnderLock` if the evaluation takes too long, unless it was precomputed.
    """
    tx, graph = Transaction(provider, connection), RuleGraph(connection)
    tx.lock()
    state = tx.state
    planned = plan_change(graph, rule_id, text, tx.schema, provider.rules)
    ids = [rule.rule_id for rule in planned.rules]
    has_subscribers = concerns_lmrs(state, [planned.rules[0].owner])
    suspensions = Suspensions(connection)
    suspended = suspensions.read(ids)
    owners = {rule.rule_id: rule.owner for rule in planned.rules}
    notices = RuleNotices.of((owners[number], number) for number, one in suspended.items() if one.noticed)
    counts = RuleSelectionCounts(connection, replace(state, position=tx.position))
    before = tx.groups()
    changes: list[tuple[int, int, int]] | None = None
    with db.limit_time_under_lock():
        if precomputed is not None:
            change = RuleChange(ids, planned.rules)
            changes = precomputed.changes(connection, state, change, tx.schema, provider.vocabulary)
            counts.note(before, ids)
        elif suspended:
            raise db.SlowUnderLock
        elif has_subscribers:
            db.limit_time(connection, MAX_SECONDS_UNDER_LOCK)
            counts.subtract_matches(before, ids)
    suspensions.end(suspended)
    graph.execute("delete_searches", ids=ids)
    graph.execute("change_rule", id=rule_id, text=text, position=tx.position, changed_by=by)
    # Old atomic rules are dropped after the new ones are merged, so that shared ones are kept.
    detached = graph.detach(ids)
    merged = merge_rules(graph, planned.rules, before.known, state.last_atomic_rule, planned.searches)
    regrouped = graph.drop(detached) or bool(suspended) or merged.regrouped
    tx.advance_rules(state.last_rule, merged.last_atomic_rule, regrouped)
    with db.limit_time_under_lock():
        graph.forget_results(MAX_SECONDS_UNDER_LOCK)
        after = tx.groups()
        if changes is None:
            evaluate_ends(connection, after, merged.new_ends, tx.state, merged.first_atomic_rule)
            if has_subscribers:
                counts.add_matches(after, ids, merged.known_ends)
        else:
            counts.add_precomputed_matches(after, ids, changes)
    if has_subscribers:
        suspensions.note(notices, tx.position, EVENT_RESUMED, RESUMED_REASON)
        tx.publish_rules(EVENT_RESUMED, notices)
    return AddedRule(rule_id, merged.ends[rule_id], tx.position)
