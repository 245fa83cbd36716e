"""Where the MDP stands, and the lock that makes commit order the order of positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, select

from mdv.db.engine import driver, together
from mdv.db.exchange import Exchange, Row
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
    session = driver(connection)
    with together(session):  # BEGIN goes with it
        row = session.execute(statements("register")["lock_state"], prepare=True)
    return State(*row.fetchall()[0])


def lock_rules(exchange: Exchange) -> Callable[[], State]:
    """The same for rules, with what else is to be asked when it is this transaction's turn; the state, when the
    exchange has taken place."""
    answer = exchange.ask(statements("register")["lock_rules"])

    return lambda: state_of(answer.rows()[0])


def state_of(row: Row) -> State:
    """A row that begins with the state's columns."""
    epoch, *numbers = row[: len(_COLUMNS)]
    return State(UUID(epoch), *(int(number or 0) for number in numbers))
