"""Waiting for a condition: the only polling helper of the tests."""

from __future__ import annotations

import linecache
import sys
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    condition: Callable[[], T],
    timeout: float = 60.0,
    *,
    interval: float = 0.02,
    detail: Callable[[], object] = lambda: "",
) -> T:
    """Return the first truthy value of `condition`. After `timeout` seconds, raise with the source of the call,
    the last value, and `detail()`.

    >>> numbers = iter([0, 0, 3])
    >>> eventually(lambda: next(numbers), interval=0)
    3
    """
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            caller = sys._getframe(1)
            source = linecache.getline(caller.f_code.co_filename, caller.f_lineno).strip()
            place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
            raise AssertionError(
                f"not true within {timeout:g} s at {place}: {source}\nlast value: {value!r}\n{detail()}"
            )
        time.sleep(interval)
    return value
