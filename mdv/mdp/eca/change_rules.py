"""Change the event-condition-action rules: each change is a transaction of its own, with a position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
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
from mdv.errors import Conflict, Flaw, Forbidden, InvalidRule, NotFound, PreconditionFailed
from mdv.mdp.eca.templates import TemplateStore, compile_template, write_plain
from mdv.mdp.provider import Provider
from mdv.mdp.transaction import Transaction, new_graph_version
from mdv.mdp.write_limits import UNLIMITED, WriteLimits
from mdv.rdf.schema import Schema
from mdv.rdftl.match import MatchedRule, RuleMatcher
from mdv.rdftl.order import CyclicOrder, OrderedRule, Rank, rank_rules
from mdv.rdftl.template import bind_slots

DEFAULT_SET = "main"
QUARANTINED = "quarantined"
RUNNING_STATES = ("active", "shadow")


class EcaDraft(NamedTuple):
    """The text of one or several rules, and where they belong. `limits`: what the author may write."""

    text: str
    rule_set: str = DEFAULT_SET
    state: str = "active"
    limits: WriteLimits = UNLIMITED
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
    return add_drafts(connection, [draft], provider)


def add_drafts(connection: Connection, drafts: Sequence[EcaDraft], provider: Provider) -> list[AddedEcaRule]:
    """Add the rules of several texts, all or none. Raise `InvalidRule`, or `Conflict` if a name is in use."""
    schema = provider.schemas.now(connection)
    written = _compile(drafts, schema.schema)
    tx = Transaction(provider, connection)
    tx.lock()
    if tx.schema.version != schema.version:
        written = _compile(drafts, tx.schema.schema)
    first = last_rule(connection) + 1
    return _add(tx, written, range(first, first + len(written)), provider, ())


def _compile(drafts: Sequence[EcaDraft], schema: Schema) -> list[tuple[EcaDraft, MatchedRule]]:
    """Compile rules. This needs no lock. If there are several texts, errors say which."""
    written: list[tuple[EcaDraft, MatchedRule]] = []
    matcher = RuleMatcher(schema)
    for number, draft in enumerate(drafts):
        try:
            written += [(draft, one) for one in matcher.compile(draft.text)]
        except InvalidRule as error:
            if len(drafts) == 1:
                raise
            flaws = [replace(flaw, message=f"item {number + 1}: {flaw.message}") for flaw in error.flaws]
            raise InvalidRule(f"item {number + 1}: {error.detail}", flaws) from None
    return written


def _add(
    tx: Transaction,
    written: Sequence[tuple[EcaDraft, MatchedRule]],
    numbers: Sequence[int],
    provider: Provider,
    released: Collection[str],
) -> list[AddedEcaRule]:
    """Store rules. `released`: the names that the rules mentioned that they replace."""
    connection = tx.connection
    ranks = _rank(connection, dict(zip(numbers, (_order(one) for _, one in written), strict=True)), released)
    store = TemplateStore(connection, tx.schema.schema, provider)
    rows = [
        _new_rule(store, draft, number, one, ranks[number])
        for number, (draft, one) in zip(numbers, written, strict=True)
    ]
    insert_rules(connection, rows, tx.position)
    tx.number_classes()
    _advance(tx)
    return [
        AddedEcaRule(row.id, row.name, row.text, row.normal, one.warnings, tx.position)
        for row, (_, one) in zip(rows, written, strict=True)
    ]


def find_rule(connection: Connection, name: str) -> StoredEcaRule:
    """Return the rule with this name or ID. Raise `NotFound`."""
    number = find_rule_id(connection, name) if "\0" not in name else None
    if number is None and name.isascii() and name.isdigit() and len(name) < 19:
        number = int(name)
    found = list_eca_rules(connection, number=number) if number is not None else []
    if not found:
        raise NotFound(f"There is no event-condition-action rule {name!r}. `mdv eca list` shows all rules.")
    return found[0]


def remove_rule(
    connection: Connection, name: str, provider: Provider, limits: WriteLimits = UNLIMITED
) -> EcaRuleChange:
    """Remove a rule. Its changes of documents stay. Raise `Forbidden` if the rule may write more than the caller."""
    tx = Transaction(provider, connection)
    tx.lock()
    rule = _find_own_rule(connection, name, limits)
    followers = find_followers(connection, rule.name) if rule.name is not None else []
    released = _mentioned_by(connection, rule.id)
    delete_rule(connection, rule.id)
    _renew_ranks(connection, released)
    _advance(tx)
    warnings = [f"The rule {one} names {rule.name} in PRECEDES or FOLLOWS." for one in followers]
    return EcaRuleChange(rule.id, tx.position, tuple(warnings))


def change_state(
    connection: Connection,
    name: str,
    state: str,
    by: str | None,
    provider: Provider,
    limits: WriteLimits = UNLIMITED,
) -> EcaRuleChange:
    """Enable or disable a rule, or set it to shadow: its condition is evaluated, its actions do not run."""
    tx = Transaction(provider, connection)
    tx.lock()
    rule = _find_own_rule(connection, name, limits)
    set_rule_state(connection, rule.id, state, tx.position, by)
    if state in RUNNING_STATES:
        template_id, text, constants = read_template_of(connection, rule.id)
        template = compile_template(text, tx.schema.schema).template
        _, keys = TemplateStore(connection, tx.schema.schema, provider).store(template, constants, lambda: text)
        insert_keys(connection, template_id, rule.id, keys)
    tx.number_classes()
    _advance(tx)
    return EcaRuleChange(rule.id, tx.position)


def replace_rule(
    connection: Connection,
    name: str,
    draft: EcaDraft,
    provider: Provider,
    if_match: Collection[str] | None = None,
) -> AddedEcaRule:
    """Replace the text of a rule. It keeps its ID, its set and its state; a quarantined rule becomes active.

    From then on it acts within the limits of the new author. `if_match`: the rule must have been last changed at one of
    these positions.
    """
    tx = Transaction(provider, connection)
    tx.lock()
    rule = _find_own_rule(connection, name, draft.limits)
    if if_match is not None and not {"*", str(rule.position)} & set(if_match):
        raise PreconditionFailed(
            f"If-Match: {', '.join(if_match)} failed for the rule {name}: it was last changed at position"
            f" {rule.position}. Read the rule again, and retry."
        )
    compiled = RuleMatcher(tx.schema.schema).compile(draft.text)
    if len(compiled) != 1:
        raise InvalidRule(f"The text has {len(compiled)} rules. Send the text of one rule.")
    released = _mentioned_by(connection, rule.id)
    delete_rule(connection, rule.id)
    state = rule.state if rule.state != QUARANTINED else "active"
    kept = draft._replace(rule_set=rule.rule_set, state=state)
    (added,) = _add(tx, [(kept, compiled[0])], [rule.id], provider, released)
    return added


def _find_own_rule(connection: Connection, name: str, limits: WriteLimits) -> StoredEcaRule:
    """Return a rule that a caller with these limits may change: it may write no more than the caller."""
    rule = find_rule(connection, name)
    if not limits.contain(WriteLimits(rule.document_prefixes, rule.prefixes)):
        raise Forbidden(
            f"This token may not change the rule {name}: the rule may write documents or resources that the token may"
            " not. Use a token without URI prefixes, or the one that added the rule."
        )
    return rule


def _mentioned_by(connection: Connection, number: int) -> set[str]:
    """Return the names that a rule mentions in PRECEDES and FOLLOWS."""
    stored = read_order(connection, ())
    return {*stored[number][0].precedes, *stored[number][0].follows} if number in stored else set()


def _renew_ranks(connection: Connection, released: Collection[str]) -> None:
    """Change the ranks of rules after one has ended. `released`: the names that it mentioned."""
    stored = read_order(connection, released)
    ranks = rank_rules({number: rule for number, (rule, _) in stored.items()})
    set_ranks(connection, {number: ranks[number] for number, (_, rank) in stored.items() if ranks[number] != rank})


def _advance(tx: Transaction) -> None:
    """Give the rules a new version, at a new position. Version 0 means that there are none."""
    version = new_graph_version() | 1 if has_rules(tx.connection) else 0
    advance_rules(tx.connection, tx.position, version)


def _order(one: MatchedRule) -> OrderedRule:
    return OrderedRule(one.name, one.rule.precedes, one.rule.follows)


def _rank(connection: Connection, new: dict[int, OrderedRule], released: Collection[str]) -> dict[int, Rank]:
    """Return the ranks of new rules, and change those of others. `released`: the names that the rules mentioned that
    they replace."""
    names = Counter(rule.name for rule in new.values() if rule.name is not None)
    if repeated := [name for name, times in names.items() if times > 1]:
        raise Conflict(f"Two of these rules have the name {repeated[0]!r}. Give each its own name.")
    named = set(names)
    if taken := find_rule_names(connection, named):
        raise Conflict(f"There is already a rule with the name {sorted(taken)[0]!r}. Choose another name.")
    mentioned = {name for rule in new.values() for name in (*rule.precedes, *rule.follows)}
    stored = read_order(connection, mentioned | {*released})
    known = {rule.name for rule, _ in stored.values()} | named
    if unknown := sorted(mentioned - known):
        raise InvalidRule(f"There is no rule with the name {unknown[0]!r}, which PRECEDES or FOLLOWS mentions.")
    rules = {number: rule for number, (rule, _) in stored.items()}
    rules |= new
    try:
        ranks = rank_rules(rules)
    except CyclicOrder as error:
        raise InvalidRule(f"PRECEDES and FOLLOWS form a cycle: {', '.join(error.names)}.") from None
    set_ranks(connection, {number: ranks[number] for number, (_, rank) in stored.items() if ranks[number] != rank})
    return ranks


def _new_rule(store: TemplateStore, draft: EcaDraft, number: int, one: MatchedRule, rank: Rank) -> NewEcaRule:
    template_id, keys = store.store(
        one.template, one.constants, lambda: write_plain(bind_slots(one.template, one.constants), store.schema)
    )
    return NewEcaRule(
        number, draft.rule_set, one.name, one.text, one.normal, draft.state, template_id, one.constants, rank,
        one.rule.precedes, one.rule.follows, draft.limits.resources, draft.limits.documents, draft.by, keys,
    )  # fmt: skip
