"""Naive replicated sets: what a member must show, from the operations that it has applied and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mdv.backbone.vector import Dot
from mdv.model import Statement

Element = tuple[str, Statement]
Contents = dict[str, frozenset[Statement]]


@dataclass(frozen=True)
class MadeOperation:
    """What an operation inserted and deleted, and the operations that its member had applied."""

    inserted: Mapping[Element, int]
    deleted: Mapping[Element, int]
    past: frozenset[Dot]

    @property
    def documents(self) -> set[str]:
        return {uri for uri, _ in (*self.inserted, *self.deleted)}


class ReplicaOracle:
    """All operations of a backbone. `mode`: orset or cset."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.made: dict[Dot, MadeOperation] = {}

    def known(self, vector: Mapping[str, int]) -> frozenset[Dot]:
        """The operations that a vector includes."""
        return frozenset((life, seq) for life, seq in self.made if vector.get(life, 0) >= seq)

    def record(self, dot: Dot, past: frozenset[Dot], before: Contents, after: Contents) -> None:
        """Record a change that a member has made. `past`: what it had applied."""
        came = {(uri, one) for uri, said in after.items() for one in said - before.get(uri, frozenset())}
        went = {(uri, one) for uri, said in before.items() for one in said - after.get(uri, frozenset())}
        counters = self.counters(past) if self.mode == "cset" else {}
        inserted = {one: 1 - counters.get(one, 0) for one in came}
        deleted = {one: counters.get(one, 1) for one in went}
        self.made[dot] = MadeOperation(inserted, deleted, past)

    def counters(self, known: Iterable[Dot]) -> dict[Element, int]:
        """The counters of a C-Set."""
        found: dict[Element, int] = defaultdict(int)
        for dot in known:
            for element, number in self.made[dot].inserted.items():
                found[element] += number
            for element, number in self.made[dot].deleted.items():
                found[element] -= number
        return found

    def dots(self, known: frozenset[Dot]) -> dict[Element, set[Dot]]:
        """The live insertions of an add-wins set: those that no known deletion had seen."""
        found: dict[Element, set[Dot]] = defaultdict(set)
        for dot in known:
            for element in self.made[dot].inserted:
                if not any(dot in one.past for other in known if element in (one := self.made[other]).deleted):
                    found[element].add(dot)
        return found

    def counts(self, known: frozenset[Dot]) -> dict[Element, int]:
        """The counter of every element, or the number of its dots."""
        if self.mode == "cset":
            return self.counters(known)
        return {element: len(dots) for element, dots in self.dots(known).items()}

    def contents(self, known: frozenset[Dot]) -> Contents:
        """The visible statements of every document."""
        found: dict[str, set[Statement]] = defaultdict(set)
        for (uri, statement), count in self.counts(known).items():
            if count > 0:
                found[uri].add(statement)
        return {uri: frozenset(said) for uri, said in found.items()}

    def versions(self, known: frozenset[Dot]) -> dict[str, int]:
        """The number of operations on every document."""
        found: dict[str, int] = defaultdict(int)
        for dot in known:
            for uri in self.made[dot].documents:
                found[uri] += 1
        return dict(found)
