"""Queries of the rule base that is analysed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.db.load_sql import load_sql


class TemplateRow(NamedTuple):
    """A template: its ID, the text of one of its rules, and the number of active and shadow rules."""

    id: int
    text: str
    rules: int


class TemplateRule(NamedTuple):
    """A rule of a template."""

    template: int
    id: int
    name: str | None
    constants: Sequence[str]
    precedes: Sequence[str]
    follows: Sequence[str]


def read_rule_version(connection: Connection) -> int:
    """Return the version of the event-condition-action rules; 0 if none is active or in shadow."""
    return int(_rows(connection, "read_version")[0][0])


def list_templates(connection: Connection) -> list[TemplateRow]:
    """Return the templates of active and shadow rules, those with few rules first."""
    return [TemplateRow(*row) for row in _rows(connection, "list_templates")]


def find_template(connection: Connection, digest: bytes) -> int | None:
    """Return the ID of the template with this digest."""
    found = _rows(connection, "find_template", digest=digest)
    return found[0][0] if found else None


def count_template_rules(connection: Connection, template: int) -> int:
    """Return the number of active and shadow rules of a template."""
    return int(_rows(connection, "count_rules", template=template)[0][0])


def list_rules_of(connection: Connection, templates: Sequence[int], most: int | None = None) -> list[TemplateRule]:
    """Return the active and shadow rules of templates, in the order of their IDs. `most`: only the first of each."""
    if not templates:
        return []
    if most is None:
        return [TemplateRule(*row) for row in _rows(connection, "list_all_rules", templates=list(templates))]
    return [TemplateRule(*row) for row in _rows(connection, "list_first_rules", templates=list(templates), most=most)]


def _rows(connection: Connection, name: str, **values: Any) -> list[Any]:
    return list(connection.exec_driver_sql(load_sql("eca_units", __package__)[name], values).all())
