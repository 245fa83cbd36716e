"""What pages show about event-condition-action rules."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection

from mdv.db.engine import driver
from mdv.db.load_sql import load_sql
from mdv.inspect.sql.eca import LoggedChange


class ListedEcaRule(NamedTuple):
    """A row of the list of rules. `reason`: why it is quarantined."""

    id: int
    name: str | None
    rule_set: str
    state: str
    reason: str | None
    normal: str
    fired: int
    failed: int
    last_fired: datetime | None


def find_listed_rules(
    connection: Connection, after: int, limit: int, holding: str = "", state: str = "", rule_set: str = ""
) -> list[ListedEcaRule]:
    """Return a page of rules in the order of their IDs. `holding`: a text that their name or text contains."""
    rows = driver(connection).execute(
        load_sql("eca_pages", __package__)["find_rules"],
        {"after": after, "limit": limit, "holding": holding or None, "state": state or None,
         "rule_set": rule_set or None},
    )  # fmt: skip
    return [ListedEcaRule(*row) for row in rows.fetchall()]


def list_document_insertions(
    connection: Connection, document: str, subjects: Iterable[str], limit: int
) -> list[LoggedChange]:
    """Return the changes that inserted statements about these resources into a document, newest first."""
    rows = driver(connection).execute(
        load_sql("eca_pages", __package__)["list_document_insertions"],
        {"document": document, "subjects": sorted(set(subjects)), "limit": limit},
    )
    return [LoggedChange(*row) for row in rows.fetchall()]
