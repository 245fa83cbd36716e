"""The nonces of signed requests, so that no request is accepted twice."""

from __future__ import annotations

import time

from mdv.replication.http_signatures import MAX_AGE_SECONDS
from workers.redis_client import RedisClient

MAX_NONCES = 100_000


class UsedNonces:
    """The nonces of the last minutes. The processes of an MDP share them by Redis; without it, each has its own."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._seen: dict[str, float] = {}

    def use(self, nonce: str) -> bool:
        """True if the nonce is new."""
        if nonce in self._seen:
            return False
        now = time.monotonic()
        if len(self._seen) >= MAX_NONCES:
            self._seen = {one: at for one, at in self._seen.items() if now - at < 2 * MAX_AGE_SECONDS}
        self._seen[nonce] = now
        key, seconds = f"mdv:backbone:nonce:{nonce}", 2 * MAX_AGE_SECONDS + 60
        return self._client.use(lambda client: bool(client.set(key, 1, nx=True, ex=seconds))) is not False
