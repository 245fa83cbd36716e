"""Changes that people make at a page, and how they differ from what was there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from mdv.errors import MdvError, Unavailable
from mdv.model import Statement
from web.auth import Caller
from web.queue import has_ended, queue
from web.services import services

MOST_LINES = 300


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


def change_document(
    kind: str,
    uri: str,
    caller: Caller,
    body: bytes | None = None,
    media_type: str | None = None,
    dry_run: bool = False,
    if_match: str | None = None,
) -> dict[str, Any]:
    """Register or delete a document, or try it out; what that did. A refusal is raised."""
    options = {
        "dry_run": dry_run,
        "conditions": {
            "if_match": None if if_match is None else [if_match],
            "if_none_match": None,
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
