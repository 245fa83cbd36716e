"""Event-condition-action rules under a new schema: rules that it breaks are found, others are compiled again.

A rule is resolved when it is added. A template that compiles to the same template needs no further work, so the cost
depends on the number of templates that change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from sqlalchemy import Connection

from mdv.db.eca.rules import (
    EcaRuleConstants,
    break_rules,
    has_rules,
    list_constants,
    mend_rules,
    read_all_templates,
    read_normal_texts,
    set_version,
    update_template,
)
from mdv.errors import BreakingSchema, Flaw, InvalidRule
from mdv.mdp.eca.templates import CompiledTemplate, TemplateStore, compile_template, write_plain
from mdv.mdp.provider import Provider
from mdv.mdp.schemas import SchemaInForce
from mdv.mdp.transaction import Transaction, new_graph_version
from mdv.rdf.schema import Schema
from mdv.rdftl.template import bind_slots

MAX_NAMED_IN_ERROR = 20


class RereadRule(NamedTuple):
    """A rule that is compiled differently under a new schema."""

    stored: EcaRuleConstants
    text: str


class BrokenEcaRule(NamedTuple):
    """A rule that is invalid under a new schema."""

    stored: EcaRuleConstants
    flaw: Flaw


class RereadEcaRules(NamedTuple):
    """What a new schema does to rules. Those that a schema has broken before are not named again if they still are."""

    changed: list[RereadRule]
    broken: list[BrokenEcaRule]


def reread_eca_rules(connection: Connection, old: SchemaInForce, new: SchemaInForce) -> RereadEcaRules:
    """Return the rules that are compiled differently under a new schema, and those that are invalid."""
    reread = RereadEcaRules([], [])
    for number, text in read_all_templates(connection).items():
        before = _compile(text, old.schema)
        if not isinstance(before, InvalidRule) and _compile(text, new.schema) == before:
            continue
        for stored, rule_text in _texts(connection, number, before, old.schema):
            found = _compile(rule_text, new.schema)
            if not isinstance(found, InvalidRule):
                reread.changed.append(RereadRule(stored, rule_text))
            elif stored.broken_state is None:
                flaw = found.flaws[0] if found.flaws else Flaw(found.detail)
                reread.broken.append(BrokenEcaRule(stored, flaw))
    return reread


def breaking_eca_rules(broken: Sequence[BrokenEcaRule]) -> BreakingSchema:
    """Return the error of a schema under which rules are invalid."""
    flaws = [
        Flaw(f"event-condition-action rule {one.stored.name or one.stored.id}: {one.flaw.message}", hint=one.flaw.hint)
        for one in broken[:MAX_NAMED_IN_ERROR]
    ]
    return BreakingSchema(
        f"{len(broken):,} event-condition-action rule{'s' if len(broken) > 1 else ''} would become invalid:"
        f" {flaws[0].message}. Change or remove the rules first, or keep the classes and properties that they"
        " use.",
        flaws,
    )


def store_reread(tx: Transaction, rules: RereadEcaRules, provider: Provider) -> None:
    """Store rules as they are compiled under the new schema. Those that it breaks are quarantined, and return to their
    state when they are valid again."""
    connection = tx.connection
    store = TemplateStore(connection, tx.schema.schema, provider)
    for stored, text in rules.changed:
        compiled = compile_template(text, tx.schema.schema)
        number, keys = store.store(compiled.template, compiled.constants, partial(str, text))
        update_template(connection, stored, number, compiled.constants, keys)
    mended = [one.stored.id for one in rules.changed if one.stored.broken_state is not None]
    reasons = {one.stored.id: f"It is invalid under the present schema: {one.flaw.message}." for one in rules.broken}
    if mended or reasons:
        break_rules(connection, reasons, tx.position)
        mend_rules(connection, mended, tx.position)
        set_version(connection, new_graph_version() | 1 if has_rules(connection) else 0)


def _compile(text: str, schema: Schema) -> CompiledTemplate | InvalidRule:
    try:
        return compile_template(text, schema)
    except InvalidRule as error:
        return error


def _texts(
    connection: Connection, number: int, template: CompiledTemplate | InvalidRule, schema: Schema
) -> Iterator[tuple[EcaRuleConstants, str]]:
    every = list_constants(connection, number)
    if isinstance(template, InvalidRule):  # under the old schema
        texts = read_normal_texts(connection, [stored.id for stored in every])
        yield from ((stored, texts[stored.id]) for stored in every)
        return
    for stored in every:
        yield stored, write_plain(bind_slots(template.template, stored.constants), schema)
