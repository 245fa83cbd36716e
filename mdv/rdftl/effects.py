"""The effects of actions and of all rules that they trigger, and the conflicts between two effects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from mdv.rdf.schema import Schema
from mdv.rdftl.cells import CellAccess, cells_meet, may_coincide
from mdv.rdftl.footprint import ActionFootprint, CellWrite, Footprint
from mdv.rdftl.model import ChangeKind
from mdv.rdftl.triggering import TriggeringGraph

MAX_CONSTANT_ACCESSES = 200
"""Accesses of one kind in an effect that are compared with their constants. Constants of larger effects are ignored."""

_VERBS = {ChangeKind.INSERT: "inserts", ChangeKind.DELETE: "deletes", ChangeKind.UPDATE: "updates"}


@dataclass(frozen=True, slots=True)
class EffectWatch:
    """An event that a triggered rule watches."""

    kind: ChangeKind
    access: CellAccess
    node_event: bool


@dataclass(frozen=True, slots=True)
class EffectConflict:
    """Two accesses whose order can matter. `first_unit`, `second_unit`: the units that do them."""

    first_unit: int
    first_does: str
    first: CellAccess
    second_unit: int
    second_does: str
    second: CellAccess

    def swapped(self) -> EffectConflict:
        """Return the same conflict with the second access first."""
        return EffectConflict(
            self.second_unit, self.second_does, self.second, self.first_unit, self.first_does, self.first
        )

    def show_cell(self, schema: Schema) -> str:
        """Return the cell with short names; the more specific one of both."""
        cell = self.second.cell if self.first.cell.property is None else self.first.cell
        return cell.show(schema)


@dataclass(frozen=True)
class Effect:
    """The reads, writes and watched events of actions or rules, each with the unit that it belongs to.

    `paper_reads`: the reads that the paper counts. For triggered rules they include the event.
    """

    paper_reads: dict[CellAccess, int]
    reads: dict[CellAccess, int]
    writes: dict[CellWrite, int]
    watches: dict[EffectWatch, int]

    @cached_property
    def _written(self) -> frozenset[str | None]:
        return frozenset(write.access.cell.property for write in self.writes)

    @cached_property
    def _touched(self) -> frozenset[str | None]:
        watched = {watch.access.cell.property for watch in self.watches}
        return self._written | watched | {read.cell.property for read in self.reads}

    def is_apart(self, other: Effect) -> bool:
        """True if neither writes a property that the other uses."""
        return _disjoint(self._written, other._touched) and _disjoint(other._written, self._touched)


def _disjoint(some: frozenset[str | None], others: frozenset[str | None]) -> bool:
    if not some or not others:
        return True
    return None not in some and None not in others and some.isdisjoint(others)


def action_effect(action: ActionFootprint, unit: int) -> Effect:
    """Return the effect of an action itself."""
    reads = dict.fromkeys((*action.reads, *action.state_reads), unit)
    return Effect(dict.fromkeys(action.reads, unit), reads, dict.fromkeys(action.writes, unit), {})


def direct_effect(footprint: Footprint, unit: int) -> Effect:
    """Return the effect of all actions of a rule, without the rules that they trigger."""
    return _union(action_effect(action, unit) for action in footprint.actions)


def cascade_effect(graph: TriggeringGraph, units: Iterable[int]) -> Effect:
    """Return the effect of triggered units: their events, conditions and actions."""
    return _union(effect for number in sorted(units) for effect in _triggered_effects(graph, number))


def _triggered_effects(graph: TriggeringGraph, number: int) -> Iterator[Effect]:
    found = graph.units[number].footprint
    watches = dict.fromkeys((EffectWatch(found.event_kind, access, found.node_event) for access in found.event), number)
    condition = dict.fromkeys((*found.reads, *found.state_reads), number)
    yield Effect(dict.fromkeys((*found.event, *found.reads), number), condition, {}, watches)
    yield direct_effect(found, number)


def _union(effects: Iterable[Effect]) -> Effect:
    paper_reads: dict[CellAccess, int] = {}
    reads: dict[CellAccess, int] = {}
    writes: dict[CellWrite, int] = {}
    watches: dict[EffectWatch, int] = {}
    for effect in effects:
        paper_reads = effect.paper_reads | paper_reads
        reads = effect.reads | reads
        writes = effect.writes | writes
        watches = effect.watches | watches
    if len(reads) > MAX_CONSTANT_ACCESSES:
        reads = {read.without_constants(): unit for read, unit in reads.items()}
    if len(writes) > MAX_CONSTANT_ACCESSES:
        writes = {write.without_constants(): unit for write, unit in writes.items()}
    return Effect(paper_reads, reads, writes, watches)


# Conflicts as in the paper


def paper_access_conflict(one: Effect, other: Effect) -> EffectConflict | None:
    """Return a cell that both access; None if there is none (C1)."""
    for first, first_unit, first_does in _paper_accesses(one):
        for second, second_unit, second_does in _paper_accesses(other):
            if cells_meet(first.cell, second.cell):
                return EffectConflict(first_unit, first_does, first, second_unit, second_does, second)
    return None


def _paper_accesses(effect: Effect) -> Iterator[tuple[CellAccess, int, str]]:
    for write, unit in effect.writes.items():
        yield write.access, unit, write_verb(write)
    for read, unit in effect.paper_reads.items():
        yield read, unit, "reads"


def paper_independence_conflict(one: Effect, other: Effect) -> EffectConflict | None:
    """Return a cell that one queries and the other updates; None if there is none (I2, C2)."""
    found = _paper_read_conflict(one, other)
    if found is None and one is not other:
        back = _paper_read_conflict(other, one)
        return back.swapped() if back else None
    return found


def _paper_read_conflict(one: Effect, other: Effect) -> EffectConflict | None:
    for read, unit in one.paper_reads.items():
        for write, writer in other.writes.items():
            if cells_meet(read.cell, write.access.cell):
                return EffectConflict(unit, "reads", read, writer, write_verb(write), write.access)
    return None


# Conflicts of strict mode


def strict_conflict(one: Effect, other: Effect, direct: bool, distinct: bool = False) -> EffectConflict | None:
    """Return two accesses of different effects whose order can matter; None if the effects commute.

    `direct`: both are effects of actions themselves, which run exactly once. `distinct`: the effects are of two copies
    of a rule with different nodes as `$delta`.
    """
    if one.is_apart(other):
        return None
    found = _write_conflict(one, other, direct, distinct) or _read_conflict(one, other, distinct)
    if found is None:
        back = _read_conflict(other, one, distinct)
        found = back.swapped() if back else None
    return found


def _write_conflict(one: Effect, other: Effect, direct: bool, distinct: bool) -> EffectConflict | None:
    for first, first_unit in one.writes.items():
        for second, second_unit in other.writes.items():
            if _writes_meet(first, second, distinct) and not writes_commute(first, second, direct):
                verbs = write_verb(first), write_verb(second)
                return EffectConflict(first_unit, verbs[0], first.access, second_unit, verbs[1], second.access)
    return None


def _writes_meet(one: CellWrite, other: CellWrite, distinct: bool) -> bool:
    """True if the writes can be of the same arc, or if one inserts a value of a property that can have only one value.

    Then it is refused or not, depending on the value that the other leaves.
    """
    if any(write.kind is ChangeKind.INSERT and not write.set_valued for write in (one, other)):
        return may_coincide(replace(one.access, target=None), replace(other.access, target=None), distinct)
    return may_coincide(one.access, other.access, distinct)


def _read_conflict(one: Effect, other: Effect, distinct: bool) -> EffectConflict | None:
    for write, writer in other.writes.items():
        for read, unit in one.reads.items():
            if may_coincide(read, write.access, distinct):
                return EffectConflict(unit, "reads", read, writer, write_verb(write), write.access)
        for watch, unit in one.watches.items():
            # Changes of the same kind raise the same events in either order, or one event at the last of them.
            if watch.kind is not write.kind and may_coincide(watch.access, write.access):
                return EffectConflict(unit, "watches", watch.access, writer, write_verb(write), write.access)
    return None


def writes_commute(one: CellWrite, other: CellWrite, direct: bool) -> bool:
    """True if two writes of the same arcs have the same result in either order.

    `seq++` on bags commutes up to the order of the members. By triggered rules, it can run once in one order and twice
    in the other.
    """
    if one.kind is not other.kind or one.kind is ChangeKind.UPDATE:
        return False
    if one.kind is ChangeKind.DELETE:
        return True
    if one.numbered or other.numbered:
        return direct and all(write.numbered and write.unordered for write in (one, other))
    return (one.set_valued and other.set_valued) or (one.inserted is not None and one.inserted == other.inserted)


def numbered_event_conflict(one: Effect, other: Effect, triggered: Effect) -> EffectConflict | None:
    """Return two uses of `seq++` on the same collection where a triggered rule watches the numbers of its members."""
    for first, first_unit in one.writes.items():
        for second in other.writes:
            if not (first.numbered and second.numbered and may_coincide(first.access, second.access)):
                continue
            for watch, unit in triggered.watches.items():
                if not watch.node_event and may_coincide(watch.access, first.access):
                    return EffectConflict(
                        first_unit, write_verb(first), first.access, unit, "watches the numbers of", watch.access
                    )
    return None


def write_verb(write: CellWrite) -> str:
    """Return the verb that describes the write."""
    return "appends to" if write.numbered else _VERBS[write.kind]
