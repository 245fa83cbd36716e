"""The statement store: one run replaces what a batch of documents says, by difference."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, select

from mdv.db.engine import driver
from mdv.db.statements import statements
from mdv.db.tables import documents
from mdv.model import Statement
from mdv.rdf.digest import statement_hash

TypedValue = tuple[Decimal | None, Decimal | None, bool | None]
"""A value as a number, an instant, a truth: whichever the schema makes of it."""


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """What is known of a document without its statements."""

    id: int
    uri: str
    version: int
    present: bool
    content: bytes


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a document says from now on; nothing, if it is deleted."""

    uri: str
    stored: StoredDocument | None
    content: bytes
    statements: tuple[Statement, ...]
    typed: tuple[TypedValue, ...]
    prefixes: Mapping[str, str]

    @property
    def present(self) -> bool:
        return bool(self.statements)


@dataclass(frozen=True, slots=True)
class Counts:
    """What a replacement did, in resources whose visible statements changed (or, unchanged, did not)."""

    version: int
    inserted: int
    updated: int
    deleted: int
    unchanged: int


def find_documents(connection: Connection, uris: Collection[str]) -> dict[str, StoredDocument]:
    """The documents of these names that are, or once were, registered."""
    columns = (documents.c.id, documents.c.uri, documents.c.version, documents.c.present, documents.c.content)
    rows = connection.execute(select(*columns).where(documents.c.uri.in_(uris)))
    return {row.uri: StoredDocument(*row) for row in rows}


_TEMPORARY = (
    "incoming_documents",
    "incoming_statements",
    "incoming_uris",
    "new_statements",
    "stored_statements",
    "changed_statements",
    "visible_changes",
    "changed_resources",
)

_RUN = (
    "name_documents",
    "find_uris",
    "keep_uris",
    "encode_statements",
    "find_stored",
    "find_added",
    "find_removed",
    "remove_statements",
    "find_visible",
    "find_changed_resources",
    "keep_history",
    "insert_statements",
    "keep_documents",
    "keep_transaction",
    "advance",
    "keep_versions",
)


def replace_documents(
    connection: Connection, batch: list[Replacement], position: int, cause: str, property_ids: Mapping[str, int]
) -> dict[str, Counts]:
    """Replace the documents of `batch` in the transaction that stands at `position`; the caller holds the lock.

    Every document of the batch differs from its stored version, and is in the batch once.
    """
    sql = statements("register")
    session = driver(connection)
    with session.pipeline():
        for name in (*_TEMPORARY, "pin_plans"):
            session.execute(sql[name])
    _copy(session, "incoming_documents (uri, document_id, version, present, content, prefixes)", _document_rows(batch))
    _copy(
        session,
        "incoming_statements (document, subject, property_id, target, value, lang, datatype_id, hash,"
        " number, instant, truth)",
        _statement_rows(batch, property_ids),
    )
    values = {"position": position, "cause": cause}
    with session.pipeline():
        for name in _RUN:
            cursor = session.execute(sql[name], values if "%(" in sql[name] else None, prepare=True)
        names = session.execute("select uri, document_id from incoming_documents", prepare=True)
    by_id = {row[0]: Counts(*row[1:]) for row in cursor.fetchall()}
    return {uri: by_id[document_id] for uri, document_id in names.fetchall()}


def _copy(session: Any, target: str, rows: Iterable[tuple[Any, ...]]) -> None:
    with session.cursor() as cursor, cursor.copy(f"copy {target} from stdin") as copy:
        for row in rows:
            copy.write_row(row)


def _document_rows(batch: list[Replacement]) -> Iterator[tuple[Any, ...]]:
    for item in batch:
        stored = item.stored
        yield (item.uri, stored and stored.id, stored and stored.version, item.present, item.content,
               json.dumps(dict(item.prefixes)))  # fmt: skip


def _statement_rows(batch: list[Replacement], ids: Mapping[str, int]) -> Iterator[tuple[Any, ...]]:
    for item in batch:
        for statement, typed in zip(item.statements, item.typed, strict=True):
            subject, name, (kind, value, lang, datatype) = statement
            target, value_or_none = (value, None) if kind == "uri" else (None, value)
            yield (item.uri, subject, ids[name], target, value_or_none, lang, ids[datatype] if datatype else None,
                   statement_hash(statement), *typed)  # fmt: skip
