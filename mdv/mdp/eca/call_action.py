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
from mdv.db.real.statement_reader import TransactionReader
from mdv.db.real.view import TransactionView
from mdv.errors import InvalidDocument
from mdv.mdp.eca.actions import ActionEdits, ActionFailed
from mdv.mdp.edit import Edit
from mdv.mdp.schemas import SchemaInForce
from mdv.mdp.write_limits import WriteLimits, may_describe, may_write
from mdv.model import Document, ParsedDocument, Term, is_blank
from mdv.rdf.schema import Schema
from mdv.rdf.validate import refuse_reserved, validate
from mdv.real.events import MachineSettings, ProgramLimits
from mdv.real.run_action import ActionError, ActionOutcome, run_action
from mdv.real.store import FactReader, ReadPattern, ScopedRead, StatementChange, WriteRefusal
from mdv.real.vocabulary import RDF_FIRST, RDF_REST

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
    query_seconds: float, deadline: Callable[[], float],
) -> tuple[ActionEdits, CalledAction]:  # fmt: skip
    """Return the edits of an action that is called once for each list of inputs. Raise `ActionFailed` if it fails.

    `document`: where its default context writes. `query_seconds`: the time limit of one of its reads. `deadline`: the
    time (monotonic) after which no read begins.
    """
    if not inputs:
        return ActionEdits(), CalledAction(action, ())
    schema = tx.schema
    seed = uuid4().hex[:12]
    settings = MachineSettings(
        process=f"urn:mdv:eca:call:{seed}", into=document, seed=seed, limits=ProgramLimits(steps=MAX_STEPS)
    )
    view = TransactionView(
        tx.position, schema.schema, schema.statements, WriteCheck(schema.schema, limits), deadline, tx.new_prefixes
    )
    with TransactionReader(driver(tx.connection), query_seconds, tx.new_documents).reading() as reader:
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
    """Says why a program must not make a change: permissions, blank nodes, reserved names, or the schema."""

    schema: Schema
    limits: WriteLimits

    def __call__(self, change: StatementChange, facts: FactReader) -> WriteRefusal | None:
        document, statement, is_added = change
        if not may_write(document, self.limits):
            return WriteRefusal(f"the author may not write {document}")
        if not may_describe(statement.subject, document, self.limits):
            return WriteRefusal(f"the author may not describe {statement.subject}")
        names = [name for name in (statement.subject, statement.object.value) if is_blank(name)]
        if is_blank(statement.subject) and statement.property not in (RDF_FIRST, RDF_REST):
            return WriteRefusal(
                f"{statement.subject} is a blank node, which only a registration of its document changes"
            )
        if not is_added:
            return None
        present = [
            one
            for name in properties_with_one_value(statement.property, self.schema)
            for one in facts(ReadPattern(statement.subject, name))
        ]
        try:
            if not names:
                refuse_reserved(ParsedDocument(document, (statement,)))
            validate(Document(document, (statement,)), self.schema)
            if present:
                validate(Document(document, tuple(dict.fromkeys((*present, statement)))), self.schema)
        except InvalidDocument as error:
            # A second value can be added when the first one is gone.
            awaited = tuple(ScopedRead(ReadPattern(one.subject, one.property), (document,)) for one in present)
            return WriteRefusal(error.flaws[0].message if error.flaws else error.detail, awaited)
        return None


def properties_with_one_value(name: str, schema: Schema) -> list[str]:
    """Return the properties of which a subject may have one value in a document together with this one."""
    declared = schema.property_of(name)
    found: dict[str, None] = {}
    for above in declared.superproperties if declared is not None else ():
        known = schema.property_of(above)
        if known is not None and not known.set_valued:
            found |= dict.fromkeys(known.subproperties)
    return list(found)
