"""The add-wins set. A deletion removes the insertions that its member had seen, and no others.

The state of an element is the set of its live dots: the operations that inserted it and were not deleted. A deletion
sends no dots: it removes those that its `deps` include. So operations must be applied in causal order.
"""

from __future__ import annotations

from typing import Any

from mdv.backbone.replicated_set import SetKind
from mdv.backbone.vector import Dot, Vector, includes

Dots = frozenset[Dot]
_EMPTY: Dots = frozenset()


class AddWinsSet(SetKind):
    """The observed-remove set without tombstones.

    >>> orset = AddWinsSet()
    >>> state, sent = orset.insert(orset.absent, ("m1", 1))
    >>> orset.is_visible(orset.remote_delete(state, 1, {"m2": 7}))  # the deletion had not seen the insertion
    True
    """

    name = "orset"
    absent = _EMPTY
    is_causal = True

    def insert(self, state: Dots, dot: Dot) -> tuple[Dots, int]:
        return state | {dot}, 1

    def delete(self, state: Dots) -> tuple[Dots, int]:
        return _EMPTY, 1 if state else 0

    def remote_insert(self, state: Dots, number: int, dot: Dot) -> Dots:
        return state | {dot}

    def remote_delete(self, state: Dots, number: int, deps: Vector) -> Dots:
        return frozenset([dot for dot in state if not includes(deps, dot)])

    def is_visible(self, state: Dots) -> bool:
        return bool(state)

    def count(self, state: Dots) -> int:
        return len(state)

    def mark(self, state: Dots, row: Dot | None) -> Dots | None:
        return None if state == self.state_of_row(row) else state

    def state_of_row(self, row: Dot | None) -> Dots:
        return _EMPTY if row is None else frozenset((row,))

    def is_live(self, state: Dots, row: Dot) -> bool:
        return row in state

    def is_settled(self, state: Dots, row: Dot | None, stable: Vector) -> bool:
        # Later deletions have seen all stable dots, so these are as good as the one of the row.
        return row is not None and includes(stable, row) and all(includes(stable, dot) for dot in state)

    def to_json(self, state: Dots) -> list[list[Any]]:
        return [list(dot) for dot in sorted(state)]

    def from_json(self, value: Any) -> Dots:
        return frozenset((str(life), int(seq)) for life, seq in value)
