"""Whether an MDP can answer requests."""

from __future__ import annotations

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from mdv.db.migrate import is_migrated

READY = "ready"


def read_database_state(engine: Engine) -> str:
    """Return `ready`, or the reason why the database cannot be used."""
    try:
        with engine.connect() as connection:
            return READY if is_migrated(connection) else "not migrated: run `mdv migrate`"
    except SQLAlchemyError:
        return "away"
