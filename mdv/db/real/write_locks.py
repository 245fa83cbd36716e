"""The rows of locks of statements against programs."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.db.load_sql import load_sql


class LockPattern(NamedTuple):
    """The statements of a lock. None stands for any. `object`: a term as JSON."""

    document_prefix: str | None = None
    subject: str | None = None
    property: str | None = None
    object: dict[str, Any] | None = None


class StoredLock(NamedTuple):
    """A lock, and who added it."""

    id: int
    pattern: LockPattern
    by: str | None
    created_at: datetime


def add_lock(connection: Connection, pattern: LockPattern, by: str | None) -> StoredLock:
    """Store a lock."""
    term = None if pattern.object is None else json.dumps(pattern.object, ensure_ascii=False)
    (row,) = _rows(connection, "add", **pattern._replace(object=None)._asdict() | {"object": term, "by": by})
    return _stored(row)


def count_locks(connection: Connection) -> int:
    """Return the number of locks."""
    ((number,),) = _rows(connection, "count")
    return int(number)


def list_locks(connection: Connection, after: int, limit: int) -> list[StoredLock]:
    """Return up to `limit` locks with an ID greater than `after`."""
    return [_stored(row) for row in _rows(connection, "list", after=after, limit=limit)]


def remove_lock(connection: Connection, number: int) -> StoredLock | None:
    """Delete a lock, and return it; None if there is none."""
    found = _rows(connection, "remove", id=number)
    return _stored(found[0]) if found else None


def _stored(row: Any) -> StoredLock:
    number, prefix, subject, name, term, by, created_at = row
    return StoredLock(number, LockPattern(prefix, subject, name, term), by, created_at)


def _rows(connection: Connection, name: str, **values: Any) -> list[Any]:
    return list(connection.exec_driver_sql(load_sql("write_locks")[name], values).all())
