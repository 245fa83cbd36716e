"""Evaluate: all that rules match on what is stored, where no change leads to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import Connection

from mdv.db import filter as db
from mdv.db.exchange import Exchange
from mdv.db.state import State
from mdv.mdp.filter import parameters
from mdv.mdp.groups import TABLES, CompiledGroup, Groups, instances, states
from mdv.query.compile import all_matches, all_reached

FEW = 20
"""Rules of one group are evaluated one by one up to so many, and by all resources of the group's class beyond."""


class End(Protocol):
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
    ends: Iterable[End],
    state: State,
    first_new: int | None = None,
    exchange: Exchange | None = None,
) -> None:
    """Keep all that these end rules match in `result_objects`, or (ranges, if many) in `result_ranges`.

    With `first_new`, all end rules from that one on are among them; so many are evaluated without the older ones. What
    is kept may otherwise tell of other end rules of the same groups, too. `exchange`: where few are asked in, the time
    that statements may take being limited until then.
    """
    by_group: dict[int, list[End]] = defaultdict(list)
    for end in ends:
        by_group[end.group_id].append(end)
    alone: list[End] = []
    for group_id, mine in by_group.items():
        if len(mine) > FEW:
            first = min(end.rule_id for end in mine) if first_new is None else first_new
            if exchange is not None:
                exchange.send()  # the rules themselves may be in it
            evaluate_whole_group(connection, groups, group_id, first, state)
            mine = [end for end in mine if end.rule_id < first]
        alone += mine
    asked = exchange or Exchange(connection)
    for left, end in zip(range(len(alone) - 1, -1, -1), alone, strict=True):
        statement = groups.by_id[end.group_id].first_results
        db.evaluate_into(asked, statement, {**end.values, "end": end.rule_id}, exchange is not None and left == 0)
    if exchange is None:
        asked.send()
    elif not alone:
        db.unlimit(exchange)


def evaluate_whole_group(connection: Connection, groups: Groups, group_id: int, first_rule: int, state: State) -> None:
    """A great many rules of a group: by all resources that they could register, as if all of those had changed."""
    compiled = groups.by_id[group_id]
    roots = instances(connection, groups.names, compiled.group.pattern.nodes[0])
    nothing: Sequence[Sequence[int]] = [[] for _ in range(compiled.nodes - 1)]
    # Nothing is known from before: a rule that is new had no results.
    values = parameters(compiled, [roots, *nothing], state.position, 0, first_rule)
    with db.pinned(connection):
        db.keep(connection, compiled.statement, values)


def full_results(connection: Connection, groups: Groups, some: Iterable[CompiledGroup]) -> db.Results:
    """What the rules of some groups match now: pairs of end rule and resource, or how far values reach."""
    results = db.Results()
    now, _, _ = states(groups.names)
    for compiled in some:
        group = compiled.group
        roots = instances(connection, groups.names, group.pattern.nodes[0])
        if group.pattern.is_range:
            rows = db.evaluate(connection, db.compiled(all_reached(now, group.pattern)), {"roots": roots})
            results.reached[group.group_id] = {number: (low, high) for number, low, high in rows}
        else:
            rows = db.evaluate(connection, db.compiled(all_matches(now, TABLES, group)), {"roots": roots})
            results.pairs.update((rule, number) for rule, number in rows)
    return results
