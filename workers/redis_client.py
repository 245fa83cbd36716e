"""Best-effort Redis client with a 5-second circuit breaker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import redis
import structlog
from kombu.exceptions import OperationalError

from mdv.config import Config

log = structlog.get_logger()

REDIS_TIMEOUT_SECONDS = 2.0
"""Timeout of a connection and of a response."""
CIRCUIT_OPEN_SECONDS = 5.0
"""How long Redis is not used after a failure or a timeout."""

T = TypeVar("T")


class RedisClient:
    """The Redis client of one process."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self._closed_at = float("-inf")
        """When the circuit closes again."""

    @classmethod
    def of(cls, config: Config) -> RedisClient:
        url = config.redis_url or "redis://"
        return cls(
            redis.Redis.from_url(
                url, socket_connect_timeout=REDIS_TIMEOUT_SECONDS, socket_timeout=REDIS_TIMEOUT_SECONDS
            )
        )

    def use(self, act: Callable[[redis.Redis], T]) -> T | None:
        """Return the result of `act`; None if Redis does not answer, or if the circuit is open."""
        if time.monotonic() < self._closed_at:
            return None
        try:
            return act(self.client)
        except (OperationalError, OSError, redis.RedisError) as error:
            self._closed_at = time.monotonic() + CIRCUIT_OPEN_SECONDS
            log.warning("Redis is unreachable; jobs are delayed by seconds", reason=str(error))
            return None
