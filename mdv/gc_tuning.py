"""Tuning of Python's garbage collector for processes that handle very many documents.

A document is thousands of small objects without cycles. With the default thresholds the collector takes a tenth of the
time of a batch, and finds nothing.
"""

from __future__ import annotations

import gc
from functools import cache

GC_THRESHOLD_OBJECTS = 100_000
"""Number of new objects that starts a collection of the youngest generation: about twenty documents."""


@cache
def tune_gc() -> None:
    """Make collections rare, and exclude all objects that exist now. Only the first call has an effect."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD_OBJECTS, 20, 100)
