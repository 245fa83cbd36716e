"""Changes of documents on pages, and differences between versions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.accounts.callers import Caller
from mdv.errors import Unavailable
from mdv.inspect.sql.documents import DocumentInfo, count_statements, read_document_statements
from mdv.model import Statement
from web.job_queue import FinishedJob, PendingJob, run_job
from web.negotiate import run_in_thread

MAX_DIFF_LINES = 300
MAX_DIFF_STATEMENTS = 20_000
"""Larger documents are not compared on a page."""
ABSENT = "absent"
"""Version of a document that does not exist."""


class DiffLine(NamedTuple):
    """A statement that was added (+) or removed (-)."""

    sign: str
    statement: Statement


@dataclass(frozen=True, slots=True)
class StatementDiff:
    """The difference between two versions: counts and the first lines."""

    added: int
    removed: int
    same: int
    lines: list[DiffLine]

    @property
    def more(self) -> int:
        return self.added + self.removed - len(self.lines)


def diff_statements(old: Iterable[Statement], new: Iterable[Statement]) -> StatementDiff:
    """Return the difference between two sets of statements. Blank node names are stable across versions."""
    before, after = set(old), set(new)
    lines = [DiffLine("-", statement) for statement in before - after] + [DiffLine("+", one) for one in after - before]
    lines.sort(key=lambda line: (line.statement[:2], line.sign == "+", line.statement))
    return StatementDiff(
        len(after - before), len(before - after), len(before & after), list(islice(lines, MAX_DIFF_LINES))
    )


def diff_versions(
    connection: Connection, old: DocumentInfo | None, new: DocumentInfo | Iterable[Statement]
) -> StatementDiff | None:
    """Return the difference between two versions, or a version and new statements; None if they are too large."""
    documents = [one for one in (old, new) if isinstance(one, DocumentInfo) and one.present]
    if any(count_statements(connection, one) > MAX_DIFF_STATEMENTS for one in documents):
        return None
    before = read_document_statements(connection, old) if old is not None and old.present else []
    if isinstance(new, DocumentInfo):
        new = read_document_statements(connection, new) if new.present else []
    new_statements = list(new)
    return (
        run_in_thread(diff_statements, before, new_statements) if len(new_statements) <= MAX_DIFF_STATEMENTS else None
    )


def change_document(
    kind: str,
    uri: str,
    caller: Caller,
    body: bytes | None = None,
    media_type: str | None = None,
    dry_run: bool = False,
    version: str | None = None,
    confirms: bool = False,
) -> FinishedJob:
    """Register, edit or delete a document, or preview that with `dry_run`. Returns the job, or raises its error.

    `version`: the expected current version, or `ABSENT`. `confirms`: it gets a new version even if nothing changes.
    """
    options: dict[str, Any] = {
        "dry_run": dry_run,
        "conditions": {
            "if_match": [version] if version not in (None, ABSENT) else None,
            "if_none_match": ["*"] if version == ABSENT else None,
            "resource_prefixes": caller.resource_prefixes,
        },
    }
    if confirms:
        options["confirms"] = True
    done = run_job(kind, uri, caller, options, body, media_type, keyed=False)
    if isinstance(done, PendingJob):
        raise Unavailable(f"The change is queued but has not finished yet. See the job {done.job}.", job=str(done.job))
    return done
