"""What an MDP knows about its federation: neighbours, presence, rules, and transactions with their copies."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from mdv.db.federation.record_store import TimedRecord, find_record, list_records, read_journal
from mdv.db.federation.site_store import LinkRow, SiteRow, count_inbox, list_links, read_site
from mdv.errors import NotFound
from mdv.federation.encode import decode_record, encode
from mdv.federation.indexes import Annotation
from mdv.federation.messages import FederatedRule, GroupPresence
from mdv.federation.superpeer_state import PlacedCopy, SagaTransaction
from mdv.rdf.schema import Schema
from mdv.rdftl.write import write_rule

MAX_LISTED = 1_000
MAX_CHANGES = 100
"""Changes of a step that are shown."""

Json = dict[str, Any]


def describe_federation(connection: Connection) -> Json | None:
    """Return what this MDP is in a federation, its neighbours, and the presence of all groups; None without one."""
    site = read_site(connection)
    if site is None:
        return None
    presence = [_record(one) for one in list_records(connection, "presence", MAX_LISTED)]
    return {
        "name": site.name,
        "superpeer": site.superpeer,
        "url": site.url,
        "leaving": site.leaving,
        "error": site.error,
        "waiting": count_inbox(connection),
        "links": [_link(one) for one in list_links(connection)],
        "superpeers": sorted(map(_presence, presence), key=lambda one: one["name"]),
        "peers": _peers(connection),
        "privileges": privileges_of(site),
    }


def privileges_of(site: SiteRow) -> list[Json]:
    return [{"kind": kind, "name": name, "privilege": privilege} for kind, name, privilege in site.grants]


def _record(record: TimedRecord) -> Any:
    return decode_record(record.value)


def _link(link: LinkRow) -> Json:
    return {
        "name": link.name,
        "kind": "superpeer" if link.is_superpeer else "peer",
        "url": link.url,
        "last_exchange": link.last_exchange or None,
        "waiting": link.waiting,
        "error": link.error,
    }


def _presence(entry: GroupPresence) -> Json:
    return {"name": entry.superpeer, "present": sorted(entry.nodes or ()), "has_left": entry.nodes is None}


def _peers(connection: Connection) -> list[Json]:
    found = {decode_record(one.key): _record(one) for one in list_records(connection, "nodes", MAX_LISTED)}
    return [{"name": name, "present": sorted(nodes)} for name, nodes in sorted(found.items())]


# Rules


def list_global_rules(connection: Connection, schema: Schema) -> list[Json]:
    """Return the global rules that are stored at this superpeer, with the peers that their parts are relevant to."""
    annotations = {decode_record(one.key): _record(one) for one in list_records(connection, "annotations", MAX_LISTED)}
    rules = [(_record(one), one) for one in list_records(connection, "rules", MAX_LISTED)]
    return [
        _rule(rule, annotations.get(rule.id), record, schema)
        for rule, record in sorted(rules, key=lambda one: (one[0].origin, one[0].number))
    ]


def _rule(rule: FederatedRule, annotation: Annotation | None, record: TimedRecord, schema: Schema) -> Json:
    relevant = annotation or Annotation()
    return {
        "id": rule.id,
        "origin": rule.origin,
        "name": rule.rule.name,
        "text": write_rule(rule.rule, schema),
        "event": sorted(relevant.event),
        "condition": sorted(relevant.condition),
        "actions": sorted(relevant.actions),
        "at": record.at.isoformat(),
    }


# Transactions


def list_transactions(connection: Connection, limit: int) -> list[Json]:
    """Return the newest transactions of this peer group."""
    return [_transaction(_record(one), one) for one in list_records(connection, "transactions", limit)]


def _transaction(one: SagaTransaction, record: TimedRecord) -> Json:
    return {
        "id": one.id,
        "peer": one.peer,
        "state": one.state.value,
        "reason": one.reason or None,
        "rule": one.shared.rule if one.shared is not None else None,
        "parent": one.shared.parent if one.shared is not None else None,
        "origin": one.shared.origin if one.shared is not None else None,
        "at": record.at.isoformat(),
        "changed_at": record.changed_at.isoformat(),
    }


def transaction_tree(connection: Connection, name: str, limit: int = MAX_LISTED) -> Json:
    """Return a transaction with the copies of the rules that it triggered, at all superpeers, as far as this one knows.

    `aborts`: its arcs of the abort graph: what is compensated if it fails. `changes`: what it has changed at this MDP.
    """
    record = find_record(connection, "transactions", encode(name))
    if record is None:
        raise NotFound(f"There is no transaction {name} of this superpeer. `mdv federation transactions` lists them.")
    placed = [(_record(one), one) for one in list_records(connection, "copies", limit)]
    by_parent: dict[str, list[tuple[PlacedCopy, TimedRecord]]] = {}
    for copy, at in placed:
        by_parent.setdefault(copy.shared.parent, []).append((copy, at))
    return _tree(connection, name, record, by_parent, 0)


MAX_DEPTH = 50


def _tree(
    connection: Connection, name: str, record: TimedRecord,
    by_parent: dict[str, list[tuple[PlacedCopy, TimedRecord]]], depth: int,
) -> Json:  # fmt: skip
    transaction: SagaTransaction = _record(record)
    found = _transaction(transaction, record)
    found["aborts"] = [{"target": arc.target, "superpeer": arc.superpeer} for arc in sorted(transaction.arcs)]
    found["changes"] = _changes(connection, name)
    found["copies"] = []
    for copy, at in reversed(by_parent.get(name, [])):
        shown = _copy(copy, at)
        if depth < MAX_DEPTH:
            shown["transactions"] = [
                _at_superpeer(connection, item, by_parent, depth) for item in shown["transactions"]
            ]
        found["copies"].append(shown)
    return found


def _copy(copy: PlacedCopy, record: TimedRecord) -> Json:
    shared = copy.shared
    return {
        "id": shared.id,
        "rule": shared.rule,
        "abort": shared.abort.value,
        "detached": copy.is_detached,
        "delta": None if shared.delta is None else shared.delta.source,
        "at": record.at.isoformat(),
        "changed_at": record.changed_at.isoformat(),
        "awaiting": sorted(copy.awaiting),
        "given_up": sorted(copy.given_up),
        "transactions": [
            {"superpeer": superpeer, "id": one.transaction, "outcome": one.outcome.value, "reason": one.reason or None}
            for superpeer, results in sorted(copy.results.items())
            for one in results
        ],
    }


def _at_superpeer(
    connection: Connection, item: Json, by_parent: dict[str, list[tuple[PlacedCopy, TimedRecord]]], depth: int
) -> Json:
    """Add what this superpeer knows of a transaction, if it is one of its own."""
    record = find_record(connection, "transactions", encode(item["id"]))
    return item if record is None else item | _tree(connection, item["id"], record, by_parent, depth + 1)


def _changes(connection: Connection, name: str) -> list[Json]:
    entries = reversed(read_journal(connection, name))
    rows = [(entry.step, change) for entry in entries for change in entry.changes]
    return [
        {
            "step": step,
            "document": document,
            "added": added is not None,
            "statement": _statement(added or removed),
        }
        for step, (document, removed, added) in rows[:MAX_CHANGES]
    ]


def _statement(one: Any) -> list[Any]:
    return [one.subject, one.property, one.object.as_dict()]
