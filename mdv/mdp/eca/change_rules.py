"""Change the event-condition-action rules: each change is a transaction of its own, with a position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from mdv.db.eca.rules import (
    NewEcaRule,
    StoredEcaRule,
    advance_rules,
    delete_rule,
    find_followers,
    find_rule_id,
    find_rule_names,
    has_rules,
    insert_keys,
    insert_rules,
    last_rule,
    list_eca_rules,
    read_order,
    read_template_of,
    set_ranks,
    set_rule_state,
)
from mdv.errors import Conflict, Flaw, InvalidRule, NotFound
from mdv.mdp.eca.templates import compile_template, store_template, template_of, write_plain
from mdv.mdp.provider import Provider
from mdv.mdp.transaction import Transaction, new_graph_version
from mdv.rdf.schema import Schema
from mdv.rdftl.compile import CompiledRule, compile_rules
from mdv.rdftl.model import EcaRule
from mdv.rdftl.order import CyclicOrder, OrderedRule, Rank, rank_rules

DEFAULT_SET = "main"
QUARANTINED = "quarantined"
RUNNING_STATES = ("active", "shadow")


class EcaDraft(NamedTuple):
    """The text of one or several rules, and where they belong. `prefixes`: URI prefixes that the author may write."""

    text: str
    rule_set: str = DEFAULT_SET
    state: str = "active"
    prefixes: tuple[str, ...] | None = None
    by: str | None = None


class EcaRuleChange(NamedTuple):
    """A rule that was changed or removed."""

    id: int
    position: int
    warnings: tuple[str, ...] = ()


class AddedEcaRule(NamedTuple):
    """A rule that was added."""

    id: int
    name: str | None
    text: str
    normal: str
    warnings: tuple[Flaw, ...]
    position: int


def add_rules(connection: Connection, draft: EcaDraft, provider: Provider) -> list[AddedEcaRule]:
    """Add the rules of a text. Raise `InvalidRule`, or `Conflict` if a name is in use."""
    tx = Transaction(provider, connection)
    tx.lock()
    compiled = compile_rules(draft.text, tx.schema.schema)
    first = last_rule(connection) + 1
    return _add(tx, draft, compiled, range(first, first + len(compiled)), provider)


def _add(
    tx: Transaction, draft: EcaDraft, compiled: Sequence[CompiledRule], numbers: Sequence[int], provider: Provider
) -> list[AddedEcaRule]:
    connection = tx.connection
    ranks = _rank(connection, dict(zip(numbers, (one.rule for one in compiled), strict=True)))
    rows = [
        _new_rule(connection, provider, tx.schema.schema, draft, number, one, ranks[number])
        for number, one in zip(numbers, compiled, strict=True)
    ]
    insert_rules(connection, rows, tx.position)
    tx.number_classes()
    _advance(tx)
    return [
        AddedEcaRule(row.id, row.name, row.text, row.normal, one.warnings, tx.position)
        for row, one in zip(rows, compiled, strict=True)
    ]


def find_rule(connection: Connection, name: str) -> StoredEcaRule:
    """Return the rule with this name or ID. Raise `NotFound`."""
    number = find_rule_id(connection, name)
    if number is None and name.isascii() and name.isdigit() and len(name) < 19:
        number = int(name)
    found = list_eca_rules(connection, number=number) if number is not None else []
    if not found:
        raise NotFound(f"There is no event-condition-action rule {name!r}. `mdv eca list` shows all rules.")
    return found[0]


def remove_rule(connection: Connection, name: str, provider: Provider) -> EcaRuleChange:
    """End a rule. What it did to documents stays."""
    tx = Transaction(provider, connection)
    tx.lock()
    rule = find_rule(connection, name)
    followers = find_followers(connection, rule.name) if rule.name is not None else []
    delete_rule(connection, rule.id)
    _renew_ranks(connection)
    _advance(tx)
    warnings = [f"The rule {one} names {rule.name} in PRECEDES or FOLLOWS." for one in followers]
    return EcaRuleChange(rule.id, tx.position, tuple(warnings))


def change_state(connection: Connection, name: str, state: str, by: str | None, provider: Provider) -> EcaRuleChange:
    """Enable or disable a rule, or set it to shadow: its condition is evaluated, its actions do not run."""
    tx = Transaction(provider, connection)
    tx.lock()
    rule = find_rule(connection, name)
    set_rule_state(connection, rule.id, state, tx.position, by)
    if state in RUNNING_STATES:
        template_id, text, constants = read_template_of(connection, rule.id)
        compiled = compile_template(text, tx.schema.schema)._replace(constants=constants)
        _, keys = store_template(connection, compiled, text, tx.schema.schema, provider)
        insert_keys(connection, template_id, rule.id, keys)
    tx.number_classes()
    _advance(tx)
    return EcaRuleChange(rule.id, tx.position)


def replace_rule(connection: Connection, name: str, draft: EcaDraft, provider: Provider) -> AddedEcaRule:
    """Replace the text of a rule. It keeps its ID, its set and its state, unless it is quarantined."""
    tx = Transaction(provider, connection)
    tx.lock()
    rule = find_rule(connection, name)
    compiled = compile_rules(draft.text, tx.schema.schema)
    if len(compiled) != 1:
        raise InvalidRule(f"The text has {len(compiled)} rules. Send the text of one rule.")
    delete_rule(connection, rule.id)
    state = rule.state if rule.state != QUARANTINED else "active"
    kept = draft._replace(rule_set=rule.rule_set, state=state)
    (added,) = _add(tx, kept, compiled, [rule.id], provider)
    return added


def _renew_ranks(connection: Connection) -> None:
    stored = read_order(connection, ())
    ranks = rank_rules({number: rule for number, (rule, _) in stored.items()})
    set_ranks(connection, {number: ranks[number] for number, (_, rank) in stored.items() if ranks[number] != rank})


def _advance(tx: Transaction) -> None:
    """Give the rules a new version, at a new position. Version 0 means that there are none."""
    version = new_graph_version() | 1 if has_rules(tx.connection) else 0
    advance_rules(tx.connection, tx.position, version)


def _rank(connection: Connection, new: dict[int, EcaRule]) -> dict[int, Rank]:
    """Return the ranks of new rules, and change those of others."""
    named = {rule.name for rule in new.values() if rule.name is not None}
    if taken := find_rule_names(connection, named):
        raise Conflict(f"There is already a rule with the name {sorted(taken)[0]!r}. Choose another name.")
    mentioned = {name for rule in new.values() for name in (*rule.precedes, *rule.follows)}
    stored = read_order(connection, mentioned | named)
    known = {rule.name for rule, _ in stored.values()} | named
    if unknown := sorted(mentioned - known):
        raise InvalidRule(f"There is no rule with the name {unknown[0]!r}, which PRECEDES or FOLLOWS mentions.")
    rules = {number: rule for number, (rule, _) in stored.items()}
    rules |= {number: OrderedRule(rule.name, rule.precedes, rule.follows) for number, rule in new.items()}
    try:
        ranks = rank_rules(rules)
    except CyclicOrder as error:
        raise InvalidRule(f"PRECEDES and FOLLOWS form a cycle: {', '.join(error.names)}.") from None
    set_ranks(connection, {number: ranks[number] for number, (_, rank) in stored.items() if ranks[number] != rank})
    return ranks


def _new_rule(
    connection: Connection,
    provider: Provider,
    schema: Schema,
    draft: EcaDraft,
    number: int,
    one: CompiledRule,
    rank: Rank,
) -> NewEcaRule:
    compiled = template_of(one.rule, schema)
    template_id, keys = store_template(connection, compiled, write_plain(one.rule, schema), schema, provider)
    return NewEcaRule(
        number, draft.rule_set, one.rule.name, one.text, one.normal, draft.state, template_id, compiled.constants, rank,
        one.rule.precedes, one.rule.follows, draft.prefixes, draft.by, keys,
    )  # fmt: skip
