"""Saved queries: query texts that are stored under a name."""

from __future__ import annotations

from sqlalchemy import Connection

from mdv.db import saved_queries as db
from mdv.db.saved_queries import SavedQuery
from mdv.errors import BadRequest, Conflict, NotFound

__all__ = [
    "MAX_QUERY_NAME_CHARACTERS",
    "MAX_SAVED_QUERIES",
    "SavedQuery",
    "delete_saved",
    "find_replaced",
    "get_saved",
    "list_saved",
    "rename_saved",
    "save_query",
]

MAX_QUERY_NAME_CHARACTERS = 100
MAX_SAVED_QUERIES = 1000


def list_saved(connection: Connection, after: str, limit: int) -> list[SavedQuery]:
    """Return up to `limit` saved queries, ordered by name, after the name `after`."""
    return db.list_saved(connection, after, limit)


def get_saved(connection: Connection, number: int) -> SavedQuery:
    found = db.find_saved(connection, number)
    if found is None:
        raise _missing_error()
    return found


def find_replaced(connection: Connection, name: str, text: str) -> SavedQuery | None:
    """Return the query with this name and another text, which saving would replace. Until this transaction ends, no
    other one can save a query."""
    before = db.lock_and_find(connection, _check_name(name))
    return before if before is not None and before.text != text else None


def save_query(connection: Connection, name: str, text: str, by: str) -> int:
    """Save a query under a name, replacing a previous one with that name. Return its ID."""
    before = db.lock_and_find(connection, _check_name(name))
    if before is not None:
        db.replace_saved(connection, before.id, name, text, by)
        return before.id
    if db.count_saved(connection) >= MAX_SAVED_QUERIES:
        raise Conflict(f"The limit of {MAX_SAVED_QUERIES:,} saved queries is reached. Delete some first.")
    return db.insert_saved(connection, name, text, by)


def rename_saved(connection: Connection, number: int, name: str) -> None:
    """Rename a saved query. Raise `Conflict` if another one has the name."""
    if not db.rename_saved(connection, number, _check_name(name)):
        raise _missing_error()


def delete_saved(connection: Connection, number: int) -> None:
    """Delete a saved query if it exists."""
    db.delete_saved(connection, number)


def _check_name(name: str) -> str:
    if not 0 < len(name) <= MAX_QUERY_NAME_CHARACTERS or not name.isprintable() or name != name.strip():
        raise BadRequest(f"The name of a query must have 1 to {MAX_QUERY_NAME_CHARACTERS} printable characters.")
    return name


def _missing_error() -> NotFound:
    return NotFound("This saved query does not exist. It may have been deleted.")
