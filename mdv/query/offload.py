"""Run CPU-bound work inline, or offload it so that it does not block other requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class Offload(Protocol):
    """Calls a function that does no I/O and returns its result. Can run it in another thread."""

    def __call__(self, work: Callable[..., Result], /, *values: object) -> Result: ...


def run_inline(work: Callable[..., Result], /, *values: object) -> Result:
    """Call the function directly.

    >>> run_inline(max, 1, 2)
    2
    """
    return work(*values)
