"""Measure `mdv batch` on a whole system, in comparison with HTTP and with the bare COPY.

One run consists of documents over HTTP, by one and by eight clients, half of them before and half after the batch; the
batch, with its memory and the latency of registrations meanwhile; the same batch again, which changes nothing; and the
bare COPY of the same number of statements.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from mdv.bench.batch_usage import BatchUsage
from mdv.bench.catalogue import Catalogue
from mdv.bench.http_sender import HttpSender
from mdv.bench.load import LoadTarget, PrintProgress, in_background
from mdv.bench.load_results import Latency
from mdv.bench.load_system import REQUEST_TIMEOUT_SECONDS, RULES_PER_REQUEST
from mdv.bench.report import BenchResult
from mdv.bench.sql.bench_store import copy_stored_statements
from mdv.bench.sql.copy_floor import create_floor_table, vacuum_analyze
from mdv.client import MAX_PAGE_SIZE, Client
from mdv.db.batch import list_running
from mdv.db.engine import make_engine
from mdv.errors import MdvError, Unavailable
from mdv.supervise import ChildProgram, describe_exit, has_ended, start_child

CLIENTS = 8
WARM_UP_DOCUMENTS = 20
"""Documents over HTTP that are not counted."""
QUIET_SECONDS = 15.0
"""How long the latency of registrations is measured before the batch starts."""
PROGRESS_SECONDS = 10.0
IDLE_LMR = "bench-idle"

DRIVER_STAGES = ("look", "take", "turn", "store", "filter", "publish", "rest of answer", "end", "other")
EXECUTOR_STAGES = ("prepare", "stage", "wait")


@dataclass(frozen=True, slots=True)
class RegistrationRate:
    """A way to register documents, with its number of documents and its time."""

    name: str
    documents: int
    statements: int
    seconds: float

    @property
    def documents_per_second(self) -> float:
        return self.documents / self.seconds

    @property
    def statements_per_second(self) -> float:
        return self.statements / self.seconds

    @property
    def us(self) -> float:
        """Microseconds per document."""
        return 1e6 * self.seconds / self.documents

    def as_dict(self) -> dict[str, Any]:
        rates = ("documents_per_second", "statements_per_second")
        return asdict(self) | {rate: round(getattr(self, rate), 1) for rate in rates}


@dataclass(frozen=True, slots=True)
class BatchMeasurement:
    """One run of `mdv batch`: its own summary, the time of the whole command, the peak memory and the CPU time of each
    part, the latency of registrations meanwhile, and how far the LMRs were behind, in seconds."""

    summary: dict[str, Any]
    seconds: float
    memory: dict[str, float]
    processor: dict[str, float]
    beside: Latency | None
    behind: float

    @property
    def seconds_without_startup(self) -> float:
        """Seconds without the start of Spark."""
        return float(self.summary["seconds"])

    @property
    def size(self) -> int:
        """Documents per transaction."""
        return round(int(self.summary["documents"]) / max(1, int(self.summary["transactions"])))

    def way(self, name: str) -> RegistrationRate:
        return RegistrationRate(
            name, self.summary["documents"], self.summary["statements"], self.seconds_without_startup
        )

    @property
    def stages(self) -> dict[str, float]:
        """The seconds of each stage: for executors the sum over all of them, for the driver the elapsed time."""
        found = defaultdict(float, self.summary["stages"])
        inner = sum(found[name] for name in ("store", "filter", "publish"))
        found["rest of answer"] = max(0.0, found["answer"] - inner)
        found["other"] = max(0.0, self.summary["seconds"] - sum(found[name] for name in DRIVER_STAGES))
        return {name: round(found[name], 3) for name in (*EXECUTOR_STAGES, *DRIVER_STAGES)}


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What to measure: documents over HTTP for each number of clients, and registrations per second during the
    batch."""

    http: int
    interactive: float | None


@dataclass(frozen=True, slots=True)
class BatchBenchResult:
    """The measurements of one system."""

    rules: int
    batches: list[BatchMeasurement]
    again: BatchMeasurement
    one_by_one: RegistrationRate
    at_once: RegistrationRate
    copied: RegistrationRate
    quiet: Latency | None
    problems: list[str]

    @property
    def documents(self) -> int:
        return sum(batch.way("").documents for batch in self.batches)

    @property
    def seconds(self) -> float:
        """Seconds of the batches without the start of Spark."""
        return sum(batch.seconds_without_startup for batch in self.batches)

    @property
    def seconds_per_thousand(self) -> float:
        """Seconds per thousand documents."""
        return 1000 * self.seconds / self.documents

    @property
    def ways(self) -> list[RegistrationRate]:
        batches = [batch.way(f"mdv batch {number}") for number, batch in enumerate(self.batches, 1)]
        started = [
            replace(way, name=f"{way.name}, with the start of Spark", seconds=batch.seconds)
            for way, batch in zip(batches, self.batches, strict=True)
        ]
        return [self.one_by_one, self.at_once, *batches, *started, self.again.way("the last batch again"), self.copied]

    def results(self) -> list[BenchResult]:
        """Return the results in the common form, per document."""
        peers = {way.name: way.us for way in (self.one_by_one, self.at_once)}
        return [
            BenchResult(f"mdv batch {number}", self.rules, batch.size, batch.way("").us, self.copied.us, peers)
            for number, batch in enumerate(self.batches, 1)
        ]

    def as_dict(self) -> dict[str, Any]:
        return {
            "documents": self.documents,
            "seconds_for_1000": round(self.seconds_per_thousand, 3),
            **asdict(self),
            "ways": [way.as_dict() for way in self.ways],
            "stages": [batch.stages for batch in self.batches],
        }


def measure_batch(
    target: LoadTarget, catalogue: Catalogue, plan: BatchPlan, folder: Path, print_progress: PrintProgress
) -> BatchBenchResult:
    """Measure a dedicated system. `folder` holds the output of the batches."""
    engine = make_engine(target.mdp.database_url)
    with ExitStack() as stack:
        stack.callback(engine.dispose)
        mdp = stack.enter_context(Client(target.mdp))
        lmrs = [stack.enter_context(Client(lmr)) for lmr in target.lmrs]
        prepare_catalogue_system(mdp, lmrs, catalogue, print_progress)
        return BatchBench(target, catalogue, plan, folder, engine, mdp, lmrs, print_progress).run()


def prepare_catalogue_system(
    mdp: Client, lmrs: list[Client], catalogue: Catalogue, print_progress: PrintProgress
) -> None:
    """Load the schema, and subscribe to the rules of a catalogue."""
    mdp.put_schema(catalogue.schema, "text/turtle")
    print_progress(f"Subscribing to {len(catalogue.rules):,} rules for an LMR that is not running.")
    mdp.change("POST", "/lmrs", {"name": IDLE_LMR})
    drafts = [{"rule": rule} for rule in catalogue.rules]
    for first in range(0, len(drafts), RULES_PER_REQUEST):
        part = drafts[first : first + RULES_PER_REQUEST]
        mdp.change("POST", f"/lmrs/{IDLE_LMR}/subscriptions", part, seconds=REQUEST_TIMEOUT_SECONDS)
    for lmr in lmrs:
        for rule in catalogue.followed:
            lmr.change("POST", "/subscriptions", {"rule": rule}, seconds=REQUEST_TIMEOUT_SECONDS)


@dataclass
class BatchBench:
    """The measurement of one system."""

    target: LoadTarget
    catalogue: Catalogue
    plan: BatchPlan
    folder: Path
    engine: Engine
    mdp: Client
    lmrs: list[Client]
    print_progress: PrintProgress

    def __post_init__(self) -> None:
        self._sender = HttpSender(self.target, self.catalogue.others)

    def run(self) -> BatchBenchResult:
        asyncio.run(self._sender.one_by_one(1, WARM_UP_DOCUMENTS))
        before = [self._over_http(clients, self.plan.http // 2) for clients in (1, CLIENTS)]
        quiet = self._register_in_quiet(self.plan.interactive) if self.plan.interactive else None
        batches = [self._batch(arguments, self.plan.interactive) for arguments in self.catalogue.runs]
        after = [self._over_http(clients, self.plan.http - self.plan.http // 2) for clients in (1, CLIENTS)]
        self.print_progress("Running the same batch again, without changes.")
        again = self._batch(self.catalogue.runs[-1], None)
        problems = list(self._problems(batches, again))
        documents, statements = (sum(batch.summary[name] for batch in batches) for name in ("documents", "statements"))
        each = statements / documents
        one_by_one, at_once = (
            RegistrationRate(name, self.plan.http, round(self.plan.http * each), sum(seconds))
            for name, *seconds in zip(("HTTP, one by one", f"HTTP, {CLIENTS} clients"), before, after, strict=True)
        )
        copied, seconds = self._copy(statements)
        floor = RegistrationRate("bare COPY", round(copied / each), copied, seconds)
        return BatchBenchResult(len(self.catalogue.rules), batches, again, one_by_one, at_once, floor, quiet, problems)

    # Ways of registration

    def _over_http(self, clients: int, documents: int) -> float:
        self.print_progress(f"Registering {documents:,} documents over HTTP, {clients} at a time.")
        return asyncio.run(self._sender.one_by_one(clients, documents))

    def _register_in_quiet(self, rate: float) -> Latency | None:
        self.print_progress(f"Registering {rate:g} documents per second for {QUIET_SECONDS:g} s, without a batch.")
        return asyncio.run(self._sender.send_for(rate, QUIET_SECONDS))

    def _batch(self, arguments: tuple[str, ...], interactive: float | None) -> BatchMeasurement:
        self.print_progress(f"mdv batch {' '.join(arguments)}")
        self._sender.samples.clear()
        batch = asyncio.run(self._run_batch(arguments, interactive))
        self.print_progress(f"  {batch.summary['documents']:,} documents in {batch.seconds:.1f} s")
        return batch

    async def _run_batch(self, arguments: tuple[str, ...], interactive: float | None) -> BatchMeasurement:
        data, log = Path(self.target.mdp.source).parent, self.folder / "batch.log"
        log.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "mdv.cli", "batch", *arguments, "--spark", "--json", "--data", str(data)]
        program = ChildProgram(start_child(argv, log=log, env={**os.environ, "TMPDIR": str(self.folder)}), grace=60)
        began, over, used = time.perf_counter(), asyncio.Event(), BatchUsage(program.process.pid)
        try:
            async with asyncio.TaskGroup() as group:
                if interactive is not None:
                    group.create_task(self._sender.send_at_rate(interactive, over))
                async with in_background(used.watch(self.target.pids), self._print_progress(began)):
                    while not has_ended(program.process):
                        await asyncio.sleep(0.02)
                seconds = time.perf_counter() - began
                over.set()
        finally:
            program.stop()
        summary = _summary_in(log, describe_exit(program.process))
        behind = await asyncio.to_thread(self._wait_for_lmrs)
        return BatchMeasurement(summary, round(seconds, 3), used.memory, used.processor, self._sender.spread(), behind)

    async def _print_progress(self, began: float) -> None:
        def progress() -> str:
            with self.engine.connect() as connection:
                now = list_running(connection)
            if not any(run.documents for run in now):
                return "Spark is starting, listing the input or ending"
            done = sum(run.promoted + run.skipped + run.rejected for run in now)
            return f"{done:,} of {sum(run.documents or 0 for run in now):,} documents"

        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            self.print_progress(f"  {time.perf_counter() - began:.0f} s: {await asyncio.to_thread(progress)}")

    def _wait_for_lmrs(self) -> float:
        """Wait until the LMRs have reached the MDP's position. Return the seconds."""
        began, last = time.perf_counter(), self.mdp.get("/status")["position"]
        for lmr in self.lmrs:
            while lmr.get("/status", after=last, wait=10)["position"] < last:
                if time.perf_counter() - began > REQUEST_TIMEOUT_SECONDS:
                    raise Unavailable(
                        f"An LMR has not reached position {last:,} within {REQUEST_TIMEOUT_SECONDS:g} s."
                        " See the log of the LMR."
                    )
                self.print_progress("  waiting for an LMR")
        return round(time.perf_counter() - began, 3)

    def _copy(self, statements: int) -> tuple[int, float]:
        self.print_progress(f"Copying {statements:,} statements with the bare COPY.")
        with self.engine.begin() as connection:
            create_floor_table(connection)
        vacuum_analyze(self.engine)
        copied, spent = 0, 0.0
        for rows, seconds in copy_stored_statements(self.engine, statements):
            copied, spent = copied + rows, spent + seconds
            self.print_progress(f"  {copied:,} statements in {spent:.1f} s")
        return copied, spent

    # Checks

    def _problems(self, batches: list[BatchMeasurement], again: BatchMeasurement) -> Iterator[str]:
        self.print_progress("Checking the stored documents and the LMRs.")
        yield from (f"{count:,} requests failed with {how}." for how, count in self._sender.failed.items())
        for batch in batches:
            if batch.summary["refused"]:
                yield f"A batch refused {batch.summary['refused']:,} documents: {batch.summary['examples'][:1]}."
        due = self.catalogue.documents or sum(batch.summary["registered"] for batch in batches)
        asyncio.run(self._sender.wait_until_done())
        stored = self._count()
        if stored != due + self._sender.done:
            yield (
                f"{stored:,} documents are stored; expected are {due:,} of the catalogue and"
                f" {self._sender.done:,} others."
            )
        if again.summary["unchanged"] != again.summary["documents"]:
            yield f"The repeated batch found only {again.summary['unchanged']:,} documents unchanged."
        self._wait_for_lmrs()
        for lmr in self.lmrs:
            if repaired := lmr.change("POST", "/verify", seconds=REQUEST_TIMEOUT_SECONDS)["mended"]:
                yield f"An LMR differed from the MDP in {len(repaired)} of 256 buckets."
            cache_problems = lmr.change("POST", "/check", seconds=REQUEST_TIMEOUT_SECONDS)["problems"]
            yield from (f"The cache of an LMR differs from its closure: {problem}" for problem in cache_problems[:5])
            if not lmr.get("/status")["roots"]:
                yield "An LMR holds no resource, although its rules select some."

    def _count(self) -> int:
        counted, after = 0, ""
        while after is not None:
            page = self.mdp.get("/documents", limit=MAX_PAGE_SIZE, **({"after": after} if after else {}))
            counted, after = counted + len(page["items"]), page["next"]
        return counted


def _summary_in(log: Path, end: str) -> dict[str, Any]:
    """Return the summary that a batch printed at its end."""
    lines = log.read_text("utf-8", errors="replace").splitlines()
    for arguments in reversed(lines):
        if arguments.startswith("{"):
            found: dict[str, Any] = json.loads(arguments)
            return found
    raise MdvError("mdv batch ended with {}. The end of its output:\n{}".format(end, "\n".join(lines[-12:])))
