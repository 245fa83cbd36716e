"""The rows of processes: programs in the mode run, with their checkpoints, solutions and logs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
from sqlalchemy import Connection

from mdv.db.engine import driver, pipelined
from mdv.db.load_sql import load_sql
from mdv.db.pipeline import Pipeline
from mdv.model import Statement, Term
from mdv.real.store import StatementChange

ENDED_STATES = ("done", "failed", "stopped")
MAX_STALE_CLAIMS = 10
"""How often a claim may find a process that another worker has just run."""
MAX_CHANGES = 20_000
"""Changes that are compared with the reads of a slice. With more, the slice is run again."""


class NewProcess(NamedTuple):
    """A process to be started. `root` and `parent`: those of a spawned process; None for one that a caller starts.
    `binding`, `settings` and `permissions` are JSON."""

    iri: str
    code: str
    prefixes: Mapping[str, str]
    binding: Any
    into: str
    settings: Mapping[str, Any]
    permissions: Mapping[str, Any]
    caller: str
    token: int | None
    position: int
    root: int | None = None
    parent: int | None = None
    action: str | None = None
    priority: int = 3
    is_followed: bool = False
    keeps_solutions: bool = True
    solution_limit: int | None = None


@dataclass(frozen=True, slots=True)
class ClaimedProcess:
    """A process whose slice a worker is about to run. `is_allowed`: its token is still valid."""

    id: int
    iri: str
    root: int
    parent: int | None
    action: str | None
    code: str
    prefixes: dict[str, str]
    binding: dict[str, Any]
    into: str
    settings: dict[str, Any]
    permissions: dict[str, Any]
    caller: str
    token: int | None
    priority: int
    is_followed: bool
    keeps_solutions: bool
    solution_limit: int | None
    position: int
    steps: int
    effects: int
    added: int
    removed: int
    solutions: int
    read_solutions: int
    slices: int
    seconds: float
    stop_asked: bool
    message: Any
    failures: int
    checkpoint: Any
    is_allowed: bool
    is_taker: bool


class StopRequested(NamedTuple):
    """The state of a process when its slice is committed."""

    state: str
    stop_asked: bool
    message: Any
    read_solutions: int


class WriteLock(NamedTuple):
    """Statements that programs must not change. None stands for any."""

    id: int
    document_prefix: str | None
    subject: str | None
    property: str | None
    object: Any


class SliceRecord(NamedTuple):
    """What a slice changes in the row of its process. `checkpoint`: None if the process has ended."""

    id: int
    state: str
    position: int
    steps: int
    effects: int
    added: int
    removed: int
    solutions: int
    conflicts: int
    seconds: float
    problem: Mapping[str, Any] | None
    awaits: Any
    wake_at: float | None
    checkpoint: str | None


class ProcessNews(NamedTuple):
    """What a reader of a process has not seen. `entries`: the log: number, solutions before it, kind and body."""

    id: int
    state: str
    position: int
    added: int
    removed: int
    solutions: int
    problem: dict[str, Any] | None
    code: str
    bindings: list[tuple[int, dict[str, Any]]]
    entries: list[tuple[int, int, str, Any]]
    has_resumed: bool


# --- starting and claiming ---


def start_process(connection: Connection, new: NewProcess) -> int:
    """Store a process that is ready, and return its ID."""
    given = new._asdict() | {
        "prefixes": _json(new.prefixes), "binding": _json(new.binding), "settings": _json(new.settings),
        "permissions": _json(new.permissions),
    }  # fmt: skip
    ((number,),) = _run(connection, "start", given).fetchall()
    return int(number)


def count_live(connection: Connection, caller: str, root: int | None, most: int) -> tuple[int, int]:
    """Return how many processes of a caller and of a root have not ended, each up to `most`."""
    ((of_caller, of_root),) = _run(
        connection, "count_live", {"caller": caller, "root": root or 0, "most": most}
    ).fetchall()
    return of_caller, of_root


def claim_process(connection: Connection, iri: str | None = None, started: bool = False) -> ClaimedProcess | None:
    """Claim the ready process whose turn it is, or this one. The claim ends with the transaction. `started`: those that
    were not spawned by another process come first."""
    for _ in range(MAX_STALE_CLAIMS):
        found = _run(connection, "claim_started", {}).fetchone() if started and iri is None else None
        if found is None:
            found = _run(connection, "claim", {"iri": iri}).fetchone()
        if found is None:
            return None
        row = _run(connection, "read_claimed", {"id": found[0]}).fetchone()
        if row is not None:
            return ClaimedProcess(*row)
    return None


def wake_due(connection: Connection, lease_seconds: float) -> None:
    """Make processes ready whose time has come. Ask those to stop whose reader was not heard of for `lease_seconds`."""
    with pipelined(driver(connection)):
        _run(connection, "wake_due", {})
        _run(connection, "stop_unread", {"seconds": lease_seconds})


def stop_revoked(connection: Connection) -> None:
    """Make processes ready whose token was revoked or has expired. A worker then ends them."""
    _run(connection, "stop_revoked", {})


def seconds_until_due(connection: Connection) -> float | None:
    """Return the seconds until the next process becomes ready by itself."""
    ((seconds,),) = _run(connection, "next_due", {}).fetchall()
    return None if seconds is None else float(seconds)


def has_ready(connection: Connection) -> bool:
    """True if a process is ready."""
    ((found,),) = _run(connection, "is_ready", {}).fetchall()
    return bool(found)


# --- a slice ---


def read_locks(session: psycopg.Connection[Any]) -> tuple[WriteLock, ...]:
    """Return the locks against programs."""
    return tuple(WriteLock(*row) for row in session.execute(load_sql("real_processes")["read_locks"], prepare=True))


def is_active(session: psycopg.Connection[Any], iri: str) -> bool:
    """True if a process exists and has not ended."""
    row = session.execute(load_sql("real_processes")["is_active"], {"iri": iri}, prepare=True).fetchone()
    return bool(row and row[0])


def changes_after(
    session: psycopg.Connection[Any], position: int, properties: Sequence[int] | None
) -> list[StatementChange] | None:
    """Return what changed after a position, of these properties or of all. None: too much."""
    given = {"position": position, "any": properties is None, "properties": list(properties or ()), "most": MAX_CHANGES}
    rows = session.execute(load_sql("real_processes")["changes_after"], given, prepare=True).fetchall()
    if len(rows) >= MAX_CHANGES:
        return None
    return [
        StatementChange(document, Statement(subject, name, _term(target, value, lang, datatype)), is_added)
        for document, subject, name, target, value, lang, datatype, is_added in rows
    ]


def _term(target: str | None, value: str | None, lang: str | None, datatype: str | None) -> Term:
    return Term("uri", target) if target is not None else Term("literal", value or "", lang, datatype)


def read_for_commit(connection: Connection, number: int) -> StopRequested:
    """Lock the row of a process, and return whether it was stopped. The lock of the MDP is taken if it is needed."""
    (row,) = _run(connection, "read_for_commit", {"id": number}).fetchall()
    return StopRequested(*row)


def queue_commit_check(pipeline: Pipeline, number: int) -> Callable[[], tuple[StopRequested, tuple[WriteLock, ...]]]:
    """Queue the same, with the locks against programs. The lock of the MDP is queued before."""
    answer = pipeline.queue_named(load_sql("real_processes")["read_under_lock"], id=number)

    def read() -> tuple[StopRequested, tuple[WriteLock, ...]]:
        ((state, is_asked, message, solutions, locks),) = answer.rows()
        asked = StopRequested(
            state or "", is_asked == "t", None if message is None else json.loads(message), int(solutions or 0)
        )
        return asked, tuple(WriteLock(*one) for one in json.loads(locks or "[]"))

    return read


def store_slice(
    connection: Connection,
    record: SliceRecord,
    first_solution: int,
    bindings: Sequence[Any],
    entries: Sequence[Mapping[str, Any]],
    had_waits: bool,
) -> None:
    """Store the state of a process after a slice, with its new solutions and entries of the log."""
    sql = load_sql("real_processes")
    values = record._asdict() | {"problem": _json_or_none(record.problem), "awaits": _json_or_none(record.awaits)}
    with Pipeline(connection) as pipeline:
        if had_waits:
            pipeline.queue_named(sql["delete_waits"], ids=f"{{{record.id}}}")
        if record.checkpoint is not None:
            pipeline.queue_named(sql["store_state"], id=record.id, checkpoint=record.checkpoint)
        else:
            pipeline.queue_named(sql["delete_state"], id=record.id)
        if bindings:
            pipeline.queue_named(
                sql["insert_solutions"], id=record.id, first=first_solution, bindings=_json(list(bindings))
            )
        if entries:
            pipeline.queue_named(
                sql["insert_log"], id=record.id, after=first_solution - 1, entries=_json(list(entries))
            )
        pipeline.queue_named(sql["end_slice"], **values)


def stop_process(connection: Connection, iri: str, message: Any, problem: Any) -> tuple[int, bool, bool] | None:
    """Stop a process. Return its ID, whether it was woken for a statement that it takes, and whether it was spawned;
    None if it has ended. The lock of the MDP is taken."""
    given = {"iri": iri, "message": _json_or_none(message), "problem": _json_or_none(problem)}
    row = _run(connection, "stop", given).fetchone()
    return None if row is None else (row[0], row[1], row[2])


def delete_state(connection: Connection, number: int) -> None:
    """Delete the checkpoint of a process that has ended."""
    _run(connection, "delete_state", {"id": number})


def fail_process(connection: Connection, number: int, seconds: float, problem: Mapping[str, Any] | None) -> None:
    """Count an internal error of a process. It is tried again after `seconds`, or fails with a problem."""
    _run(connection, "fail", {"id": number, "seconds": seconds, "problem": _json_or_none(problem)})


# --- readers ---


def read_news(
    connection: Connection, iri: str, solution: int, entry: int, most: int, most_entries: int, counts: bool = True
) -> ProcessNews | None:
    """Return what came after the last solution and log entry that a reader has, up to `most` and `most_entries`; None
    if there is no such process. `counts`: the solutions up to `solution` count as read."""
    given = {"iri": iri, "solution": solution, "entry": entry, "most": most, "most_entries": most_entries,
             "counts": counts}  # fmt: skip
    row = _run(connection, "read_news", given).fetchone()
    if row is None:
        return None
    values: list[Any] = [*row[:8], row[8] or [], row[9] or [], row[10] > 0]
    return ProcessNews(*values)


def ask_to_stop(connection: Connection, iri: str, message: Any = None, family: bool = False) -> int:
    """Ask a process to stop; `family`: with all that descend from the same one. Return how many had not ended."""
    given = {"iri": iri, "message": _json_or_none(message), "family": family}
    return len(_run(connection, "ask_to_stop", given).fetchall())


def note_gone(connection: Connection, iri: str, seconds: float) -> None:
    """Note that the reader of a process is gone, as if it was last heard of before `seconds`."""
    _run(connection, "note_gone", {"iri": iri, "seconds": seconds})


def note_read(connection: Connection, iri: str, solution: int) -> bool:
    """Note that the solutions of a process up to a number were read. Return True if it goes on because of that."""
    rows = _run(connection, "note_read", {"iri": iri, "solution": solution}).fetchall()
    return any(state == "ready" for (state,) in rows)


def list_commits(connection: Connection, number: int) -> list[dict[str, Any]]:
    """Return the changes of a process, by slice."""
    return [body for (body,) in _run(connection, "list_commits", {"id": number})]


# --- retention ---


def delete_ended_states(connection: Connection) -> None:
    """Delete the checkpoints of processes that others have stopped."""
    _run(connection, "delete_ended_states", {})


def delete_old_processes(connection: Connection, seconds: float, most: int) -> int:
    """Delete at most `most` processes and entries of logs that are older than `seconds`. Return their number."""
    ended = _run(connection, "delete_old", {"seconds": seconds, "most": most}).rowcount
    return int(ended + _run(connection, "delete_old_log", {"seconds": seconds, "most": most}).rowcount)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _json_or_none(value: Any) -> str | None:
    return None if value is None else _json(value)


def _run(connection: Connection, name: str, given: Mapping[str, Any]) -> Any:
    return driver(connection).execute(load_sql("real_processes")[name], given, prepare=True)
