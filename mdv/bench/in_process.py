"""Register the documents of a load in one process, without web server, queue and worker, with the same rules and LMRs.

The comparison shows how much of the load's cost is spent before the filter. The floor is the bare COPY and commit of
the same statements.
"""

from __future__ import annotations

import time
from statistics import median

from sqlalchemy import Engine

from mdv.bench.load_documents import DocumentChange, LoadDocuments, LoadWorkload
from mdv.bench.registration import RegistrationBench
from mdv.bench.report import BenchResult
from mdv.bench.rule_store import RULES_PER_CALL, time_filter
from mdv.bench.sql.copy_floor import vacuum_analyze
from mdv.mdp.lmrs import create_lmr
from mdv.mdp.register import Prepared, prepare, register
from mdv.mdp.rules.add import add_rules
from mdv.mdp.rules.planning import RuleDraft

WARM_UP_ROUNDS = 3


class InProcessBench:
    """A store with the rules and the LMRs of a load. No LMR is running."""

    def __init__(self, engine: Engine, workload: LoadWorkload, lmrs: int, updates: float) -> None:
        self._bench, self._workload, self._updates = RegistrationBench(engine), workload, updates
        self._schema = self._bench.schema()
        self._documents = LoadDocuments(workload)
        self._subscribe("idle", list(workload.rule_base()))
        for number in range(lmrs):
            self._subscribe(f"lmr-{number}", [workload.rule_for_all])
        vacuum_analyze(engine)

    def measure(self, size: int, rounds: int) -> BenchResult:
        """Measure text to commit, and the filter separately, in batches of one size."""
        total_seconds, filter_seconds, floor_seconds = [], [], []
        for _ in range(rounds + WARM_UP_ROUNDS):
            changes = [self._documents.next(self._updates) for _ in range(size)]
            with time_filter() as clock:
                began = time.perf_counter()
                batch = self._register(changes)
                total_seconds.append(time.perf_counter() - began)
            filter_seconds.append(sum(clock))
            floor_seconds.append(self._bench.floor.copy(batch))
            for change in changes:
                self._documents.done(change)
        medians = [
            1e6 / size * median(seconds[WARM_UP_ROUNDS:]) for seconds in (total_seconds, filter_seconds, floor_seconds)
        ]
        return BenchResult(
            "in process: text to commit", self._workload.rules, size, medians[0], medians[2], {"filter": medians[1]}
        )

    def _register(self, changes: list[DocumentChange]) -> list[Prepared]:
        batch = [prepare(change.uri, change.body, "application/rdf+xml", self._schema) for change in changes]
        bench = self._bench
        with bench.engine.begin() as connection:
            register(connection, batch, bench.provider)
        return batch

    def _subscribe(self, name: str, texts: list[str]) -> None:
        bench = self._bench
        with bench.engine.begin() as connection:
            lmr, _ = create_lmr(connection, name)
        for first in range(0, len(texts), RULES_PER_CALL):
            drafts = [RuleDraft(lmr.id, None, text) for text in texts[first : first + RULES_PER_CALL]]
            with bench.engine.begin() as connection:
                add_rules(connection, drafts, bench.provider)
