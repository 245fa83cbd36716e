"""Status: which workers have been heard of. What else there is to know, the database knows."""

from __future__ import annotations

import json
from dataclasses import dataclass

import redis

HEARD = "mdv:worker:"
"""With host and process behind it, the key under which a worker says every few seconds that it lives."""
HEARD_SECONDS = 15
"""A worker that was not heard of for so long is gone: its key runs out."""


@dataclass(frozen=True, slots=True)
class HeardWorker:
    """A worker that lives: host and process, since when, how many processes carry out jobs for it, and how long ago it
    was last heard of: one that was killed is still told of for a while."""

    name: str
    since: str | None
    processes: int | None
    heard_seconds_ago: float | None


def workers_heard(client: redis.Redis, host: str = "") -> list[HeardWorker] | None:
    """The workers that have been heard of lately, all or those on one host; None where Redis does not tell."""
    try:
        keys = sorted(client.scan_iter(match=f"{HEARD}{f'{host}:' if host else ''}*", count=1000))
        asking = client.pipeline()
        for key in keys:
            asking.get(key)
            asking.pttl(key)
        answers = asking.execute()
    except redis.RedisError:
        return None
    # A key may have run out since its name was told.
    found = zip(keys, answers[::2], answers[1::2], strict=True)
    return [_read(key, value, left) for key, value, left in found if value is not None]


def _read(key: bytes, value: bytes | str, left: int) -> HeardWorker:
    """`left`: the milliseconds after which the key runs out, negative where it does not.

    >>> _read(b"mdv:worker:atlas:7", b'{"since": "2026-11-16T09:00:00+00:00", "processes": 2}', 11_000)
    HeardWorker(name='atlas:7', since='2026-11-16T09:00:00+00:00', processes=2, heard_seconds_ago=4.0)
    """
    try:
        said = json.loads(value)
    except ValueError:
        said = {}
    said = said if isinstance(said, dict) else {}
    name = key.decode(errors="replace").removeprefix(HEARD)
    ago = max(0.0, HEARD_SECONDS - left / 1000) if left >= 0 else None
    return HeardWorker(name, said.get("since"), said.get("processes"), ago)
