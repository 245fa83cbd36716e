"""The changes that event-condition-action rules made: the log, and which rule inserted a statement and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.inspect.sql.documents import StoredStatements
from mdv.inspect.sql.eca import LoggedChange, list_changes, list_insertions
from mdv.inspect.sql.eca_pages import list_document_insertions
from mdv.model import Statement, Term

__all__ = ["LoggedChange", "StatementOrigin", "change_json", "find_origins", "list_changes", "write_reason"]

MAX_INSERTIONS = 1_000
"""Changes of a resource that are looked at."""
MAX_STATEMENTS = 10_000
"""Statements of a resource that are read to find which of them are there."""


class StatementOrigin(NamedTuple):
    """Why a document contains a statement: a rule inserted it, or an action of an update."""

    statement: Statement
    change: LoggedChange

    @property
    def text(self) -> str:
        """The origin in words."""
        return f"inserted by {write_reason(self.change.rule_id, self.change.rule, self.change.delta)}"


def find_origins(connection: Connection, resource: str) -> list[StatementOrigin]:
    """Return the origins of those statements of a resource that rules and updates inserted, ordered by statement.

    They are looked for among the last `MAX_INSERTIONS` changes. The statement may have left the document since; callers
    show the origins of the statements that are there.
    """
    found: dict[tuple[str, Statement], StatementOrigin] = {}
    for change in list_insertions(connection, resource, MAX_INSERTIONS):
        statement = Statement(change.subject, change.property, _term(change.object))
        found.setdefault((change.document, statement), StatementOrigin(statement, change))
    return sorted(found.values(), key=lambda one: (one.statement.sort_key(), one.change.document))


def find_document_origins(
    connection: Connection, document: str, statements: Collection[Statement]
) -> dict[Statement, StatementOrigin]:
    """Return the origins of those of these statements of a document that rules and updates inserted."""
    found: dict[Statement, StatementOrigin] = {}
    subjects = {statement.subject for statement in statements}
    for change in list_document_insertions(connection, document, subjects, MAX_INSERTIONS):
        statement = Statement(change.subject, change.property, _term(change.object))
        found.setdefault(statement, StatementOrigin(statement, change))
    return {statement: found[statement] for statement in statements if statement in found}


def list_origins(connection: Connection, resource: str) -> list[dict[str, Any]]:
    """Return the origins of the statements of a resource that are there now, as JSON."""
    origins = find_origins(connection, resource)
    present = StoredStatements(resource).few(connection, MAX_STATEMENTS) if origins else []
    return origins_json(origins, present)


def origins_json(origins: Iterable[StatementOrigin], statements: Iterable[Statement] | None) -> list[dict[str, Any]]:
    """Return the origins of these statements as JSON. None: there are too many statements to check, so all are
    returned."""
    present = set(statements) if statements is not None else None
    return [
        {
            "statement": [one.statement.property, one.change.object],
            "document": one.change.document,
            "rule": one.change.rule,
            "rule_id": one.change.rule_id,
            "run": one.change.run,
            "position": one.change.position,
            "delta": one.change.delta,
            "text": one.text,
        }
        for one in origins
        if present is None or one.statement in present
    ]


def change_json(change: LoggedChange) -> dict[str, Any]:
    """Return a change as JSON."""
    return {
        "id": change.id,
        "position": change.position,
        "at": change.at.isoformat() if change.at is not None else None,
        "run": change.run,
        "step": change.step,
        "rule": change.rule,
        "rule_id": change.rule_id,
        "delta": change.delta,
        "added": change.added,
        "document": change.document,
        "statement": [change.subject, change.property, change.object],
        "text": f"{'inserted' if change.added else 'deleted'} by"
        f" {write_reason(change.rule_id, change.rule, change.delta)}",
    }


def write_reason(rule_id: int | None, rule: str | None, delta: Mapping[str, Any] | None) -> str:
    """Return the rule that made a change, and what triggered it.

    >>> write_reason(7, "mark", {"source": "http://d/1#a"})
    'rule mark because of <http://d/1#a>'
    >>> write_reason(None, None, None)
    'an update'
    """
    if rule_id is None:
        return "an update"
    name = f"rule {rule or rule_id}"
    return f"{name} because of {write_json_delta(delta)}" if delta is not None else name


def write_json_delta(delta: Mapping[str, Any]) -> str:
    """Return an instantiation of `$delta` as text: a node, an arc, or an arc with its old and new target.

    >>> write_json_delta({"source": "http://a", "arc_name": "http://p", "target": {"type": "literal", "value": "1"},
    ...                   "new_target": {"type": "uri", "value": "http://b"}})
    "(<http://a>, <http://p>, '1' -> <http://b>)"
    """
    source = f"<{delta['source']}>"
    if "arc_name" not in delta:
        return source
    target = _write_term(delta["target"])
    new = f" -> {_write_term(delta['new_target'])}" if "new_target" in delta else ""
    return f"({source}, <{delta['arc_name']}>, {target}{new})"


def _write_term(term: Mapping[str, Any]) -> str:
    if term["type"] == "uri":
        return f"<{term['value']}>"
    text: str = term["value"]
    return "'" + (text if len(text) <= 60 else text[:60] + "…").replace("'", "''") + "'"


def _term(found: Mapping[str, Any]) -> Term:
    if found["type"] == "uri":
        return Term.uri(found["value"])
    return Term.literal(found["value"], found.get("lang"), found.get("datatype"))
