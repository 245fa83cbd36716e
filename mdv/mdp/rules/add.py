"""Add rules: from the texts of rules to their first results.

    text → parsed → normalised → plan (atomic rules, pattern)     (once for all rules that differ in constants alone)
         → merged into the rule graph → groups → first results → publish

Changes of rules and of documents have one common order, so that no rule misses a change.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

from sqlalchemy import Connection

from mdv.db import filter as db
from mdv.db.engine import pipelined_if
from mdv.db.pipeline import Pipeline
from mdv.db.postgres_copy import copy_field, copy_text
from mdv.db.rule_graph import FoundAtomicRules, RuleGraph
from mdv.db.state import LockPurpose
from mdv.errors import Conflict
from mdv.mdp.evaluate import MAX_RULES_EVALUATED_SINGLY, evaluate_ends
from mdv.mdp.merge import PlannedRule, RuleMerge
from mdv.mdp.precompute import MAX_SECONDS_UNDER_LOCK, Precomputed, RuleChange
from mdv.mdp.provider import Provider
from mdv.mdp.rules.planning import (
    AddedRule,
    PlannedBatch,
    RuleDraft,
    concerns_lmrs,
    libraries_of,
    plan_ahead,
    plan_batch,
    rule_names,
)
from mdv.mdp.selection_counts import RuleSelectionCounts
from mdv.mdp.transaction import Transaction

MAX_RESULTS_PER_TRANSACTION = 1_000
"""A rule with more results is published in several transactions."""


def add_rules(
    connection: Connection, drafts: Sequence[RuleDraft], provider: Provider, precomputed: Precomputed | None = None
) -> list[AddedRule]:
    """Add rules, all or none.

    Unless their matches were precomputed, they are in `result_objects` afterwards. Raise `SlowUnderLock` if finding
    them takes too long.
    """
    with gc_disabled():
        return _add_rules(Transaction(provider, connection), drafts, precomputed)


def _add_rules(tx: Transaction, drafts: Sequence[RuleDraft], precomputed: Precomputed | None) -> list[AddedRule]:
    connection, graph = tx.connection, RuleGraph(tx.connection)
    read, found = _plan_and_lock(tx, graph, drafts)
    state, last = tx.state, tx.state.last_rule
    change = RuleChange((), read.planned)
    known = precomputed.changes(connection, state, change, tx.schema, tx.provider.vocabulary) if precomputed else None
    merge = RuleMerge(graph, tx.groups().known, state.last_atomic_rule, after=last)
    with graph.copying:
        for parts, lookup in zip(read.parts, found, strict=True):
            merge.add(parts, lookup, _lines(drafts, parts.items, last, tx.position))
    merged = merge.merged
    step = tx.step_of_rules(last + len(drafts), merged.last_atomic_rule, merged.regrouped)
    searches = [{"rule_id": last + place, "searched_id": searched} for place, searched in read.searches]
    numbers = range(last + 1, last + len(drafts) + 1)
    limit = MAX_SECONDS_UNDER_LOCK if len(drafts) <= MAX_RULES_EVALUATED_SINGLY else tx.provider.rules.seconds
    pipeline = Pipeline(connection)
    to_revise = merge.write_step(searches, step, state.last_resource, limit, pipeline)
    if merged.regrouped or known is not None:
        pipeline.send()
    with db.limit_time_under_lock():
        has_subscribers = concerns_lmrs(state, (draft.owner for draft in drafts))
        is_single = has_subscribers and len(drafts) == 1
        if known is None:
            ends = [*merged.new_ends, *merged.known_ends] if is_single else merged.new_ends
            evaluated = evaluate_ends(connection, tx.groups(), ends, tx.state, merged.first_atomic_rule, pipeline)
            pipeline.send()
            if is_single and sum(answer.changed_rows for answer in evaluated) > MAX_RESULTS_PER_TRANSACTION:
                raise db.SlowUnderLock
        if has_subscribers:
            counts = RuleSelectionCounts(connection, tx.state)
            groups = tx.groups()
            with pipelined_if(connection, known is None):
                if known is None:
                    touched = merged.touched({draft.owner for draft in drafts})
                    counts.add_new_matches(groups, numbers, () if is_single else merged.known_ends, touched)
                else:
                    counts.add_precomputed_matches(groups, numbers, known)
                tx.publish_rules()
    if group_ids := to_revise():
        db.limit_time(connection, 0)
        tx.revise_driving_predicates(group_ids)
    return [AddedRule(number, merged.ends[number], tx.position) for number in numbers]


def _plan_and_lock(
    tx: Transaction, graph: RuleGraph, drafts: Sequence[RuleDraft]
) -> tuple[PlannedBatch, list[FoundAtomicRules]]:
    """Plan rules and take the lock. Return the planned rules, and which of their atomic rules exist already.

    The look-ups that will probably be needed are sent in one message with the lock.
    """
    names, rules = rule_names(drafts), tx.provider.rules
    read = plan_ahead(drafts, tx.provider.schemas.last_known, rules)
    with tx.locking(LockPurpose.RULES) as pipeline:
        taken = [graph.ask_for_names(owner, owner_names, pipeline) for owner, owner_names in names.items()]
        found = [parts.look_up(graph, pipeline) for parts in read.parts] if read is not None else []
    for name in chain.from_iterable(ask() for ask in taken):
        raise Conflict(f"A rule named {name} already exists. Choose another name, or change that rule.")
    if read is None or read.schema is not tx.schema:
        read = plan_batch(drafts, tx.schema, rules, libraries_of(graph, drafts, tx.state.last_rule))
        found = [parts.look_up(graph) for parts in read.parts]
    return read, [ask() for ask in found]


def _lines(drafts: Sequence[RuleDraft], items: Iterable[PlannedRule], last_rule: int, position: int) -> list[str]:
    """Return the rules as rows in COPY format."""
    lines = []
    for place, owner, _, _ in items:
        draft = drafts[place - 1]
        name = copy_field(draft.name)
        lines.append(
            f"{last_rule + place}\t{owner}\t{name}\t{copy_text(draft.text)}\t{position}\t{copy_field(draft.by)}\n"
        )
    return lines


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable Python's garbage collector. Adding 100,000 rules creates millions of objects, and none is garbage."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
