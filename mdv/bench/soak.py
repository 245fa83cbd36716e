"""Soak: a moderate load for a long time, to see whether anything grows that should not.

Documents come, change and go at fixed times. Queries are asked at the MDP and at LMRs; a feed is followed by somebody
who is cut off now and then and goes on from the cursor. Every few seconds the memory of each process, the sizes of
tables and the length of the queue are written down. In the end a line is laid through the memory of each process,
without the first third, in which caches fill.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from sqlalchemy import Engine

from mdv.bench.figures import DONE, Sample, Spread
from mdv.bench.ground import Ground
from mdv.bench.load import Load, Pattern, jobs_waiting, meanwhile
from mdv.bench.loaded import Change, Documents
from mdv.bench.processes import MIB, Use, look
from mdv.bench.wire import Wire, WireError
from mdv.db.bench import table_sizes
from mdv.db.engine import make_engine
from mdv.system import System

QUERY_PAUSE = 5.0
FOLLOW_SECONDS = 10
CUT_AFTER = 30.0
"""Seconds after which the follower of a feed is cut off."""
FEWEST_SAMPLES = 8
"""Through fewer, after the first third, a line tells nothing."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, how much, and how much growth is still flat (MiB an hour)."""

    seconds: float
    rate: float = 20.0
    kept: int = 2_000
    every: float = 15.0
    growth: float = 30.0

    @property
    def least_minutes(self) -> float:
        """Those that it takes to tell whether anything grows: a third, and then enough samples.

        >>> Plan(30).least_minutes
        3.0
        """
        return self.every * FEWEST_SAMPLES * 1.5 / 60


@dataclass(frozen=True, slots=True)
class Growth:
    """The line through the memory of one process; `within`: the half width of its slope's 95 % interval.

    Where there are too few samples to tell, `flat` is None.
    """

    process: str
    first: float
    last: float
    an_hour: float
    within: float
    flat: bool | None


@dataclass(frozen=True, slots=True)
class Soaked:
    """What came of it."""

    documents: Documents
    growth: list[Growth]
    answer: Spread | None
    samples: int
    outcomes: dict[str, int]
    tables: dict[str, tuple[int, int]]
    most_waiting: int
    queries: int
    cuts: int
    problems: list[str]

    @property
    def is_too_short(self) -> bool:
        return any(line.flat is None for line in self.growth)

    def as_dict(self) -> dict[str, Any]:
        shown = {name: getattr(self, name) for name in self.__slots__ if name not in ("documents", "growth", "answer")}
        answer = asdict(self.answer) if self.answer else None
        return {**shown, "growth": [asdict(line) for line in self.growth], "answer": answer}


def run_soak(
    ground: Ground, documents: Documents, plan: Plan, say: Callable[[str], object], write: Callable[[str], object]
) -> Soaked:
    """Load the system for that long; `say` hears a line a minute, `write` gets every sample."""
    with ExitStack() as stack:
        follower = stack.enter_context(ground.another_lmr(f"follower-{ground.workload.mark}"))
        engine = None
        if ground.target.mdp.database_url:
            engine = make_engine(ground.target.mdp.database_url)
            stack.callback(engine.dispose)
        return asyncio.run(_Soak(ground, documents, plan, say, write, follower, engine).run())


@dataclass
class _Soak:
    ground: Ground
    documents: Documents
    plan: Plan
    say: Callable[[str], object]
    write: Callable[[str], object]
    follower: System
    engine: Engine | None
    moments: list[tuple[float, dict[int, Use]]] = field(default_factory=list)
    tables: list[dict[str, int]] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    queries: int = 0
    cuts: int = 0
    selected: set[str] = field(default_factory=set)

    async def run(self) -> Soaked:
        target = self.ground.target
        pattern = Pattern(rate=self.plan.rate)
        self.load = Load(target, self.documents, pattern, self._next, lambda words: None)
        others = [self._sample(), self._ask(target.mdp), *(self._ask(lmr) for lmr in target.lmrs)]
        async with meanwhile(self._follow()):
            async with meanwhile(*others):
                now = time.perf_counter()
                await self.load.send_at_fixed_times(self.plan.rate, now, now + self.plan.seconds)
            await self._until_quiet()
        self._check_outcomes()
        return self._soaked()

    # What is done

    def _next(self) -> Change:
        """A third each of insertions, updates and deletions; until the store is full, nothing is deleted."""
        full = self.documents.idle >= self.plan.kept
        choice = self.documents.random.choice(("insert", "update", "delete" if full else "insert"))
        change: Change = getattr(self.documents, choice)()
        return change

    async def _ask(self, system: System) -> None:
        """Ask a query now and then, at the MDP or at an LMR."""
        asked = "search CycleProvider c where c.serverInformation.memory > 64 return c, c.serverHost limit 100"
        wire = Wire(system.url, system.token)
        while True:
            await asyncio.sleep(QUERY_PAUSE)
            try:
                body = json.dumps({"query": asked}).encode()
                answer = await wire.ask("POST", "/api/v1/query", body, "Content-Type: application/json\r\n")
            except WireError as error:
                self.problems.append(f"A query at {system.url}: {error}.")
                continue
            self.queries += 1
            if answer.status != 200:
                self.problems.append(f"A query at {system.url} was answered {answer.status}.")

    async def _follow(self) -> None:
        """Follow a feed, be cut off now and then, and go on from the cursor; nothing must be missing."""
        cursor, last = "", None
        wire, since = Wire(self.follower.url, self.follower.token), time.perf_counter()
        while True:
            try:
                async with asyncio.timeout(max(0.1, since + CUT_AFTER - time.perf_counter())):
                    answer = await wire.ask("GET", f"/api/v1/lmrs/self/feed?wait={FOLLOW_SECONDS}{cursor}")
            except TimeoutError:
                wire.close()
                self.cuts, since = self.cuts + 1, time.perf_counter()
                continue
            except WireError as error:
                self.problems.append(f"The feed: {error}.")
                await asyncio.sleep(1)
                continue
            if answer.status != 200:
                self.problems.append(f"The feed was answered {answer.status}.")
                await asyncio.sleep(1)
                continue
            page = answer.json()
            for event in page["events"]:
                if last is not None and event["prev"] is not None and event["prev"] != last:
                    self.problems.append(f"The feed went on at {event['prev']} behind {last}: events are missing.")
                last = event["offset"]
                if event["event"] == "match":
                    self.selected.add(event["resource"])
                elif event["event"] in ("unmatch", "delete"):
                    self.selected.discard(event["resource"])
            cursor = f"&after={page['cursor']}"

    async def _until_quiet(self) -> None:
        """Wait until all is carried out and told."""
        wire = Wire(self.ground.target.mdp.url, self.ground.target.mdp.token)
        deadline, due = time.perf_counter() + 60, {f"{uri}#host" for uri in self.documents.present}
        while await jobs_waiting(wire) or self.selected != due:
            if time.perf_counter() > deadline:
                missing, strange = len(due - self.selected), len(self.selected - due)
                self.problems.append(f"The follower of the feed misses {missing:,} resources and has {strange:,} more.")
                break
            await asyncio.sleep(0.1)
        wire.close()

    # What is seen

    async def _sample(self) -> None:
        began, said = time.perf_counter(), float("-inf")
        wire = Wire(self.ground.target.mdp.url, self.ground.target.mdp.token)
        seen = 0
        while True:
            now = time.perf_counter()
            uses = await asyncio.to_thread(look, self.ground.target.pids)
            if self.engine is not None:
                self.tables.append(await asyncio.to_thread(_sizes, self.engine))
            try:
                self.waiting.append(await jobs_waiting(wire))
            except WireError as error:
                self.problems.append(f"The figures: {error}.")
            new, seen = self.load.samples[seen:], len(self.load.samples)
            line = self._line(now - began, uses, new)
            self.moments.append((now, uses))  # whole or not at all: nothing is waited for from here on
            self.write(json.dumps(line))
            if now - said >= 60:
                said = now
                self.say(_shown(line))
            await asyncio.sleep(max(0.0, self.plan.every - (time.perf_counter() - now)))

    def _line(self, at: float, uses: dict[int, Use], new: list[Sample]) -> dict[str, Any]:
        answer = Spread.of(sample.seconds for sample in new)
        return {
            "at": round(at, 1),
            "documents": self.documents.idle,
            "waiting": self.waiting[-1] if self.waiting else None,
            "answer": asdict(answer) if answer else None,
            "not_done": sum(sample.outcome != DONE for sample in new),
            "memory": {name: round(mib, 2) for name, mib in _memory(uses).items()},
            "tables": self.tables[-1] if self.tables else None,
        }

    def _check_outcomes(self) -> None:
        wrong = [sample.outcome for sample in self.load.samples if sample.outcome != DONE]
        for outcome in sorted(set(wrong)):
            self.problems.append(f"{wrong.count(outcome):,} changes were answered: {outcome}.")

    def _soaked(self) -> Soaked:
        growth = grown(self.moments, self.plan.growth)
        began, ended = (_memory(uses).keys() for _, uses in (self.moments[0], self.moments[-1]))
        self.problems += [f"{process} did not live to the end." for process in sorted(began - ended)]
        self.problems += [
            f"{g.process} grew by {g.an_hour:,.1f} MiB an hour (± {g.within:,.1f}); {self.plan.growth:g} are flat."
            for g in growth if g.flat is False
        ]  # fmt: skip
        outcomes = [sample.outcome for sample in self.load.samples]
        tables = {name: (self.tables[0][name], self.tables[-1][name]) for name in self.tables[0]} if self.tables else {}
        return Soaked(
            documents=self.documents,
            growth=growth,
            answer=Spread.of(sample.seconds for sample in self.load.samples),
            samples=len(self.moments),
            outcomes={outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))},
            tables=tables,
            most_waiting=max(self.waiting, default=0),
            queries=self.queries,
            cuts=self.cuts,
            problems=self.problems,
        )


def _sizes(engine: Engine) -> dict[str, int]:
    with engine.connect() as connection:
        return table_sizes(connection, ("jobs", "feed", "filter_data", "filter_data_history", "document_versions"))


def _memory(uses: dict[int, Use]) -> dict[str, float]:
    """MiB of each process's own memory; those of Postgres, which come and go with connections, together."""
    found: dict[str, float] = {}
    for use in uses.values():
        if use.part:
            name = use.part if use.part == "Postgres" else f"{use.part} {use.pid}"
            found[name] = found.get(name, 0.0) + use.own / MIB
    return found


def _shown(line: dict[str, Any]) -> str:
    memory: dict[str, float] = {}
    for name, mib in line["memory"].items():
        part = name.split()[0]
        memory[part] = memory.get(part, 0.0) + mib
    answer = line["answer"]
    times = f"answers p50 {answer['p50']:,.0f} ms, p99 {answer['p99']:,.0f} ms" if answer else "no answers yet"
    parts = ", ".join(f"{part} {mib:,.0f}" for part, mib in memory.items())
    return (f"{line['at'] / 60:5.1f} min: {line['documents']:,} documents, {line['waiting']} waiting, {times}; MiB: "
            f"{parts}")  # fmt: skip


def grown(moments: list[tuple[float, dict[int, Use]]], limit: float) -> list[Growth]:
    """How each process grew after the first third; those that were not there all the time are left out."""
    if not moments:
        return []
    later = [moment for moment in moments if moment[0] >= moments[0][0] + (moments[-1][0] - moments[0][0]) / 3]
    series = [(at, _memory(uses)) for at, uses in later]
    found = []
    for process in series[-1][1]:
        points = [(at / 3600, memory[process]) for at, memory in series if process in memory]
        if len(points) == len(series):
            slope, within = fit(points)
            flat = None if len(points) < FEWEST_SAMPLES else slope <= limit
            found.append(Growth(process, points[0][1], points[-1][1], slope, within, flat))
    return found


def fit(points: list[tuple[float, float]]) -> tuple[float, float]:
    """The slope of the line through points, and the half width of its 95 % interval.

    >>> fit([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)])
    (2.0, 0.0)
    """
    middle, level = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - middle) ** 2 for x, _ in points)
    if len(points) < 3 or not spread:
        return 0.0, 0.0
    slope = sum((x - middle) * (y - level) for x, y in points) / spread
    rest = sum((y - level - slope * (x - middle)) ** 2 for x, y in points)
    return slope, 1.96 * (rest / (len(points) - 2) / spread) ** 0.5
