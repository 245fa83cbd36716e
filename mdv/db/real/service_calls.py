"""The rows of requests to services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from sqlalchemy import Connection

from mdv.db.engine import driver
from mdv.db.load_sql import load_sql


class NewCall(NamedTuple):
    """A request to be sent. `reason`: why it cannot be sent; then it has failed."""

    request: str
    service: str | None
    endpoint: str | None
    body: str
    reason: str | None = None


class ClaimedCall(NamedTuple):
    """A request that this worker sends. `attempts`: with this one."""

    id: UUID
    process_id: int
    endpoint: str
    body: str
    attempts: int


class CallResult(NamedTuple):
    """The result of a request, which the next slice of its process takes. `answer`: None if it has failed."""

    id: UUID
    request: str
    state: str
    reason: str | None
    media_type: str | None
    answer: bytes | None


class CallAttempt(NamedTuple):
    """What came of an attempt. `state`: waiting if there is another one, after `seconds`."""

    state: str
    status: int | None
    reason: str | None
    media_type: str | None = None
    answer: bytes | None = None
    seconds: float = 0.0


def insert_call(connection: Connection, process: int, call: NewCall) -> None:
    """Store a request."""
    state = "waiting" if call.reason is None else "failed"
    _run(driver(connection), "insert", call._asdict() | {"process_id": process, "state": state})


def count_recent_calls(session: psycopg.Connection[Any], process: int) -> int:
    """Return how many requests a process has made in the last minute."""
    ((number,),) = _run(session, "count_recent", {"process_id": process})
    return int(number)


def read_result(session: psycopg.Connection[Any], process: int) -> CallResult | None:
    """Return the result that a process has not taken yet."""
    rows = _run(session, "read_result", {"process_id": process}).fetchall()
    return CallResult(*rows[0]) if rows else None


def end_call(connection: Connection, number: UUID) -> None:
    """Note that a process has taken a result."""
    _run(driver(connection), "end", {"id": number})


def claim_call(connection: Connection, lease_seconds: float) -> ClaimedCall | None:
    """Claim the request whose turn it is. The caller commits before it sends it."""
    rows = _run(driver(connection), "claim", {"lease": lease_seconds}).fetchall()
    return ClaimedCall(*rows[0]) if rows else None


def seconds_until_call(connection: Connection) -> float | None:
    """Return the seconds until the next request is to be sent; None if there is none."""
    ((seconds,),) = _run(driver(connection), "next_due", {})
    return None if seconds is None else float(seconds)


def record_attempt(connection: Connection, call: ClaimedCall, attempt: CallAttempt) -> bool:
    """Store what came of an attempt, and make the process ready if it was the last one. Return True if so."""
    given = attempt._asdict() | {"id": call.id, "attempts": call.attempts}
    if not _run(driver(connection), "record", given).fetchall() or attempt.state == "waiting":
        return False
    _run(driver(connection), "resume", {"process_id": call.process_id})
    return True


def _run(session: psycopg.Connection[Any], name: str, given: Mapping[str, Any]) -> Any:
    return session.execute(load_sql("real_calls")[name], given, prepare=True)
