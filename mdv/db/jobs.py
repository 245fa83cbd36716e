"""Jobs: what is to be done, in the order in which it came. Redis carries the wake-up; the truth is here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb
from sqlalchemy import Connection, func, select

from mdv.db.engine import driver, together
from mdv.db.statements import statements
from mdv.db.tables import jobs, mdp_state
from mdv.errors import TooMany

DOCUMENT_KINDS = ("register", "delete")
RULE_KINDS = ("subscribe", "change", "unsubscribe", "forget", "schema")

PRIORITIES = range(8)
"""As in RFC 9218: 0 before all others, 7 after all others."""
SOMEBODY_WAITS, NOBODY_WAITS = 3, 5
"""The priority of a job whose caller waits for its end, and of one whose caller does not."""
URGENT = PRIORITIES[:4]
PATIENT = PRIORITIES[4:]
"""The two halves: a batch holds jobs of one of them, so that who waits does not wait for a bulk load."""

MOST_OF_ONE = 100
"""Jobs about one thing that may wait: each has to be passed by whenever others are claimed."""
NEWEST = 2**63 - 1
"""Before this number come all jobs."""
WEIGHT = 500
"""What a job without any text weighs, in bytes."""
MOST_BYTES = 64 * 1024 * 1024
"""The texts that one claim takes into memory; a single larger one is taken alone."""


@dataclass(frozen=True, slots=True)
class Job:
    """Something to be carried out: of `DOCUMENT_KINDS` on the document `uri`, or of `RULE_KINDS`."""

    id: UUID
    kind: str
    uri: str
    body: bytes | None
    media_type: str | None
    options: dict[str, Any]
    attempts: int
    priority: int = SOMEBODY_WAITS
    request: str | None = None
    """The name of the request that it came with."""
    deaths: int = 0
    """How many workers died with it in hand."""
    waited: float = 0.0
    """Seconds since it came."""

    @property
    def weight(self) -> int:
        return len(self.body or b"") + WEIGHT


@dataclass(frozen=True, slots=True)
class JobStatus:
    """How far a job is: queued, running, done with a result, or failed with a problem. `dead`: it failed by no fault of
    its own, and can be tried again."""

    id: UUID
    number: int
    kind: str
    state: str
    uri: str
    result: dict[str, Any] | None
    problem: dict[str, Any] | None
    created_at: datetime
    ended_at: datetime | None
    attempts: int
    priority: int
    request: str | None
    not_before: datetime
    dead: bool


class Waiting(NamedTuple):
    """What waits: how many jobs, their bytes, the seconds that the first has waited, and how many are each caller's."""

    jobs: int
    bytes: int
    oldest: float
    by_caller: dict[str, int]


class Ending(NamedTuple):
    """How a claimed job ended: with a result, or with a problem; `dead`, if that was none of its own."""

    job: Job
    result: dict[str, Any] | None
    problem: dict[str, Any] | None
    dead: bool = False

    @property
    def state(self) -> str:
        return "dead" if self.dead else self.told_state

    @property
    def told_state(self) -> str:
        """As callers know it."""
        return "failed" if self.result is None else "done"


def add_job(
    connection: Connection,
    kind: str,
    uri: str,
    caller: str,
    body: bytes | None = None,
    media_type: str | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    priority: int = SOMEBODY_WAITS,
    request: str | None = None,
    idempotency_key: str | None = None,
    request_hash: bytes | None = None,
) -> UUID:
    """Queue a job; refused where very many about the same thing wait already."""
    given = {
        "kind": kind, "uri": uri, "priority": priority, "body": body, "media_type": media_type,
        "options": Jsonb(options or {}), "caller": caller, "request": request, "key": idempotency_key,
        "hash": request_hash, "most": MOST_OF_ONE,
    }  # fmt: skip
    row = _run(connection, "add", given).fetchone()
    if row is None:
        raise TooMany(f"{MOST_OF_ONE} changes of {uri} wait already; nothing was changed.")
    return UUID(str(row[0]))


def find_key(connection: Connection, caller: str, key: str) -> tuple[UUID, bytes] | None:
    """The job that an Idempotency-Key stands for, and the hash of the request it came with."""
    query = select(jobs.c.id, jobs.c.request_hash).where(jobs.c.caller == caller, jobs.c.idempotency_key == key)
    row = connection.execute(query).one_or_none()
    return (row[0], row[1]) if row else None


# Carrying them out


def claim_jobs(
    connection: Connection,
    most: int,
    kinds: Collection[str] = DOCUMENT_KINDS,
    priorities: Sequence[int] = PRIORITIES,
    otherwise: Sequence[int] = (-1,),
    most_bytes: int = MOST_BYTES,
) -> list[Job]:
    """Take waiting jobs of these kinds and priorities for this transaction, or, where there are none, of other
    priorities; if it dies, they wait again.

    Of several jobs for one document, or one LMR, only the first is taken, so that they are carried out in the order
    they came.
    """
    given = {
        "kinds": list(kinds), "first": priorities[0], "last": priorities[-1], "other_first": otherwise[0],
        "other_last": otherwise[-1], "most": most, "bytes": most_bytes, "weight": WEIGHT,
    }  # fmt: skip
    return [Job(*row) for row in _run(connection, "claim", given)]


def claim_known(connection: Connection, ids: Sequence[UUID]) -> list[Job]:
    """Take these jobs, but for those that somebody else holds or that have ended."""
    return [Job(*row) for row in _run(connection, "claim_known", {"ids": list(ids)})]


def begin_jobs(connection: Connection, ids: Sequence[UUID]) -> None:
    """Leave a trace of jobs that are about to be carried out; `end_jobs` and `let_go` take it away."""
    _run(connection, "begin", {"ids": list(ids)})


def let_go(connection: Connection, ids: Sequence[UUID]) -> None:
    """Take the trace of jobs away: whoever had them in hand is alive."""
    _run(connection, "let_go", {"ids": list(ids)})


def end_jobs(connection: Connection, endings: Sequence[Ending]) -> None:
    """Write down how claimed jobs ended, in one round trip. It is the last act of a transaction."""
    if not endings:
        return
    ids = [ending.job.id for ending in endings]
    given = {
        "ids": ids,
        "states": [ending.state for ending in endings],
        "results": [None if ending.result is None else Jsonb(ending.result) for ending in endings],
        "problems": [None if ending.problem is None else Jsonb(ending.problem) for ending in endings],
    }
    with together(driver(connection)):
        _run(connection, "pin", {})
        _run(connection, "end", given)
        let_go(connection, ids)


def postpone_job(connection: Connection, job: Job, problem: dict[str, Any], seconds: float) -> None:
    """One more attempt at a claimed job has failed for no fault of its document: it waits `seconds`."""
    with together(driver(connection)):
        _run(connection, "postpone", {"id": job.id, "problem": Jsonb(problem), "seconds": seconds})
        let_go(connection, [job.id])


# Looking at them


def read_job(connection: Connection, job_id: UUID) -> JobStatus | None:
    """A job's status. One that waits and is locked by a running transaction is being carried out.

    This looks at who holds the lock and takes none itself: a worker would pass by a job that a reader holds.
    """
    found = _read(connection, [job_id])
    return found[0] if found else None


def list_jobs(connection: Connection, state: str | None, before: int, limit: int) -> list[JobStatus]:
    """Jobs in a state (those that are being carried out are among the queued), the newest first: those with a number
    below `before`."""
    query = select(jobs.c.id).where(jobs.c.number < before).order_by(jobs.c.number.desc()).limit(limit)
    if state == "failed":
        query = query.where(jobs.c.state.in_(("failed", "dead")))
    elif state is not None:
        query = query.where(jobs.c.state == state)
    return _read(connection, list(connection.execute(query).scalars()))


def last_news(connection: Connection) -> tuple[int, int]:
    """The number of the last job, and the position: whenever something happens, they change."""
    last = select(func.coalesce(func.max(jobs.c.number), 0)).scalar_subquery()
    number, position = connection.execute(select(last, mdp_state.c.position)).one()
    return number, position


def _read(connection: Connection, ids: list[UUID]) -> list[JobStatus]:
    return [JobStatus(*row) for row in _run(connection, "read", {"ids": ids})]


def retry_job(connection: Connection, job_id: UUID) -> bool:
    """Let a dead letter wait again; False where it is none."""
    return bool(_run(connection, "retry", {"id": job_id}).rowcount)


def has_newer(connection: Connection, job_id: UUID) -> bool:
    """Whether a job that came later about the same thing waits, or was carried out."""
    ((newer,),) = _run(connection, "newer", {"id": job_id}).fetchall()
    return bool(newer)


def look_at_waiting(connection: Connection, most: int) -> Waiting:
    """What waits, counted up to `most` jobs."""
    (row,) = _run(connection, "waiting", {"most": most}).fetchall()
    return Waiting(*row)


def count_dead(connection: Connection) -> int:
    """How many dead letters there are."""
    return connection.execute(select(func.count()).where(jobs.c.state == "dead")).scalar_one()


def age_jobs(connection: Connection) -> int:
    """Make who has waited for long more urgent, within its half of the priorities; how many."""
    return int(_run(connection, "age", {"urgent": URGENT[0], "patient": PATIENT[0]}).rowcount)


def forget_jobs(connection: Connection, seconds: float, most: int) -> int:
    """Drop jobs that ended longer ago than `seconds`, at most so many; how many went."""
    return int(_run(connection, "forget", {"seconds": seconds, "most": most}).rowcount)


def _run(connection: Connection, name: str, given: Mapping[str, Any]) -> Any:
    return driver(connection).execute(statements("jobs")[name], given, prepare=True)
