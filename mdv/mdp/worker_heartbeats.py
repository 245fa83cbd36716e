"""Worker heartbeats in Redis: which workers are alive."""

from __future__ import annotations

import json
from dataclasses import dataclass

import redis

WORKER_KEY_PREFIX = "mdv:worker:"
"""The prefix of a heartbeat's key, followed by host and process id. A worker sets it every few seconds."""
HEARTBEAT_TTL_SECONDS = 15
"""The time to live of a heartbeat. After this time without one, a worker counts as gone."""


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A worker with a valid heartbeat: host and process id, start time, number of job processes, and the age of the
    heartbeat. A killed worker is listed until its heartbeat expires."""

    name: str
    since: str | None
    processes: int | None
    heard_seconds_ago: float | None


def list_live_workers(client: redis.Redis, host: str = "") -> list[LiveWorker] | None:
    """Return the live workers, of all hosts or of one; None if Redis is not available."""
    try:
        keys = sorted(client.scan_iter(match=f"{WORKER_KEY_PREFIX}{f'{host}:' if host else ''}*", count=1000))
        pipeline = client.pipeline()
        for key in keys:
            pipeline.get(key)
            pipeline.pttl(key)
        answers = pipeline.execute()
    except redis.RedisError:
        return None
    # A key may have expired since the scan.
    found = zip(keys, answers[::2], answers[1::2], strict=True)
    return [_read(key, value, left) for key, value, left in found if value is not None]


def _read(key: bytes, value: bytes | str, left: int) -> LiveWorker:
    """Return the worker of a heartbeat. `left`: milliseconds until it expires; negative if it does not expire.

    >>> _read(b"mdv:worker:atlas:7", b'{"since": "2026-11-16T09:00:00+00:00", "processes": 2}', 11_000)
    LiveWorker(name='atlas:7', since='2026-11-16T09:00:00+00:00', processes=2, heard_seconds_ago=4.0)
    """
    try:
        body = json.loads(value)
    except ValueError:
        body = {}
    body = body if isinstance(body, dict) else {}
    name = key.decode(errors="replace").removeprefix(WORKER_KEY_PREFIX)
    ago = max(0.0, HEARTBEAT_TTL_SECONDS - left / 1000) if left >= 0 else None
    return LiveWorker(name, body.get("since"), body.get("processes"), ago)
