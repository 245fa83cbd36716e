"""Wake: tell the workers that something waits. One wake-up stands for all that come before somebody has heard it."""

from __future__ import annotations

from celery import Celery

from workers.line import Line
from workers.signals import WOKEN_SECONDS, woken_key


def wake(line: Line, celery: Celery, task: str) -> None:
    """Send a wake-up, unless one is on its way. If that fails, the workers' sweep will find what waits all the same."""
    if line.use(lambda client: client.set(woken_key(task), 1, nx=True, ex=WOKEN_SECONDS)):
        line.use(lambda _: celery.send_task(task, retry=False, ignore_result=True))


def hear(line: Line, task: str) -> None:
    """A worker is awake. What comes from now on needs a wake-up of its own."""
    line.use(lambda client: client.delete(woken_key(task)))
