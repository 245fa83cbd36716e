"""Depth: rules that look along paths, chains of resources that are as long, and rules of many patterns."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from sqlalchemy import Engine

from mdv.bench.scale.fit import LINEAR
from mdv.bench.scale.nodes import SCHEMA, TURTLE, chain, path_rule
from mdv.bench.scale.series import Found, Plan, Say, Timed, Weight, measure
from mdv.bench.scale.store import Store
from mdv.db.bench import Databases, plan_bytes
from mdv.db.floor import tidy
from mdv.db.state import read_state
from mdv.mdp.rules import Rules

DEPTHS = (1, 2, 4, 8)
GROUPS = (12, 48, 96)
VALUE = 5
UNMET = ("= 0", "!= 5", "< 5", "<= 4", "> 5", ">= 6")
"""What that value is not."""
MORE = ("", " and n.tag? = 'none'", " and n.tag? contains 'none'", " and n.tag? != 'none'")
RULES = 1000
BATCH = 100

CHAINS, PATHS = "depth: chains as long as the rules' paths", f"depth: paths, in chains of {DEPTHS[-1]}"
GROUPED = "groups: batches of 1"
GROUP_BYTES, PLAN_BYTES = "groups: bytes in a process", "groups: bytes of plans in a connection"


class Chained:
    """A store with rules over paths of one length, and chains of nodes that each match one of them."""

    def __init__(self, engine: Engine, steps: int, links: int) -> None:
        self._store, self._links, self._next = Store(engine, SCHEMA, TURTLE), links, 0
        self._store.follow([[path_rule(steps, f"= {number}") for number in range(RULES)]])
        tidy(engine)

    def turn(self, size: int) -> Timed:
        numbers = range(self._next, self._next + size)
        self._next += size
        texts = [chain(f"chain{number}", self._links, number % RULES) for number in numbers]
        return self._store.turn(texts, matched=1, lmrs=1)


class Grouped:
    """A store with so many rules, no two of the same pattern, all of which a chain concerns."""

    def __init__(self, engine: Engine, texts: Sequence[str]) -> None:
        self._store, self._next = Store(engine, SCHEMA, TURTLE), 0
        self._store.follow([texts])
        self.size = len(texts)
        tidy(engine)

    def turn(self) -> Timed:
        """Register a chain that no rule matches."""
        self._next += 1
        return self._store.turn([chain(f"chain{self._next}", DEPTHS[-1], VALUE)], matched=0, lmrs=0)

    def plans(self) -> int:
        """The bytes of all plans that the connection keeps that was used last."""
        with self._store.engine.begin() as connection:
            return plan_bytes(connection)

    def memory(self) -> int:
        """The bytes that a process has more when it has read all groups, and made their statements."""
        bench = self._store.bench
        with self._store.engine.begin() as connection:
            gc.collect()
            tracemalloc.start()
            try:
                schema = bench.schemas.now(connection)
                found = Rules().groups(connection, read_state(connection), schema, bench.vocabulary)
                statements = [group.statement for group in found.groups]
                gc.collect()
                used, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        if len(statements) != self.size:
            raise AssertionError(f"{len(statements)} groups came of {self.size} patterns.")
        return used


def depth(databases: Databases, plan: Plan, say: Say) -> Iterator[Found]:
    """Paths of several lengths, and rules of several patterns."""
    with ExitStack() as opened:
        say(f"paths of {DEPTHS} steps")
        for name, grows, links in ((CHAINS, "steps", None), (PATHS, "steps", DEPTHS[-1])):
            stores = {steps: Chained(opened.enter_context(databases.new()), steps, links or steps) for steps in DEPTHS}
            turns = {steps: partial(store.turn, BATCH) for steps, store in stores.items()}
            yield measure(name, grows, LINEAR, turns, [RULES] * len(DEPTHS), BATCH, plan.rounds)
    with ExitStack() as opened:
        say(f"rules of {GROUPS} patterns")
        steps = range(1, DEPTHS[-1] + 1)
        patterns = [path_rule(some, unmet) + more for some in steps for unmet in UNMET for more in MORE]
        mixed = {size: patterns[:: len(patterns) // size] for size in GROUPS}  # of each length about as many
        grouped = {size: Grouped(opened.enter_context(databases.new()), texts) for size, texts in mixed.items()}
        alone = {size: store.turn for size, store in grouped.items()}
        yield measure(GROUPED, "groups concerned", LINEAR, alone, GROUPS, 1, plan.rounds_of(1))
        plans = tuple(float(store.plans()) for store in grouped.values())
        yield Weight(PLAN_BYTES, "groups concerned", "bytes", GROUPS, plans)
        memory = tuple(float(store.memory()) for store in grouped.values())
        yield Weight(GROUP_BYTES, "groups", "bytes", GROUPS, memory)
