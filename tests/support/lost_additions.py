"""Additions that a replicated set loses: one statement, three members, eight changes, deliveries in causal order.

An addition is lost if the add-wins set has the statement in the end, and this set does not. Run as a program, it prints
the share of histories with a lost addition.
"""

from __future__ import annotations

import random
import sys

from mdv.backbone.cset import CSet
from mdv.backbone.orset import AddWinsSet
from mdv.backbone.vector import Dot, covers

MODES = ("cset", "causal length", "orset")
MEMBERS, CHANGES = 3, 8

Sent = tuple[Dot, dict[str, int], bool, int]
"""An operation: its dot, its deps, whether it inserts, and its number."""


class _Replica:
    """One statement at one member, in all kinds of sets at once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counter, self.length, self.dots = 0, 0, AddWinsSet.absent
        self.vector: dict[str, int] = {}

    def is_visible(self, mode: str) -> bool:
        return {"cset": self.counter > 0, "causal length": self.length % 2 == 1, "orset": bool(self.dots)}[mode]

    def change(self, mode: str, insert: bool) -> Sent | None:
        """Bring the statement to a state, by difference to what this kind of set shows."""
        if self.is_visible(mode) == insert:
            return None
        deps = dict(self.vector)
        dot = self.name, deps.get(self.name, 0) + 1
        number = 1
        if mode == "cset":
            self.counter, number = CSet().insert(self.counter, dot) if insert else CSet().delete(self.counter)
        elif mode == "causal length":
            self.length += 1
            number = self.length
        self.dots = AddWinsSet().insert(self.dots, dot)[0] if insert else AddWinsSet.absent
        self.vector[dot[0]] = dot[1]
        return dot, deps, insert, number

    def receive(self, mode: str, sent: Sent) -> bool:
        dot, deps, insert, number = sent
        if dot[1] != self.vector.get(dot[0], 0) + 1 or not covers(self.vector, deps):
            return False
        if mode == "cset":
            self.counter += number if insert else -number
        elif mode == "causal length":
            self.length = max(self.length, number)
        orset = AddWinsSet()
        self.dots = orset.remote_insert(self.dots, 1, dot) if insert else orset.remote_delete(self.dots, 1, deps)
        self.vector[dot[0]] = dot[1]
        return True


def loses_addition(mode: str, rng: random.Random) -> bool:
    """Run one history, driven by what this kind of set shows. The dots tell what an add-wins set would keep."""
    replicas = [_Replica(f"m{number}") for number in range(MEMBERS)]
    waiting: list[tuple[_Replica, Sent]] = []
    changes = 0
    while changes < CHANGES or waiting:
        if changes < CHANGES and rng.random() < 0.4:
            replica = rng.choice(replicas)
            changes += 1
            sent = replica.change(mode, insert=rng.random() < 0.5)
            if sent is not None:
                waiting += [(other, sent) for other in replicas if other is not replica]
        elif waiting:
            at = rng.randrange(len(waiting))
            if waiting[at][0].receive(mode, waiting[at][1]):
                del waiting[at]
    return bool(replicas[0].dots) and not replicas[0].is_visible(mode)


def count_lost_additions(mode: str, histories: int, seed: int) -> int:
    """Return the number of histories that lose an addition."""
    rng = random.Random(seed)
    return sum(loses_addition(mode, rng) for _ in range(histories))


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    for mode in MODES:
        print(f"{mode}: {count_lost_additions(mode, wanted, seed=1) / wanted:.1%} of {wanted:,} histories")
