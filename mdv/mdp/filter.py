"""The filter (paper, sections 3.4 and 3.5): which rules came to match which resources, and which ceased to.

    changes → groups that they concern → resources at the root of each group's pattern that they may reach
            → the rules that match those before, and the rules that match them now

The paper runs its filter three times: on the old state for candidates, on the new state for those of them that still
match, and on the new state for new matches. Here the old state stays readable until the transaction ends, so that the
first pass and the other two can be asked in one statement for each group, and their difference is exact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any

from sqlalchemy import Connection

from mdv.db import filter as db
from mdv.db.copy import array_field
from mdv.db.exchange import Exchange
from mdv.db.state import State
from mdv.db.store import Change
from mdv.figures import CANDIDATES
from mdv.mdp.groups import CompiledGroup, Groups


@dataclass(frozen=True, slots=True)
class Candidates:
    """By predicate, which resources of some documents satisfy it for some rule, as far as these documents say; with the
    last atomic rule and the schema of that moment. There may be some more, but none is missing."""

    last_atomic_rule: int
    schema_version: int
    uris: Mapping[int, Collection[str]]

    def numbers(self, state: State, numbers: Mapping[str, int]) -> dict[int, set[int]] | None:
        """The candidates by their numbers; None where there have come other rules, or another schema."""
        if (self.last_atomic_rule, self.schema_version) != (state.last_atomic_rule, state.schema_version):
            return None
        return {predicate: {numbers[uri] for uri in mine if uri in numbers} for predicate, mine in self.uris.items()}


def filter_changes(
    exchange: Exchange, groups: Groups, change: Change, candidates: Mapping[int, Set[int]] | None = None
) -> Callable[[], set[int]]:
    """Run the filter on a change that has been stored, when the exchange is sent; the resources that came to match some
    rule, to be asked for after that. `candidates`: by predicate, the only new resources that satisfy it.

    What it found stands in `result_objects` and `result_ranges` until the next run.
    """
    if not groups.groups:
        return set
    concerned = groups.concerned(chain(change.gains, change.losses))
    if candidates is not None:
        concerned = _without_hopeless(groups, concerned, candidates, change.known)
    asked = sum(len(node) for sets in concerned.values() for node in sets)
    CANDIDATES.observe(asked / max(1, len(change.described)))
    steps = [
        (groups.groups[index].statement, parameters(groups.groups[index], sets, change.position, change.known))
        for index, sets in concerned.items()
    ]
    return db.run(exchange, steps)


def _without_hopeless(
    groups: Groups, concerned: Mapping[int, list[set[int]]], candidates: Mapping[int, Set[int]], known: int
) -> dict[int, list[set[int]]]:
    """Only the changes that can make a difference. A new resource that does not satisfy what is asked of it at a node
    is part of no match there, and was part of none."""
    left = {}
    for index, sets in concerned.items():
        group = groups.groups[index].group
        if not group.pattern.is_range:
            for leaf, predicate in zip(group.pattern.leaves, group.predicates, strict=True):
                if (mine := candidates.get(predicate)) is not None:
                    sets[leaf.node] = {number for number in sets[leaf.node] if number <= known or number in mine}
        if any(sets):
            left[index] = sets
    return left


def count_matched(connection: Connection, matched: Set[int], change: Change) -> dict[str, int]:
    """How many resources came to match through each document."""
    if not matched:
        return dict.fromkeys(change.described, 0)
    if len(change.described) == 1:
        return dict.fromkeys(change.described, len(matched))
    return {uri: len(mine) for uri, mine in concerned_by(connection, matched, change.described).items()}


def concerned_by(
    connection: Connection, resources: Set[int], described: Mapping[str, Collection[int]]
) -> dict[str, set[int]]:
    """Which of some resources changed through each document: those that it speaks of, and what refers to those."""
    found = {uri: {number for number in mine if number in resources} for uri, mine in described.items()}
    spoken_of = set().union(*described.values())
    referring: dict[int, set[int]] = defaultdict(set)
    if foreign := resources - spoken_of:
        for resource, target in db.find_referring(connection, foreign, spoken_of):
            referring[target].add(resource)
    if referring:
        for uri, mine in described.items():
            found[uri].update(*(referring[target] for target in mine if target in referring))
    return found


def parameters(
    compiled: CompiledGroup, changed: Iterable[Iterable[int]], position: int, known: int, first_rule: int = 0
) -> dict[str, Any]:
    """The parameters of a group's statement."""
    nodes = {f"node{node}": array_field(numbers) for node, numbers in enumerate(changed)}
    return {**nodes, "position": position, "known": known, "first_rule": first_rule}


def read_changes(connection: Connection) -> list[tuple[int, str, bool]]:
    """What the last run changed: end rule, resource, and whether it matches now."""
    return db.read_changes(connection)
