"""Apply a moderate load for a long time, to see whether anything grows that should not.

Documents are inserted, changed and deleted at fixed times. Queries run on the MDP and on LMRs. A client follows a feed;
it is disconnected now and then, and continues from its cursor. Samples of each process's memory, the table sizes and
the queue length are taken every few seconds. At the end, a line is fitted to the memory of each process, without the
first third, in which caches fill.
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

from mdv.bench.http_connection import HttpConnection, HttpConnectionError
from mdv.bench.load import LoadGenerator, LoadPattern, count_waiting_jobs, in_background
from mdv.bench.load_documents import DocumentChange, LoadDocuments
from mdv.bench.load_results import DONE, Latency, RequestSample
from mdv.bench.load_system import LoadSystem
from mdv.bench.process_usage import MIB, ProcessUsage, sample_processes
from mdv.bench.sql.bench_store import read_table_sizes
from mdv.db.engine import make_engine
from mdv.system import System

QUERY_SECONDS = 5.0
FEED_WAIT_SECONDS = 10
DISCONNECT_SECONDS = 30.0
"""How often the follower of a feed is disconnected."""
MIN_SAMPLES = 8
"""Minimum number of samples after the first third for a meaningful line."""


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """Duration, amount of load, and the growth that is allowed (MiB per hour)."""

    seconds: float
    rate: float = 20.0
    kept: int = 2_000
    every: float = 15.0
    growth: float = 30.0

    @property
    def least_minutes(self) -> float:
        """Minutes needed to detect growth: the first third, and then enough samples.

        >>> SoakPlan(30).least_minutes
        3.0
        """
        return self.every * MIN_SAMPLES * 1.5 / 60

    @property
    def longer_minutes(self) -> float:
        """Minutes to try if the run was too short. On a busy machine, samples take longer than planned.

        >>> SoakPlan(60).longer_minutes, SoakPlan(600).longer_minutes
        (3.0, 20.0)
        """
        minutes = self.seconds / 60
        return self.least_minutes if minutes < self.least_minutes else 2 * minutes


@dataclass(frozen=True, slots=True)
class MemoryGrowth:
    """The line through the memory of one process. `within` is half the width of the 95 % interval of its slope.

    `flat` is None if there are too few samples.
    """

    process: str
    first: float
    last: float
    an_hour: float
    within: float
    flat: bool | None


@dataclass(frozen=True, slots=True)
class SoakResult:
    """The result of a soak test."""

    documents: LoadDocuments
    growth: list[MemoryGrowth]
    answer: Latency | None
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
    ground: LoadSystem,
    documents: LoadDocuments,
    plan: SoakPlan,
    print_progress: Callable[[str], object],
    write: Callable[[str], object],
) -> SoakResult:
    """Load the system for the planned time. `print_progress` receives a line per minute, `write` every sample."""
    with ExitStack() as stack:
        follower = stack.enter_context(ground.temporary_lmr(f"follower-{ground.workload.mark}"))
        engine = None
        if ground.target.mdp.database_url:
            engine = make_engine(ground.target.mdp.database_url)
            stack.callback(engine.dispose)
        return asyncio.run(_Soak(ground, documents, plan, print_progress, write, follower, engine).run())


@dataclass
class _Soak:
    ground: LoadSystem
    documents: LoadDocuments
    plan: SoakPlan
    print_progress: Callable[[str], object]
    write: Callable[[str], object]
    follower: System
    engine: Engine | None
    moments: list[tuple[float, dict[int, ProcessUsage]]] = field(default_factory=list)
    tables: list[dict[str, int]] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    queries: int = 0
    cuts: int = 0
    selected: set[str] = field(default_factory=set)

    async def run(self) -> SoakResult:
        target = self.ground.target
        pattern = LoadPattern(rate=self.plan.rate)
        self.load = LoadGenerator(target, self.documents, pattern, self._next_change, lambda words: None)
        others = [self._sample(), self._run_queries(target.mdp), *(self._run_queries(lmr) for lmr in target.lmrs)]
        async with in_background(self._follow()):
            async with in_background(*others):
                now = time.perf_counter()
                await self.load.send_at_fixed_times(self.plan.rate, now, now + self.plan.seconds)
            await self._wait_until_quiet()
        self._check_outcomes()
        return self._result()

    # Load

    def _next_change(self) -> DocumentChange:
        """Return insertions, updates and deletions with equal probability. Nothing is deleted until the store is
        full."""
        full = self.documents.idle >= self.plan.kept
        choice = self.documents.random.choice(("insert", "update", "delete" if full else "insert"))
        change: DocumentChange = getattr(self.documents, choice)()
        return change

    async def _run_queries(self, system: System) -> None:
        """Run a query from time to time, on the MDP or on an LMR."""
        asked = "search CycleProvider c where c.serverInformation.memory > 64 return c, c.serverHost limit 100"
        connection = HttpConnection(system.url, system.token)
        while True:
            await asyncio.sleep(QUERY_SECONDS)
            try:
                body = json.dumps({"query": asked}).encode()
                answer = await connection.request(
                    "POST", "/api/v1/query", body, "Content-Type: application/json\r\n", is_repeatable=True
                )
            except HttpConnectionError as error:
                self.problems.append(f"A query to {system.url} failed: {error}.")
                continue
            self.queries += 1
            if answer.status != 200:
                self.problems.append(f"A query to {system.url} returned status {answer.status}.")

    async def _follow(self) -> None:
        """Follow a feed, disconnect from time to time, and continue from the cursor. Record missing events."""
        cursor, last = "", None
        connection, since = HttpConnection(self.follower.url, self.follower.token), time.perf_counter()
        while True:
            try:
                async with asyncio.timeout(max(0.1, since + DISCONNECT_SECONDS - time.perf_counter())):
                    answer = await connection.request("GET", f"/api/v1/lmrs/self/feed?wait={FEED_WAIT_SECONDS}{cursor}")
            except TimeoutError:
                connection.close()
                self.cuts, since = self.cuts + 1, time.perf_counter()
                continue
            except HttpConnectionError as error:
                self.problems.append(f"The feed failed: {error}.")
                await asyncio.sleep(1)
                continue
            if answer.status != 200:
                self.problems.append(f"The feed returned status {answer.status}.")
                await asyncio.sleep(1)
                continue
            page = answer.json()
            for event in page["events"]:
                if last is not None and event["prev"] is not None and event["prev"] != last:
                    self.problems.append(
                        f"The feed continued after {event['prev']} instead of {last}: events are missing."
                    )
                last = event["offset"]
                if event["event"] == "match":
                    self.selected.add(event["resource"])
                elif event["event"] in ("unmatch", "delete"):
                    self.selected.discard(event["resource"])
            cursor = f"&after={page['cursor']}"

    async def _wait_until_quiet(self) -> None:
        """Wait until all changes are carried out and have reached the follower."""
        connection = HttpConnection(self.ground.target.mdp.url, self.ground.target.mdp.token)
        deadline, due = time.perf_counter() + 60, {f"{uri}#host" for uri in self.documents.present}
        while await count_waiting_jobs(connection) or self.selected != due:
            if time.perf_counter() > deadline:
                missing, unexpected = len(due - self.selected), len(self.selected - due)
                self.problems.append(
                    f"The follower of the feed misses {missing:,} resources and has {unexpected:,} unexpected ones."
                )
                break
            await asyncio.sleep(0.1)
        connection.close()

    # Samples

    async def _sample(self) -> None:
        began, last_printed = time.perf_counter(), float("-inf")
        connection = HttpConnection(self.ground.target.mdp.url, self.ground.target.mdp.token)
        processed = 0
        while True:
            now = time.perf_counter()
            uses = await asyncio.to_thread(sample_processes, self.ground.target.pids)
            if self.engine is not None:
                self.tables.append(await asyncio.to_thread(_table_sizes, self.engine))
            try:
                self.waiting.append(await count_waiting_jobs(connection))
            except HttpConnectionError as error:
                self.problems.append(f"The metrics could not be read: {error}.")
            new, processed = self.load.samples[processed:], len(self.load.samples)
            line = self._line(now - began, uses, new)
            self.moments.append((now, uses))  # nothing is awaited after this line, so samples stay complete
            self.write(json.dumps(line))
            if now - last_printed >= 60:
                last_printed = now
                self.print_progress(_format_line(line))
            await asyncio.sleep(max(0.0, self.plan.every - (time.perf_counter() - now)))

    def _line(self, at: float, uses: dict[int, ProcessUsage], new: list[RequestSample]) -> dict[str, Any]:
        answer = Latency.of(sample.seconds for sample in new)
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
            self.problems.append(f"{wrong.count(outcome):,} changes had the outcome {outcome}.")

    def _result(self) -> SoakResult:
        growth = memory_growth(self.moments, self.plan.growth)
        began, ended = (_memory(uses).keys() for _, uses in (self.moments[0], self.moments[-1]))
        self.problems += [f"{process} ended before the end of the run." for process in sorted(began - ended)]
        self.problems += [
            f"{g.process} grew by {g.an_hour:,.1f} MiB per hour (± {g.within:,.1f}); allowed are {self.plan.growth:g}."
            for g in growth if g.flat is False
        ]  # fmt: skip
        outcomes = [sample.outcome for sample in self.load.samples]
        tables = {name: (self.tables[0][name], self.tables[-1][name]) for name in self.tables[0]} if self.tables else {}
        return SoakResult(
            documents=self.documents,
            growth=growth,
            answer=Latency.of(sample.seconds for sample in self.load.samples),
            samples=len(self.moments),
            outcomes={outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))},
            tables=tables,
            most_waiting=max(self.waiting, default=0),
            queries=self.queries,
            cuts=self.cuts,
            problems=self.problems,
        )


def _table_sizes(engine: Engine) -> dict[str, int]:
    with engine.connect() as connection:
        return read_table_sizes(connection, ("jobs", "feed", "filter_data", "filter_data_history", "document_versions"))


def _memory(uses: dict[int, ProcessUsage]) -> dict[str, float]:
    """Return the MiB of each process's own memory. The processes of Postgres, which depend on connections, are summed
    up."""
    found: dict[str, float] = {}
    for use in uses.values():
        if use.part:
            name = use.part if use.part == "Postgres" else f"{use.part} {use.pid}"
            found[name] = found.get(name, 0.0) + use.own / MIB
    return found


def _format_line(line: dict[str, Any]) -> str:
    memory: dict[str, float] = {}
    for name, mib in line["memory"].items():
        part = name.split()[0]
        memory[part] = memory.get(part, 0.0) + mib
    answer = line["answer"]
    times = f"responses p50 {answer['p50']:,.0f} ms, p99 {answer['p99']:,.0f} ms" if answer else "no responses yet"
    parts = ", ".join(f"{part} {mib:,.0f}" for part, mib in memory.items())
    return (f"{line['at'] / 60:5.1f} min: {line['documents']:,} documents, {line['waiting']} waiting, {times}; MiB: "
            f"{parts}")  # fmt: skip


def memory_growth(moments: list[tuple[float, dict[int, ProcessUsage]]], limit: float) -> list[MemoryGrowth]:
    """Return the growth of each process after the first third. Processes that did not exist all the time are left
    out."""
    if not moments:
        return []
    later = [moment for moment in moments if moment[0] >= moments[0][0] + (moments[-1][0] - moments[0][0]) / 3]
    series = [(at, _memory(uses)) for at, uses in later]
    found = []
    for process in series[-1][1]:
        points = [(at / 3600, memory[process]) for at, memory in series if process in memory]
        if len(points) == len(series):
            slope, within = fit_line(points)
            flat = None if len(points) < MIN_SAMPLES else slope <= limit
            found.append(MemoryGrowth(process, points[0][1], points[-1][1], slope, within, flat))
    return found


def fit_line(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the slope of the line through the points, and half the width of its 95 % interval.

    >>> fit_line([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)])
    (2.0, 0.0)
    """
    middle, level = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - middle) ** 2 for x, _ in points)
    if len(points) < 3 or not spread:
        return 0.0, 0.0
    slope = sum((x - middle) * (y - level) for x, y in points) / spread
    rest = sum((y - level - slope * (x - middle)) ** 2 for x, y in points)
    return slope, 1.96 * (rest / (len(points) - 2) / spread) ** 0.5
