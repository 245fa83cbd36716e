"""What registration in batches costs: `mdv batch` on a whole system, with HTTP and the bare COPY beside it.

In one run: documents over HTTP, one by one and by eight clients, half of them before the batch and half after it; the
batch, with what it takes of memory and what it lets others wait who register meanwhile; the same batch again, when
there is nothing to do; and the bare COPY of as many statements as it has registered.
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

from mdv.bench.catalogue import Catalogue
from mdv.bench.figures import Spread
from mdv.bench.ground import MOST_SECONDS, RULES_A_CALL
from mdv.bench.load import Say, Target, meanwhile
from mdv.bench.report import Result
from mdv.bench.sending import Sending
from mdv.bench.used import Used
from mdv.client import LARGEST_PAGE, Client
from mdv.db.batch import running
from mdv.db.bench import copy_again
from mdv.db.engine import make_engine
from mdv.db.floor import make_floor, tidy
from mdv.errors import MdvError, Unavailable
from mdv.supervise import Program, has_ended, how_it_ended, start_child

CLIENTS = 8
WARM_UP = 20
"""Documents over HTTP that count for nothing."""
QUIET_SECONDS = 15.0
"""How long registrations are watched before the batch begins."""
TOLD_EVERY = 10.0
IDLE = "bench-idle"

DRIVER_STAGES = ("look", "take", "turn", "store", "filter", "publish", "rest of answer", "end", "other")
EXECUTOR_STAGES = ("prepare", "stage", "wait")


@dataclass(frozen=True, slots=True)
class Way:
    """One way to register documents, and how long it took for how many."""

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
        """Microseconds a document."""
        return 1e6 * self.seconds / self.documents

    def as_dict(self) -> dict[str, Any]:
        rates = ("documents_per_second", "statements_per_second")
        return asdict(self) | {rate: round(getattr(self, rate), 1) for rate in rates}


@dataclass(frozen=True, slots=True)
class Batch:
    """One run of `mdv batch`: what it says of itself, how long the whole command took, how much memory each part had at
    most and how much processor time it used, how long registrations beside it took, and how long the LMRs needed after
    it."""

    summary: dict[str, Any]
    seconds: float
    memory: dict[str, float]
    processor: dict[str, float]
    beside: Spread | None
    behind: float

    @property
    def seconds_itself(self) -> float:
        """Without the start of Spark."""
        return float(self.summary["seconds"])

    @property
    def size(self) -> int:
        """Documents in a transaction."""
        return round(int(self.summary["documents"]) / max(1, int(self.summary["transactions"])))

    def way(self, name: str) -> Way:
        return Way(name, self.summary["documents"], self.summary["statements"], self.seconds_itself)

    @property
    def stages(self) -> dict[str, float]:
        """The seconds of each stage: of the executors all together, of the driver one after the other."""
        found = defaultdict(float, self.summary["stages"])
        inner = sum(found[name] for name in ("store", "filter", "publish"))
        found["rest of answer"] = max(0.0, found["answer"] - inner)
        found["other"] = max(0.0, self.summary["seconds"] - sum(found[name] for name in DRIVER_STAGES))
        return {name: round(found[name], 3) for name in (*EXECUTOR_STAGES, *DRIVER_STAGES)}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: documents over HTTP each way, and registrations a second beside the batch."""

    http: int
    interactive: float | None


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured in one system."""

    rules: int
    batches: list[Batch]
    again: Batch
    one_by_one: Way
    at_once: Way
    copied: Way
    quiet: Spread | None
    problems: list[str]

    @property
    def documents(self) -> int:
        return sum(batch.way("").documents for batch in self.batches)

    @property
    def seconds(self) -> float:
        """Of the batches, without the start of Spark."""
        return sum(batch.seconds_itself for batch in self.batches)

    @property
    def for_a_thousand(self) -> float:
        """The seconds for a thousand documents."""
        return 1000 * self.seconds / self.documents

    @property
    def ways(self) -> list[Way]:
        batches = [batch.way(f"mdv batch {number}") for number, batch in enumerate(self.batches, 1)]
        started = [
            replace(way, name=f"{way.name}, with the start of Spark", seconds=batch.seconds)
            for way, batch in zip(batches, self.batches, strict=True)
        ]
        return [self.one_by_one, self.at_once, *batches, *started, self.again.way("the last batch again"), self.copied]

    def results(self) -> list[Result]:
        """In the common form, for each document."""
        peers = {way.name: way.us for way in (self.one_by_one, self.at_once)}
        return [
            Result(f"mdv batch {number}", self.rules, batch.size, batch.way("").us, self.copied.us, peers)
            for number, batch in enumerate(self.batches, 1)
        ]

    def as_dict(self) -> dict[str, Any]:
        return {
            "documents": self.documents,
            "seconds_for_1000": round(self.for_a_thousand, 3),
            **asdict(self),
            "ways": [way.as_dict() for way in self.ways],
            "stages": [batch.stages for batch in self.batches],
        }


def measure(target: Target, catalogue: Catalogue, plan: Plan, folder: Path, say: Say) -> Found:
    """Measure on a system that is there for nothing else. `folder` takes what batches say."""
    engine = make_engine(target.mdp.database_url)
    with ExitStack() as stack:
        stack.callback(engine.dispose)
        mdp = stack.enter_context(Client(target.mdp))
        lmrs = [stack.enter_context(Client(lmr)) for lmr in target.lmrs]
        lay_ground(mdp, lmrs, catalogue, say)
        return Bench(target, catalogue, plan, folder, engine, mdp, lmrs, say).run()


def lay_ground(mdp: Client, lmrs: list[Client], catalogue: Catalogue, say: Say) -> None:
    """The schema, and the rules that a catalogue is followed by."""
    mdp.put_schema(catalogue.schema, "text/turtle")
    say(f"Subscribing {len(catalogue.rules):,} rules for an LMR that nobody runs.")
    mdp.change("POST", "/lmrs", {"name": IDLE})
    drafts = [{"rule": rule} for rule in catalogue.rules]
    for first in range(0, len(drafts), RULES_A_CALL):
        part = drafts[first : first + RULES_A_CALL]
        mdp.change("POST", f"/lmrs/{IDLE}/subscriptions", part, seconds=MOST_SECONDS)
    for lmr in lmrs:
        for rule in catalogue.followed:
            lmr.change("POST", "/subscriptions", {"rule": rule}, seconds=MOST_SECONDS)


@dataclass
class Bench:
    """One system, and what is measured there."""

    target: Target
    catalogue: Catalogue
    plan: Plan
    folder: Path
    engine: Engine
    mdp: Client
    lmrs: list[Client]
    say: Say

    def __post_init__(self) -> None:
        self._sent = Sending(self.target, self.catalogue.others)

    def run(self) -> Found:
        asyncio.run(self._sent.one_by_one(1, WARM_UP))
        before = [self._over_http(clients, self.plan.http // 2) for clients in (1, CLIENTS)]
        quiet = self._register_in_quiet(self.plan.interactive) if self.plan.interactive else None
        batches = [self._batch(line, self.plan.interactive) for line in self.catalogue.runs]
        after = [self._over_http(clients, self.plan.http - self.plan.http // 2) for clients in (1, CLIENTS)]
        self.say("The same again, when nothing has changed.")
        again = self._batch(self.catalogue.runs[-1], None)
        problems = list(self._problems(batches, again))
        documents, statements = (sum(batch.summary[name] for batch in batches) for name in ("documents", "statements"))
        each = statements / documents
        one_by_one, at_once = (
            Way(name, self.plan.http, round(self.plan.http * each), sum(seconds))
            for name, *seconds in zip(("HTTP, one by one", f"HTTP, {CLIENTS} clients"), before, after, strict=True)
        )
        copied, seconds = self._copy(statements)
        floor = Way("bare COPY", round(copied / each), copied, seconds)
        return Found(len(self.catalogue.rules), batches, again, one_by_one, at_once, floor, quiet, problems)

    # The ways

    def _over_http(self, clients: int, documents: int) -> float:
        self.say(f"{documents:,} documents over HTTP, {clients} at once.")
        return asyncio.run(self._sent.one_by_one(clients, documents))

    def _register_in_quiet(self, rate: float) -> Spread | None:
        self.say(f"Registering {rate:g} a second for {QUIET_SECONDS:g} s, without a batch.")
        return asyncio.run(self._sent.for_a_while(rate, QUIET_SECONDS))

    def _batch(self, line: tuple[str, ...], interactive: float | None) -> Batch:
        self.say(f"mdv batch {' '.join(line)}")
        self._sent.samples.clear()
        batch = asyncio.run(self._run_batch(line, interactive))
        self.say(f"  {batch.summary['documents']:,} documents in {batch.seconds:.1f} s")
        return batch

    async def _run_batch(self, line: tuple[str, ...], interactive: float | None) -> Batch:
        data, log = Path(self.target.mdp.known_by).parent, self.folder / "batch.log"
        log.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "mdv.cli", "batch", *line, "--json", "--data", str(data)]
        program = Program(start_child(argv, log=log, env={**os.environ, "TMPDIR": str(self.folder)}), grace=60)
        began, over, used = time.perf_counter(), asyncio.Event(), Used(program.process.pid)
        try:
            async with asyncio.TaskGroup() as group:
                if interactive is not None:
                    group.create_task(self._sent.at_rate(interactive, over))
                async with meanwhile(used.watch(self.target.pids), self._tell(began)):
                    while not has_ended(program.process):
                        await asyncio.sleep(0.02)
                seconds = time.perf_counter() - began
                over.set()
        finally:
            program.stop()
        summary = _summary_in(log, how_it_ended(program.process))
        behind = await asyncio.to_thread(self._wait_for_lmrs)
        return Batch(summary, round(seconds, 3), used.memory, used.processor, self._sent.spread(), behind)

    async def _tell(self, began: float) -> None:
        def progress() -> str:
            with self.engine.connect() as connection:
                now = running(connection)
            if not any(run.documents for run in now):
                return "Spark starts, looks at what is there, or ends"
            done = sum(run.promoted + run.skipped + run.rejected for run in now)
            return f"{done:,} of {sum(run.documents or 0 for run in now):,} documents"

        while True:
            await asyncio.sleep(TOLD_EVERY)
            self.say(f"  {time.perf_counter() - began:.0f} s: {await asyncio.to_thread(progress)}")

    def _wait_for_lmrs(self) -> float:
        """The seconds until LMRs have all that the MDP has."""
        began, last = time.perf_counter(), self.mdp.get("/status")["position"]
        for lmr in self.lmrs:
            while lmr.get("/status", after=last, wait=10)["position"] < last:
                if time.perf_counter() - began > MOST_SECONDS:
                    raise Unavailable(f"An LMR has not come to position {last:,} within {MOST_SECONDS:g} s.")
                self.say("  waiting for an LMR")
        return round(time.perf_counter() - began, 3)

    def _copy(self, statements: int) -> tuple[int, float]:
        self.say(f"The bare COPY of {statements:,} statements.")
        with self.engine.begin() as connection:
            make_floor(connection)
        tidy(self.engine)
        copied, spent = 0, 0.0
        for rows, seconds in copy_again(self.engine, statements):
            copied, spent = copied + rows, spent + seconds
            self.say(f"  {copied:,} statements in {spent:.1f} s")
        return copied, spent

    # What must be there

    def _problems(self, batches: list[Batch], again: Batch) -> Iterator[str]:
        self.say("Checking what is there.")
        yield from (f"{count:,} requests ended with {how}." for how, count in self._sent.failed.items())
        for batch in batches:
            if batch.summary["refused"]:
                yield f"A batch refused {batch.summary['refused']:,} documents: {batch.summary['examples'][:1]}."
        due = self.catalogue.documents or sum(batch.summary["registered"] for batch in batches)
        asyncio.run(self._sent.until_done())
        there = self._count()
        if there != due + self._sent.done:
            yield f"{there:,} documents are there; {due:,} of the catalogue and {self._sent.done:,} others should be."
        if again.summary["unchanged"] != again.summary["documents"]:
            yield f"The same batch again found only {again.summary['unchanged']:,} documents unchanged."
        self._wait_for_lmrs()
        for lmr in self.lmrs:
            if mended := lmr.change("POST", "/verify", seconds=MOST_SECONDS)["mended"]:
                yield f"An LMR differed from the MDP in {len(mended)} of 256 buckets."
            wrong = lmr.change("POST", "/check", seconds=MOST_SECONDS)["problems"]
            yield from (f"An LMR holds something else than its closure: {problem}" for problem in wrong[:5])
            if not lmr.get("/status")["roots"]:
                yield "An LMR has nothing of what it follows."

    def _count(self) -> int:
        counted, after = 0, ""
        while after is not None:
            page = self.mdp.get("/documents", limit=LARGEST_PAGE, **({"after": after} if after else {}))
            counted, after = counted + len(page["items"]), page["next"]
        return counted


def _summary_in(log: Path, end: str) -> dict[str, Any]:
    """What a batch told in the end."""
    lines = log.read_text("utf-8", errors="replace").splitlines()
    for line in reversed(lines):
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    raise MdvError("mdv batch ended with {}. The end of what it said:\n{}".format(end, "\n".join(lines[-12:])))
