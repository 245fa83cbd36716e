"""Changes that people make at a page, and how they differ from what was there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.db.read import DocumentInfo, count_statements, document_statements
from mdv.errors import MdvError, Unavailable
from mdv.model import Statement
from web.auth import Caller
from web.negotiate import in_thread
from web.queue import has_ended, queue
from web.services import services

MOST_LINES = 300
MOST_COMPARED = 20_000
"""Statements of a document that a page compares; larger ones are for programs."""
ABSENT = "absent"
"""The version of a document that is not there."""


class Line(NamedTuple):
    """A statement that is new (+) or gone (-)."""

    sign: str
    statement: Statement


@dataclass(frozen=True, slots=True)
class Difference:
    """What changes from one version of a document to another; the first lines of it."""

    added: int
    removed: int
    same: int
    lines: list[Line]

    @property
    def more(self) -> int:
        return self.added + self.removed - len(self.lines)


def difference(old: Iterable[Statement], new: Iterable[Statement]) -> Difference:
    """Blank nodes keep their names from version to version, so statements are compared as they are."""
    before, after = set(old), set(new)
    lines = [Line("-", statement) for statement in before - after] + [Line("+", one) for one in after - before]
    lines.sort(key=lambda line: (line.statement[:2], line.sign == "+", line.statement))
    return Difference(len(after - before), len(before - after), len(before & after), list(islice(lines, MOST_LINES)))


def compared(
    connection: Connection, old: DocumentInfo | None, new: DocumentInfo | Iterable[Statement]
) -> Difference | None:
    """The difference between two versions, or a version and what is to come; None where a page could not show it."""
    documents = [one for one in (old, new) if isinstance(one, DocumentInfo) and one.present]
    if any(count_statements(connection, one) > MOST_COMPARED for one in documents):
        return None
    before = document_statements(connection, old) if old is not None and old.present else []
    if isinstance(new, DocumentInfo):
        new = document_statements(connection, new) if new.present else []
    found = list(new)
    return in_thread(difference, before, found) if len(found) <= MOST_COMPARED else None


def change_document(
    kind: str,
    uri: str,
    caller: Caller,
    body: bytes | None = None,
    media_type: str | None = None,
    dry_run: bool = False,
    version: str | None = None,
) -> dict[str, Any]:
    """Register or delete a document, or try it out; what that did. A refusal is raised.

    `version`: what it has to be until then, or `ABSENT`.
    """
    options = {
        "dry_run": dry_run,
        "conditions": {
            "if_match": [version] if version not in (None, ABSENT) else None,
            "if_none_match": ["*"] if version == ABSENT else None,
            "resource_prefixes": caller.resource_prefixes,
        },
    }
    wait = services().config.max_wait_seconds
    job_id, status = queue(kind, uri, caller, options, wait, body, media_type, keyed=False)
    if status is None or not has_ended(status):
        raise Unavailable(f"It waits, and is carried out later: see the job {job_id}.", job=str(job_id))
    if status.problem is not None:
        raise MdvError.from_problem(status.problem)
    return dict(status.result or {})
