"""Measure how registration depends on the number of rules, most of which do not match, and how much space they take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from mdv.bench.rule_store import RuleStore
from mdv.bench.rule_types import RULE_TYPES
from mdv.bench.scale.fit import CONSTANT
from mdv.bench.scale.series import PrintProgress, ScalePlan, ScaleResult, SizeSeries, TimedRound, measure_series
from mdv.bench.sql.bench_store import RULE_TABLES, BenchDatabases, read_total_sizes

GROWS_WITH = "rules"
MEASURED_RULE_TYPES = ("path", "join")
BATCH = 100

PATH, JOIN = (f"rules: {RULE_TYPES[kind].name}" for kind in MEASURED_RULE_TYPES)
RULE_BYTES, RULE_INDEX_BYTES = f"{JOIN}, bytes on disk", f"{JOIN}, bytes of indexes"


def measure_rules(databases: BenchDatabases, plan: ScalePlan, print_progress: PrintProgress) -> Iterator[ScaleResult]:
    """Measure rule bases of one type and several sizes. Each document matches one rule."""
    for name, kind in zip((PATH, JOIN), MEASURED_RULE_TYPES, strict=True):
        with ExitStack() as opened:
            stores = []
            for size in plan.rule_sizes:
                print_progress(f"{size:,} rules of type {RULE_TYPES[kind].name}")
                stores.append(RuleStore(opened.enter_context(databases.new()), RULE_TYPES[kind], size))
            turns = {store.rules: partial(_turn, store) for store in stores}
            yield measure_series(name, GROWS_WITH, CONSTANT, turns, list(turns), BATCH, plan.rounds)
            if name == JOIN:
                yield from _weights(stores)


def _turn(store: RuleStore) -> TimedRound:
    seconds = store.insert(BATCH)
    return TimedRound(seconds.store, seconds.floor)


def _weights(stores: list[RuleStore]) -> Iterator[SizeSeries]:
    table_sizes = []
    for store in stores:
        with store.engine.begin() as connection:
            table_sizes.append(read_total_sizes(connection, RULE_TABLES))
    rows = tuple(sizes.rows for sizes in table_sizes)
    yield SizeSeries(RULE_BYTES, GROWS_WITH, "bytes", rows, tuple(sizes.total for sizes in table_sizes))
    yield SizeSeries(RULE_INDEX_BYTES, GROWS_WITH, "bytes", rows, tuple(sizes.indexes for sizes in table_sizes))
