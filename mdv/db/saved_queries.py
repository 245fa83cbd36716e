"""Stored queries with their names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from mdv.db.tables import saved_queries
from mdv.errors import Conflict


@dataclass(frozen=True, slots=True)
class SavedQuery:
    """A query with its name, and who saved it last."""

    id: int
    name: str
    text: str
    saved_by: str
    saved_at: datetime


_COLUMNS = select(*(saved_queries.c[name] for name in SavedQuery.__slots__))


def list_saved(connection: Connection, after: str, limit: int) -> list[SavedQuery]:
    """List saved queries, ordered by name, after the name `after`."""
    rows = connection.execute(
        _COLUMNS.where(saved_queries.c.name > after).order_by(saved_queries.c.name).limit(limit)
    )  # fmt: skip
    return [SavedQuery(*row) for row in rows]


def find_saved(connection: Connection, number: int) -> SavedQuery | None:
    row = connection.execute(_COLUMNS.where(saved_queries.c.id == number)).one_or_none()
    return SavedQuery(*row) if row is not None else None


def lock_and_find(connection: Connection, name: str) -> SavedQuery | None:
    """Return the query with this name, if any. Until this transaction ends, no other one can save a query."""
    connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(saved_queries.name))))
    row = connection.execute(_COLUMNS.where(saved_queries.c.name == name)).one_or_none()
    return SavedQuery(*row) if row is not None else None


def count_saved(connection: Connection) -> int:
    return connection.execute(select(func.count()).select_from(saved_queries)).scalar_one()


def insert_saved(connection: Connection, name: str, text: str, by: str) -> int:
    """Store a new query and return its ID."""
    values = {"name": name, "text": text, "saved_by": by, "saved_at": func.now()}
    number: int = connection.execute(insert(saved_queries).values(values).returning(saved_queries.c.id)).scalar_one()
    return number


def replace_saved(connection: Connection, number: int, name: str, text: str, by: str) -> None:
    """Replace the text of a stored query."""
    values = {"name": name, "text": text, "saved_by": by, "saved_at": func.now()}
    connection.execute(update(saved_queries).where(saved_queries.c.id == number).values(values))


def rename_saved(connection: Connection, number: int, name: str) -> bool:
    """Rename a query. Return False if it does not exist. Raise `Conflict` if another one has the name."""
    changed = update(saved_queries).where(saved_queries.c.id == number).values(name=name)
    try:
        with connection.begin_nested():
            return connection.execute(changed).rowcount == 1
    except IntegrityError:
        raise Conflict(f"A saved query named {name} already exists. Choose another name.") from None


def delete_saved(connection: Connection, number: int) -> None:
    """Delete a saved query if it exists."""
    connection.execute(delete(saved_queries).where(saved_queries.c.id == number))
