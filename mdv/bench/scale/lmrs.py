"""Measure the number of LMRs: unaffected LMRs should cost nothing, and each notified one the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from sqlalchemy import Engine

from mdv.bench.rule_types import RULE_TYPES
from mdv.bench.scale.fit import CONSTANT, LINEAR
from mdv.bench.scale.series import PrintProgress, ScalePlan, ScaleResult, TimedRound, measure_series
from mdv.bench.scale.store import ScaleStore
from mdv.bench.sql.bench_store import BenchDatabases
from mdv.bench.sql.copy_floor import vacuum_analyze
from mdv.bench.workload import make_document

MATCHED_MEMORY = 7
"""The memory value of rules that match."""
FIRST_UNUSED_NUMBER = 1_000_000_000
"""Rules with this number or a higher one match no document."""
BATCH = 100

IDLE_IN_BATCHES, IDLE_ONE_BY_ONE = f"LMRs not affected: batches of {BATCH}", "LMRs not affected: batches of 1"
NOTIFIED = "LMRs notified: batches of 1"


class LmrStore:
    """A store whose documents affect some of the LMRs."""

    def __init__(self, engine: Engine, idle: int, notified: int) -> None:
        self.store, self._notified, self._next = ScaleStore(engine), notified, 0
        path = RULE_TYPES["path"]
        self.store.follow(
            [[path.rule(FIRST_UNUSED_NUMBER + number)] for number in range(idle)]
            + [[path.rule(MATCHED_MEMORY)] for _ in range(notified)]
        )
        vacuum_analyze(engine)

    def turn(self, size: int) -> TimedRound:
        """Register documents that affect all LMRs to be notified."""
        numbers = range(self._next, self._next + size)
        self._next += size
        return self.store.turn(
            [make_document(number, memory=MATCHED_MEMORY) for number in numbers], matched=1, lmrs=self._notified
        )


def measure_lmrs(databases: BenchDatabases, plan: ScalePlan, print_progress: PrintProgress) -> Iterator[ScaleResult]:
    """Measure two kinds of stores: one LMR is notified among others, and all LMRs are notified."""
    with ExitStack() as opened:
        idle, notified = {}, {}
        for size in plan.lmr_sizes:
            print_progress(f"{size:,} LMRs")
            idle[size] = LmrStore(opened.enter_context(databases.new()), size, 1)
            notified[size] = LmrStore(opened.enter_context(databases.new()), 0, size)
        for name, batch, law, grows, stores in (
            (IDLE_IN_BATCHES, BATCH, CONSTANT, "other LMRs", idle),
            (IDLE_ONE_BY_ONE, 1, CONSTANT, "other LMRs", idle),
            (NOTIFIED, 1, LINEAR, "LMRs notified", notified),
        ):
            turns = {size: partial(store.turn, batch) for size, store in stores.items()}
            yield measure_series(name, grows, law, turns, list(turns), batch, plan.rounds_of(batch))
