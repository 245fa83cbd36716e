"""Lists the actions that documents contain."""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg

from mdv.db.load_sql import load_sql
from mdv.model import RDFS
from mdv.real.vocabulary import LRM_BODY, REAL_CODE


class StoredAction(NamedTuple):
    """A resource with a body, and the documents that say so (at most 20)."""

    id: int
    uri: str
    label: str | None
    documents: tuple[str, ...]


def list_stored_actions(
    session: psycopg.Connection[Any], after: int, limit: int, holding: str = ""
) -> list[StoredAction]:
    """Return a page of actions in the order of their IDs."""
    values = {
        "label": RDFS + "label", "body": LRM_BODY, "code": REAL_CODE, "after": after, "limit": limit,
        "holding": holding or None,
    }  # fmt: skip
    rows = session.execute(load_sql("real_actions", __package__)["list_actions"], values)
    return [StoredAction(number, uri, label, tuple(documents)) for number, uri, label, documents in rows.fetchall()]
