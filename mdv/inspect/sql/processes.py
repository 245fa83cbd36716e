"""The rows of processes, their solutions and logs, for lists and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from mdv.db.engine import driver
from mdv.db.load_sql import load_sql


@dataclass(frozen=True, slots=True)
class StoredProcess:
    """A process. `root` and `parent`: the IRIs of the processes that it descends from. `awaits`: reads as JSON."""

    id: int
    iri: str
    root: str
    parent: str | None
    action: str | None
    caller: str
    state: str
    priority: int
    into: str
    position: int
    steps: int
    effects: int
    added: int
    removed: int
    solutions: int
    read_solutions: int
    slices: int
    conflicts: int
    seconds: float
    awaits: list[Any] | None
    problem: dict[str, Any] | None
    stop_asked: bool
    message: Any
    created_at: str
    ran_at: str | None
    wake_at: str | None
    ended_at: str | None
    code: str
    prefixes: dict[str, str]
    binding: dict[str, Any]


def list_stored_processes(
    connection: Connection,
    before: int | None,
    limit: int,
    iri: str | None = None,
    root: str | None = None,
    caller: str | None = None,
    states: Sequence[str] | None = None,
) -> list[StoredProcess]:
    """Return processes, the newest first."""
    given = {"after": before, "limit": limit, "iri": iri, "root": root, "caller": caller,
             "states": None if states is None else list(states)}  # fmt: skip
    return [StoredProcess(*row) for row in _rows(connection, "list_processes", given)]


def list_stored_solutions(connection: Connection, iri: str, after: int, limit: int) -> list[tuple[int, dict[str, Any]]]:
    """Return the solutions of a process after a number."""
    return _rows(connection, "list_solutions", {"iri": iri, "after": after, "limit": limit})


def list_stored_log(connection: Connection, iri: str, after: int, limit: int) -> list[tuple[int, int, str, str, Any]]:
    """Return entries of the log of a process: number, solutions before it, time, kind and body."""
    return _rows(connection, "list_log", {"iri": iri, "after": after, "limit": limit})


def list_live_programs(connection: Connection, most: int) -> list[tuple[str, dict[str, str]]]:
    """Return the programs of processes that may go on without a change by a waiting one, with their prefixes."""
    return _rows(connection, "list_live_programs", {"most": most})


def _rows(connection: Connection, name: str, given: Mapping[str, Any]) -> list[Any]:
    return driver(connection).execute(load_sql("processes", "mdv.inspect.sql")[name], given, prepare=True).fetchall()
