"""The records of a superpeer, and the journal of what a federation has changed here."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.db.federation.site_store import execute
from mdv.federation.records import RecordKey
from mdv.model import Statement, Term


def read_records(connection: Connection) -> dict[RecordKey, str]:
    """Return all records."""
    return {RecordKey(part, key): value for part, key, value in execute(connection, "read_records").fetchall()}


def write_records(connection: Connection, written: Mapping[RecordKey, str], removed: Collection[RecordKey]) -> None:
    """Write records, and delete others."""
    if written:
        rows = [
            {"part": key.table, "digest": _digest(key.key), "key": key.key, "value": value}
            for key, value in written.items()
        ]
        execute(connection, "write_records", rows=json.dumps(rows, ensure_ascii=False))
    if removed:
        gone = [{"part": key.table, "digest": _digest(key.key)} for key in removed]
        execute(connection, "delete_records", rows=json.dumps(gone))


class TimedRecord(NamedTuple):
    """A record, when it was made, and when it was changed last."""

    key: str
    value: str
    at: datetime
    changed_at: datetime


def list_records(connection: Connection, part: str, limit: int) -> list[TimedRecord]:
    """Return the newest records of a part."""
    return [
        TimedRecord(*row)
        for row in execute(connection, "read_timed_records", part=part, limit=limit).fetchall()
    ]  # fmt: skip


def find_record(connection: Connection, part: str, key: str) -> TimedRecord | None:
    """Return a record by its key, as JSON."""
    row = execute(connection, "read_record", part=part, digest=bytes.fromhex(_digest(key))).fetchone()
    return None if row is None else TimedRecord(key, *row)


def _digest(key: str) -> str:
    return blake2b(key.encode(), digest_size=16).hexdigest()


# The journal


class JournalEntry(NamedTuple):
    """The changes of one step of a transaction: document, removed and added statement."""

    step: int
    position: int
    changes: tuple[tuple[str, Statement | None, Statement | None], ...]


def write_journal(
    connection: Connection, transaction: str, step: int, position: int,
    changes: Collection[tuple[str, Statement | None, Statement | None]],
) -> None:  # fmt: skip
    rows = [[document, _plain(removed), _plain(added)] for document, removed, added in changes]
    execute(
        connection, "insert_journal", transaction=transaction, step=step, position=position,
        changes=json.dumps(rows, ensure_ascii=False),
    )  # fmt: skip


def read_journal(connection: Connection, transaction: str) -> list[JournalEntry]:
    """Return the steps of a transaction, the last one first."""
    return [
        JournalEntry(step, position, tuple((uri, _statement(gone), _statement(new)) for uri, gone, new in changes))
        for step, position, changes in execute(connection, "read_journal", transaction=transaction).fetchall()
    ]


def find_position(connection: Connection, transaction: str, step: int) -> int | None:
    """Return the position of a step; None if it is not known."""
    row = execute(connection, "find_position", transaction=transaction, step=step).fetchone()
    return None if row is None else int(row[0])


def _plain(statement: Statement | None) -> Any:
    return None if statement is None else [statement.subject, statement.property, statement.object.as_dict()]


def _statement(plain: Any) -> Statement | None:
    if plain is None:
        return None
    subject, name, term = plain
    return Statement(subject, name, Term(term["type"], term["value"], term.get("lang"), term.get("datatype")))
