"""Event-condition-action rules under a new schema: rules that it breaks are refused, others are compiled again.

A rule is resolved when it is added. A template that compiles to the same template needs no further work, so the cost
depends on the number of templates that change.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from sqlalchemy import Connection

from mdv.db.eca.rules import EcaRuleConstants, list_constants, read_all_templates, update_template
from mdv.errors import BreakingSchema, Flaw, InvalidRule
from mdv.mdp.eca.templates import CompiledTemplate, TemplateStore, compile_template, write_plain
from mdv.mdp.provider import Provider
from mdv.mdp.schemas import SchemaInForce
from mdv.rdf.schema import Schema
from mdv.rdftl.template import bind_slots

MAX_NAMED_IN_ERROR = 20


class RereadRule(NamedTuple):
    """A rule that is compiled differently under a new schema."""

    stored: EcaRuleConstants
    text: str


def reread_eca_rules(connection: Connection, old: SchemaInForce, new: SchemaInForce) -> list[RereadRule]:
    """Return the rules that are compiled differently under a new schema. Raise `BreakingSchema` if one is invalid."""
    changed: list[RereadRule] = []
    broken: list[Flaw] = []
    for number, text in read_all_templates(connection).items():
        before = compile_template(text, old.schema)
        if _compile(text, new.schema) == before:
            continue
        for stored, rule_text in _texts(connection, number, before, old.schema):
            found = _compile(rule_text, new.schema)
            if isinstance(found, InvalidRule):
                flaw = found.flaws[0] if found.flaws else Flaw(found.detail)
                name = stored.name or str(stored.id)
                broken.append(Flaw(f"event-condition-action rule {name}: {flaw.message}", hint=flaw.hint))
            else:
                changed.append(RereadRule(stored, rule_text))
    if broken:
        raise BreakingSchema(
            f"{len(broken):,} event-condition-action rule{'s' if len(broken) > 1 else ''} would become invalid:"
            f" {broken[0].message}. Change or remove the rules first, or keep the classes and properties that they"
            " use.",
            broken[:MAX_NAMED_IN_ERROR],
        )
    return changed


def store_reread(connection: Connection, rules: list[RereadRule], schema: Schema, provider: Provider) -> None:
    """Store rules as they are compiled under the new schema."""
    store = TemplateStore(connection, schema, provider)
    for stored, text in rules:
        compiled = compile_template(text, schema)
        number, keys = store.store(compiled.template, compiled.constants, partial(str, text))
        update_template(connection, stored, number, compiled.constants, keys)


def _compile(text: str, schema: Schema) -> CompiledTemplate | InvalidRule:
    try:
        return compile_template(text, schema)
    except InvalidRule as error:
        return error


def _texts(
    connection: Connection, number: int, template: CompiledTemplate, schema: Schema
) -> Iterator[tuple[EcaRuleConstants, str]]:
    for stored in list_constants(connection, number):
        yield stored, write_plain(bind_slots(template.template, stored.constants), schema)
