"""Updates: RDFTL's actions as an update language. One update is one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection

from mdv.cause import NO_REACTIONS, UPDATE, Cause
from mdv.db.state import LockPurpose
from mdv.errors import UpdateFailed
from mdv.mdp.eca.actions import ActionFailed
from mdv.mdp.eca.changes import EffectiveChange
from mdv.mdp.eca.run import RuleRun
from mdv.mdp.eca.trace import write_trace
from mdv.mdp.provider import Provider
from mdv.mdp.transaction import Transaction
from mdv.mdp.write_limits import UNLIMITED, WriteLimits
from mdv.rdftl.compile import compile_update
from mdv.rdftl.template import abstract_part

UPDATES_DOCUMENT = "urn:mdv:updates"


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """The text of an update. `graph`: the document that its insertions go to. `by`: the caller."""

    text: str
    graph: str = UPDATES_DOCUMENT
    limits: WriteLimits = UNLIMITED
    by: str | None = None
    reacts: bool = True
    """False: event-condition-action rules are not run."""


@dataclass(frozen=True, slots=True)
class UpdateOutcome:
    """The effect of an update: statements that its own actions inserted, deleted and updated; how many copies of rules
    fired; and the effect of the whole transaction on subscriptions."""

    position: int
    inserted: int
    deleted: int
    updated: int
    run: int | dict[str, Any] | None
    """The ID of the run; for a dry run, its trace."""
    fired: int
    matched: int
    lmrs: int
    warnings: tuple[dict[str, Any], ...] = ()
    token: str | None = None
    """Of its operation, if there is a backbone."""

    def as_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        return fields if self.token is not None else {name: fields[name] for name in fields if name != "token"}


def execute_update(
    connection: Connection, request: UpdateRequest, provider: Provider, tracing: bool = False
) -> UpdateOutcome:
    """Execute an update. Raise `UpdateFailed` if an action fails, or `RuleFailed` if a rule refuses it. `tracing`: the
    result has the trace of the run in place of its ID."""
    tx = Transaction(provider, connection)
    tx.reacts = request.reacts
    with tx.locking(LockPurpose.DOCUMENTS):
        """There are no look-ups."""
    compiled = compile_update(request.text, tx.schema.schema)
    tx.number_classes()
    cause = Cause(UPDATE, None if request.reacts else NO_REACTIONS, request.by)
    actions, constants = abstract_part(compiled.actions, tx.schema.schema)
    try:
        tx.execute_actions(actions, constants, request.graph, cause, request.limits)
    except ActionFailed as failure:
        raise UpdateFailed(f"The update failed, and nothing was changed: {failure}.") from None
    done = tx.finish()
    run = tx.scheduler.run
    inserted, deleted, updated = count_changes(
        change for step in run.steps if step.owner.rule is None for change in step.changes
    )
    return UpdateOutcome(
        done.position, inserted, deleted, updated, write_trace(run) if tracing else done.run, len(run.fired),
        sum(one.matched for one in done.documents.values()), len(list(done.publication.names())),
        (*(flaw.as_dict() for flaw in compiled.warnings), *_notes(run)), done.token,
    )  # fmt: skip


def _notes(run: RuleRun) -> Iterator[dict[str, Any]]:
    """Yield warnings about the actions of the update itself."""
    for step in run.steps:
        if step.owner.rule is None and step.note is not None:
            yield {"message": f"action {step.action + 1}: {step.note}"}


def count_changes(changes: Iterable[EffectiveChange]) -> tuple[int, int, int]:
    """Return how many statements were inserted, deleted and updated."""
    kinds = [(change.removed is not None, change.added is not None) for change in changes]
    return kinds.count((False, True)), kinds.count((True, False)), kinds.count((True, True))
