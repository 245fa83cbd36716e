"""Tuning of Python's garbage collector.

A document is thousands of small objects without cycles. With the default thresholds the collector takes a tenth of the
time of a batch, and finds nothing. The same holds for the libraries of a server: collections while they are imported
take a seventh of its start-up, and the collection when the process exits takes 0.3 s.
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

GC_THRESHOLD_OBJECTS = 100_000
"""Number of new objects that starts a collection of the youngest generation: about twenty documents."""


@cache
def tune_gc() -> None:
    """Make collections rare, and exclude all objects that exist now. Only the first call has an effect."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD_OBJECTS, 20, 100)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Do not collect while modules are imported: they are needed until the process exits.

    >>> with gc_paused():
    ...     gc.isenabled()
    False
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@cache
def skip_final_collection() -> None:
    """Exclude all objects from the collection when this process, or a process forked from it, exits."""
    atexit.register(gc.freeze)
