"""The state of the MDP, and the lock that makes positions follow commit order."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Text, cast, select

from mdv.db.engine import driver, pipelined
from mdv.db.load_sql import load_sql
from mdv.db.pipeline import Pipeline, TextRow
from mdv.db.tables import mdp_state


@dataclass(frozen=True, slots=True)
class State:
    """The epoch of the MDP, its last position, the version of its schema, the last IDs that were assigned, the version
    of its rule groups, the last offset of its feeds, the number of LMRs, the version of its ECA rules (0: none), the
    number of marks, 1 if it is in a federation, the IDs of the properties that processes wait for (0: any), and what a
    change must know of the backbone as JSON (None: there is none)."""

    epoch: UUID
    position: int
    schema_version: int
    last_resource: int
    last_document: int
    last_rule: int
    last_atomic_rule: int
    graph_version: int
    last_offset: int
    lmrs: int
    eca_version: int
    marks: int = 0
    federated: int = 0
    watched: tuple[int, ...] = ()
    replica: str | None = None


_COLUMNS = (
    mdp_state.c.epoch,
    mdp_state.c.position,
    mdp_state.c.schema_version,
    mdp_state.c.last_resource,
    mdp_state.c.last_document,
    mdp_state.c.last_rule,
    mdp_state.c.last_atomic_rule,
    mdp_state.c.graph_version,
    mdp_state.c.last_offset,
    mdp_state.c.lmrs,
    mdp_state.c.eca_version,
    mdp_state.c.marks,
    mdp_state.c.federated,
    mdp_state.c.watched,
    cast(mdp_state.c.replica, Text),
)


def read_state(connection: Connection) -> State:
    row: Sequence[Any] = connection.execute(select(*_COLUMNS)).one()
    *given, watched, replica = row
    values: list[Any] = [*given, tuple(watched), replica]
    return State(*values)


class LockPurpose(Enum):
    """What a transaction is about to change. The value names the statement that takes the lock and pins plans."""

    DOCUMENTS = "lock_for_documents"
    RULES = "lock_for_rules"
    OTHER = "lock_state"


def lock_state(connection: Connection) -> State:
    """Take the lock and return the state. Until this transaction ends, no other one changes the visible state."""
    session = driver(connection)
    with pipelined(session):  # sends BEGIN in the same message
        row = session.execute(load_sql("store")["lock_state"], prepare=True)
    *given, watched, replica = row.fetchall()[0]
    values: list[Any] = [*given, tuple(watched), None if replica is None else json.dumps(replica)]
    return State(*values)


def queue_state_lock(pipeline: Pipeline, purpose: LockPurpose) -> Callable[[], State]:
    """Queue the lock. The returned function gives the state after the pipeline was sent."""
    answer = pipeline.queue(load_sql("store")[purpose.value])

    return lambda: parse_state(answer.rows()[0])


def parse_state(row: TextRow) -> State:
    """Return the state from a row that begins with its columns."""
    epoch, *numbers, watched, replica = row[: len(_COLUMNS)]
    ids = (watched or "{}")[1:-1]
    watched_ids = tuple(map(int, ids.split(","))) if ids else ()
    values: list[Any] = [UUID(epoch or ""), *(int(number or 0) for number in numbers), watched_ids, replica]
    return State(*values)
