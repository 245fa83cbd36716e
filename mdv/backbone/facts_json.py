"""The facts of a member as JSON: those that a change of documents does not need. `LocalFacts` has the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from mdv.backbone.local_operation import LocalFacts
from mdv.backbone.membership import MemberLives, MemberTable
from mdv.backbone.operation import Operation
from mdv.backbone.replica_store import MemberFacts, MemberStatus

_SETS = ("forked", "diverged", "paused", "removing")
_PLAIN = ("reports", "promised", "required", "invitations", "code", "url", "key", "started_at", "hold",
          "schema_here_by", "divergences")  # fmt: skip
_LATER = {"hold": None, "schema_here_by": "", "divergences": 0}
"""Facts that an earlier version of MDV does not write, with their values then."""


def table_to_json(table: MemberTable) -> dict[str, Any]:
    """
    >>> table = MemberTable({"a": MemberLives({"a.1"})}, lead=(1, 1, "a"))
    >>> table_from_json(table_to_json(table)) == table
    True
    """
    return {
        "members": {name: _lives_to_json(lives) for name, lives in table.members.items()},
        "closed": dict(table.closed),
        "closings": dict(table.closings),
        "lead": list(table.lead),
        "schema": list(table.schema),
        "schema_text": table.schema_text,
        "backbone_id": table.backbone_id,
        "schema_by": table.schema_by,
    }


def table_from_json(given: Mapping[str, Any]) -> MemberTable:
    members = {name: MemberLives(**_lives_from_json(lives)) for name, lives in given["members"].items()}
    term, number, lead = given["lead"]
    schema_term, schema_number = given["schema"]
    return MemberTable(
        members, dict(given["closed"]), dict(given["closings"]), (term, number, lead), (schema_term, schema_number),
        given["schema_text"], given["backbone_id"], given.get("schema_by", ""),
    )  # fmt: skip


def _lives_to_json(lives: MemberLives) -> dict[str, Any]:
    values = {one.name: getattr(lives, one.name) for one in fields(lives)}
    return {name: sorted(value) if isinstance(value, set) else value for name, value in values.items()}


def _lives_from_json(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: set(value) if isinstance(value, list) else value for name, value in given.items()}


def facts_to_json(facts: MemberFacts) -> dict[str, Any]:
    """Return the facts without those of `local_facts`, and without drafts, which have a table."""
    return {
        "status": facts.status.value,
        "chains": {life: chain.hex() for life, chain in facts.chains.items()},
        "table": table_to_json(facts.table),
        "schema_here": list(facts.schema_here),
        **{name: sorted(getattr(facts, name)) for name in _SETS},
        **{name: _plain(getattr(facts, name)) for name in _PLAIN},
    }


def facts_from_json(name: str, given: Mapping[str, Any], local: LocalFacts, drafts: list[Operation]) -> MemberFacts:
    """Return the facts of a member from its JSON and the facts that changes use."""
    facts = MemberFacts(name, local.life, MemberStatus(given["status"]), drafts=drafts, clock=local.clock)
    facts.vector, facts.stable = dict(local.vector), dict(local.stable)
    facts.chains = {life: bytes.fromhex(chain) for life, chain in given["chains"].items()}
    facts.table = table_from_json(given["table"])
    term, number = given["schema_here"]
    facts.schema_here = (term, number)
    for one in _SETS:
        setattr(facts, one, set(given[one]))
    for one in _PLAIN:
        setattr(facts, one, given[one] if one not in _LATER else given.get(one, _LATER[one]))
    if local.seq:
        facts.chains[local.life] = local.chain
    return facts


def local_facts(facts: MemberFacts, mode: str, epoch: str) -> LocalFacts:
    """Return the facts that a change of documents needs."""
    drafts = sum(draft.life == facts.life for draft in facts.drafts)
    return LocalFacts(
        mode, facts.life, facts.status is MemberStatus.RETURNING, facts.chain_of(facts.life), dict(facts.vector),
        facts.clock, facts.schema_here, drafts, epoch, dict(facts.stable),
        None if facts.hold is None else facts.hold[0],
    )  # fmt: skip


def _plain(value: Any) -> Any:
    return (
        {key: dict(one) if isinstance(one, Mapping) else one for key, one in value.items()}
        if isinstance(value, Mapping)
        else value
    )
