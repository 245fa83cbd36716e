"""Inference engines by name: the entry points of the group `mdv.real.engines`.

An engine is a function from the facts to what follows from them: `Iterable[Statement] -> Iterable[Statement]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import entry_points
from typing import TypeAlias, cast

from mdv.model import Statement

GROUP = "mdv.real.engines"

InferenceEngine: TypeAlias = Callable[[Iterable[Statement]], Iterable[Statement]]


@cache
def engine_names() -> frozenset[str]:
    """Return the names of the engines that are installed.

    >>> "owlrl" in engine_names()
    True
    """
    return frozenset(one.name for one in entry_points(group=GROUP))


def load_engine(name: str) -> InferenceEngine:
    """Return an engine. Raise `LookupError` if there is none of this name."""
    for one in entry_points(group=GROUP, name=name):
        return cast(InferenceEngine, one.load())
    raise LookupError(name)
