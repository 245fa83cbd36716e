"""Processes that run at the same time over one store in memory. The schedule follows from a seed.

A slice runs on a view of the store and is committed later, between the slices of others. Processes are kept as JSON
between slices, as in production.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from mdv.model import RDF_TYPE, Statement, Term
from mdv.real.checkpoint import read_checkpoint, write_checkpoint
from mdv.real.compile_code import Code, compile_program
from mdv.real.events import MachineSettings, ProgramFailed, WaitingFor
from mdv.real.machine import Machine
from mdv.real.memory import MemoryStore
from mdv.real.resolve import read_program
from mdv.real.scheduler import ProcessState, SliceBudget, SliceResult, find_conflict, refresh_segment, run_slice
from mdv.real.store import StatementChange
from mdv.real.vocabulary import LRM
from mdv.real.waits import WaitEntry, change_keys, choose_woken, wait_keys
from tests.support.real_programs import PREFIXES

MAX_ATTEMPTS = 3


@dataclass
class SimulatedProcess:
    """A process, as its row would be."""

    iri: str
    code: Code
    settings: MachineSettings
    checkpoint: str
    state: ProcessState = ProcessState.READY
    solutions: list[Mapping[str, Term]] = field(default_factory=list)
    wait: WaitEntry | None = None
    deadline: float | None = None
    attempts: int = 0
    problem: str | None = None
    limit: str | None = None
    running: tuple[Machine, SliceResult] | None = None
    woken_as_taker: bool = False


class Simulation:
    """Runs processes until none can go on. `MAX_ATTEMPTS` conflicts make a slice run alone."""

    def __init__(
        self, store: MemoryStore, seed: int, max_processes: int = 1000, slice_steps: int | None = None
    ) -> None:
        self.store, self.random = store, Random(seed)
        self.processes: dict[str, SimulatedProcess] = {}
        self.max_processes = max_processes
        self.slice_steps = slice_steps
        self.commits = self.conflicts = self.numbers = 0

    def start(self, text: str, binding: Mapping[str, Term] | None = None, iri: str | None = None) -> SimulatedProcess:
        """Start a program as a process."""
        self.numbers += 1
        iri = iri or f"urn:mdv:real:process/{self.numbers}"
        settings = MachineSettings(process=iri, seed=f"s{self.numbers}")
        code = compile_program(read_program(text, PREFIXES), text)
        checkpoint = json.dumps(write_checkpoint(Machine(code, settings, binding)))
        process = self.processes[iri] = SimulatedProcess(iri, code, settings, checkpoint)
        self.store.active.add(iri)
        return process

    def run(self, most: int = 10_000) -> None:
        """Run until every process has ended or waits for ever."""
        for _ in range(most):
            able = [one for one in self.processes.values() if one.running or one.state is ProcessState.READY]
            if able:
                self.step(self.random.choice(able))
            elif not self.advance_clock():
                return
        raise AssertionError(f"the simulation does not end: {[one.state for one in self.processes.values()]}")

    def step(self, process: SimulatedProcess) -> None:
        """Begin or commit a slice of a process."""
        if process.running is None:
            self.begin(process)
            if process.attempts < MAX_ATTEMPTS:
                return  # others may run before it commits
        self.commit(process)

    def begin(self, process: SimulatedProcess) -> None:
        view = self.store.view()
        machine = read_checkpoint(json.loads(process.checkpoint), process.code, process.settings)
        refresh_segment(machine, view, self.store.changes_after)
        steps = self.slice_steps or self.random.choice((3, 20, 1000))
        budget = SliceBudget(steps=steps, steps_between=min(steps, 50), effects=50, solutions=50)
        process.running = machine, run_slice(machine, view, budget)

    def commit(self, process: SimulatedProcess) -> None:
        assert process.running is not None
        machine, result = process.running
        process.running = None
        since = self.store.changes_after(result.position)
        if find_conflict(result.reads, since, self.store.range_kind) is not None:
            self.conflicts += 1
            process.attempts += 1
            return
        before = self.store.position
        self.store.commit(result.changes)
        self.commits += 1
        process.attempts, process.woken_as_taker = 0, False
        process.solutions += result.solutions
        machine.end_slice()
        state: dict[str, Any] = write_checkpoint(machine)
        process.checkpoint = json.dumps(state)
        process.state = ProcessState.READY if result.state is ProcessState.FULL else result.state
        if isinstance(result.event, WaitingFor):
            event = result.event
            process.wait = WaitEntry(process.iri, event.reads, event.takes, self.commits)
            process.deadline = event.deadline
        elif isinstance(result.event, ProgramFailed):
            process.problem, process.limit = result.event.message, result.event.limit
        self.wake(self.store.changes_after(before))
        for spawned in result.spawned:
            self.spawn(spawned.process, spawned.action, spawned.inputs, process)
        for request in result.stopped:
            self.stop(request.process, request.message)
        if process.state in (ProcessState.DONE, ProcessState.FAILED):
            self.store.active.discard(process.iri)

    def wake(self, changes: Sequence[StatementChange]) -> None:
        keys = {key for change in changes for key in change_keys(change)}
        waiting = [one.wait for one in self.processes.values() if one.state is ProcessState.WAITING and one.wait]
        found = [entry for entry in waiting if any(key in keys for read in entry.reads for key in wait_keys(read))]
        for iri in choose_woken(found, changes, self.store.range_kind):
            process = self.processes[iri]
            assert process.wait is not None
            process.state, process.woken_as_taker = ProcessState.READY, process.wait.takes

    def spawn(self, iri: str, action: str, inputs: Sequence[Term], parent: SimulatedProcess) -> None:
        if len(self.processes) >= self.max_processes:
            parent.state, parent.problem = ProcessState.FAILED, "too many processes"
            parent.limit = "processes"
            return
        names = [f"i{number}" for number in range(len(inputs))]
        text = f"CALL <{action}>({', '.join('?' + name for name in names)})"
        self.start(text, dict(zip(names, inputs, strict=True)), iri)

    def stop(self, iri: str, message: Term | None) -> None:
        process = self.processes[iri]
        process.state, process.running = ProcessState.DONE, None
        self.store.active.discard(iri)
        if message is not None:
            stopped = StatementChange(iri, Statement(f"{iri}#stopped", LRM + "message", message), True)
            kind = StatementChange(iri, Statement(f"{iri}#stopped", RDF_TYPE, Term.uri(LRM + "ActivityStopped")), True)
            self.store.commit([kind, stopped])
        if process.woken_as_taker:  # pass its wake-up on
            for other in self.processes.values():
                if other.state is ProcessState.WAITING and other.wait is not None and other.wait.takes:
                    other.state = ProcessState.READY

    def advance_clock(self) -> bool:
        """Go on to the next deadline of a waiting process. Return False if there is none."""
        waiting = [one for one in self.processes.values() if one.state is ProcessState.WAITING]
        deadlines = [one.deadline for one in waiting if one.deadline is not None]
        if not deadlines:
            return False
        self.store.clock = max(self.store.clock, min(deadlines))
        for process in waiting:
            if process.deadline is not None and process.deadline <= self.store.clock:
                process.state = ProcessState.READY
        return True
