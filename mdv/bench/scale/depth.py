"""Measure rules with paths, chains of resources of the same length, and rules with many patterns."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from sqlalchemy import Engine

from mdv.bench.scale.fit import LINEAR
from mdv.bench.scale.nodes import SCHEMA, TURTLE, chain_of_nodes, path_rule
from mdv.bench.scale.series import PrintProgress, ScalePlan, ScaleResult, SizeSeries, TimedRound, measure_series
from mdv.bench.scale.store import ScaleStore
from mdv.bench.sql.bench_store import BenchDatabases, read_plan_bytes
from mdv.bench.sql.copy_floor import vacuum_analyze
from mdv.db.state import read_state
from mdv.mdp.rule_cache import RuleCache

DEPTHS = (1, 2, 4, 8)
GROUPS = (12, 48, 96)
SMALL_GROUPS = (3, 12)
"""Numbers of patterns for plans with fewer rules than the last of `GROUPS`."""
VALUE = 5
UNMATCHED_COMPARISONS = ("= 0", "!= 5", "< 5", "<= 4", "> 5", ">= 6")
"""Comparisons that are false for that value."""
EXTRA_CONDITIONS = ("", " and n.tag? = 'none'", " and n.tag? contains 'none'", " and n.tag? != 'none'")
MAX_RULES = 1000
BATCH = 100

CHAINS, PATHS = "depth: chains as long as the rules' paths", f"depth: paths, in chains of {DEPTHS[-1]}"
GROUPED = "groups: batches of 1"
GROUP_BYTES, PLAN_BYTES = "groups: bytes in a process", "groups: bytes of plans in a connection"


class ChainStore:
    """A store with rules over paths of one length, and chains of nodes that match one rule each."""

    def __init__(self, engine: Engine, steps: int, links: int, rules: int) -> None:
        self._store, self._links, self._next = ScaleStore(engine, SCHEMA, TURTLE), links, 0
        self._rules = rules
        self._store.follow([[path_rule(steps, f"= {number}") for number in range(rules)]])
        vacuum_analyze(engine)

    def turn(self, size: int) -> TimedRound:
        numbers = range(self._next, self._next + size)
        self._next += size
        texts = [chain_of_nodes(f"chain{number}", self._links, number % self._rules) for number in numbers]
        return self._store.turn(texts, matched=1, lmrs=1)


class GroupStore:
    """A store with rules of different patterns, all of which apply to a chain."""

    def __init__(self, engine: Engine, texts: Sequence[str]) -> None:
        self._store, self._next = ScaleStore(engine, SCHEMA, TURTLE), 0
        self._store.follow([texts])
        self.size = len(texts)
        vacuum_analyze(engine)

    def turn(self) -> TimedRound:
        """Register a chain that no rule matches."""
        self._next += 1
        return self._store.turn([chain_of_nodes(f"chain{self._next}", DEPTHS[-1], VALUE)], matched=0, lmrs=0)

    def plans(self) -> int:
        """Return the bytes of all plans of the connection that was used last."""
        with self._store.engine.begin() as connection:
            return read_plan_bytes(connection)

    def memory(self) -> int:
        """Return the additional memory of a process that has read all groups and built their statements."""
        bench = self._store.bench
        with self._store.engine.begin() as connection:
            gc.collect()
            tracemalloc.start()
            try:
                schema = bench.provider.schemas.now(connection)
                found = RuleCache().groups(connection, read_state(connection), schema, bench.provider.vocabulary)
                statements = [group.statement for group in found.groups]
                gc.collect()
                used, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        if len(statements) != self.size:
            raise AssertionError(f"{self.size} patterns made {len(statements)} groups.")
        return used


def measure_depth(databases: BenchDatabases, plan: ScalePlan, print_progress: PrintProgress) -> Iterator[ScaleResult]:
    """Measure paths of several lengths, and rule bases with several numbers of patterns."""
    rules = min(MAX_RULES, plan.rules)
    groups = GROUPS if plan.rules >= GROUPS[-1] else SMALL_GROUPS
    with ExitStack() as opened:
        print_progress(f"paths of {DEPTHS} steps")
        for name, grows, links in ((CHAINS, "steps", None), (PATHS, "steps", DEPTHS[-1])):
            stores = {
                steps: ChainStore(opened.enter_context(databases.new()), steps, links or steps, rules)
                for steps in DEPTHS
            }
            turns = {steps: partial(store.turn, BATCH) for steps, store in stores.items()}
            yield measure_series(name, grows, LINEAR, turns, [rules] * len(DEPTHS), BATCH, plan.rounds)
    with ExitStack() as opened:
        print_progress(f"rules of {groups} patterns")
        steps = range(1, DEPTHS[-1] + 1)
        patterns = [
            path_rule(some, unmet) + more
            for some in steps
            for unmet in UNMATCHED_COMPARISONS
            for more in EXTRA_CONDITIONS
        ]
        mixed = {size: patterns[:: len(patterns) // size] for size in groups}  # about equally many of each length
        grouped = {size: GroupStore(opened.enter_context(databases.new()), texts) for size, texts in mixed.items()}
        alone = {size: store.turn for size, store in grouped.items()}
        yield measure_series(GROUPED, "groups concerned", LINEAR, alone, groups, 1, plan.rounds_of(1))
        plans = tuple(float(store.plans()) for store in grouped.values())
        yield SizeSeries(PLAN_BYTES, "groups concerned", "bytes", groups, plans)
        memory = tuple(float(store.memory()) for store in grouped.values())
        yield SizeSeries(GROUP_BYTES, "groups", "bytes", groups, memory)
