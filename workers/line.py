"""The line to Redis, for what only saves time: after a failure it is left alone for a while, and costs nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import redis
import structlog
from kombu.exceptions import OperationalError

from mdv.config import Config

log = structlog.get_logger()

PATIENCE = 2.0
"""Seconds that Redis has for an answer."""
ALONE = 5.0
"""Seconds for which it is left alone when it did not answer, or not in time."""

T = TypeVar("T")


class Line:
    """One process's line to Redis."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self._again_at = float("-inf")

    @classmethod
    def of(cls, config: Config) -> Line:
        url = config.redis_url or "redis://"
        return cls(redis.Redis.from_url(url, socket_connect_timeout=PATIENCE, socket_timeout=PATIENCE))

    def use(self, act: Callable[[redis.Redis], T]) -> T | None:
        """What Redis answers; None where it does not, or lately did not."""
        began = time.monotonic()
        if began < self._again_at:
            return None
        try:
            return act(self.client)
        except (OperationalError, OSError, redis.RedisError) as error:
            self._again_at = time.monotonic() + ALONE
            log.warning("Redis is away; everything goes on without it, later by seconds", reason=str(error))
            return None
