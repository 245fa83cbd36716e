"""Load: a system as its callers have it, over HTTP.

closed   each client sends its next document when the one before is answered
open     documents are sent at fixed times, whatever the answers; the time counts from when a document was due
queued   clients do not wait for the end of jobs, and send as fast as they are let

The load comes from one process and one thread, so that it takes as little as can be of the machine that it measures.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from mdv.bench.figures import ACCEPTED, DONE, TOO_MANY, PartUse, Run, Sample, Spread, mean_batch, visible_after
from mdv.bench.loaded import Change, Documents
from mdv.bench.processes import Use, look, memory_of, seconds_between
from mdv.bench.wire import Answer, Wire, WireError
from mdv.errors import Unavailable
from mdv.system import System

Say = Callable[[str], None]

WAIT = "Content-Type: application/rdf+xml\r\nPrefer: wait=60\r\n"
NO_WAIT = "Content-Type: application/rdf+xml\r\n"
WATCH_PAUSE = 0.02
"""How often an LMR is asked at most how far it is: what it answers is that much late at worst."""
LOOK_PAUSE = 2.0
"""How often the queue's length and the processes' memory are looked at."""
MOST_CONNECTIONS = 500
PATIENCE = 120.0
"""Seconds for what was accepted to be carried out, and to arrive at the LMRs."""


@dataclass(frozen=True, slots=True)
class Target:
    """The system that is loaded: its MDP, LMRs that run, and the processes above all of its own."""

    mdp: System
    lmrs: tuple[System, ...] = ()
    pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Pattern:
    """How it is loaded."""

    clients: int = 1
    rate: float | None = None
    queued: bool = False
    updates: float = 0.0
    seconds: float = 20.0
    warm_up: float = 3.0

    @property
    def name(self) -> str:
        if self.rate is not None:
            return f"open, {self.rate:g}/s"
        return f"{'queued' if self.queued else 'closed'}, {self.clients} client{'s' if self.clients > 1 else ''}"


def run_load(target: Target, documents: Documents, pattern: Pattern, say: Say) -> Run:
    """One run, and its figures."""
    return asyncio.run(Load(target, documents, pattern, lambda: documents.next(pattern.updates), say).run())


@dataclass
class Load:
    """One run of a load: what was sent, and what was seen meanwhile."""

    target: Target
    documents: Documents
    pattern: Pattern
    choose: Callable[[], Change]
    say: Say
    samples: list[Sample] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    memory: list[dict[str, float]] = field(default_factory=list)
    busy: dict[str, float] = field(default_factory=dict)

    async def run(self) -> Run:
        seen: list[list[tuple[float, int]]] = [[] for _ in self.target.lmrs]
        watchers = [self._watch(lmr, found) for lmr, found in zip(self.target.lmrs, seen, strict=True)]
        async with meanwhile(*watchers, self._look()):
            began = time.perf_counter() + self.pattern.warm_up
            await self._send(began, began + self.pattern.seconds)
            await self._until_done(seen)
            done = time.perf_counter()
        return self._figures(began, done, seen)

    # Sending

    async def _send(self, began: float, ends: float) -> None:
        if self.pattern.rate is not None:
            sending = self.send_at_fixed_times(self.pattern.rate, began - self.pattern.warm_up, ends)
        else:
            sending = _all_of(self._send_one_by_one(ends) for _ in range(self.pattern.clients))
        async with meanwhile(self._clock(began, ends)):
            await sending

    async def _send_one_by_one(self, ends: float) -> None:
        wire = self._wire()
        while (now := time.perf_counter()) < ends:
            pause = await self.send(wire, self.choose(), now)
            await asyncio.sleep(pause)
        wire.close()

    async def send_at_fixed_times(self, rate: float, begins: float, ends: float) -> None:
        """Send at that rate, and wait for the last answer."""
        idle = [self._wire()]
        free = asyncio.Semaphore(MOST_CONNECTIONS)

        async def send(planned: float) -> None:
            async with free:
                wire = idle.pop() if idle else self._wire()
                await self.send(wire, self.choose(), planned)
                idle.append(wire)

        async with asyncio.TaskGroup() as group:
            for number in range(round(rate * (ends - begins))):
                planned = begins + number / rate
                await asyncio.sleep(max(0.0, planned - time.perf_counter()))
                group.create_task(send(planned))
        for wire in idle:
            wire.close()

    async def send(self, wire: Wire, change: Change, planned: float) -> float:
        """Send a change and note what came of it; the seconds to wait before the next."""
        try:
            headers = NO_WAIT if self.pattern.queued else WAIT
            answer = await wire.ask(change.method, change.path, change.body, headers)
            position = answer.json().get("position") if answer.status in (200, 201) else None
        except WireError as error:
            self.documents.lost(change)
            self._note(planned, str(error))
            return 0.1
        if answer.status in (200, 201, 202):
            self.documents.done(change)
            self._note(planned, ACCEPTED if answer.status == 202 else DONE, position)
            return 0.0
        if answer.status == 429:
            self.documents.refused(change)
            self._note(planned, TOO_MANY)
            return answer.pause
        self.documents.lost(change)
        self._note(planned, str(answer.status))
        return 0.1

    def _note(self, planned: float, outcome: str, position: int | None = None) -> None:
        self.samples.append(Sample(planned, time.perf_counter(), outcome, position))

    def _wire(self) -> Wire:
        return Wire(self.target.mdp.url, self.target.mdp.token)

    # Watching

    async def _watch(self, lmr: System, seen: list[tuple[float, int]]) -> None:
        """Note when an LMR came to which position, from its figures: asking for a position would urge it."""
        wire, position = Wire(lmr.url, lmr.token), -1
        while True:
            with suppress(WireError):
                now = figure(await wire.ask("GET", "/metrics"), _POSITION)
                if now > position:
                    position = now
                    seen.append((time.perf_counter(), position))
            await asyncio.sleep(WATCH_PAUSE)

    async def _look(self) -> None:
        """Note how many jobs wait and how much memory is used, and say how far it is."""
        while True:
            with suppress(WireError):
                self.waiting.append(await jobs_waiting(self._wire()))
            uses = await asyncio.to_thread(look, self.target.pids)
            self.memory.append(memory_of(uses))
            answered = sum(sample.outcome in (DONE, ACCEPTED) for sample in self.samples)
            waiting = self.waiting[-1] if self.waiting else "?"
            self.say(f"  {self.pattern.name}: {answered:,} documents, {waiting} jobs waiting")
            await asyncio.sleep(LOOK_PAUSE)

    async def _clock(self, began: float, ends: float) -> None:
        """The processor time of the run without its warm-up."""
        await asyncio.sleep(max(0.0, began - time.perf_counter()))
        before, at = await asyncio.to_thread(look, self.target.pids), time.perf_counter()
        try:
            await asyncio.sleep(max(0.0, ends - time.perf_counter()))
        finally:
            self.busy = _shares(before, look(self.target.pids), time.perf_counter() - at)

    async def _until_done(self, seen: list[list[tuple[float, int]]]) -> None:
        """Wait until all that was accepted is carried out, and what has a position is at the LMRs."""
        last = max((sample.position for sample in self.samples if sample.position is not None), default=0)
        wire, deadline = self._wire(), time.perf_counter() + PATIENCE
        while await jobs_waiting(wire) or any(not found or found[-1][1] < last for found in seen):
            if time.perf_counter() > deadline:
                raise Unavailable(f"What was accepted was not carried out, or not at the LMRs, within {PATIENCE:g} s.")
            await asyncio.sleep(0.05)
        wire.close()

    # Figures

    def _figures(self, began: float, done: float, seen: list[list[tuple[float, int]]]) -> Run:
        pattern = self.pattern
        ends = began + pattern.seconds
        counted = [sample for sample in self.samples if sample.planned >= began]
        good = [sample for sample in counted if sample.outcome in (DONE, ACCEPTED)]
        if pattern.queued:
            first = min((sample.planned for sample in self.samples), default=began)
            documents, seconds = sum(sample.outcome in (DONE, ACCEPTED) for sample in self.samples), done - first
        else:
            answered = [sample.answered for sample in self.samples if sample.outcome == DONE]
            documents, seconds = sum(began <= at < ends for at in answered), pattern.seconds
        memory = {part: [moment.get(part, 0.0) for moment in self.memory] for part in self.busy}
        return Run(
            name=pattern.name,
            clients=pattern.clients,
            rate=pattern.rate,
            seconds=round(seconds, 3),
            documents=documents,
            per_second=round(documents / seconds, 1),
            answer=Spread.of(sample.seconds for sample in good),
            visible=Spread.of(after for found in seen for after in visible_after(good, found)),
            batch=mean_batch(good),
            outcomes=dict(Counter(sample.outcome for sample in self.samples)),
            most_waiting=max(self.waiting, default=0),
            parts=tuple(
                PartUse(part, round(cores, 3), *(round(mib(memory[part] or [0.0]), 1) for mib in (_first, _last, max)))
                for part, cores in self.busy.items()
            ),
        )


def _first(values: list[float]) -> float:
    return values[0]


def _last(values: list[float]) -> float:
    return values[-1]


def _shares(before: dict[int, Use], after: dict[int, Use], seconds: float) -> dict[str, float]:
    return {part: used / seconds for part, used in seconds_between(before, after).items()}


def _figure_named(name: str) -> re.Pattern[bytes]:
    return re.compile(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$".encode(), re.MULTILINE)


_WAITING, _POSITION = _figure_named("mdv_jobs_waiting"), _figure_named("mdv_lmr_position")


async def jobs_waiting(wire: Wire) -> int:
    """How many jobs the MDP has not carried out yet, as its figures tell."""
    return figure(await wire.ask("GET", "/metrics"), _WAITING)


def figure(answer: Answer, name: re.Pattern[bytes]) -> int:
    """A whole number out of /metrics."""
    found = name.findall(answer.body)
    if answer.status != 200 or not found:
        raise WireError("a server does not tell its figures")
    return int(sum(map(float, found)))


@asynccontextmanager
async def meanwhile(*others: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do other things as long as this takes; the failure of one of them is a failure of this."""
    tasks = [asyncio.create_task(other) for other in others]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


async def _all_of(parts: Iterator[Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for part in parts:
            group.create_task(part)
