"""Drivers: which predicate finds the rules of a group, chosen again when rules or data have shifted.

A join rule is driven from its selective side: only what satisfies the driver looks for rules, and the other predicates
are checked for the rules that it finds. Which side is selective, a sample of the stored resources tells.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from secrets import randbits

from sqlalchemy import Connection

from mdv.db import filter as db
from mdv.db.graph import Graph
from mdv.db.state import State
from mdv.db.tables import atomic_rules
from mdv.mdp.groups import TABLES, CompiledGroup, Groups, instances, states
from mdv.mdp.merge import choose_driver
from mdv.query.compile import fan_out

SAMPLE = 100
"""So many resources are asked, the youngest ones."""

MOST = 100_000
"""No leaf is followed further than to so many rules: then it is no driver."""

BETTER = 2.0
"""Another driver must be better by this much: to change it costs a row for each rule of the group."""


def revise_drivers(connection: Connection, state: State, groups: Groups, some: Iterable[int]) -> State:
    """Choose the drivers of these groups again; the state, with another version of the graph if one has changed."""
    graph = Graph(connection)
    changed = False
    for group_id in some:
        compiled = groups.by_id[group_id]
        driver = best_driver(connection, graph, groups, compiled)
        graph.execute("choose_driver", group=group_id, driver=driver, resources=state.last_resource)
        if driver != compiled.group.driver:
            graph.execute("drive", group=group_id, driver=driver)
            changed = True
    if not changed:
        return state
    state = replace(state, graph_version=randbits(62))
    graph.execute("set_graph_version", graph_version=state.graph_version)
    return state


def best_driver(connection: Connection, graph: Graph, groups: Groups, compiled: CompiledGroup) -> int:
    """The leaf that leads from stored resources to the fewest rules; without any, that with the most constants."""
    group = compiled.group
    leaves = group.pattern.leaves
    sampled = [instances(connection, groups.names, (leaf.class_iri,), SAMPLE) for leaf in leaves]
    if not all(sampled):
        different = dict(graph.execute("count_constants", group=group.group_id).fetchall())
        members = max(1, graph.members(group.group_id))
        return choose_driver(leaves, [different.get(index, 1) for index in range(len(leaves))], members)
    now, _, _ = states(groups.names)
    costs = []
    for index, sample in enumerate(sampled):
        statement = db.compiled(fan_out(now, TABLES, atomic_rules, group, index, MOST))
        ((rules,),) = db.evaluate(connection, statement, {"sample": sample})
        costs.append(rules / len(sample))
    best = min(range(len(leaves)), key=costs.__getitem__)
    present = group.driver
    if present is not None and costs[present] <= BETTER * costs[best] + 1:
        return present
    return best
