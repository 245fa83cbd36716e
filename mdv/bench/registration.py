"""Measure registration, from text to durable commit, against the floor and the size of the store.

The floor is the bare COPY and commit of the same encoded statements into a table like `filter_data` with the same
indexes. Machines are noisy, so MDV and the floor take turns round by round, and medians are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from sqlalchemy import Connection, Engine

from mdv.bench.floor import CopyFloor
from mdv.bench.report import BenchResult
from mdv.bench.sql.copy_floor import vacuum_analyze
from mdv.bench.workload import SCHEMA, make_document
from mdv.gc_tuning import tune_gc
from mdv.mdp.provider import Provider
from mdv.mdp.put_schema import put_schema
from mdv.mdp.register import Prepared, prepare, register
from mdv.mdp.schemas import SchemaInForce, read_schema_document

PrintProgress = Callable[[str], None]


@dataclass
class RegistrationBench:
    """A store to measure, and the number of the next document."""

    engine: Engine
    next_number: int = 0
    turtle: bytes = SCHEMA

    def __post_init__(self) -> None:
        tune_gc()  # as in workers
        self.provider = Provider(self.engine)
        with self.engine.begin() as connection:
            put_schema(connection, read_schema_document(self.turtle, "text/turtle"), self.provider)
        self.floor = CopyFloor(self.engine)

    def schema(self) -> SchemaInForce:
        with self.engine.begin() as connection:
            return self.provider.schemas.now(connection)

    def prepared(self, count: int) -> list[Prepared]:
        """Return new documents, prepared from their texts."""
        schema = self.schema()
        numbers = range(self.next_number, self.next_number + count)
        self.next_number += count
        return [prepare(uri, body, "application/rdf+xml", schema) for uri, body in map(make_document, numbers)]

    def register(self, batch: list[Prepared]) -> None:
        with self.engine.begin() as connection:
            answers = register(connection, batch, self.provider)
        inserted = sum(getattr(answer, "inserted", 0) for answer in answers)
        if inserted != 2 * len(batch):
            raise AssertionError(f"{len(batch)} documents of two resources each inserted {inserted} resources")

    def replace(self, connection: Connection, batch: list[Prepared]) -> None:
        """Register new versions of documents."""
        register(connection, batch, self.provider)

    def fill(self, count: int, print_progress: PrintProgress) -> None:
        """Register `count` documents, to measure a full store."""
        for done in range(0, count, 1000):
            self.register(self.prepared(min(1000, count - done)))
            if done % 10_000 == 0:
                print_progress(f"  {done:,} of {count:,} documents stored")
        if count:
            vacuum_analyze(self.engine)


def measure_registration(
    bench: RegistrationBench, name: str, batches: tuple[int, ...], rounds: int
) -> Iterator[BenchResult]:
    """Measure text to commit, and difference and store alone, for each batch size."""
    for size in batches:
        total: list[float] = []
        storing: list[float] = []
        floor: list[float] = []
        for round_number in range(rounds + 2):
            began = time.perf_counter()
            batch = bench.prepared(size)
            ready = time.perf_counter()
            bench.register(batch)
            done = time.perf_counter()
            cost = bench.floor.copy(batch)
            if round_number >= 2:  # the first rounds fill caches and plans
                total.append(done - began)
                storing.append(done - ready)
                floor.append(cost)
        per_document = 1e6 / size
        yield BenchResult(
            f"{name}: text to commit", 0, size, median(total) * per_document, median(floor) * per_document
        )
        yield BenchResult(
            f"{name}: difference and store", 0, size, median(storing) * per_document, median(floor) * per_document
        )
