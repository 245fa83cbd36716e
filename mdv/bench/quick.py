"""Measure everything that users see on a whole system in under two minutes: registration over HTTP, subscriptions, the
feed, queries on the LMR and on the MDP, and a batch.

Each is compared with its lower bound, measured in the same rounds: for writes, the bare COPY and commit in the same
database; for reads, one HTTP round trip to the same server. Every response is checked.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from sqlalchemy import Engine

from mdv.bench.floor import CopyFloor
from mdv.bench.load import LoadTarget, PrintProgress
from mdv.bench.report import BenchResult
from mdv.bench.sql.bench_store import copy_rule_texts, create_rule_floor_table
from mdv.bench.workload import NAMESPACE, SCHEMA, make_document
from mdv.client import Client
from mdv.db.engine import make_engine
from mdv.errors import MdvError
from mdv.mdp.register import Prepared, prepare
from mdv.mdp.schemas import SchemaCache, SchemaInForce

COPY, RULE_COPY, ROUND_TRIP = "COPY and commit", "COPY and commit of the texts", "one round trip"
WARM_UP_ROUNDS = 3
MEDIA_TYPE = "application/rdf+xml"
FIRST_BATCH_NUMBER = 1_000_000
"""The documents of the batch have their own range of numbers."""


@dataclass(frozen=True, slots=True)
class QuickPlan:
    """The amounts to measure."""

    rounds: int = 25
    many: int = 1_000
    """Rules in one call, and documents in the batch."""


@dataclass(frozen=True, slots=True)
class QuickResult:
    """The cost of one operation, and the name of its floor."""

    result: BenchResult
    floor: str


def measure_quick(
    target: LoadTarget, plan: QuickPlan, folder: Path, print_progress: PrintProgress
) -> Iterator[QuickResult]:
    """Measure all operations on a dedicated system."""
    engine = make_engine(target.mdp.database_url)
    try:
        with Client(target.mdp) as mdp, Client(target.lmrs[0]) as lmr:
            mdp.put_schema(SCHEMA, "text/turtle")
            bench = _QuickBench(target, plan, folder, engine, mdp, lmr)
            for title, measure in (
                ("documents over HTTP, to the LMR", bench.documents),
                ("subscriptions", bench.subscriptions),
                ("the feed", bench.feed),
                ("queries", bench.queries),
                ("a batch on Spark", bench.batch),
            ):
                print_progress(f"Measuring {title}.")
                yield from measure()
    finally:
        engine.dispose()


@dataclass
class _QuickBench:
    target: LoadTarget
    plan: QuickPlan
    folder: Path
    engine: Engine
    mdp: Client
    lmr: Client
    done: int = 0
    floor: CopyFloor = field(init=False)
    schema: SchemaInForce = field(init=False)

    def __post_init__(self) -> None:
        self.floor = CopyFloor(self.engine)
        with self.engine.begin() as connection:
            self.schema = SchemaCache().now(connection)
            create_rule_floor_table(connection)

    def documents(self) -> Iterator[QuickResult]:
        """Register documents one by one, each until it is filtered and published, and then until the LMR has it."""
        self.lmr.change("POST", "/subscriptions", {"rule": _rule_for_all_documents("serverPort")})
        registered, visible, floors = [], [], []
        for number in range(self.plan.rounds + WARM_UP_ROUNDS):
            uri, body = make_document(number)
            began = time.perf_counter()
            answer = self.mdp.register(uri, body, MEDIA_TYPE)
            registered.append(time.perf_counter() - began)
            _check(answer["inserted"] == 2 and answer["matched"] == 1, f"the response for {uri} was {answer}")
            self.lmr.get("/status", after=answer["position"], wait=30)
            visible.append(time.perf_counter() - began)
            floors.append(self.floor.copy([self._prepared(uri, body)]))
        self.done = len(registered)
        yield _result("HTTP: a document registered", 0, 1, registered, floors, COPY)
        yield _result("HTTP: a document, until the LMR has it", 0, 1, visible, floors, COPY)

    def subscriptions(self) -> Iterator[QuickResult]:
        """Add rules to an LMR that is not running: one by one, and many in one call."""
        self.mdp.change("POST", "/lmrs", {"name": "quick"})
        singles, floors = [], []
        for number in range(self.plan.rounds + WARM_UP_ROUNDS):
            rule = _path_rule(number)
            singles.append(_timed(partial(self._subscribe, [rule])))
            floors.append(_timed(partial(self._copy_rules, number, [rule])))
        yield _result("HTTP: a rule subscribed", 0, 1, singles, floors, RULE_COPY)
        texts = [_path_rule(FIRST_BATCH_NUMBER + number) for number in range(self.plan.many)]
        ours = _timed(partial(self._subscribe, texts))
        floor = _timed(partial(self._copy_rules, FIRST_BATCH_NUMBER, texts))
        each = 1e6 / self.plan.many
        yield QuickResult(
            BenchResult("HTTP: rules subscribed in one call", 0, self.plan.many, ours * each, floor * each), RULE_COPY
        )
        stored = sum(1 for _ in self.mdp.items("/lmrs/quick/subscriptions"))
        _check(
            stored == len(singles) + len(texts),
            f"{stored} subscriptions are stored, expected {len(singles) + len(texts)}",
        )
        roots = self.mdp.get("/lmrs/quick")["roots"]
        _check(roots == self.done, f"{roots} resources are selected, expected {self.done}")

    def feed(self) -> Iterator[QuickResult]:
        """Read the whole snapshot of a new LMR."""
        ours, floors, events = [], [], 0
        for _ in range(self.plan.rounds + WARM_UP_ROUNDS):
            began = time.perf_counter()
            events = self._snapshot("quick")
            ours.append(time.perf_counter() - began)
            floors.append(_timed(self.mdp.is_alive))
        # One event for the schema; for each document, two resources and a match
        _check(events == 1 + 3 * self.done, f"the snapshot has {events} events")
        yield _result("feed: a snapshot, each event", 0, events, ours, floors, ROUND_TRIP)

    def queries(self) -> Iterator[QuickResult]:
        """Run the same queries on the LMR and on the MDP."""
        for name, query, rows in (
            ("by value", f"search CycleProvider c where c.synthValue = {self.done - 1} return c", 1),
            ("over a path", "search CycleProvider c where c.serverInformation.memory < 5 return c, c.serverHost", 5),
            ("all, in order", "search CycleProvider c return c, c.serverHost order by c.serverHost", self.done),
        ):
            for server, client in (("LMR", self.lmr), ("MDP", self.mdp)):
                ours, floors = [], []
                for _ in range(self.plan.rounds + WARM_UP_ROUNDS):
                    began = time.perf_counter()
                    found = client.post("/query", {"query": query})["rows"]
                    ours.append(time.perf_counter() - began)
                    floors.append(_timed(client.is_alive))
                    _check(len(found) == rows, f"{query!r} found {len(found)} rows at the {server}")
                yield _result(f"{server}: a query {name}", 0, 1, ours, floors, ROUND_TRIP)

    def batch(self) -> Iterator[QuickResult]:
        """Register a folder of documents with `mdv batch`."""
        folder = self.folder / "documents"
        folder.mkdir()
        documents = [make_document(FIRST_BATCH_NUMBER + number) for number in range(self.plan.many)]
        for uri, body in documents:
            (folder / uri.rpartition("/")[2]).write_bytes(body)
        began = time.perf_counter()
        summary = self._batch(folder, documents[0][0].rpartition("/")[0] + "/")
        total_seconds = time.perf_counter() - began
        _check(summary["registered"] == self.plan.many, f"the batch registered {summary['registered']} documents")
        floor = self.floor.copy([self._prepared(uri, body) for uri, body in documents])
        each = 1e6 / self.plan.many
        for name, seconds in (
            ("a document", float(summary["seconds"])),
            ("a document, with the start of Spark", total_seconds),
        ):
            yield QuickResult(BenchResult(f"batch: {name}", 0, self.plan.many, seconds * each, floor * each), COPY)

    def _subscribe(self, rules: Sequence[str]) -> None:
        body: Any = {"rule": rules[0]} if len(rules) == 1 else [{"rule": rule} for rule in rules]
        self.mdp.change("POST", "/lmrs/quick/subscriptions", body, seconds=120)

    def _copy_rules(self, first: int, texts: Sequence[str]) -> None:
        with self.engine.connect() as connection:
            copy_rule_texts(connection, first, texts)

    def _snapshot(self, lmr: str) -> int:
        """Return the number of events in a whole snapshot."""
        page = self.mdp.get(f"/lmrs/{lmr}/feed")
        events = len(page["events"])
        while not page["up_to_date"]:
            page = self.mdp.get(f"/lmrs/{lmr}/feed", after=page["cursor"])
            events += len(page["events"])
        return events

    def _batch(self, folder: Path, base: str) -> dict[str, Any]:
        data = str(Path(self.target.mdp.source).parent)
        argv = [sys.executable, "-m", "mdv.cli", "batch", str(folder), "--uri-base", base, "--json", "--data", data]
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=300)
        if ran.returncode:
            raise MdvError(f"mdv batch failed: {ran.stderr.strip()[-600:]}")
        summary: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
        return summary

    def _prepared(self, uri: str, body: bytes) -> Prepared:
        return prepare(uri, body, MEDIA_TYPE, self.schema)


def _rule_for_all_documents(name: str) -> str:
    """Return a rule that every document matches."""
    return f"search CycleProvider c register c where c.<{NAMESPACE}{name}> > 0"


def _path_rule(number: int) -> str:
    return f"search CycleProvider c register c where c.serverInformation.memory = {number}"


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _result(
    name: str, rules: int, batch: int, ours: Sequence[float], floors: Sequence[float], floor: str
) -> QuickResult:
    """Return the medians without the warm-up rounds, per item of the batch."""
    each = 1e6 / batch
    return QuickResult(
        BenchResult(name, rules, batch, each * median(ours[WARM_UP_ROUNDS:]), each * median(floors[WARM_UP_ROUNDS:])),
        floor,
    )


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(f"{otherwise}.")
