"""CALL in a rule or an update: run an action of ReAL on the state of the transaction, and return its edits.

    arguments → inputs → action, run to its end → net changes → edits

The action sees what the transaction has written so far. It runs with the permissions of the rule's author.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Protocol
from uuid import uuid4

from sqlalchemy import Connection

from mdv.db.engine import driver
from mdv.db.real.processes import WriteLock, read_locks
from mdv.db.real.statement_reader import TransactionReader
from mdv.db.real.view import TransactionView
from mdv.mdp.eca.actions import ActionEdits, ActionFailed
from mdv.mdp.edit import Edit
from mdv.mdp.real.refusals import lock_refusal, permission_refusal, schema_refusal
from mdv.mdp.schemas import SchemaInForce
from mdv.mdp.write_limits import WriteLimits
from mdv.model import Term
from mdv.rdf.schema import Schema
from mdv.real.events import MachineSettings, ProgramLimits
from mdv.real.run_action import ActionError, ActionOutcome, run_action
from mdv.real.store import FactReader, StatementChange, WriteRefusal

MAX_STEPS = 10_000
"""Steps of one CALL, for all of its inputs together."""
MAX_CALLS = 1_000
"""Lists of inputs of one CALL."""


class CallingTransaction(Protocol):
    """The transaction that an action runs in."""

    connection: Connection
    schema: SchemaInForce
    position: int

    @property
    def new_documents(self) -> Mapping[str, int]: ...

    @property
    def new_prefixes(self) -> Mapping[str, Mapping[str, str]]: ...


@dataclass(frozen=True, slots=True)
class CalledAction:
    """A CALL that was executed, for the trace."""

    action: str
    inputs: tuple[tuple[Term, ...], ...]
    outcome: ActionOutcome | None = None
    """None if an argument has selected nothing, so that there was nothing to run."""

    def as_dict(self) -> dict[str, Any]:
        found = self.outcome
        return {
            "action": self.action,
            "inputs": [[_shown(term) for term in one] for one in self.inputs[:MAX_SHOWN]],
            "calls": len(self.inputs),
            "solutions": found.solutions if found is not None else 0,
            "first": [
                {name: _shown(term) for name, term in binding.items()} for binding in (found.first if found else ())
            ],
            "steps": found.steps if found is not None else 0,
            "bodies": list(found.digests) if found is not None else [],
            "warnings": list(found.warnings[:MAX_SHOWN]) if found is not None else [],
        }


def _shown(term: Term) -> dict[str, Any]:
    return term._replace(value=term.value[:MAX_SHOWN_CHARACTERS]).as_dict()


MAX_SHOWN = 10
"""Inputs and warnings that a trace shows."""
MAX_SHOWN_CHARACTERS = 500


def input_lists(action: str, arguments: Sequence[Sequence[Term]]) -> tuple[tuple[Term, ...], ...]:
    """Return the lists of inputs: every combination of what the arguments select."""
    number = prod(map(len, arguments))
    if number > MAX_CALLS:
        raise ActionFailed(
            f"the arguments of CALL <{action}> select {number:,} combinations; at most {MAX_CALLS:,} run"
        )
    return tuple(product(*arguments))


def call_action(
    tx: CallingTransaction, action: str, inputs: Sequence[tuple[Term, ...]], document: str, limits: WriteLimits,
    allowed: tuple[str, ...] | None, query_seconds: float, deadline: Callable[[], float],
) -> tuple[ActionEdits, CalledAction]:  # fmt: skip
    """Return the edits of an action that is called once for each list of inputs. Raise `ActionFailed` if it fails.

    `document`: where its default context writes. `allowed`: prefixes of the documents whose actions may be run.
    `query_seconds`: the time limit of one of its reads. `deadline`: the
    time (monotonic) after which no read begins.
    """
    if not inputs:
        return ActionEdits(), CalledAction(action, ())
    schema = tx.schema
    seed = uuid4().hex[:12]
    settings = MachineSettings(
        process=f"urn:mdv:eca:call:{seed}", into=document, seed=seed, limits=ProgramLimits(steps=MAX_STEPS),
        actions=allowed,
    )  # fmt: skip
    session = driver(tx.connection)
    check = WriteCheck(schema.schema, limits, read_locks(session))
    view = TransactionView(tx.position, schema.schema, schema.statements, check, deadline, tx.new_prefixes)
    with TransactionReader(session, query_seconds, tx.new_documents).reading() as reader:
        view.use(reader)
        try:
            outcome = run_action(view, action, inputs, settings)
        except ActionError as error:
            raise ActionFailed(f"CALL <{action}>: {error}") from None
    edits = ActionEdits()
    for uri, statement, is_added in outcome.changes:
        (edits.additions if is_added else edits.deletions).append(Edit(statement, uri))
    return edits, CalledAction(action, tuple(inputs), outcome)


@dataclass(frozen=True, slots=True)
class WriteCheck:
    """Says why an action must not make a change: permissions of the author, locks, or the schema."""

    schema: Schema
    limits: WriteLimits
    locks: Sequence[WriteLock]

    def __call__(self, change: StatementChange, facts: FactReader) -> WriteRefusal | None:
        reason = permission_refusal(change.document, change.statement, self.limits)
        if reason is not None:
            return WriteRefusal(f"the author {reason}")
        reason = lock_refusal(change, self.locks)
        return WriteRefusal(reason) if reason is not None else schema_refusal(change, facts, self.schema)
