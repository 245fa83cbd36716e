"""Measure how registration depends on the number of stored documents, and how much space they take.

There are a thousand rules of all types, from two LMRs. Every document, stored or new, matches one PATH, one JOIN and
one `contains` rule, half of the COMP rules and nearly all `!=` rules. So both LMRs are notified of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from sqlalchemy import Engine

from mdv.bench.rule_types import RULE_TYPES, comp_rules
from mdv.bench.scale.fit import CONSTANT
from mdv.bench.scale.series import PrintProgress, ScalePlan, ScaleResult, SizeSeries, TimedRound, measure_series
from mdv.bench.scale.store import DocumentText, ScaleStore
from mdv.bench.sql.bench_store import (
    DOCUMENT_TABLES,
    FEED_TABLES,
    LMR_TABLES,
    BenchDatabases,
    TableSizes,
    read_total_sizes,
)
from mdv.bench.workload import make_document, provider_uri
from mdv.mdp.feed import FeedReader

GROWS_WITH = "stored documents"
RULES = 1000
LMRS = 2
EVENTS_PER_DOCUMENT = 3
"""Events of one document for one LMR: two resources are put, and one of them matches."""
FIRST_UNUSED_NUMBER = 1_000_000_000
"""Rules with this number or a higher one name resources that do not exist."""
BATCHES = (100, 1)
SNAPSHOTS = 3
"""Number of snapshots. The fastest one counts, because interference only makes them longer."""

IN_BATCHES, ONE_BY_ONE = (f"documents: batches of {size}" for size in BATCHES)
DOCUMENT_BYTES, INDEX_BYTES = "documents: bytes on disk", "documents: bytes of indexes"
HELD_BYTES, HELD_INDEX_BYTES = "held resources: bytes on disk", "held resources: bytes of indexes"
EVENT_BYTES = "feed events: bytes on disk"
VACUUM, SNAPSHOT = "documents: vacuum", "held resources: snapshot"


class DocumentStore:
    """A store with a number of documents. `vacuum` is the duration of its first vacuum in seconds."""

    def __init__(self, engine: Engine, stored: int, rules: int = RULES) -> None:
        self.store, self.size = ScaleStore(engine), stored
        exact, ranges = [RULE_TYPES[name] for name in ("path", "join", "contains")], [comp_rules(1), RULE_TYPES["ne"]]
        types = len(exact) + len(ranges) + 1
        self._each = max(1, rules // types)
        self.rules = self._each * types
        numbers = range(self._each)
        nowhere = [RULE_TYPES["oid"].rule(FIRST_UNUSED_NUMBER + number) for number in numbers]
        one, two = self.store.follow(
            [[t.rule(n) for t in exact for n in numbers] + nowhere, [t.rule(n) for t in ranges for n in numbers]]
        )
        self._exact = [one[place : place + self._each] for place in range(0, len(exact) * self._each, self._each)]
        above, other = two[: self._each], two[self._each :]
        self._synth = self._each // 2
        self._ranged = [*above[: self._synth], *other[: self._synth], *other[self._synth + 1 :]]
        self.vacuum = self.store.fill(map(self._document, range(stored)))
        self._next = stored

    def turn(self, size: int) -> TimedRound:
        """Register new documents and check all results of the filter."""
        numbers = range(self._next, self._next + size)
        self._next += size
        timed = self.store.turn([self._document(number) for number in numbers], matched=1, lmrs=LMRS)
        due = {(end, provider_uri(number), True) for number in numbers for end in self._matching(number)}
        found = self.store.changes()
        if len(found) != len(due) or set(found) != due:
            raise AssertionError(f"{self.size:,} stored documents: {len(found)} changes, expected {len(due)}.")
        return timed

    def _document(self, number: int) -> DocumentText:
        place = number % self._each
        return make_document(number, place, self._synth, place)

    def _matching(self, number: int) -> list[int]:
        return [ends[number % self._each] for ends in self._exact] + self._ranged

    def read_total_sizes(self, names: tuple[str, ...], each: int) -> TableSizes:
        """Return the sizes of tables. The first table must have `each` rows per document."""
        with self.store.engine.begin() as connection:
            table_sizes = read_total_sizes(connection, names)
        if table_sizes.rows != each * self._next:
            raise AssertionError(
                f"{names[0]} has {table_sizes.rows:,} rows for {self._next:,} documents, expected {each} for each."
            )
        return table_sizes

    def snapshot(self) -> float:
        """Return the seconds until an LMR gets the first page of a snapshot."""
        seconds = []
        for _ in range(SNAPSHOTS):
            self.turn(1)  # without a new change, the LMR would get the previous snapshot
            feeds = FeedReader(self.store.engine, self.store.bench.provider.vocabulary)
            began = time.perf_counter()
            page = feeds.read(self.store.lmrs[1], None)
            seconds.append(time.perf_counter() - began)
            if not page.events:
                raise AssertionError("The snapshot of an LMR is empty.")
        return min(seconds)


def measure_documents(
    databases: BenchDatabases, plan: ScalePlan, print_progress: PrintProgress
) -> Iterator[ScaleResult]:
    """Measure registration and the size of the tables in stores of several sizes."""
    with ExitStack() as opened:
        stores = []
        for size in plan.document_sizes:
            print_progress(f"{size:,} documents to store")
            stores.append(DocumentStore(opened.enter_context(databases.new()), size))
        yield from _weights(stores)
        for name, batch in zip((IN_BATCHES, ONE_BY_ONE), BATCHES, strict=True):
            turns = {store.size: partial(store.turn, batch) for store in stores}
            yield measure_series(
                name, GROWS_WITH, CONSTANT, turns, [store.rules for store in stores], batch, plan.rounds_of(batch)
            )
        held = [store.read_total_sizes(LMR_TABLES, 2 * LMRS).rows // LMRS for store in stores]
        yield SizeSeries(SNAPSHOT, "resources of an LMR", "s", tuple(held), tuple(store.snapshot() for store in stores))


def _weights(stores: list[DocumentStore]) -> Iterator[SizeSeries]:
    sizes = tuple(store.size for store in stores)
    stored, held, events = (
        [store.read_total_sizes(tables, each) for store in stores]
        for tables, each in ((DOCUMENT_TABLES, 1), (LMR_TABLES, 2 * LMRS), (FEED_TABLES, EVENTS_PER_DOCUMENT * LMRS))
    )
    yield SizeSeries(DOCUMENT_BYTES, GROWS_WITH, "bytes", sizes, tuple(one.total for one in stored))
    yield SizeSeries(INDEX_BYTES, GROWS_WITH, "bytes", sizes, tuple(one.indexes for one in stored))
    rows = tuple(one.rows for one in held)
    yield SizeSeries(HELD_BYTES, "resources held by LMRs", "bytes", rows, tuple(one.total for one in held))
    yield SizeSeries(HELD_INDEX_BYTES, "resources held by LMRs", "bytes", rows, tuple(one.indexes for one in held))
    rows = tuple(one.rows for one in events)
    yield SizeSeries(EVENT_BYTES, "events kept", "bytes", rows, tuple(one.total for one in events))
    yield SizeSeries(VACUUM, GROWS_WITH, "s", sizes, tuple(store.vacuum for store in stores))
