"""Register and end global rules: those without LOCAL at an MDP that is in a federation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from mdv.db.federation.record_store import find_record
from mdv.db.federation.site_store import END_RULE, RULE, add_to_inbox, count_pending_rules, read_site
from mdv.errors import BadRequest, Conflict, Forbidden, NotFound
from mdv.federation.encode import decode_record, encode
from mdv.federation.global_rules import compile_global_rules
from mdv.federation.records import SITE
from mdv.mdp.eca.change_rules import DEFAULT_SET, AddedEcaRule, EcaDraft, add_drafts
from mdv.mdp.provider import Provider
from mdv.mdp.transaction import Transaction
from mdv.mdp.write_limits import UNLIMITED
from mdv.rdf.schema import Schema
from mdv.rdftl.model import EcaRule
from mdv.rdftl.parse import parse_rules
from mdv.rdftl.write import write_rule


def is_federated(connection: Connection) -> bool:
    return read_site(connection) is not None


def add_federated_rules(
    connection: Connection, drafts: Sequence[EcaDraft], provider: Provider
) -> tuple[list[AddedEcaRule], list[dict[str, Any]], int]:
    """Add the rules of several texts: LOCAL ones as without a federation, the others to the federation. Return both,
    and the position."""
    tx = Transaction(provider, connection)
    tx.lock()
    schema = tx.schema.schema
    local: list[EcaDraft] = []
    shared: list[tuple[str, EcaRule]] = []
    for draft in drafts:
        written = parse_rules(draft.text)
        compiled = list(compile_global_rules(draft.text, schema))
        local += [draft._replace(text=one.text) for one in written if one.local]
        texts = [one.text for one in written if not one.local]
        if texts:
            _check_draft(draft)
            shared += list(zip(texts, compiled, strict=True))
    items = _queue(connection, shared, schema)
    position = tx.state.position
    added = add_drafts(connection, local, provider) if local else []
    return added, items, added[-1].position if added else position


def _check_draft(draft: EcaDraft) -> None:
    if draft.limits != UNLIMITED:
        raise Forbidden("This token is limited to URI prefixes. It can add LOCAL rules only.")
    if draft.state != "active" or draft.rule_set != DEFAULT_SET:
        raise BadRequest("A global rule is active, and in no set. Write LOCAL, or leave out `state` and `set`.")


def _queue(connection: Connection, shared: Sequence[tuple[str, EcaRule]], schema: Schema) -> list[dict[str, Any]]:
    """Leave rules to the process of the federation. They get their IDs in this order."""
    site = read_site(connection)
    assert site is not None
    if site.leaving and shared:
        raise Conflict(f"{site.name} leaves the federation. Write LOCAL, or wait until it has left.")
    record = find_record(connection, SITE, "rule_count")
    first = (decode_record(record.value) if record is not None else 0) + count_pending_rules(connection) + 1
    add_to_inbox(connection, ((RULE, "", encode(rule)) for _, rule in shared))
    return [
        {
            "id": f"{site.name}.{first + number}" if site.superpeer is None else None,
            "name": rule.name,
            "text": text,
            "normal": write_rule(rule, schema),
            "warnings": [],
        }
        for number, (text, rule) in enumerate(shared)
    ]


def end_global_rule(connection: Connection, rule_id: str, provider: Provider) -> int | None:
    """End a global rule of this superpeer. Return the position; None if the ID is not that of a global rule."""
    site = read_site(connection)
    origin, _, number = rule_id.rpartition(".")
    if site is None or not origin or not number.isdigit():
        return None
    tx = Transaction(provider, connection)
    tx.lock()
    if find_record(connection, "rules", encode(rule_id)) is None:
        raise NotFound(f"There is no global rule {rule_id} here. `mdv federation rules` lists them.")
    if origin != site.name:
        raise Conflict(f"The rule {rule_id} belongs to {origin}. End it there.")
    add_to_inbox(connection, [(END_RULE, "", rule_id)])
    return tx.state.position
