"""Read documents as their rows have them, to find rows that were changed from outside."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.backbone.document_json import unsigned
from mdv.db.engine import driver
from mdv.db.jobs import JobStatus, read_jobs
from mdv.db.load_sql import load_sql
from mdv.model import Statement, Term


class CheckedRow(NamedTuple):
    """A row of a document: its place, the hash that is stored with it, and its statement."""

    document: int
    place: str
    hash: int
    statement: Statement


class CheckedDocument(NamedTuple):
    """A document with the digest that is stored."""

    id: int
    uri: str
    version: int
    digest: int


def list_documents_to_check(connection: Connection, after: int, most: int) -> list[CheckedDocument]:
    """Return the next documents after an ID."""
    rows = _execute(connection, "list_documents_to_check", after=after, most=most).fetchall()
    return [CheckedDocument(number, uri, version, unsigned(digest)) for number, uri, version, digest in rows]


def iter_rows(connection: Connection, documents: Collection[int]) -> Iterator[CheckedRow]:
    """Yield the rows of documents."""
    for row in _execute(connection, "list_rows_to_check", documents=list(documents)).fetchall():
        document, place, digest, subject, name, target, value, lang, datatype = row
        term = Term.uri(target) if target is not None else Term.literal(value, lang, datatype)
        yield CheckedRow(document, place, digest, Statement(subject, name, term))


def mend_row(connection: Connection, row: CheckedRow, digest: int) -> None:
    """Store the right hash of a row."""
    _execute(connection, "mend_row", row=row.place, hash=digest)


def delete_row(connection: Connection, row: CheckedRow) -> None:
    """Delete a row that is there twice."""
    _execute(connection, "delete_row", row=row.place)


def iter_counters(connection: Connection) -> Iterator[tuple[str, int, int]]:
    """Yield the counters of a cset that are neither 0 nor 1: the document, the hash of the statement, the counter."""
    yield from _execute(connection, "list_counters").fetchall()


def seconds_since_check(connection: Connection) -> float | None:
    """Return how long ago the last scheduled check was queued; None if none is known."""
    row = _execute(connection, "last_scheduled_check").fetchone()
    return None if row is None else row[0]


def list_checks(connection: Connection, most: int) -> list[JobStatus]:
    """Return the last jobs that check or repair, newest first."""
    ids = [number for (number,) in _execute(connection, "list_checks", most=most).fetchall()]
    return read_jobs(connection, ids)


def _execute(connection: Connection, query: str, /, **values: object) -> Any:
    return driver(connection).execute(load_sql("replica")[query], values, prepare=True)
