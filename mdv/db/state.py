"""Where the MDP stands, and the lock that makes commit order the order of positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, select

from mdv.db.engine import driver, together
from mdv.db.statements import statements
from mdv.db.tables import mdp_state


@dataclass(frozen=True, slots=True)
class State:
    """This life of the MDP, its last position, the version of its schema, the last numbers it gave out, the version of
    its rule groups, the last offset of its feeds, and how many LMRs it has."""

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
)


def read_state(connection: Connection) -> State:
    row: Sequence[Any] = connection.execute(select(*_COLUMNS)).one()
    return State(*row)


def lock_state(connection: Connection) -> State:
    """Wait for the turn of this transaction: until it ends, no other one changes what is visible."""
    with together(driver(connection)):  # BEGIN goes with it
        state = ask_for_lock(connection)
    return state()


def ask_for_lock(connection: Connection, statement: str = "lock_state") -> Callable[[], State]:
    """The same in one message with what else is to be asked when it is this transaction's turn; the state, when the
    database has answered."""
    row = driver(connection).execute(statements("register")[statement], prepare=True)
    return lambda: State(*row.fetchall()[0][: len(_COLUMNS)])
