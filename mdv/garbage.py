"""Python's search for cycles of garbage, for processes through which very many documents go.

A document is thousands of small objects without a cycle. Looking through them again and again costs a batch a tenth of
its time, and finds nothing.
"""

from __future__ import annotations

import gc
from functools import cache

NEW_OBJECTS = 100_000
"""So many more objects than before are there when the youngest are looked through: about twenty documents."""


@cache
def look_rarely() -> None:
    """From now on look for garbage rarely, and never among what this process has by now."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, 20, 100)
