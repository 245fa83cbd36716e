"""The triggering graph: which rules may trigger which others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from mdv.rdf.schema import Schema
from mdv.rdftl.cells import CellAccess, cells_meet, may_coincide
from mdv.rdftl.footprint import CellWrite, Footprint, action_footprint, footprint
from mdv.rdftl.model import Action, ChangeKind, EcaRule, Event
from mdv.rdftl.rule_index import RuleIndex, RuleUnit


class AnalysisMode(Enum):
    """How cells are compared: as in the paper, or so that no dependency is missed."""

    PAPER = "paper"
    STRICT = "strict"


def accesses_meet(one: CellAccess, other: CellAccess, mode: AnalysisMode) -> bool:
    """True if both accesses can be to the same arc, as the mode decides it."""
    return cells_meet(one.cell, other.cell) if mode is AnalysisMode.PAPER else may_coincide(one, other)


def may_generate(write: CellWrite, watched: Footprint, mode: AnalysisMode) -> bool:
    """True if the write may be an event that triggers the rule with the footprint `watched`."""
    if write.kind is not watched.event_kind and not write.inexact:
        return False
    return any(accesses_meet(write.access, access, mode) for access in watched.event)


def may_trigger(first: EcaRule, second: EcaRule, schema: Schema, mode: AnalysisMode = AnalysisMode.STRICT) -> bool:
    """True if some action of the first rule may generate an event that triggers the second."""
    watched = footprint(second, schema)
    return any(may_generate(write, watched, mode) for write in footprint(first, schema).writes)


def triggered(
    action: Action,
    rules: Mapping[str, EcaRule] | RuleIndex,
    schema: Schema,
    mode: AnalysisMode = AnalysisMode.STRICT,
    event: Event | None = None,
) -> frozenset[str]:
    """Return the ids of the rules that the action may trigger, directly or through other rules.

    `event`: the event of the action's rule, for `$delta`.
    """
    index = rules if isinstance(rules, RuleIndex) else RuleIndex(schema, rules)
    graph = TriggeringGraph(index.units(), mode)
    found = graph.reachable(graph.triggered_by(action_footprint(action, schema, event).writes))
    return frozenset(id_ for number in found for id_ in graph.units[number].rules)


@dataclass(frozen=True, slots=True)
class Cycle:
    """Units that may trigger each other, or one that may trigger itself. `units`: their numbers, ascending."""

    units: tuple[int, ...]


class TriggeringGraph:
    """The units of an analysis, and for each the numbers of the units that it may trigger."""

    def __init__(self, units: Sequence[RuleUnit], mode: AnalysisMode) -> None:
        self.units, self.mode = tuple(units), mode
        self._watching: dict[tuple[ChangeKind, str | None], set[int]] = defaultdict(set)
        for number, unit in enumerate(self.units):
            for access in unit.footprint.event:
                self._watching[unit.footprint.event_kind, access.cell.property].add(number)
        self.successors = tuple(self.triggered_by(unit.footprint.writes) for unit in self.units)
        self._reachable: dict[frozenset[int], frozenset[int]] = {}

    def triggered_by(self, writes: Iterable[CellWrite]) -> frozenset[int]:
        """Return the units that one of the writes may trigger directly."""
        found: set[int] = set()
        for write in writes:
            for number in self._candidates(write) - found:
                if may_generate(write, self.units[number].footprint, self.mode):
                    found.add(number)
        return frozenset(found)

    def _candidates(self, write: CellWrite) -> set[int]:
        property_ = write.access.cell.property
        if property_ is None or write.inexact:
            return set(range(len(self.units)))
        return self._watching.get((write.kind, property_), set()) | self._watching.get((write.kind, None), set())

    def reachable(self, start: frozenset[int]) -> frozenset[int]:
        """Return the units of `start` and all that they may trigger, directly or through other units."""
        known = self._reachable.get(start)
        if known is None:
            seen, todo = set(start), list(start)
            while todo:
                for number in self.successors[todo.pop()]:
                    if number not in seen:
                        seen.add(number)
                        todo.append(number)
            self._reachable[start] = known = frozenset(seen)
        return known

    def cascade(self, number: int) -> frozenset[int]:
        """Return the units that the unit may trigger, directly or through other units."""
        return self.reachable(self.successors[number])

    def cycles(self) -> tuple[Cycle, ...]:
        """Return the cycles: the strongly connected components with at least one edge, by their first unit."""
        found: list[Cycle] = []
        done: set[int] = set()
        for number in range(len(self.units)):
            if number not in done and number in self.cascade(number):
                members = tuple(other for other in sorted(self.cascade(number)) if number in self.cascade(other))
                done.update(members)
                found.append(Cycle(members))
        return tuple(found)
