"""The actions that are stored: what CALL and SPAWN can name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg

from mdv.db.real.statement_reader import StatementReader
from mdv.db.real.view import PostgresView
from mdv.errors import InvalidRule
from mdv.inspect.run_program import MAX_READ_SECONDS
from mdv.inspect.sql.real_actions import list_stored_actions
from mdv.mdp.schemas import SchemaInForce
from mdv.real.check import Signature
from mdv.real.compile_code import compile_program
from mdv.real.machine import Machine
from mdv.real.machine_state import ProgramFault
from mdv.real.plan import KnownAction
from mdv.real.resolve import read_program
from mdv.real.store import ReadPattern
from mdv.real.vocabulary import INPUT_SIGNATURE, LRM_BODY, OUTPUT_SIGNATURE

_NOTHING = compile_program(read_program("TRUE"))


class ActionCatalogue:
    """The actions that a view contains, found as a program finds them."""

    def __init__(self, view: PostgresView) -> None:
        self._view = view
        self._machine = Machine(_NOTHING)
        self._machine.view = view
        self._found: dict[tuple[str, bool], KnownAction | None] = {}
        self.problems: dict[str, str] = {}
        """Why an action cannot be run."""

    def prefetch(self, iris: Sequence[str]) -> None:
        """Read what is known to be needed of these actions at once."""
        for name in (LRM_BODY, INPUT_SIGNATURE, OUTPUT_SIGNATURE):
            self._view.prefetch([ReadPattern(iri, name) for iri in iris], None)

    def find(self, iri: str, is_template: bool = False) -> KnownAction | None:
        """Return an action, or None if there is none. `problems` has the reason. `is_template`: also templates."""
        key = (iri, is_template)
        if key not in self._found:
            self._found[key] = self._load(iri, is_template)
        return self._found[key]

    def _load(self, iri: str, is_template: bool) -> KnownAction | None:
        try:
            action = self._machine.load_action(iri, is_template)
            body = read_program(action.body, dict(action.prefixes))
        except ProgramFault as fault:
            self.problems[iri] = fault.message
            return None
        except InvalidRule as error:
            self.problems[iri] = f"its body has an error: {error.flaws[0] if error.flaws else error.detail}"
            return KnownAction(action.signature, None, action.body)
        return KnownAction(action.signature, body, action.body)


class ListedAction(NamedTuple):
    """A stored action. `problem`: why it cannot be run."""

    id: int
    uri: str
    label: str | None
    documents: tuple[str, ...]
    signature: Signature | None
    code: str | None
    problem: str | None


def list_actions(
    session: psycopg.Connection[Any], schema: SchemaInForce, after: int, limit: int, holding: str = ""
) -> list[ListedAction]:
    """Return a page of actions, in the order in which their names were first used. `holding`: part of the URI."""
    found = list_stored_actions(session, after, limit, holding)
    reader = StatementReader(session, MAX_READ_SECONDS)
    position, _ = reader.position()
    view = PostgresView(position, schema.schema, schema.statements)
    view.use(reader)
    catalogue = ActionCatalogue(view)
    catalogue.prefetch([one.uri for one in found])
    listed = []
    for number, uri, label, documents in found:
        known = catalogue.find(uri)
        signature, code = (known.signature, known.text) if known is not None else (None, None)
        listed.append(ListedAction(number, uri, label, documents, signature, code, catalogue.problems.get(uri)))
    return listed


def action_json(action: ListedAction) -> dict[str, Any]:
    """Return an action as JSON."""
    found: dict[str, Any] = {"uri": action.uri, "documents": list(action.documents)}
    if action.label is not None:
        found["label"] = action.label
    if action.signature is not None:
        found |= {"inputs": list(action.signature.inputs), "outputs": list(action.signature.outputs)}
    return found | {"code": action.code, "problem": action.problem}
