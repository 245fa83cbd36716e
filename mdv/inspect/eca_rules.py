"""Read event-condition-action rules for the API, the command line and the pages."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from mdv.db.eca.rules import StoredEcaRule, list_eca_rules
from mdv.inspect.sql.eca import count_rules, list_sets
from mdv.mdp.eca.change_rules import find_rule

__all__ = ["StoredEcaRule", "count_rules", "find_rule", "list_eca_rules", "list_sets", "rule_json"]

RULE_STATES = ("active", "shadow", "disabled", "quarantined")


def rule_json(rule: StoredEcaRule) -> dict[str, Any]:
    """Return a rule as JSON. `reason`: why it is quarantined."""
    return {
        "id": rule.id,
        "name": rule.name,
        "set": rule.rule_set,
        "state": rule.state,
        "reason": rule.reason,
        "text": rule.text,
        "normal": rule.normal,
        "position": rule.position,
        "created_at": rule.created_at,
        "by": rule.by,
        "fired": rule.fired,
        "failed": rule.failed,
        "last_fired": rule.last_fired,
        "documents": rule.document_prefixes,
        "resources": rule.prefixes,
    }


def rule_number(connection: Connection, name: str) -> int:
    """Return the ID of the rule with this name or ID. Raise `NotFound`."""
    return find_rule(connection, name).id
