"""Termination: whether the rules on a cycle of the triggering graph can trigger each other for ever.

RDFTL creates no new nodes or values, except by `seq++` and CALL. So a cycle ends if all changes that keep it going are
insertions that no rule undoes, or deletions that no rule undoes. Rules that are reachable from any cycle can undo them
again and again; other rules run only a limited number of times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from mdv.rdftl.cells import CellAccess, may_coincide
from mdv.rdftl.effects import EffectConflict, write_verb
from mdv.rdftl.footprint import CellWrite
from mdv.rdftl.model import ChangeKind
from mdv.rdftl.triggering import Cycle, TriggeringGraph, may_generate


class Termination(Enum):
    """Whether the rules of a cycle end."""

    TERMINATES = "terminates"
    MAY_NOT_TERMINATE = "may not terminate"


@dataclass(frozen=True, slots=True)
class _Drive:
    """A write of a unit on a cycle that may trigger a unit on the same cycle. `node_event`: by a node event."""

    unit: int
    write: CellWrite
    node_event: CellAccess | None


def cycle_conflict(graph: TriggeringGraph, cycle: Cycle) -> EffectConflict | None:
    """Return why the cycle may not end; None if it ends.

    The first access is the write that keeps the cycle going. The second is the same if it can be repeated for ever by
    itself (UPDATE, `seq++`, CALL), or else the write that undoes it.
    """
    undoing = [(number, write) for number in sorted(_repeated(graph)) for write in graph.units[number].footprint.writes]
    for drive in _drives(graph, cycle):
        verb = write_verb(drive.write)
        if drive.write.kind is ChangeKind.UPDATE or drive.write.numbered or drive.write.computed:
            return EffectConflict(drive.unit, verb, drive.write.access, drive.unit, verb, drive.write.access)
        for number, write in undoing:
            if write.kind is not drive.write.kind and _undoes(write, drive):
                return EffectConflict(drive.unit, verb, drive.write.access, number, write_verb(write), write.access)
    return None


def _repeated(graph: TriggeringGraph) -> frozenset[int]:
    return frozenset(unit for cycle in graph.cycles() for unit in graph.reachable(frozenset(cycle.units)))


def _drives(graph: TriggeringGraph, cycle: Cycle) -> Iterator[_Drive]:
    watching = [graph.units[number].footprint for number in cycle.units]
    for number in cycle.units:
        for write in dict.fromkeys(graph.units[number].footprint.writes):
            for watched in watching:
                if may_generate(write, watched, graph.mode):
                    yield _Drive(number, write, watched.event[0] if watched.node_event else None)


def _undoes(write: CellWrite, drive: _Drive) -> bool:
    # A node can be deleted and inserted again by changes of other properties than the one that inserted it.
    return may_coincide(write.access, drive.write.access) or (
        drive.node_event is not None and may_coincide(write.access, drive.node_event)
    )
