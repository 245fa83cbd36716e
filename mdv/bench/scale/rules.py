"""Rules that do not match: what a registration costs beside more and more of them, and what they weigh."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from mdv.bench.rulebase import TYPES
from mdv.bench.ruled_store import RuledStore
from mdv.bench.scale.fit import CONSTANT
from mdv.bench.scale.series import Found, Plan, Say, Timed, Weight, measure
from mdv.db.bench import RULE_TABLES, Databases, weigh

GROWS = "rules"
KINDS = ("path", "join")
BATCH = 100

PATH, JOIN = (f"rules: {TYPES[kind].name}" for kind in KINDS)
RULE_BYTES, RULE_INDEX_BYTES = f"{JOIN}, bytes on disk", f"{JOIN}, bytes of indexes"


def rules(databases: Databases, plan: Plan, say: Say) -> Iterator[Found]:
    """Rule bases of one type and of several sizes; each document is matched by one rule."""
    for name, kind in zip((PATH, JOIN), KINDS, strict=True):
        with ExitStack() as opened:
            stores = []
            for size in plan.rule_sizes:
                say(f"{size:,} rules of type {TYPES[kind].name}")
                stores.append(RuledStore(opened.enter_context(databases.new()), TYPES[kind], size))
            turns = {store.rules: partial(_turn, store) for store in stores}
            yield measure(name, GROWS, CONSTANT, turns, list(turns), BATCH, plan.rounds)
            if name == JOIN:
                yield from _weights(stores)


def _turn(store: RuledStore) -> Timed:
    seconds = store.insert(BATCH)
    return Timed(seconds.store, seconds.floor)


def _weights(stores: list[RuledStore]) -> Iterator[Weight]:
    weighed = []
    for store in stores:
        with store.engine.begin() as connection:
            weighed.append(weigh(connection, RULE_TABLES))
    rows = tuple(one.rows for one in weighed)
    yield Weight(RULE_BYTES, GROWS, "bytes", rows, tuple(one.total for one in weighed))
    yield Weight(RULE_INDEX_BYTES, GROWS, "bytes", rows, tuple(one.indexes for one in weighed))
