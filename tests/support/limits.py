"""Limits on work that do not depend on the speed of the machine."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

HANG_SECONDS = 60


@contextmanager
def hang_guard(seconds: int = HANG_SECONDS) -> Iterator[None]:
    """Fail instead of hanging. Not a measurement: the guarded code takes less than a second or practically forever."""

    def give_up(number: int, frame: FrameType | None) -> NoReturn:
        raise AssertionError(f"still not finished after {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def calls_of(work: Callable[[], object]) -> int:
    """The number of function calls, of Python and of C, that `work` makes.

    >>> calls_of(lambda: [abs(n) for n in range(100)]) - calls_of(lambda: [abs(n) for n in range(50)])
    50
    """
    count = 0

    def count_call(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    before = sys.getprofile()
    sys.setprofile(count_call)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
