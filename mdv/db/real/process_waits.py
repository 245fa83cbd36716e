"""The rows of waits: what waiting processes wait for, and which of them a change wakes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.db.engine import driver, pipelined
from mdv.db.load_sql import load_sql
from mdv.db.pipeline import Pipeline

ANY_PROPERTY = 0
"""Stands for every property among those that processes wait for."""


class StoredWait(NamedTuple):
    """A read that a process waits for, as JSON, under its key."""

    key: int
    read: Any
    property_id: int


class WaitingProcess(NamedTuple):
    """A process that waits for a read."""

    process: int
    read: Any
    takes: bool
    since: int


def store_waits(connection: Connection, process: int, waits: Iterable[StoredWait], takes: bool) -> None:
    """Store what a process waits for, and watch the properties. The lock of the MDP is taken."""
    found = [wait._asdict() for wait in waits]
    if not found:
        return
    sql = load_sql("real_processes")
    properties = _array({wait["property_id"] for wait in found})
    with Pipeline(connection) as pipeline:
        pipeline.queue_named(sql["insert_waits"], id=process, takes=takes, waits=json.dumps(found, ensure_ascii=False))
        pipeline.queue_named(sql["watch"], properties=properties)


def find_waiting(connection: Connection, keys: Mapping[int, int]) -> list[WaitingProcess]:
    """Return the processes that wait for changes with these keys. The numbers of changes limit how many of the
    processes are found that take what they wait for."""
    given = {"keys": list(keys), "numbers": list(keys.values())}
    with pipelined(driver(connection)):
        _run(connection, "pin", {})
        found = _run(connection, "find_waiting", given)
    return [WaitingProcess(*row) for row in found.fetchall()]


def wake(connection: Connection, processes: Collection[int], takers: Collection[int]) -> None:
    """Make waiting processes ready. `takers`: those that are woken for one statement each."""
    sql = load_sql("real_processes")
    with Pipeline(connection) as pipeline:
        pipeline.queue_named(sql["wake"], ids=_array(processes), takers=_array(takers))
        pipeline.queue_named(sql["delete_waits"], ids=_array(processes))


def wake_takers(connection: Connection) -> None:
    """Make all waiting processes ready that take what they wait for."""
    _run(connection, "wake_takers", {})


def delete_waits(connection: Connection, processes: Sequence[int]) -> None:
    """Delete what processes wait for."""
    _run(connection, "delete_waits", {"ids": list(processes)})


def is_watched_in_vain(connection: Connection) -> bool:
    """True if no process waits for some watched property any more."""
    ((found,),) = _run(connection, "is_watched_in_vain", {}).fetchall()
    return bool(found)


def unwatch(connection: Connection) -> None:
    """Watch only the properties that processes wait for. The lock of the MDP is taken."""
    _run(connection, "unwatch", {})


def name_resources(connection: Connection, ids: Collection[int]) -> dict[int, str]:
    """Return the URIs of resources by ID."""
    return dict(_run(connection, "name_resources", {"ids": list(ids)}).fetchall())


def _array(numbers: Iterable[int]) -> str:
    return "{" + ",".join(map(str, sorted(numbers))) + "}"


def _run(connection: Connection, name: str, given: Mapping[str, Any]) -> Any:
    return driver(connection).execute(load_sql("real_processes")[name], given, prepare=True)
