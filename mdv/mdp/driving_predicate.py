"""Choose the driving predicate of a group of rules, and choose it again when rules or data have changed.

The rules of a group are looked up by one predicate, the driving predicate. The other predicates are checked only for
the rules that it finds, so it should be the most selective one. A sample of the stored resources shows which one is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from secrets import randbits

from sqlalchemy import Connection

from mdv.db import filter as db
from mdv.db.rule_graph import RuleGraph
from mdv.db.state import State
from mdv.db.tables import atomic_rules
from mdv.mdp.groups import RULE_TABLES, CompiledGroup, Groups, read_instances, statement_states
from mdv.mdp.merge import choose_driving_leaf
from mdv.query.compile import fan_out

SAMPLE_RESOURCES = 100
"""The number of resources in a sample. The newest ones are used."""

MAX_COUNTED_RULES = 100_000
"""Counting the rules that a leaf finds stops here. Such a leaf is not selective."""

MIN_IMPROVEMENT_FACTOR = 2.0
"""How much better another leaf must be. Changing the driving leaf updates a row for each rule of the group."""


def revise_driving_predicates(connection: Connection, state: State, groups: Groups, group_ids: Iterable[int]) -> State:
    """Choose the driving leaves of these groups again.

    Return the state, with a new version of the rule graph if a driving leaf has changed.
    """
    graph = RuleGraph(connection)
    changed = False
    for group_id in group_ids:
        compiled = groups.by_id[group_id]
        driver = best_driving_leaf(connection, graph, groups, compiled)
        graph.execute("choose_driver", group=group_id, driver=driver, resources=state.last_resource)
        if driver != compiled.group.driver:
            graph.execute("drive", group=group_id, driver=driver)
            changed = True
    if not changed:
        return state
    state = replace(state, graph_version=randbits(62))
    graph.execute("set_graph_version", graph_version=state.graph_version)
    return state


def best_driving_leaf(connection: Connection, graph: RuleGraph, groups: Groups, compiled: CompiledGroup) -> int:
    """Return the leaf that finds the fewest rules per stored resource.

    Without stored resources, return the leaf with the most distinct constants.
    """
    group = compiled.group
    leaves = group.pattern.leaves
    sampled = [read_instances(connection, groups.names, (leaf.class_iri,), SAMPLE_RESOURCES) for leaf in leaves]
    if not all(sampled):
        distinct = dict(graph.execute("count_constants", group=group.group_id).fetchall())
        members = max(1, graph.members(group.group_id))
        return choose_driving_leaf(leaves, [distinct.get(index, 1) for index in range(len(leaves))], members)
    now, _, _ = statement_states(groups.names)
    costs = []
    for index, sample in enumerate(sampled):
        statement = db.compile_statement(fan_out(now, RULE_TABLES, atomic_rules, group, index, MAX_COUNTED_RULES))
        ((rules,),) = db.evaluate(connection, statement, {"sample": sample})
        costs.append(rules / len(sample))
    best = min(range(len(leaves)), key=costs.__getitem__)
    current = group.driver
    if current is not None and costs[current] <= MIN_IMPROVEMENT_FACTOR * costs[best] + 1:
        return current
    return best
