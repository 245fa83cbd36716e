"""Change the event-condition-action rules: each change is a transaction of its own, with a position."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from secrets import randbits
from typing import NamedTuple

from sqlalchemy import Connection

from mdv.db.eca.rule_sql import MAX_KEY, write_template
from mdv.db.eca.rules import (
    NewEcaRule,
    advance_rules,
    find_rule_names,
    find_template,
    insert_rules,
    last_rule,
    read_order,
    set_ranks,
)
from mdv.errors import Conflict, Flaw, InvalidRule
from mdv.mdp.provider import Provider
from mdv.mdp.transaction import Transaction
from mdv.rdf.schema import Schema
from mdv.rdftl.compile import CompiledRule, compile_rules
from mdv.rdftl.model import Coupling, EcaRule
from mdv.rdftl.order import CyclicOrder, OrderedRule, Rank, rank_rules
from mdv.rdftl.template import abstract_rule

DEFAULT_SET = "main"


class EcaDraft(NamedTuple):
    """The text of one or several rules, and where they belong. `prefixes`: URI prefixes that the author may write."""

    text: str
    rule_set: str = DEFAULT_SET
    state: str = "active"
    prefixes: tuple[str, ...] | None = None
    by: str | None = None


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
    for one in compiled:
        if one.rule.coupling is Coupling.DETACHED:
            raise InvalidRule("COUPLING Detached is not supported yet. Write Immediate or Deferred.")
    numbers = range(last_rule(connection) + 1, last_rule(connection) + 1 + len(compiled))
    ranks = _rank(connection, dict(zip(numbers, (one.rule for one in compiled), strict=True)))
    rows = [
        _new_rule(connection, provider, tx.schema.schema, draft, number, one, ranks[number])
        for number, one in zip(numbers, compiled, strict=True)
    ]
    insert_rules(connection, rows, tx.position)
    tx.number_classes()
    advance_rules(connection, tx.position, randbits(62) | 1)
    return [
        AddedEcaRule(row.id, row.name, row.text, row.normal, one.warnings, tx.position)
        for row, one in zip(rows, compiled, strict=True)
    ]


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
    template, constants = abstract_rule(one.rule, schema)
    digest = blake2b(repr(template).encode(), digest_size=32).digest()
    template_id = find_template(connection, one.normal, digest)
    slots = write_template(template, template_id, schema, provider.eca_rules.property_id).key_slots
    keys = tuple(dict.fromkeys(constants[slot][:MAX_KEY] for slot in slots)) or ("",)
    return NewEcaRule(
        number, draft.rule_set, one.rule.name, one.text, one.normal, draft.state, template_id, constants, rank,
        one.rule.precedes, one.rule.follows, draft.prefixes, draft.by, keys,
    )  # fmt: skip


def warnings_of(rules: Sequence[AddedEcaRule]) -> list[str]:
    """Return the warnings of added rules as text."""
    return [str(flaw) for rule in rules for flaw in rule.warnings]
