"""The same documents without web, queue and worker: register() in one process, against the same rules and LMRs.

It tells how much of a load's cost is that of the way to the filter. The floor is the bare COPY and commit of the same
statements.
"""

from __future__ import annotations

import time
from statistics import median

from sqlalchemy import Engine

from mdv.bench.loaded import Change, Documents, Workload
from mdv.bench.registration import Bench
from mdv.bench.report import Result
from mdv.bench.ruled_store import CALL, filter_clock
from mdv.db.floor import tidy
from mdv.mdp.register import Prepared, prepare, register
from mdv.mdp.rules import RuleDraft, add_rules
from mdv.mdp.subscribe import create_lmr

WARM_UP = 3


class Alone:
    """A store with the rules of a load and its LMRs, none of which runs."""

    def __init__(self, engine: Engine, workload: Workload, lmrs: int, updates: float) -> None:
        self._bench, self._workload, self._updates = Bench(engine), workload, updates
        self._schema = self._bench.schema()
        self._documents = Documents(workload)
        self._add("idle", list(workload.rule_base()))
        for number in range(lmrs):
            self._add(f"lmr-{number}", [workload.rule_for_all])
        tidy(engine)

    def measure(self, size: int, rounds: int) -> Result:
        """Text to commit, the filter's share apart, in batches of one size."""
        whole, filtered, floor = [], [], []
        for _ in range(rounds + WARM_UP):
            changes = [self._documents.next(self._updates) for _ in range(size)]
            with filter_clock() as clock:
                began = time.perf_counter()
                batch = self._register(changes)
                whole.append(time.perf_counter() - began)
            filtered.append(sum(clock))
            floor.append(self._bench.floor.copy(batch))
            for change in changes:
                self._documents.done(change)
        each = [1e6 / size * median(seconds[WARM_UP:]) for seconds in (whole, filtered, floor)]
        return Result("in process: text to commit", self._workload.rules, size, each[0], each[2], {"filter": each[1]})

    def _register(self, changes: list[Change]) -> list[Prepared]:
        batch = [prepare(change.uri, change.body, "application/rdf+xml", self._schema) for change in changes]
        bench = self._bench
        with bench.engine.begin() as connection:
            register(connection, batch, bench.schemas, bench.vocabulary, bench.rules)
        return batch

    def _add(self, name: str, texts: list[str]) -> None:
        bench = self._bench
        with bench.engine.begin() as connection:
            lmr, _ = create_lmr(connection, name)
        for first in range(0, len(texts), CALL):
            drafts = [RuleDraft(lmr.id, None, text) for text in texts[first : first + CALL]]
            with bench.engine.begin() as connection:
                add_rules(connection, drafts, bench.schemas, bench.vocabulary, bench.rules)
