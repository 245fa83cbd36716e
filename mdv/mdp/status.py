"""Status: which workers have been heard of. What else there is to know, the database knows."""

from __future__ import annotations

import json
from dataclasses import dataclass

import redis

HEARD = "mdv:worker:"
"""With host and process behind it, the key under which a worker says every few seconds that it lives."""


@dataclass(frozen=True, slots=True)
class HeardWorker:
    """A worker that lives: host and process, since when, and how many processes carry out jobs for it."""

    name: str
    since: str | None
    processes: int | None


def workers_heard(client: redis.Redis, host: str = "") -> list[HeardWorker] | None:
    """The workers that have been heard of lately, all or those on one host; None where Redis does not tell."""
    try:
        keys = sorted(client.scan_iter(match=f"{HEARD}{f'{host}:' if host else ''}*", count=1000))
        values = client.mget(keys) if keys else []
    except redis.RedisError:
        return None
    # A key may have run out between the two questions.
    return [_read(key, value) for key, value in zip(keys, values, strict=True) if value is not None]


def _read(key: bytes, value: bytes | str) -> HeardWorker:
    """
    >>> _read(b"mdv:worker:atlas:7", b'{"since": "2026-11-16T09:00:00+00:00", "processes": 2}').name
    'atlas:7'
    """
    try:
        said = json.loads(value)
    except ValueError:
        said = {}
    said = said if isinstance(said, dict) else {}
    return HeardWorker(key.decode(errors="replace").removeprefix(HEARD), said.get("since"), said.get("processes"))
