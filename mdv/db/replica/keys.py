"""The private key of this member. It is in the database, so that a backup contains it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from mdv.db.engine import driver
from mdv.db.load_sql import load_sql


def read_private_key(connection: Connection) -> bytes | None:
    """Return the private key of this member; None if it has none."""
    row = _execute(connection, "read_private_key").fetchone()
    return None if row is None or row[0] is None else bytes(row[0])


def store_private_key(connection: Connection, private_key: bytes) -> None:
    _execute(connection, "store_private_key", private_key=private_key)


def _execute(connection: Connection, query: str, /, **values: object) -> Any:
    return driver(connection).execute(load_sql("replica")[query], values, prepare=True)
