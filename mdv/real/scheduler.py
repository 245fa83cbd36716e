"""A slice: one stretch of a process, whose changes the host commits as one transaction.

The host takes a view at a base position P, runs a slice, and commits it if nothing that the slice has read changed
after P. Otherwise it runs the slice again from the same checkpoint. The functions here do no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from mdv.model import Term
from mdv.rdf.values import ValueKind
from mdv.real.events import MachineEvent, ProgramEnded, ProgramFailed, ServiceCalled, SolutionFound, WaitingFor
from mdv.real.machine import Machine
from mdv.real.overlay import SpawnedProcess, StopRequest
from mdv.real.store import ScopedRead, StatementChange, StoreView
from mdv.real.waits import change_matches
from mdv.rules.ast import Span


class ProcessState(Enum):
    """The state of a process after a slice."""

    READY = "ready"
    WAITING = "waiting"
    CALLING = "calling"
    FULL = "full"
    """Its solutions must be read before it goes on."""
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SliceBudget:
    """When a slice ends at the latest. `is_over`: asked between stretches of `steps_between` steps, for time limits."""

    steps: int = 1_000_000
    effects: int = 1000
    solutions: int = 1000
    steps_between: int = 500
    is_over: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class SliceResult:
    """What a slice did. The changes are not committed yet."""

    state: ProcessState
    event: MachineEvent
    position: int
    changes: tuple[StatementChange, ...]
    spawned: tuple[SpawnedProcess, ...]
    stopped: tuple[StopRequest, ...]
    solutions: tuple[Mapping[str, Term], ...]
    reads: Mapping[ScopedRead, int]
    warnings: tuple[tuple[str, Span], ...] = ()
    log: tuple[Term, ...] = field(default=())


def run_slice(machine: Machine, view: StoreView, budget: SliceBudget | None = None) -> SliceResult:
    """Run a machine until its budget, a WAIT, a service or the end. `machine.end_slice()` follows the commit."""
    budget = budget or SliceBudget()
    solutions: list[Mapping[str, Term]] = []
    first_step, first_effect = machine.steps, machine.effects
    while True:
        event = machine.run(view, budget.steps_between)
        match event:
            case SolutionFound(binding):
                solutions.append(binding)
                if len(solutions) < budget.solutions:
                    continue
                state = ProcessState.FULL
            case WaitingFor():
                state = ProcessState.WAITING
            case ServiceCalled():
                state = ProcessState.CALLING
            case ProgramEnded():
                state = ProcessState.DONE
            case ProgramFailed():
                state = ProcessState.FAILED
            case _:
                state = ProcessState.READY
                used = machine.steps - first_step >= budget.steps or machine.effects - first_effect >= budget.effects
                if not used and not budget.is_over():
                    continue
        root = machine.root
        return SliceResult(
            state,
            event,
            view.position,
            tuple(StatementChange(*change) for change in root.all_changes()),
            tuple(root.spawned),
            tuple(root.stopped),
            tuple(solutions),
            dict(machine.reads),
            tuple(machine.warnings),
            tuple(machine.log),
        )


RangeKind = Callable[[str], ValueKind]


def find_conflict(
    reads: Iterable[ScopedRead], changes: Sequence[StatementChange], range_kind: RangeKind
) -> ScopedRead | None:
    """Return a read whose result the changes may have changed, or None. A slice without a conflict can be committed."""
    by_property: dict[str, list[tuple[StatementChange, ValueKind]]] = {}
    for change in changes:
        name = change.statement.property
        by_property.setdefault(name, []).append((change, range_kind(name)))
    every = [one for found in by_property.values() for one in found]
    for read in reads:
        name_read = read.pattern.property
        for change, kind in every if name_read is None else by_property.get(name_read, ()):
            if change_matches(read, change, kind):
                return read
    return None


def refresh_segment(
    machine: Machine, view: StoreView, changes_after: Callable[[int], Sequence[StatementChange]]
) -> bool:
    """Prepare a machine for a slice at a later position. Return False if an open `[ ]` has to begin its segment again.

    What the segment read in earlier slices must still hold, since its effects are not committed yet.
    """
    segment = machine.segment
    if segment is None:
        return True
    for position in sorted(set(segment.reads.values())):
        reads = [read for read, at in segment.reads.items() if at == position]
        if position < view.position and find_conflict(reads, changes_after(position), view.range_kind) is not None:
            machine.restart_segment()
            return False
    segment.reads = dict.fromkeys(segment.reads, view.position)
    return True
