"""What a registration costs: text to durable commit, against the floor and against the size of the store.

The floor is the bare COPY and commit of the same statements, encoded beforehand, into a table like `filter_data` with
the same indexes. Machines are noisy, so ours and floor take turns round by round, and medians are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median

from sqlalchemy import Engine

from mdv.bench.floor import Floor
from mdv.bench.report import Result
from mdv.bench.workload import SCHEMA, rdf_xml
from mdv.db.floor import tidy
from mdv.db.vocabulary import Vocabulary
from mdv.garbage import look_rarely
from mdv.mdp.put_schema import put_schema
from mdv.mdp.register import Prepared, prepare, register
from mdv.mdp.rules import Rules
from mdv.mdp.schemas import SchemaInForce, Schemas, read_schema_document

Say = Callable[[str], None]


@dataclass
class Bench:
    """A store to measure on, and the numbers of the documents not used yet."""

    engine: Engine
    schemas: Schemas = field(default_factory=Schemas)
    rules: Rules = field(default_factory=Rules)
    next_number: int = 0
    turtle: bytes = SCHEMA

    def __post_init__(self) -> None:
        look_rarely()  # as workers do
        self.vocabulary = Vocabulary(self.engine)
        with self.engine.begin() as connection:
            put_schema(
                connection, read_schema_document(self.turtle, "text/turtle"), self.schemas, self.vocabulary, self.rules
            )
        self.floor = Floor(self.engine)

    def schema(self) -> SchemaInForce:
        with self.engine.begin() as connection:
            return self.schemas.now(connection)

    def prepared(self, count: int) -> list[Prepared]:
        """That many new documents, from their text."""
        schema = self.schema()
        numbers = range(self.next_number, self.next_number + count)
        self.next_number += count
        return [prepare(uri, body, "application/rdf+xml", schema) for uri, body in map(rdf_xml, numbers)]

    def register(self, batch: list[Prepared]) -> None:
        with self.engine.begin() as connection:
            answers = register(connection, batch, self.schemas, self.vocabulary, self.rules)
        inserted = sum(getattr(answer, "inserted", 0) for answer in answers)
        if inserted != 2 * len(batch):
            raise AssertionError(f"{inserted} resources came of {len(batch)} documents of two")

    def fill(self, count: int, say: Say) -> None:
        """Register `count` documents, to see what a full store changes."""
        for done in range(0, count, 1000):
            self.register(self.prepared(min(1000, count - done)))
            if done % 10_000 == 0:
                say(f"  {done:,} of {count:,} documents stored")
        if count:
            tidy(self.engine)


def measure(bench: Bench, name: str, batches: tuple[int, ...], rounds: int) -> Iterator[Result]:
    """Text to commit, and its store part alone, for each size of batch."""
    for size in batches:
        whole: list[float] = []
        store: list[float] = []
        floor: list[float] = []
        for round_number in range(rounds + 2):
            began = time.perf_counter()
            batch = bench.prepared(size)
            ready = time.perf_counter()
            bench.register(batch)
            done = time.perf_counter()
            cost = bench.floor.copy(batch)
            if round_number >= 2:  # the first rounds warm caches and plans
                whole.append(done - began)
                store.append(done - ready)
                floor.append(cost)
        per = 1e6 / size
        yield Result(f"{name}: text to commit", 0, size, median(whole) * per, median(floor) * per)
        yield Result(f"{name}: difference and store", 0, size, median(store) * per, median(floor) * per)
