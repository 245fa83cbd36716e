"""The jobs that change event-condition-action rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection

from mdv.db.eca.runs import run_uri
from mdv.db.jobs import Job
from mdv.errors import MdvError
from mdv.mdp.eca.change_rules import (
    AddedEcaRule,
    EcaDraft,
    EcaRuleChange,
    add_drafts,
    change_state,
    remove_rule,
    replace_rule,
)
from mdv.mdp.federation.global_rules import add_federated_rules, end_global_rule, is_federated
from mdv.mdp.provider import Provider
from mdv.mdp.write_limits import WriteLimits

__all__ = ["RULES_URI", "drafts_of", "run_eca_job", "run_uri"]

RULES_URI = "urn:mdv:eca"
"""The URI that identifies the rules in jobs. One of these jobs runs at a time."""


def drafts_of(given: Sequence[Any], limits: WriteLimits, by: str | None) -> list[EcaDraft]:
    """Return drafts from JSON: `[text, rule set, state]` each."""
    return [EcaDraft(text, rule_set, state, limits, by) for text, rule_set, state in given]


def run_eca_job(connection: Connection, job: Job, provider: Provider) -> dict[str, Any]:
    """Run a job that changes rules. Return its result. If it raises an error, nothing is changed."""
    request = json.loads(job.body or b"{}")
    limits = WriteLimits.from_json(request["limits"])
    savepoint = connection.begin_nested()
    try:
        result = _CHANGES[request["change"]](connection, request, limits, job.by, provider)
    except MdvError:
        savepoint.rollback()
        raise
    savepoint.commit()
    return result


Request = dict[str, Any]


def _add(connection: Connection, request: Request, limits: WriteLimits, by: str | None, provider: Provider) -> Request:
    drafts = drafts_of(request["drafts"], limits, by)
    if is_federated(connection):
        local, shared, position = add_federated_rules(connection, drafts, provider)
        return {"items": [*map(_added_json, local), *shared], "position": position}
    added = add_drafts(connection, drafts, provider)
    return {"items": [_added_json(one) for one in added], "position": added[-1].position}


def _replace(
    connection: Connection, request: Request, limits: WriteLimits, by: str | None, provider: Provider
) -> Request:
    draft = EcaDraft(request["text"], limits=limits, by=by)
    added = replace_rule(connection, request["rule"], draft, provider, request["if_match"])
    return _added_json(added) | {"position": added.position}


def _change_state(
    connection: Connection, request: Request, limits: WriteLimits, by: str | None, provider: Provider
) -> Request:
    return _change_json(change_state(connection, request["rule"], request["state"], by, provider, limits))


def _remove(
    connection: Connection, request: Request, limits: WriteLimits, by: str | None, provider: Provider
) -> Request:
    position = end_global_rule(connection, request["rule"], provider)
    if position is not None:
        return {"id": request["rule"], "position": position, "warnings": []}
    return _change_json(remove_rule(connection, request["rule"], provider, limits))


_CHANGES: dict[str, Callable[[Connection, Request, WriteLimits, str | None, Provider], Request]] = {
    "add": _add,
    "replace": _replace,
    "state": _change_state,
    "remove": _remove,
}


def _added_json(rule: AddedEcaRule) -> dict[str, Any]:
    warnings = [flaw.as_dict() for flaw in rule.warnings]
    return {"id": rule.id, "name": rule.name, "text": rule.text, "normal": rule.normal, "warnings": warnings}


def _change_json(change: EcaRuleChange) -> dict[str, Any]:
    warnings = [{"message": warning} for warning in change.warnings]
    return {"id": change.id, "position": change.position, "warnings": warnings}
