"""Sets: the values of one property of a resource, and the resources that refer to one."""

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
    referring,
    tag_rule,
    tagged,
    valued,
)
from mdv.bench.scale.series import Found, Plan, Say, Timed, measure
from mdv.bench.scale.store import Store, Text
from mdv.db.bench import Databases

RULES = 1000
A_DOCUMENT = 100
"""Referring nodes of one document, at most."""
HUB, SET, OTHER = "hub", "set", "other"
FAR = 1_000_000_000

SAME, FOREIGN = "sets: one value more", "sets: one value more, from another document"
MATCHED, UNMATCHED = "referrers: all come to match", "referrers: none matches"


class Tagged:
    """A store with one node that has that many tags, of which no rule asks for any."""

    def __init__(self, engine: Engine, size: int) -> None:
        self._store = Store(engine, SCHEMA, TURTLE)
        self._store.follow([[tag_rule(f"wanted {number}") for number in range(RULES)]])
        self._node, self._tags = node_uri(SET, 0), [f"tag {number}" for number in range(size)]
        self._store.fill([self._document()])
        self._turn = 0

    def add(self) -> Timed:
        """A tag more, that one rule asks for, in the same document; afterwards it goes again."""
        timed = self._store.turn([self._document(self._next_tag())], matched=1, lmrs=1)
        self._store.turn([self._document()], matched=0, lmrs=1)
        return timed

    def add_elsewhere(self) -> Timed:
        """The same from a document that says nothing else."""
        timed = self._store.turn([tagged(OTHER, self._node, [self._next_tag()])], matched=1, lmrs=1)
        self._store.delete(document_uri(OTHER))
        return timed

    def _next_tag(self) -> str:
        self._turn += 1
        return f"wanted {self._turn % RULES}"

    def _document(self, *more: str) -> Text:
        return tagged(SET, self._node, [*self._tags, *more])


class Referred:
    """A store with one node that so many others refer to, whose value rules ask for."""

    def __init__(self, engine: Engine, size: int) -> None:
        self._store, self._size = Store(engine, SCHEMA, TURTLE), size
        self._store.follow([[path_rule(2, f"= {number}") for number in range(RULES)]])
        self._turn = FAR
        hub = node_uri(HUB, 0)
        parts = [min(A_DOCUMENT, size - first) for first in range(0, size, A_DOCUMENT)]
        self._store.fill([valued(HUB, FAR), *(referring(f"part{n}", nodes, hub) for n, nodes in enumerate(parts))])

    def match(self) -> Timed:
        """The node gets a value that a rule asks for, so that all that refer to it match; afterwards another."""
        self._turn += 1
        timed = self._store.turn([valued(HUB, self._turn % RULES)], matched=self._size, lmrs=1)
        self._store.turn([valued(HUB, self._turn)], matched=0, lmrs=1)
        return timed

    def pass_by(self) -> Timed:
        """The node gets another value that no rule asks for."""
        self._turn += 1
        return self._store.turn([valued(HUB, self._turn)], matched=0, lmrs=0)


def sets(databases: Databases, plan: Plan, say: Say) -> Iterator[Found]:
    """Sets of several sizes of both kinds."""
    with ExitStack() as opened:
        tagged_, referred = {}, {}
        for size in plan.set_sizes:
            say(f"sets of {size:,}")
            tagged_[size] = Tagged(opened.enter_context(databases.new()), size)
            referred[size] = Referred(opened.enter_context(databases.new()), size)
        rules = [RULES] * len(tagged_)
        for name, grows, turns in (
            (SAME, "values", {size: store.add for size, store in tagged_.items()}),
            (FOREIGN, "values", {size: store.add_elsewhere for size, store in tagged_.items()}),
            (UNMATCHED, "referrers", {size: store.pass_by for size, store in referred.items()}),
            (MATCHED, "referrers", {size: store.match for size, store in referred.items()}),
        ):
            yield measure(name, grows, LINEAR, turns, rules, 1, plan.rounds)
