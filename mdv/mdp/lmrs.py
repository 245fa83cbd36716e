"""LMRs: create, find and list them, pause their feeds, replace their tokens."""

from __future__ import annotations

from sqlalchemy import Connection

from mdv.db import lmrs as db
from mdv.db.lmrs import Lmr
from mdv.db.state import lock_state
from mdv.errors import BadRequest, NotFound

__all__ = [
    "MAX_LMR_NAME_CHARACTERS",
    "SELF_NAME",
    "Lmr",
    "create_lmr",
    "get_lmr",
    "list_lmrs",
    "replace_token",
    "set_paused",
]

MAX_LMR_NAME_CHARACTERS = 100
SELF_NAME = "self"
"""The name by which an LMR can refer to itself in a URL path."""


def create_lmr(connection: Connection, name: str, by: str | None = None) -> tuple[Lmr, str]:
    """Create an LMR. Return it with its token, which cannot be read again. `by`: the caller."""
    if not 0 < len(name) <= MAX_LMR_NAME_CHARACTERS or not name.isprintable() or name != name.strip() or "/" in name:
        raise BadRequest(
            f"An LMR's name must have 1 to {MAX_LMR_NAME_CHARACTERS} printable characters, without a slash and without "
            "leading or trailing spaces."
        )
    if name.isdecimal() or name in (SELF_NAME, ".", ".."):
        raise BadRequest(f"An LMR cannot be named {name}: this name has another meaning in URLs. Choose another name.")
    lock_state(connection)
    return db.create_lmr(connection, name, by)


def get_lmr(connection: Connection, name: str) -> Lmr:
    """Return the LMR with this name or id."""
    found = db.find_lmr(connection, name)
    if found is None:
        raise NotFound(f"There is no LMR {name}. `mdv lmr list` lists all LMRs.")
    return found


def list_lmrs(connection: Connection, after: int, limit: int) -> list[Lmr]:
    """Return up to `limit` LMRs with an id greater than `after`."""
    return db.list_lmrs(connection, after, limit)


def set_paused(connection: Connection, lmr: Lmr, paused: bool) -> Lmr:
    """Pause or resume the feed of an LMR. Return its new state."""
    return db.set_paused(connection, lmr, paused)


def replace_token(connection: Connection, lmr: Lmr) -> str:
    """Create a token for an LMR and revoke its other tokens. The token cannot be read again."""
    db.revoke_lmr_tokens(connection, lmr)
    return db.create_lmr_token(connection, lmr)
