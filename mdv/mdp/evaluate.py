"""Full evaluation of rules on all stored statements, as opposed to the filter, which starts from changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import Connection

from mdv.db import filter as db
from mdv.db.pipeline import PendingResult, Pipeline
from mdv.db.state import State
from mdv.mdp.filter import group_parameters
from mdv.mdp.groups import RULE_TABLES, CompiledGroup, Groups, read_instances, statement_states
from mdv.query.compile import all_matches, all_value_bounds

MAX_RULES_EVALUATED_SINGLY = 20
"""Up to this number, the rules of a group are evaluated one by one. More are evaluated together, on all instances of
the group's class."""


class EvaluableEnd(Protocol):
    """An end rule, its group, and its constants as the group's parameters."""

    @property
    def rule_id(self) -> int: ...
    @property
    def group_id(self) -> int: ...
    @property
    def values(self) -> Mapping[str, Any]: ...


def evaluate_ends(
    connection: Connection,
    groups: Groups,
    ends: Iterable[EvaluableEnd],
    state: State,
    first_new: int | None = None,
    pipeline: Pipeline | None = None,
) -> list[PendingResult]:
    """Store all matches of these end rules in `result_objects` (many range rules: in `result_ranges`).

    `first_new`: `ends` contains all end rules with this id or a greater one, so that older rules of their groups need
    not be evaluated with them. Otherwise, matches of other end rules of the same groups may be stored, too.
    `pipeline`: queue the statements for single rules there. Return their pending results.
    """
    by_group: dict[int, list[EvaluableEnd]] = defaultdict(list)
    for end in ends:
        by_group[end.group_id].append(end)
    single: list[EvaluableEnd] = []
    for group_id, group_ends in by_group.items():
        if len(group_ends) > MAX_RULES_EVALUATED_SINGLY:
            first = min(end.rule_id for end in group_ends) if first_new is None else first_new
            if pipeline is not None:
                pipeline.send()  # it may contain the statements that insert the rules
            evaluate_whole_group(connection, groups, group_id, first, state)
            group_ends = [end for end in group_ends if end.rule_id < first]
        single += group_ends
    used_pipeline = pipeline or Pipeline(connection)
    results = [
        db.queue_statement(used_pipeline, groups.by_id[end.group_id].first_results, {**end.values, "end": end.rule_id})
        for end in single
    ]
    if pipeline is None:
        used_pipeline.send()
    return results


def evaluate_whole_group(connection: Connection, groups: Groups, group_id: int, first_rule: int, state: State) -> None:
    """Evaluate many rules of a group together, as if all resources that they can register had changed."""
    compiled = groups.by_id[group_id]
    roots = read_instances(connection, groups.names, compiled.group.pattern.nodes[0])
    nothing: Sequence[Sequence[int]] = [[] for _ in range(compiled.nodes - 1)]
    # known=0: nothing matched before, since new rules have no results yet.
    values = group_parameters(compiled, [roots, *nothing], state.position, 0, first_rule)
    with db.pinned_plans(connection):
        db.execute_statement(connection, compiled.statement, values)


def full_results(connection: Connection, groups: Groups, compiled_groups: Iterable[CompiledGroup]) -> db.MatchResults:
    """Return the current matches of groups: pairs of end rule and resource, or for range groups the value bounds."""
    results = db.MatchResults()
    now, _, _ = statement_states(groups.names)
    for compiled in compiled_groups:
        group = compiled.group
        roots = read_instances(connection, groups.names, group.pattern.nodes[0])
        if group.pattern.is_range:
            rows = db.evaluate(connection, db.compile_statement(all_value_bounds(now, group.pattern)), {"roots": roots})
            results.reached[group.group_id] = {number: (low, high) for number, low, high in rows}
        else:
            rows = db.evaluate(connection, db.compile_statement(all_matches(now, RULE_TABLES, group)), {"roots": roots})
            results.pairs.update((rule, number) for rule, number in rows)
    return results
