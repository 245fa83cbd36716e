"""Every way that users see, on a whole system, in under two minutes: registration over HTTP, subscriptions, the feed,
queries at the LMR and at the MDP, a batch.

Beside each stands the least that it could cost, measured in the same rounds: for what is written, the bare COPY and
commit of it in the same database; for what is read, one round trip over HTTP to the same server. Every answer is
checked.
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

from mdv.bench.floor import Floor
from mdv.bench.load import Say, Target
from mdv.bench.report import Result
from mdv.bench.workload import NAMESPACE, SCHEMA, rdf_xml
from mdv.client import Client
from mdv.db.bench import copy_rule_floor, make_rule_floor
from mdv.db.engine import make_engine
from mdv.errors import MdvError
from mdv.mdp.register import Prepared, prepare
from mdv.mdp.schemas import SchemaInForce, Schemas

COPY, RULE_COPY, TRIP = "COPY and commit", "COPY and commit of the texts", "one round trip"
WARM_UP = 3
TYPE = "application/rdf+xml"
FIRST_OF_BATCH = 1_000_000
"""The documents of the batch have numbers of their own."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything."""

    rounds: int = 25
    many: int = 1_000
    """Rules of one call, events of a snapshot, documents of the batch."""


@dataclass(frozen=True, slots=True)
class Way:
    """What one way costs, and what its floor is."""

    result: Result
    floor: str


def measure_quick(target: Target, plan: Plan, folder: Path, say: Say) -> Iterator[Way]:
    """All ways, on a system that is there for nothing else."""
    engine = make_engine(target.mdp.database_url)
    try:
        with Client(target.mdp) as mdp, Client(target.lmrs[0]) as lmr:
            mdp.put_schema(SCHEMA, "text/turtle")
            ways = _Ways(target, plan, folder, engine, mdp, lmr)
            for words, measured in (
                ("documents over HTTP, to the LMR", ways.documents),
                ("subscriptions", ways.subscriptions),
                ("the feed", ways.feed),
                ("queries", ways.queries),
                ("a batch on Spark", ways.batch),
            ):
                say(f"Measuring {words}.")
                yield from measured()
    finally:
        engine.dispose()


@dataclass
class _Ways:
    target: Target
    plan: Plan
    folder: Path
    engine: Engine
    mdp: Client
    lmr: Client
    done: int = 0
    floor: Floor = field(init=False)
    schema: SchemaInForce = field(init=False)

    def __post_init__(self) -> None:
        self.floor = Floor(self.engine)
        with self.engine.begin() as connection:
            self.schema = Schemas().now(connection)
            make_rule_floor(connection)

    def documents(self) -> Iterator[Way]:
        """Registered one by one, each answered when it is filtered and published; and then seen at the LMR."""
        self.lmr.change("POST", "/subscriptions", {"rule": _everything("serverPort")})
        registered, seen, floors = [], [], []
        for number in range(self.plan.rounds + WARM_UP):
            uri, body = rdf_xml(number)
            began = time.perf_counter()
            answer = self.mdp.register(uri, body, TYPE)
            registered.append(time.perf_counter() - began)
            _expect(answer["inserted"] == 2 and answer["matched"] == 1, f"{uri} was answered {answer}")
            self.lmr.get("/status", after=answer["position"], wait=30)
            seen.append(time.perf_counter() - began)
            floors.append(self.floor.copy([self._prepared(uri, body)]))
        self.done = len(registered)
        yield _way("HTTP: a document registered", 0, 1, registered, floors, COPY)
        yield _way("HTTP: a document, until the LMR has it", 0, 1, seen, floors, COPY)

    def subscriptions(self) -> Iterator[Way]:
        """Rules for an LMR that nobody runs: one by one, and very many in a call."""
        self.mdp.change("POST", "/lmrs", {"name": "quick"})
        singles, floors = [], []
        for number in range(self.plan.rounds + WARM_UP):
            rule = _path_rule(number)
            singles.append(_timed(partial(self._subscribe, [rule])))
            floors.append(_timed(partial(self._copy_rules, number, [rule])))
        yield _way("HTTP: a rule subscribed", 0, 1, singles, floors, RULE_COPY)
        texts = [_path_rule(FIRST_OF_BATCH + number) for number in range(self.plan.many)]
        ours = _timed(partial(self._subscribe, texts))
        floor = _timed(partial(self._copy_rules, FIRST_OF_BATCH, texts))
        each = 1e6 / self.plan.many
        yield Way(Result("HTTP: rules subscribed in one call", 0, self.plan.many, ours * each, floor * each), RULE_COPY)
        there = sum(1 for _ in self.mdp.items("/lmrs/quick/subscriptions"))
        _expect(there == len(singles) + len(texts), f"{there} subscriptions are there")
        roots = self.mdp.get("/lmrs/quick")["roots"]
        _expect(roots == self.done, f"{roots} resources are selected, not {self.done}")

    def feed(self) -> Iterator[Way]:
        """What an LMR that knows nothing yet is sent, whole."""
        ours, floors, events = [], [], 0
        for _ in range(self.plan.rounds + WARM_UP):
            began = time.perf_counter()
            events = self._snapshot("quick")
            ours.append(time.perf_counter() - began)
            floors.append(_timed(self.mdp.is_alive))
        # a schema; two resources and a match for each document
        _expect(events == 1 + 3 * self.done, f"a snapshot of {events} events")
        yield _way("feed: a snapshot, each event", 0, events, ours, floors, TRIP)

    def queries(self) -> Iterator[Way]:
        """The same questions near their users and at the MDP."""
        for name, query, rows in (
            ("by value", f"search CycleProvider c where c.synthValue = {self.done - 1} return c", 1),
            ("over a path", "search CycleProvider c where c.serverInformation.memory < 5 return c, c.serverHost", 5),
            ("all, in order", "search CycleProvider c return c, c.serverHost order by c.serverHost", self.done),
        ):
            for server, client in (("LMR", self.lmr), ("MDP", self.mdp)):
                ours, floors = [], []
                for _ in range(self.plan.rounds + WARM_UP):
                    began = time.perf_counter()
                    found = client.post("/query", {"query": query})["rows"]
                    ours.append(time.perf_counter() - began)
                    floors.append(_timed(client.is_alive))
                    _expect(len(found) == rows, f"{query!r} found {len(found)} rows at the {server}")
                yield _way(f"{server}: a query {name}", 0, 1, ours, floors, TRIP)

    def batch(self) -> Iterator[Way]:
        """A folder of documents through `mdv batch`."""
        folder = self.folder / "documents"
        folder.mkdir()
        documents = [rdf_xml(FIRST_OF_BATCH + number) for number in range(self.plan.many)]
        for uri, body in documents:
            (folder / uri.rpartition("/")[2]).write_bytes(body)
        began = time.perf_counter()
        summary = self._batch(folder, documents[0][0].rpartition("/")[0] + "/")
        whole = time.perf_counter() - began
        _expect(summary["registered"] == self.plan.many, f"the batch registered {summary['registered']} documents")
        floor = self.floor.copy([self._prepared(uri, body) for uri, body in documents])
        each = 1e6 / self.plan.many
        for name, seconds in (
            ("a document", float(summary["seconds"])),
            ("a document, with the start of Spark", whole),
        ):
            yield Way(Result(f"batch: {name}", 0, self.plan.many, seconds * each, floor * each), COPY)

    def _subscribe(self, rules: Sequence[str]) -> None:
        body: Any = {"rule": rules[0]} if len(rules) == 1 else [{"rule": rule} for rule in rules]
        self.mdp.change("POST", "/lmrs/quick/subscriptions", body, seconds=120)

    def _copy_rules(self, first: int, texts: Sequence[str]) -> None:
        with self.engine.connect() as connection:
            copy_rule_floor(connection, first, texts)

    def _snapshot(self, lmr: str) -> int:
        """How many events a whole snapshot has."""
        page = self.mdp.get(f"/lmrs/{lmr}/feed")
        events = len(page["events"])
        while not page["up_to_date"]:
            page = self.mdp.get(f"/lmrs/{lmr}/feed", after=page["cursor"])
            events += len(page["events"])
        return events

    def _batch(self, folder: Path, base: str) -> dict[str, Any]:
        data = str(Path(self.target.mdp.known_by).parent)
        argv = [sys.executable, "-m", "mdv.cli", "batch", str(folder), "--uri-base", base, "--json", "--data", data]
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=300)
        if ran.returncode:
            raise MdvError(f"mdv batch failed: {ran.stderr.strip()[-600:]}")
        summary: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
        return summary

    def _prepared(self, uri: str, body: bytes) -> Prepared:
        return prepare(uri, body, TYPE, self.schema)


def _everything(name: str) -> str:
    """A rule that every document matches."""
    return f"search CycleProvider c register c where c.<{NAMESPACE}{name}> > 0"


def _path_rule(number: int) -> str:
    return f"search CycleProvider c register c where c.serverInformation.memory = {number}"


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _way(name: str, rules: int, batch: int, ours: Sequence[float], floors: Sequence[float], floor: str) -> Way:
    """Medians without the rounds that warmed up, for each of a batch."""
    each = 1e6 / batch
    return Way(Result(name, rules, batch, each * median(ours[WARM_UP:]), each * median(floors[WARM_UP:])), floor)


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(f"{otherwise}.")
