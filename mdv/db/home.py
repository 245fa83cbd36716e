"""Home: whether this database is the one that it was, or was restored from a backup.

What was told after the backup is forgotten, while LMRs have it. So a database that finds itself elsewhere than it was
(in another cluster, on another timeline, as another database) begins another life: its epoch changes, and with it
every cursor is void, so that LMRs take a snapshot.
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


def settle(connection: Connection, restored: bool = False) -> bool:
    """Begin another life, where the database is not where it was, or is said to be `restored`; whether it did."""
    here = _here(connection)
    before = connection.execute(select(mdp_state.c.home).with_for_update()).scalar_one()
    moved = restored or (before is not None and before != here)
    if moved:
        connection.execute(update(mdp_state).values(epoch=func.gen_random_uuid(), home=here))
    elif before is None:
        connection.execute(update(mdp_state).values(home=here))
    return moved


def _here(connection: Connection) -> str:
    database: str = connection.execute(_DATABASE).scalar_one()
    try:
        with connection.begin_nested():
            cluster = connection.execute(_CLUSTER).scalar_one()
    except ProgrammingError:  # some hosts do not let one ask
        return database
    return f"{cluster}:{database}"
