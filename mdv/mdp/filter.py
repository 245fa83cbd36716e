"""The filter (paper, sections 3.4 and 3.5): finds the matches that a change adds and removes.

    changes → affected groups → resources at the root of each group's pattern that the changes may affect
            → the rules that matched these resources before, and the rules that match them now

The paper runs its filter three times: on the old state for candidates, on the new state for the candidates that still
match, and on the new state for new matches. Here the old state stays readable until the transaction ends. So one
statement per group evaluates both states, and their difference is exact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.db import filter as db
from mdv.db.delta import StoreChange
from mdv.db.pipeline import PendingResult, Pipeline
from mdv.db.postgres_copy import array_literal
from mdv.db.state import State
from mdv.mdp.groups import CompiledGroup, Groups
from mdv.metrics import CANDIDATES_PER_DOCUMENT


@dataclass(frozen=True, slots=True)
class Candidates:
    """For each predicate, the resources of some documents that satisfy it for some rule, judged by these documents
    alone. It is a superset: no resource is missing. It is valid for one last atomic rule and one schema version."""

    last_atomic_rule: int
    schema_version: int
    uris: Mapping[int, Collection[str]]

    def ids(self, state: State, ids: Mapping[str, int]) -> dict[int, set[int]] | None:
        """Return the candidates as resource ids, or None if rules or the schema have changed since."""
        if (self.last_atomic_rule, self.schema_version) != (state.last_atomic_rule, state.schema_version):
            return None
        return {predicate: {ids[uri] for uri in uris if uri in ids} for predicate, uris in self.uris.items()}


class TimeLimits(NamedTuple):
    """The time limit for each group of rules, in seconds, and by group id the limits of groups that may take longer."""

    seconds: float
    raised: Mapping[int, float] = {}


@dataclass(frozen=True)
class ScheduledFilterRun:
    """A run of the filter that is executed when the pipeline is sent."""

    affected: Sequence[CompiledGroup] = ()
    run: db.FilterRun | None = None

    def matched(self) -> set[int]:
        """Return the resources that some rule newly matches."""
        return self.run.matched_resources() if self.run is not None else set()

    def group_of(self, failed: PendingResult | None) -> int | None:
        """Return the group whose statement failed, or None if the failed statement is not part of this run."""
        place = self.run.failed_group_index(failed) if self.run is not None else None
        return self.affected[place].group.group_id if place is not None else None


def filter_changes(
    pipeline: Pipeline,
    groups: Groups,
    change: StoreChange,
    limits: TimeLimits,
    candidates: Mapping[int, Set[int]] | None = None,
) -> ScheduledFilterRun:
    """Queue a run of the filter on a stored change. It is executed when the pipeline is sent.

    Its results are in `result_objects` and `result_ranges` until the next run. `candidates`: for each predicate, the
    only new resources that can satisfy it.
    """
    if not groups.groups:
        return ScheduledFilterRun()
    affected = groups.affected(chain(change.gains, change.losses))
    if candidates is not None:
        affected = _without_impossible(groups, affected, candidates, change.known)
    candidate_count = sum(len(node) for sets in affected.values() for node in sets)
    CANDIDATES_PER_DOCUMENT.observe(candidate_count / max(1, len(change.described)))
    affected_groups = [groups.groups[index] for index in affected]
    steps = [
        db.GroupStatement(group.statement, group_parameters(group, sets, change.position, change.known),
                limits.raised.get(group.group.group_id))
        for group, sets in zip(affected_groups, affected.values(), strict=True)
    ]  # fmt: skip
    return ScheduledFilterRun(affected_groups, db.queue_filter_run(pipeline, steps, limits.seconds))


def _without_impossible(
    groups: Groups, affected: Mapping[int, list[set[int]]], candidates: Mapping[int, Set[int]], known: int
) -> dict[int, list[set[int]]]:
    """Return the changed resources without those that cannot affect a match.

    A new resource that does not satisfy a predicate of a node is in no match there, and was in none before.
    """
    left = {}
    for index, sets in affected.items():
        group = groups.groups[index].group
        if not group.pattern.is_range:
            for leaf, predicate in zip(group.pattern.leaves, group.predicates, strict=True):
                if (satisfying := candidates.get(predicate)) is not None:
                    sets[leaf.node] = {number for number in sets[leaf.node] if number <= known or number in satisfying}
        if any(sets):
            left[index] = sets
    return left


def count_matched(connection: Connection, matched: Set[int], change: StoreChange) -> dict[str, int]:
    """Return for each document how many resources newly match because of it."""
    if not matched:
        return dict.fromkeys(change.described, 0)
    if len(change.described) == 1:
        return dict.fromkeys(change.described, len(matched))
    return {
        uri: len(resources) for uri, resources in affected_by_document(connection, matched, change.described).items()
    }


def affected_by_document(
    connection: Connection, resources: Set[int], described: Mapping[str, Collection[int]]
) -> dict[str, set[int]]:
    """Return for each document which of `resources` it affects: those it describes, and those that refer to them."""
    found = {uri: {number for number in numbers if number in resources} for uri, numbers in described.items()}
    all_described = set().union(*described.values())
    referring: dict[int, set[int]] = defaultdict(set)
    if others := resources - all_described:
        for resource, target in db.find_references_between(connection, others, all_described):
            referring[target].add(resource)
    if referring:
        for uri, numbers in described.items():
            found[uri].update(*(referring[target] for target in numbers if target in referring))
    return found


def group_parameters(
    compiled: CompiledGroup, changed: Iterable[Iterable[int]], position: int, known: int, first_rule: int = 0
) -> dict[str, Any]:
    """Return the parameters of a group's statement."""
    nodes = {f"node{node}": array_literal(numbers) for node, numbers in enumerate(changed)}
    return {**nodes, "position": position, "known": known, "first_rule": first_rule}


def read_match_changes(connection: Connection) -> list[tuple[int, str, bool]]:
    """Return the match changes of the last run: end rule, resource, and whether it matches now."""
    return db.read_changes(connection)
