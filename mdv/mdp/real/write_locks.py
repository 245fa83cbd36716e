"""Locks: statements that programs must not add or remove.

A lock concerns programs alone: registrations, edits and event rules are limited by the permissions of their callers.
"""

from __future__ import annotations

from sqlalchemy import Connection

from mdv.db.real import write_locks as db
from mdv.db.real.write_locks import LockPattern, StoredLock, list_locks
from mdv.db.state import lock_state
from mdv.errors import BadRequest, InvalidDocument, NotFound, TooMany
from mdv.rdf.parse import is_absolute_iri
from mdv.rdf.term_json import read_term

__all__ = ["LockPattern", "StoredLock", "add_lock", "list_locks", "remove_lock"]

MAX_LOCKS = 1_000
"""Every slice of a program reads all locks."""


def add_lock(connection: Connection, pattern: LockPattern, by: str | None) -> StoredLock:
    """Add a lock. It holds for every slice that is committed later. The caller commits."""
    if pattern == LockPattern():
        raise BadRequest("A lock needs a document prefix, a subject, a property or an object.")
    if pattern.document_prefix is not None and ":" not in pattern.document_prefix:
        raise BadRequest(f"{pattern.document_prefix[:100]!r} is not the beginning of a URI.")
    for name in ("subject", "property"):
        if (uri := getattr(pattern, name)) is not None and not is_absolute_iri(uri):
            raise BadRequest(f"The {name} {uri[:100]!r} is not a URI.")
    if pattern.object is not None:
        try:
            pattern = pattern._replace(object=read_term(pattern.object).as_dict())
        except InvalidDocument as error:
            raise BadRequest(f"The object is not a term: {error.detail}") from None
    lock_state(connection)
    if db.count_locks(connection) >= MAX_LOCKS:
        raise TooMany(f"There are {MAX_LOCKS:,} locks, which is the limit. Remove some, or use prefixes of documents.")
    return db.add_lock(connection, pattern, by)


def remove_lock(connection: Connection, number: int) -> StoredLock:
    """Remove a lock, and return it. Raise `NotFound`."""
    found = db.remove_lock(connection, number)
    if found is None:
        raise NotFound(f"There is no lock {number}. `mdv real lock list` lists all locks.")
    return found
