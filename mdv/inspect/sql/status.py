"""The status of an MDP, from queries whose cost does not depend on the size of the store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Table, desc, func, literal, select, text, true

from mdv.db.engine import driver
from mdv.db.load_sql import load_sql
from mdv.db.state import read_state
from mdv.db.suspensions import Suspensions
from mdv.db.tables import documents, filter_data, jobs, resources, rules, transactions

MAX_ROWS_COUNTED = 10_000
"""Up to this many rows are counted exactly. Larger numbers are estimates of the query planner."""
MAX_LAGGING_LMRS = 20
"""Limit of lagging LMRs that are listed."""
BEHIND_AFTER_SECONDS = 30.0
"""An LMR counts as behind if it has not read an event for this long."""


@dataclass(frozen=True, slots=True)
class RowCount:
    """A number of rows; an estimate if it is not `exact`."""

    count: int
    exact: bool


@dataclass(frozen=True, slots=True)
class LaggingLmr:
    """An LMR with unread events: their number (a lower bound if `more`), and when the first was published (`since`).
    `must_refetch`: its cursor has expired, so it has to load a snapshot."""

    id: int
    name: str
    events: int
    more: bool
    since: datetime | None
    asked_at: datetime | None
    must_refetch: bool
    paused: bool = False


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Waiting and running jobs, and dead letters. `more`: only the first `MAX_ROWS_COUNTED` jobs are counted."""

    waiting: int
    more: bool
    oldest_seconds: float | None
    by_kind: dict[str, int]
    by_priority: dict[int, int]
    dead: int


@dataclass(frozen=True, slots=True)
class Status:
    """The status of an MDP."""

    epoch: UUID
    position: int
    last_transaction: datetime | None
    documents: RowCount
    resources: RowCount
    statements: RowCount
    rules: RowCount
    suspended: int
    """The number of suspended rules."""
    lmrs: int
    behind: list[LaggingLmr]
    queue: QueueCounts
    database_bytes: int


_DESCRIBED = select(literal(1)).where(filter_data.c.resource_id == resources.c.id).exists()
"""Resources that a document describes: not those that are only referenced, and not classes."""


def read_status(connection: Connection) -> Status:
    driver(connection).execute(load_sql("status", __package__)["pin"])
    state = read_state(connection)
    last = select(transactions.c.at).order_by(desc(transactions.c.position)).limit(1)
    return Status(
        epoch=state.epoch,
        position=state.position,
        last_transaction=connection.execute(last).scalar_one_or_none(),
        documents=count_rows(connection, documents, documents.c.present),
        resources=count_rows(connection, resources, _DESCRIBED),
        statements=count_rows(connection, filter_data),
        rules=count_rows(connection, rules),
        suspended=Suspensions(connection).count(),
        lmrs=state.lmrs,
        behind=list_lagging_lmrs(connection),
        queue=read_queue(connection),
        database_bytes=connection.execute(select(func.pg_database_size(func.current_database()))).scalar_one(),
    )


def count_rows(connection: Connection, table: Table, which: ColumnElement[bool] | None = None) -> RowCount:
    """Return the number of rows of a table: exact for small tables, else an estimate."""
    some = select(literal(1)).select_from(table).limit(MAX_ROWS_COUNTED + 1).subquery()
    all_ = select(literal(1)).select_from(table).where(true() if which is None else which)
    if connection.execute(select(func.count()).select_from(some)).scalar_one() <= MAX_ROWS_COUNTED:
        return RowCount(connection.execute(select(func.count()).select_from(all_.subquery())).scalar_one(), True)
    plan = connection.execute(text(f"explain (format json) {all_.compile(compile_kwargs={'literal_binds': True})}"))
    return RowCount(int(plan.scalar_one()[0]["Plan"]["Plan Rows"]), False)


def list_lagging_lmrs(connection: Connection) -> list[LaggingLmr]:
    """List the LMRs with unread events, those with the oldest first."""
    bounds = {"most": MAX_ROWS_COUNTED, "furthest": MAX_LAGGING_LMRS}
    rows = driver(connection).execute(load_sql("status", __package__)["lagging_lmrs"], bounds)
    return [
        LaggingLmr(
            number, name, min(events, MAX_ROWS_COUNTED), events > MAX_ROWS_COUNTED, since, asked_at, lost, paused
        )
        for number, name, events, since, asked_at, lost, paused in rows
    ]


def find_lmrs_behind(connection: Connection, after: int, limit: int) -> list[int]:
    """Return the IDs of a page of the LMRs that are behind, also of paused ones."""
    values = {"seconds": BEHIND_AFTER_SECONDS, "after": after, "limit": limit}
    return [number for (number,) in driver(connection).execute(load_sql("status", __package__)["lmrs_behind"], values)]


def read_queue(connection: Connection) -> QueueCounts:
    first = (
        select(jobs.c.kind, jobs.c.priority, jobs.c.created_at)
        .where(jobs.c.state == "queued")
        .order_by(jobs.c.priority, jobs.c.number)
        .limit(MAX_ROWS_COUNTED + 1)
        .subquery()
    )
    age = func.extract("epoch", func.now() - func.min(first.c.created_at))
    grouped = select(first.c.kind, first.c.priority, func.count(), age).group_by(first.c.kind, first.c.priority)
    by_kind: dict[str, int] = {}
    by_priority: dict[int, int] = {}
    ages: list[float] = []
    for kind, priority, waiting, oldest in connection.execute(grouped):
        by_kind[kind] = by_kind.get(kind, 0) + waiting
        by_priority[priority] = by_priority.get(priority, 0) + waiting
        ages.append(max(0.0, float(oldest)))
    dead = select(jobs.c.number).where(jobs.c.state == "dead").limit(MAX_ROWS_COUNTED).subquery()
    waiting = sum(by_kind.values())
    return QueueCounts(
        waiting=waiting,
        more=waiting > MAX_ROWS_COUNTED,
        oldest_seconds=max(ages, default=None),
        by_kind=dict(sorted(by_kind.items())),
        by_priority=dict(sorted(by_priority.items())),
        dead=connection.execute(select(func.count()).select_from(dead)).scalar_one(),
    )
