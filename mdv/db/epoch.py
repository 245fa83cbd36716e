"""The epoch of the MDP changes when its database was restored from a backup.

A restored database lacks the transactions that LMRs received after the backup. So if a database finds itself in another
cluster, on another timeline, or under another OID than before, it gets a new epoch. A new epoch invalidates all
cursors, and LMRs load a snapshot.
"""

from __future__ import annotations

from sqlalchemy import Connection, func, select, text, update
from sqlalchemy.exc import ProgrammingError

from mdv.db.tables import mdp_state

_CLUSTER = text(
    "select (select system_identifier from pg_control_system()) || ':' || (select timeline_id from"
    " pg_control_checkpoint())"
)
_DATABASE = text("select oid::text from pg_database where datname = current_database()")


def update_epoch(connection: Connection, restored: bool = False) -> bool:
    """Set a new epoch if the database has moved, or if it is declared `restored`. Return True if the epoch changed."""
    here = _database_identity(connection)
    before = connection.execute(select(mdp_state.c.home).with_for_update()).scalar_one()
    moved = restored or (before is not None and before != here)
    if moved:
        connection.execute(update(mdp_state).values(epoch=func.gen_random_uuid(), home=here))
    elif before is None:
        connection.execute(update(mdp_state).values(home=here))
    return moved


def _database_identity(connection: Connection) -> str:
    database: str = connection.execute(_DATABASE).scalar_one()
    try:
        with connection.begin_nested():
            cluster = connection.execute(_CLUSTER).scalar_one()
    except ProgrammingError:  # some hosting providers do not grant these functions
        return database
    return f"{cluster}:{database}"
