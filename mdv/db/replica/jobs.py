"""Queued jobs that callers wait for."""

from __future__ import annotations

from sqlalchemy import Connection

from mdv.db.engine import driver
from mdv.db.jobs import PRIORITY_INTERACTIVE
from mdv.db.load_sql import load_sql


def has_interactive_jobs(connection: Connection) -> bool:
    """True if a job that a caller waits for is queued."""
    row = (
        driver(connection)
        .execute(load_sql("replica")["has_interactive_jobs"], {"priority": PRIORITY_INTERACTIVE}, prepare=True)
        .fetchone()
    )
    return row is not None and bool(row[0])
