"""The rows of event-condition-action rules."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.db.load_sql import load_sql
from mdv.db.pipeline import Pipeline, TextRow
from mdv.rdftl.order import OrderedRule, Rank

_RUNNING = ("active", "shadow")


class NewEcaRule(NamedTuple):
    """A rule to be stored. `keys`: the constants that it is found by."""

    id: int
    rule_set: str
    name: str | None
    text: str
    normal: str
    state: str
    template_id: int
    constants: tuple[str, ...]
    rank: Rank
    precedes: tuple[str, ...]
    follows: tuple[str, ...]
    prefixes: tuple[str, ...] | None
    document_prefixes: tuple[str, ...] | None
    changed_by: str | None
    keys: tuple[str, ...]

    def as_row(self) -> dict[str, Any]:
        return {name: value for name, value in self._asdict().items() if name != "keys"}


class StoredEcaRule(NamedTuple):
    """A stored rule, with how often it fired and failed, and the prefixes of the documents and resources that its
    actions may change."""

    id: int
    name: str | None
    rule_set: str
    state: str
    reason: str | None
    text: str
    normal: str
    position: int
    created_at: str
    by: str | None
    fired: int
    failed: int
    last_fired: str | None
    document_prefixes: tuple[str, ...] | None
    prefixes: tuple[str, ...] | None


def list_eca_rules(
    connection: Connection,
    after: int = 0,
    limit: int = 1_000,
    rule_set: str | None = None,
    state: str | None = None,
    number: int | None = None,
) -> list[StoredEcaRule]:
    """Return rules in the order of their IDs, from the one after `after`."""
    rows = _query(connection, "list_rules", after=after, limit=limit, rule_set=rule_set, state=state, id=number)
    return [
        StoredEcaRule(
            int(row[0] or 0), row[1], row[2] or "", row[3] or "", row[4], row[5] or "", row[6] or "", int(row[7] or 0),
            row[8] or "", row[9], int(row[10] or 0), int(row[11] or 0), row[12], prefixes_of(row[13]),
            prefixes_of(row[14]),
        )
        for row in rows
    ]  # fmt: skip


def prefixes_of(text: str | None) -> tuple[str, ...] | None:
    """Return prefixes from JSON; None if there is no limit."""
    return None if text is None else tuple(json.loads(text))


def find_rule_id(connection: Connection, name: str) -> int | None:
    """Return the ID of the rule with this name."""
    rows = _query(connection, "find_rule_id", name=name)
    return _int(rows) if rows else None


def delete_rule(connection: Connection, number: int) -> None:
    """Delete a rule. Its changes, and what it did to documents, stay."""
    _execute(connection, "delete_rule", id=number)


def set_rule_state(connection: Connection, number: int, state: str, position: int, by: str | None) -> None:
    """Set the state of a rule, without its keys."""
    _execute(connection, "set_state", id=number, state=state, position=position, by=by)
    _execute(connection, "reset_failures", id=number)
    _execute(connection, "delete_keys", id=number)


def insert_keys(connection: Connection, template_id: int, number: int, keys: Iterable[str]) -> None:
    """Store the constants that a rule is found by."""
    rows = [{"template_id": template_id, "key": key, "rule_id": number} for key in keys]
    _execute(connection, "insert_keys", keys=_json(rows))


def find_followers(connection: Connection, name: str) -> list[str]:
    """Return the names (or IDs) of the rules that name a rule in PRECEDES or FOLLOWS."""
    return [found or number or "" for number, found in _query(connection, "find_followers", name=name)]


def read_templates(connection: Connection) -> dict[int, str]:
    """Return the templates of active and shadow rules: the text of one rule of each, by ID."""
    return {int(number or 0): text or "" for number, text in _query(connection, "read_templates")}


def read_normal_texts(connection: Connection, numbers: Collection[int]) -> dict[int, str]:
    """Return the normal texts of rules, by ID."""
    found = _query(connection, "read_normal_texts", rules=_json(list(numbers)))
    return {int(number or 0): text or "" for number, text in found}


class EcaRuleConstants(NamedTuple):
    """A rule of a template. `is_running`: it has keys. `broken_state`: its state before a schema made it invalid."""

    id: int
    name: str | None
    constants: tuple[str, ...]
    is_running: bool
    broken_state: str | None = None


def read_all_templates(connection: Connection) -> dict[int, str]:
    """Return the templates of all rules: the text of one rule of each, by ID."""
    return {int(number or 0): text or "" for number, text in _query(connection, "read_all_templates")}


def list_constants(connection: Connection, template_id: int) -> list[EcaRuleConstants]:
    """Return the rules of a template with their constants."""
    return [
        EcaRuleConstants(
            int(number or 0),
            name,
            tuple(json.loads(constants or "[]")),
            (broken_state or state) in _RUNNING,
            broken_state,
        )
        for number, name, constants, state, broken_state in _query(
            connection, "list_constants", template_id=template_id
        )
    ]


def read_template_of(connection: Connection, number: int) -> tuple[int, str, tuple[str, ...]]:
    """Return the ID and the text of a rule's template, and the rule's constants."""
    ((template_id, text, constants),) = _query(connection, "read_template_of", id=number)
    return int(template_id or 0), text or "", tuple(json.loads(constants or "[]"))


def update_template(
    connection: Connection, rule: EcaRuleConstants, template_id: int, constants: Sequence[str], keys: Iterable[str]
) -> None:
    """Give a rule another template."""
    _execute(
        connection, "update_template", id=rule.id, template_id=template_id, constants=_json(list(constants))
    )  # fmt: skip
    _execute(connection, "delete_keys", id=rule.id)
    if rule.is_running:
        insert_keys(connection, template_id, rule.id, keys)


def find_template(connection: Connection, text: str, digest: bytes) -> int:
    """Return the ID of a template. `text`: a rule with this template."""
    return _int(_query(connection, "find_template", text=text, digest=digest.hex()))


def last_rule(connection: Connection) -> int:
    """Return the highest ID that a rule has or had."""
    return _int(_query(connection, "last_rule"))


def find_rule_names(connection: Connection, names: Collection[str]) -> set[str]:
    """Return those of these names that rules have."""
    return {name or "" for (name,) in _query(connection, "find_rule_names", names=_json(list(names)))}


def read_order(connection: Connection, names: Collection[str]) -> dict[int, tuple[OrderedRule, Rank]]:
    """Return the rules that name others, those that they name, and those called `names`, with their ranks."""
    return {
        int(number or 0): (
            OrderedRule(name, json.loads(precedes or "[]"), json.loads(follows or "[]")),
            tuple(json.loads(rank or "[]")),
        )
        for number, name, precedes, follows, rank in _query(connection, "read_order", names=_json(list(names)))
    }


def set_ranks(connection: Connection, ranks: Mapping[int, Rank]) -> None:
    """Store the ranks of rules."""
    if ranks:
        _execute(connection, "set_ranks", ranks=_json([{"id": one, "rank": rank} for one, rank in ranks.items()]))


def insert_rules(connection: Connection, rules: Sequence[NewEcaRule], position: int) -> None:
    """Store rules. Active and shadow ones get keys."""
    keys = [
        {"template_id": rule.template_id, "key": key, "rule_id": rule.id}
        for rule in rules
        if rule.state in ("active", "shadow")
        for key in rule.keys
    ]
    sql = load_sql("eca")
    with Pipeline(connection) as pipeline:
        pipeline.queue_named(
            sql["insert_rules"], rules=_json([rule.as_row() for rule in rules]), position=position
        )  # fmt: skip
        if keys:
            pipeline.queue_named(sql["insert_keys"], keys=_json(keys))


def quarantine_rules(
    connection: Connection,
    rules: Collection[int],
    most: int,
    uncounted: int,
    position: int,
    at_once: Mapping[int, str],
) -> list[int]:
    """Stop those of these rules that have failed in `most` transactions in a row, and those in `at_once`, each for its
    reason. Return their IDs. `uncounted`: failures that are not stored yet."""
    reasons = [{"id": rule, "reason": at_once.get(rule)} for rule in rules]
    found = _query(connection, "quarantine", rules=_json(reasons), most=most, uncounted=uncounted, position=position)
    return [int(number or 0) for (number,) in found]


def break_rules(connection: Connection, reasons: Mapping[int, str], position: int) -> None:
    """Quarantine rules that a schema has made invalid, each for its reason. Disabled ones stay disabled."""
    rows = [{"id": rule, "reason": reason} for rule, reason in reasons.items()]
    _execute(connection, "break_rules", rules=_json(rows), position=position)


def mend_rules(connection: Connection, rules: Collection[int], position: int) -> None:
    """Return rules to the state that they had before a schema made them invalid."""
    _execute(connection, "mend_rules", rules=_json(list(rules)), position=position)


def set_version(connection: Connection, version: int) -> None:
    """Record that the rules have changed, in a transaction that advances the position otherwise."""
    _execute(connection, "set_version", version=version)


def advance_rules(connection: Connection, position: int, version: int) -> None:
    """Record a change of the rules: their version and the position."""
    _execute(connection, "advance", position=position, version=version)


def has_rules(connection: Connection) -> bool:
    """True if there is an active or shadow rule."""
    return _query(connection, "has_rules") == [("t",)]


def has_classes(connection: Connection) -> bool:
    """True if the classes of the schema are stored."""
    return _query(connection, "has_classes") == [("t",)]


def store_classes(connection: Connection, pairs: Iterable[tuple[str, str]], last_resource: int) -> int:
    """Store the classes of the schema with their superclasses. New URIs get IDs. Return the last ID."""
    listed = list(pairs)
    uris = list({uri for pair in listed for uri in pair})
    sql = load_sql("eca")
    with Pipeline(connection) as pipeline:
        new = pipeline.queue_named(sql["insert_resources"], uris=_json(uris), last=last_resource)
        pipeline.queue_named(sql["delete_classes"])
        pipeline.queue_named(
            sql["insert_classes"], pairs=_json([{"class": below, "superclass": above} for below, above in listed])
        )
    last = last_resource + new.changed_rows
    _execute(connection, "set_last_resource", last=last)
    return last


def _query(connection: Connection, statement: str, **values: object) -> list[TextRow]:
    with Pipeline(connection) as pipeline:
        found = pipeline.queue_named(load_sql("eca")[statement], **values)
    return found.rows()


def _execute(connection: Connection, statement: str, **values: object) -> int:
    """Run a statement that returns no rows. Return how many rows it changed."""
    with Pipeline(connection) as pipeline:
        done = pipeline.queue_named(load_sql("eca")[statement], **values)
    return done.changed_rows


def _int(rows: list[TextRow]) -> int:
    return int(rows[0][0] or 0)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
