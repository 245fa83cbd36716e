"""Errors of the database that say nothing about the work at hand."""

from __future__ import annotations

import psycopg
from sqlalchemy.exc import DBAPIError

_OUTAGE_ERRORS = (
    psycopg.errors.DiskFull,
    psycopg.errors.TooManyConnections,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.LockNotAvailable,
)


def is_database_outage(error: Exception) -> bool:
    """True if the database is unreachable, full or overloaded. Such errors are retried without counting an attempt."""
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or (
            isinstance(error.orig, psycopg.Error) and is_database_outage(error.orig)
        )
    if isinstance(error, _OUTAGE_ERRORS):
        return True
    return isinstance(error, psycopg.OperationalError) and (
        # A cancelled statement (57014) says nothing about the state of the database.
        error.sqlstate is None or error.sqlstate[:2] == "08" or error.sqlstate[:3] == "57P"
    )
