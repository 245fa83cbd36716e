"""Saved queries: texts that people keep under a name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from mdv.db.tables import saved_queries
from mdv.errors import BadRequest, Conflict, NotFound

LONGEST_NAME = 100
MOST_SAVED = 1000


@dataclass(frozen=True, slots=True)
class SavedQuery:
    """A query under its name, and who saved it last."""

    id: int
    name: str
    text: str
    saved_by: str
    saved_at: datetime


_COLUMNS = select(*(saved_queries.c[name] for name in SavedQuery.__slots__))


def check_name(name: str) -> str:
    """A name that a query can have."""
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable() or name != name.strip():
        raise BadRequest(f"A query's name has 1 to {LONGEST_NAME} printable characters.")
    return name


def list_saved(connection: Connection, after: str, limit: int) -> list[SavedQuery]:
    """Saved queries in the order of their names."""
    rows = connection.execute(
        _COLUMNS.where(saved_queries.c.name > after).order_by(saved_queries.c.name).limit(limit)
    )  # fmt: skip
    return [SavedQuery(*row) for row in rows]


def get_saved(connection: Connection, number: int) -> SavedQuery:
    row = connection.execute(_COLUMNS.where(saved_queries.c.id == number)).one_or_none()
    if row is None:
        raise NotFound("There is no such saved query: it may have been deleted.")
    return SavedQuery(*row)


def claim(connection: Connection, name: str) -> SavedQuery | None:
    """What has this name now. Until this transaction ends nobody else saves anything."""
    connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(saved_queries.name))))
    row = connection.execute(_COLUMNS.where(saved_queries.c.name == name)).one_or_none()
    return SavedQuery(*row) if row is not None else None


def save(connection: Connection, name: str, text: str, by: str) -> int:
    """Keep a text under a name, in place of the one that had it; its number."""
    before = claim(connection, check_name(name))
    values = {"name": name, "text": text, "saved_by": by, "saved_at": func.now()}
    if before is not None:
        connection.execute(update(saved_queries).where(saved_queries.c.id == before.id).values(values))
        return before.id
    if connection.execute(select(func.count()).select_from(saved_queries)).scalar_one() >= MOST_SAVED:
        raise Conflict(f"There are {MOST_SAVED:,} saved queries, and no more are kept. Delete some first.")
    number: int = connection.execute(insert(saved_queries).values(values).returning(saved_queries.c.id)).scalar_one()
    return number


def rename(connection: Connection, number: int, name: str) -> None:
    changed = update(saved_queries).where(saved_queries.c.id == number).values(name=check_name(name))
    try:
        with connection.begin_nested():
            done = connection.execute(changed).rowcount
    except IntegrityError:
        raise Conflict(f"There is a saved query of the name {name} already.") from None
    if not done:
        raise NotFound("There is no such saved query: it may have been deleted.")


def forget(connection: Connection, number: int) -> None:
    """Delete a saved query, if it is there still."""
    connection.execute(delete(saved_queries).where(saved_queries.c.id == number))
