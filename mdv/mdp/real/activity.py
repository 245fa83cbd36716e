"""Activity documents: what a spawned process is, and when it began and ended, as statements (lrm:EndogenousActivity).

P a lrm:EndogenousActivity . P lrm:action A . P lrm:activity-event E1 . E1 a lrm:ActivityStarted .
P lrm:activity-event E2 . E2 a lrm:ActivityStopped . E2 lrm:message m .
"""

from __future__ import annotations

from collections.abc import Iterator

from mdv.mdp.edit import Edit
from mdv.model import LRM, RDF_TYPE, Statement, Term

ACTIVITY_EVENT = LRM + "activity-event"


def started_edits(process: str, action: str) -> list[Edit]:
    """Return the statements about a process that begins, in the document that has its name.

    >>> [edit.statement.object.value.partition("#")[2] for edit in started_edits("urn:mdv:real:process/1", "urn:a")]
    ['EndogenousActivity', '', 'started', 'ActivityStarted']
    """
    return [
        Edit(Statement(process, RDF_TYPE, Term.uri(LRM + "EndogenousActivity")), process),
        Edit(Statement(process, LRM + "action", Term.uri(action)), process),
        *_event(process, "started", "ActivityStarted"),
    ]


def stopped_edits(process: str, message: Term | None = None) -> list[Edit]:
    """Return the statements about a process that has ended. `message`: of STOP."""
    edits = list(_event(process, "stopped", "ActivityStopped"))
    if message is not None:
        edits.append(Edit(Statement(f"{process}#stopped", LRM + "message", message), process))
    return edits


def _event(process: str, name: str, kind: str) -> Iterator[Edit]:
    event = f"{process}#{name}"
    yield Edit(Statement(process, ACTIVITY_EVENT, Term.uri(event)), process)
    yield Edit(Statement(event, RDF_TYPE, Term.uri(LRM + kind)), process)
