"""Where the MDP stands, and the lock that makes commit order the order of positions."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, select

from mdv.db.tables import mdp_state


@dataclass(frozen=True, slots=True)
class State:
    """This life of the MDP, the position of its last transaction, the version of its schema."""

    epoch: UUID
    position: int
    schema_version: int


def read_state(connection: Connection) -> State:
    row = connection.execute(select(mdp_state.c.epoch, mdp_state.c.position, mdp_state.c.schema_version)).one()
    return State(*row)


def lock_state(connection: Connection) -> State:
    """Wait for the turn of this transaction: until it ends, no other one changes what is visible."""
    columns = select(mdp_state.c.epoch, mdp_state.c.position, mdp_state.c.schema_version)
    return State(*connection.execute(columns.with_for_update()).one())
