"""Wake: tell the workers that something waits. One wake-up stands for all that come before somebody has heard it."""

from __future__ import annotations

import redis
import structlog
from celery import Celery
from kombu.exceptions import OperationalError

from workers.signals import WOKEN_SECONDS, woken_key

log = structlog.get_logger()


def wake(client: redis.Redis, celery: Celery, task: str) -> None:
    """Send a wake-up, unless one is on its way. If that fails, the workers' sweep will find what waits all the same."""
    try:
        if client.set(woken_key(task), 1, nx=True, ex=WOKEN_SECONDS):
            celery.send_task(task, retry=False, ignore_result=True)
    except (OperationalError, OSError, redis.RedisError) as error:
        log.warning("wake-up not sent; the sweep will find what waits", task=task, reason=str(error))


def hear(client: redis.Redis, task: str) -> None:
    """A worker is awake. What comes from now on needs a wake-up of its own."""
    try:
        client.delete(woken_key(task))
    except redis.RedisError as error:
        log.warning("Redis is away", reason=str(error))
