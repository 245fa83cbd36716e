"""Where what only computes is done: here, or apart from those who are served meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class Apart(Protocol):
    """Does a work that waits for nothing, and gives back what comes of it."""

    def __call__(self, work: Callable[..., Result], /, *values: object) -> Result: ...


def here(work: Callable[..., Result], /, *values: object) -> Result:
    """Where nobody else waits.

    >>> here(max, 1, 2)
    2
    """
    return work(*values)
