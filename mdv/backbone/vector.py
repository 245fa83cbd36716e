"""Dots and vectors: which operations a member has applied.

An operation has a dot: the life that made it, and its number there. A vector gives the last number for each life.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Life = str
"""The history of one database of a member. A restored database begins another life."""

Dot = tuple[Life, int]
"""An operation: its life and its number. The operations of a life have the numbers 1, 2, … without gaps."""

Vector = Mapping[Life, int]
"""The last operation of each life that was applied."""

NO_DOT: Dot = ("", 0)
"""A dot that every vector includes."""


def includes(vector: Vector, dot: Dot) -> bool:
    """True if the operation is one of the vector.

    >>> includes({"a": 3}, ("a", 3)), includes({"a": 3}, ("b", 1)), includes({}, NO_DOT)
    (True, False, True)
    """
    return vector.get(dot[0], 0) >= dot[1]


def covers(vector: Vector, other: Vector) -> bool:
    """True if the vector includes every operation of the other one.

    >>> covers({"a": 3, "b": 1}, {"a": 2}), covers({"a": 3}, {"b": 1})
    (True, False)
    """
    for life, seq in other.items():  # noqa: SIM110 - this runs most often, and `all` takes twice the time
        if vector.get(life, 0) < seq:
            return False
    return True


def common(vectors: Iterable[Vector]) -> dict[Life, int]:
    """Return the operations that all vectors include.

    >>> common([{"a": 3, "b": 1}, {"a": 2}])
    {'a': 2}
    """
    first, *others = vectors
    result = {life: min(seq, *(other.get(life, 0) for other in others)) if others else seq
              for life, seq in first.items()}  # fmt: skip
    return {life: seq for life, seq in result.items() if seq}


def joined(vector: Vector, other: Vector) -> dict[Life, int]:
    """Return the operations that one of the vectors includes.

    >>> joined({"a": 3}, {"a": 2, "b": 1})
    {'a': 3, 'b': 1}
    """
    result = dict(vector)
    for life, seq in other.items():
        if seq > result.get(life, 0):
            result[life] = seq
    return result
