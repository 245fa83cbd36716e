"""C-Set (Aslan, Molli, Skaf-Molli, Weiss: "C-Set: a Commutative Replicated Data Type for Semantic Stores", 2011).

The state of an element is a counter. An element is in the set if its counter is positive. All remote operations are
additions, so they commute: replicas converge in whatever order they receive them. Algorithm 3 (`del`) is missing from
the text of the paper. The one here gives the executions of its figures 3 and 4.
"""

from __future__ import annotations

from typing import Any

from mdv.backbone.replicated_set import SetKind
from mdv.backbone.vector import Dot, Vector


class CSet(SetKind):
    """The set of the paper.

    >>> cset = CSet()
    >>> cset.insert(-1, ("m1", 1))  # compensates the deletions that were received
    (1, 2)
    >>> cset.delete(2)
    (0, 2)
    """

    name = "cset"
    absent = 0
    is_causal = False

    def insert(self, state: int, dot: Dot) -> tuple[int, int]:
        if state <= 0:
            return 1, abs(state) + 1
        return state + 1, 1

    def delete(self, state: int) -> tuple[int, int]:
        return (0, state) if state > 0 else (state, 0)

    def remote_insert(self, state: int, number: int, dot: Dot) -> int:
        return state + number

    def remote_delete(self, state: int, number: int, deps: Vector) -> int:
        return state - number

    def is_visible(self, state: int) -> bool:
        return state > 0

    def count(self, state: int) -> int:
        return state

    def mark(self, state: int, row: Dot | None) -> int | None:
        return None if state in (0, 1) else state

    def state_of_row(self, row: Dot | None) -> int:
        return 0 if row is None else 1

    def is_live(self, state: int, row: Dot) -> bool:
        return True

    def is_settled(self, state: int, row: Dot | None, stable: Vector) -> bool:
        return False

    def to_json(self, state: int) -> int:
        return state

    def from_json(self, value: Any) -> int:
        return int(value)
