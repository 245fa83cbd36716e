"""LMRs: those that a change does not concern should cost nothing, and each that is told the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from sqlalchemy import Engine

from mdv.bench.rulebase import TYPES
from mdv.bench.scale.fit import CONSTANT, LINEAR
from mdv.bench.scale.series import Found, Plan, Say, Timed, measure
from mdv.bench.scale.store import Store
from mdv.bench.workload import rdf_xml
from mdv.db.bench import Databases
from mdv.db.floor import tidy

WANTED = 7
"""The memory that is asked for by rules that match."""
FAR = 1_000_000_000
"""From here on, rules ask for what no document has."""
BATCH = 100

IDLE_AT_ONCE, IDLE_ALONE = f"LMRs not concerned: batches of {BATCH}", "LMRs not concerned: batches of 1"
TOLD = "LMRs told: batches of 1"


class Followed:
    """A store whose documents concern some LMRs, and others not."""

    def __init__(self, engine: Engine, idle: int, told: int) -> None:
        self.store, self._told, self._next = Store(engine), told, 0
        path = TYPES["path"]
        self.store.follow(
            [[path.rule(FAR + number)] for number in range(idle)] + [[path.rule(WANTED)] for _ in range(told)]
        )
        tidy(engine)

    def turn(self, size: int) -> Timed:
        """Register that many documents, each of which concerns all that are to be told."""
        numbers = range(self._next, self._next + size)
        self._next += size
        return self.store.turn([rdf_xml(number, memory=WANTED) for number in numbers], matched=1, lmrs=self._told)


def lmrs(databases: Databases, plan: Plan, say: Say) -> Iterator[Found]:
    """Two kinds of stores: with one LMR that is told of everything among others, and with all of them told."""
    with ExitStack() as opened:
        idle, told = {}, {}
        for size in plan.lmr_sizes:
            say(f"{size:,} LMRs")
            idle[size] = Followed(opened.enter_context(databases.new()), size, 1)
            told[size] = Followed(opened.enter_context(databases.new()), 0, size)
        for name, batch, law, grows, stores in (
            (IDLE_AT_ONCE, BATCH, CONSTANT, "other LMRs", idle),
            (IDLE_ALONE, 1, CONSTANT, "other LMRs", idle),
            (TOLD, 1, LINEAR, "LMRs told", told),
        ):
            turns = {size: partial(store.turn, batch) for size, store in stores.items()}
            yield measure(name, grows, law, turns, list(turns), batch, plan.rounds_of(batch))
