"""Status: how an MDP is, from what costs the same on a large store as on a small one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Table, desc, func, literal, select, text, true

from mdv.db.engine import driver
from mdv.db.state import read_state
from mdv.db.statements import statements
from mdv.db.tables import documents, filter_data, jobs, resources, rules, transactions

MOST_COUNTED = 10_000
"""Rows up to which something is counted; beyond, it is estimated as the database does for its plans."""
FURTHEST = 20
"""How many of the LMRs that are behind are told of."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many there are; not `exact`: about so many."""

    count: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Behind:
    """An LMR that has not asked for all that it was told: so many events (or `more`), the first of them published
    `since`. One that `must_refetch` asked last from a place that is not kept any longer."""

    id: int
    name: str
    events: int
    more: bool
    since: datetime | None
    asked_at: datetime | None
    must_refetch: bool
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits to be carried out, or is being carried out; `more`: of the first so many. Dead letters apart."""

    waiting: int
    more: bool
    oldest_seconds: float | None
    by_kind: dict[str, int]
    by_priority: dict[int, int]
    dead: int


@dataclass(frozen=True, slots=True)
class Status:
    """How an MDP is."""

    epoch: UUID
    position: int
    last_transaction: datetime | None
    documents: Count
    resources: Count
    statements: Count
    rules: Count
    lmrs: int
    behind: list[Behind]
    queue: Queue
    database_bytes: int


def read_status(connection: Connection) -> Status:
    driver(connection).execute(statements("status")["pin"])
    state = read_state(connection)
    last = select(transactions.c.at).order_by(desc(transactions.c.position)).limit(1)
    return Status(
        epoch=state.epoch,
        position=state.position,
        last_transaction=connection.execute(last).scalar_one_or_none(),
        documents=count(connection, documents, documents.c.present),
        resources=count(connection, resources),
        statements=count(connection, filter_data),
        rules=count(connection, rules),
        lmrs=state.lmrs,
        behind=furthest_behind(connection),
        queue=read_queue(connection),
        database_bytes=connection.execute(select(func.pg_database_size(func.current_database()))).scalar_one(),
    )


def count(connection: Connection, table: Table, which: ColumnElement[bool] | None = None) -> Count:
    """How many rows of a table there are: counted where they are few, else estimated."""
    some = select(literal(1)).select_from(table).limit(MOST_COUNTED + 1).subquery()
    all_ = select(literal(1)).select_from(table).where(true() if which is None else which)
    if connection.execute(select(func.count()).select_from(some)).scalar_one() <= MOST_COUNTED:
        return Count(connection.execute(select(func.count()).select_from(all_.subquery())).scalar_one(), True)
    plan = connection.execute(text(f"explain (format json) {all_.compile(compile_kwargs={'literal_binds': True})}"))
    return Count(int(plan.scalar_one()[0]["Plan"]["Plan Rows"]), False)


def furthest_behind(connection: Connection) -> list[Behind]:
    """The LMRs that are behind, the furthest first."""
    bounds = {"most": MOST_COUNTED, "furthest": FURTHEST}
    rows = driver(connection).execute(statements("status")["furthest_behind"], bounds)
    return [
        Behind(number, name, min(events, MOST_COUNTED), events > MOST_COUNTED, since, asked_at, lost, paused)
        for number, name, events, since, asked_at, lost, paused in rows
    ]


def read_queue(connection: Connection) -> Queue:
    first = (
        select(jobs.c.kind, jobs.c.priority, jobs.c.created_at)
        .where(jobs.c.state == "queued")
        .order_by(jobs.c.priority, jobs.c.number)
        .limit(MOST_COUNTED + 1)
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
    dead = select(jobs.c.number).where(jobs.c.state == "dead").limit(MOST_COUNTED).subquery()
    waiting = sum(by_kind.values())
    return Queue(
        waiting=waiting,
        more=waiting > MOST_COUNTED,
        oldest_seconds=max(ages, default=None),
        by_kind=dict(sorted(by_kind.items())),
        by_priority=dict(sorted(by_priority.items())),
        dead=connection.execute(select(func.count()).select_from(dead)).scalar_one(),
    )
