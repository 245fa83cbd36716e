"""Publish the matches of a rule with many matches in several short transactions.

While a rule is being added, it is `pending`: it is stored like a suspended rule, and its matches as of one position are
added to the selection counts, in the order of the resource ids. A rule that is being removed is suspended, and its
matches are subtracted in the same way. The last transaction handles only the changes that others made meanwhile.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Sequence

from mdv.db.rule_graph import RuleGraph, copy_line
from mdv.db.suspensions import KeptEnd, Suspensions
from mdv.mdp.merge import PlannedRule
from mdv.mdp.precompute import Outdated, Precomputed, conjunctions_of
from mdv.mdp.provider import Provider
from mdv.mdp.rules.planning import RuleDraft, check_names
from mdv.mdp.schemas import SchemaInForce
from mdv.mdp.selection_counts import RuleSelectionCounts
from mdv.mdp.transaction import Transaction
from mdv.rules.normalise import MAX_CONJUNCTIONS
from mdv.rules.pattern import Pattern

MIN_CHUNK_RESOURCES, FIRST_CHUNK_RESOURCES = 100, 500
TARGET_CHUNK_SECONDS = 0.05
"""How long one transaction should hold the lock. The chunk size is adapted to it."""


def add_pending_rule(provider: Provider, draft: RuleDraft, planned: PlannedRule, precomputed: Precomputed) -> int:
    """Add a pending rule, with none of its matches counted yet, and return its id."""
    with provider.engine.begin() as connection:
        tx = Transaction(provider, connection)
        tx.lock()
        state = tx.state
        if state.schema_version != precomputed.basis.schema_version:
            raise Outdated
        graph = RuleGraph(connection)
        check_names(graph, [draft])
        rule_id = state.last_rule + 1
        with graph.copying:
            line = copy_line(rule_id, draft.owner, draft.name, draft.text, tx.position, draft.by)
            graph.copy([("rules (id, owner, name, text, position, changed_by)", [line])])
        suspensions = Suspensions(connection)
        suspensions.add_pending([rule_id])
        units: dict[Pattern, int] = {}
        for index, (pattern, constants) in enumerate(dict.fromkeys(conjunctions_of(planned))):
            unit = units.setdefault(pattern, -(rule_id * MAX_CONJUNCTIONS + index))  # ends of one pattern share a unit
            kept = KeptEnd(rule_id, draft.owner, precomputed.position, unit, pattern.is_range, pattern.as_json(),
                           constants, 0, 0)  # fmt: skip
            suspensions.keep_pending_end(kept, index)
        tx.advance_rules(rule_id, state.last_atomic_rule, regrouped=True)
        return rule_id


def publish_in_chunks(
    provider: Provider, ids: Collection[int], precomputed: Precomputed, schema: SchemaInForce, growing: bool
) -> None:
    """Add the matches of suspended rules to the selection counts in several transactions, or subtract them.

    `growing`: add them.
    """
    by_resource: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for (lmr, resource), delta in precomputed.totals.items():
        by_resource[resource].append((lmr, resource, delta))
    resource_ids = sorted(by_resource)
    first, size = 0, FIRST_CHUNK_RESOURCES
    while first < len(resource_ids):
        chunk = resource_ids[first : first + size]
        changes = [change for resource_id in chunk for change in by_resource[resource_id]]
        with provider.engine.begin() as connection:
            tx = Transaction(provider, connection)
            tx.lock()
            began = time.monotonic()
            _publish_chunk(tx, ids, chunk[-1], changes, schema, growing)
        first += len(chunk)
        seconds = time.monotonic() - began
        size = max(MIN_CHUNK_RESOURCES, min(2 * size, round(len(chunk) * TARGET_CHUNK_SECONDS / max(seconds, 0.001))))


def _publish_chunk(
    tx: Transaction,
    ids: Collection[int],
    last_resource: int,
    changes: Sequence[tuple[int, int, int]],
    schema: SchemaInForce,
    growing: bool,
) -> None:
    suspensions, state = Suspensions(tx.connection), tx.state
    updated = suspensions.count_up_to(ids, last_resource) if growing else suspensions.count_after(ids, last_resource)
    if updated != len(ids) or state.schema_version != schema.version or not suspensions.kept_ends(ids):
        raise Outdated
    tx.advance_rules(state.last_rule, state.last_atomic_rule, regrouped=False)
    RuleSelectionCounts(tx.connection, tx.state).add(changes)
    tx.publish_rules()
