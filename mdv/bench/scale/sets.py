"""Measure large sets: the values of one property of a resource, and the resources that refer to a resource."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from sqlalchemy import Engine

from mdv.bench.scale.fit import LINEAR
from mdv.bench.scale.nodes import (
    SCHEMA,
    TURTLE,
    document_uri,
    node_uri,
    path_rule,
    referring_nodes,
    tag_rule,
    tagged_node,
    valued_node,
)
from mdv.bench.scale.series import PrintProgress, ScalePlan, ScaleResult, TimedRound, measure_series
from mdv.bench.scale.store import DocumentText, ScaleStore
from mdv.bench.sql.bench_store import BenchDatabases

RULES = 1000
MAX_NODES_PER_DOCUMENT = 100
"""Maximum number of referring nodes in one document."""
HUB, SET, OTHER = "hub", "set", "other"
FIRST_UNUSED_NUMBER = 1_000_000_000

SAME_DOCUMENT, OTHER_DOCUMENT = "sets: one value more", "sets: one value more, from another document"
MATCHED, UNMATCHED = "referrers: all start to match", "referrers: none matches"


class TagStore:
    """A store with one node that has many tags, none of which is in a rule."""

    def __init__(self, engine: Engine, size: int) -> None:
        self._store = ScaleStore(engine, SCHEMA, TURTLE)
        self._store.follow([[tag_rule(f"wanted {number}") for number in range(RULES)]])
        self._node, self._tags = node_uri(SET, 0), [f"tag {number}" for number in range(size)]
        self._store.fill([self._document()])
        self._turn = 0

    def add(self) -> TimedRound:
        """Add a tag that matches one rule, in the same document, and remove it afterwards."""
        timed = self._store.turn([self._document(self._next_tag())], matched=1, lmrs=1)
        self._store.turn([self._document()], matched=0, lmrs=1)
        return timed

    def add_in_other_document(self) -> TimedRound:
        """Add such a tag in another document, and delete that document afterwards."""
        timed = self._store.turn([tagged_node(OTHER, self._node, [self._next_tag()])], matched=1, lmrs=1)
        self._store.delete(document_uri(OTHER))
        return timed

    def _next_tag(self) -> str:
        self._turn += 1
        return f"wanted {self._turn % RULES}"

    def _document(self, *more: str) -> DocumentText:
        return tagged_node(SET, self._node, [*self._tags, *more])


class ReferrerStore:
    """A store with one node that many others refer to. Rules compare its value."""

    def __init__(self, engine: Engine, size: int) -> None:
        self._store, self._size = ScaleStore(engine, SCHEMA, TURTLE), size
        self._store.follow([[path_rule(2, f"= {number}") for number in range(RULES)]])
        self._turn = FIRST_UNUSED_NUMBER
        hub = node_uri(HUB, 0)
        parts = [min(MAX_NODES_PER_DOCUMENT, size - first) for first in range(0, size, MAX_NODES_PER_DOCUMENT)]
        self._store.fill(
            [
                valued_node(HUB, FIRST_UNUSED_NUMBER),
                *(referring_nodes(f"part{n}", nodes, hub) for n, nodes in enumerate(parts)),
            ]
        )

    def match(self) -> TimedRound:
        """Give the node a value that matches a rule, so that all referrers match, and then another one."""
        self._turn += 1
        timed = self._store.turn([valued_node(HUB, self._turn % RULES)], matched=self._size, lmrs=1)
        self._store.turn([valued_node(HUB, self._turn)], matched=0, lmrs=1)
        return timed

    def update_without_match(self) -> TimedRound:
        """Give the node another value that matches no rule."""
        self._turn += 1
        return self._store.turn([valued_node(HUB, self._turn)], matched=0, lmrs=0)


def measure_sets(databases: BenchDatabases, plan: ScalePlan, print_progress: PrintProgress) -> Iterator[ScaleResult]:
    """Measure sets of both kinds and several sizes."""
    with ExitStack() as opened:
        tagged_, referred = {}, {}
        for size in plan.set_sizes:
            print_progress(f"sets of {size:,}")
            tagged_[size] = TagStore(opened.enter_context(databases.new()), size)
            referred[size] = ReferrerStore(opened.enter_context(databases.new()), size)
        rules = [RULES] * len(tagged_)
        for name, grows, turns in (
            (SAME_DOCUMENT, "values", {size: store.add for size, store in tagged_.items()}),
            (OTHER_DOCUMENT, "values", {size: store.add_in_other_document for size, store in tagged_.items()}),
            (UNMATCHED, "referrers", {size: store.update_without_match for size, store in referred.items()}),
            (MATCHED, "referrers", {size: store.match for size, store in referred.items()}),
        ):
            yield measure_series(name, grows, LINEAR, turns, rules, 1, plan.rounds)
