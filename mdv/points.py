"""Points on the way of a change at which tests let a process die, to see that nothing is lost.

In a system that runs they do nothing. `MDV_DIE_AT="after the store:3"` kills the process when it comes to that point
for the third time.
"""

from __future__ import annotations

import os
import signal

POINTS = (
    "after the claim",
    "after the gate",
    "after the store",
    "after the filter",
    "after the publication",
    "before the commit",
    "after the commit",
    "after the news",
)
"""In the order in which a registration passes them."""

_name, _, _times = os.environ.get("MDV_DIE_AT", "").rpartition(":")
_left = {_name: int(_times)} if _name else {}


def reach(point: str) -> None:
    """Pass a point."""
    if not _left or point not in _left:
        return
    _left[point] -= 1
    if _left[point] <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
