"""Compile rules to templates, and store templates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import NamedTuple

from sqlalchemy import Connection

from mdv.db.eca.rule_sql import MAX_KEY, write_template
from mdv.db.eca.rules import find_template
from mdv.mdp.provider import Provider
from mdv.rdf.schema import Schema
from mdv.rdf.values import ValueKind
from mdv.rdftl.compile import compile_rules
from mdv.rdftl.model import EcaRule
from mdv.rdftl.template import abstract_rule, arc_kinds
from mdv.rdftl.write import write_rule


class CompiledTemplate(NamedTuple):
    """The template of a rule, the texts of its slots, and how the constants of its triples are compared."""

    template: EcaRule
    constants: tuple[str, ...]
    kinds: tuple[ValueKind, ...]


def write_plain(rule: EcaRule, schema: Schema) -> str:
    """Return the text of a rule without prefixes, name and order. It means the same under other prefixes."""
    return write_rule(replace(rule, name=None, precedes=(), follows=()), replace(schema, prefixes={}))


def compile_template(text: str, schema: Schema) -> CompiledTemplate:
    """Return the template of the rule with this text. Raise `InvalidRule`."""
    (compiled,) = compile_rules(text, schema)
    return template_of(compiled.rule, schema)


def template_of(rule: EcaRule, schema: Schema) -> CompiledTemplate:
    """Return the template of a rule."""
    return CompiledTemplate(*abstract_rule(rule, schema), arc_kinds(rule, schema))


def digest_of(template: EcaRule) -> bytes:
    """Return the digest that a template is found by."""
    return blake2b(repr(template).encode(), digest_size=32).digest()


class TemplateStore:
    """Stores the templates of rules under one schema. Rules of one template share its look-up."""

    def __init__(self, connection: Connection, schema: Schema, provider: Provider) -> None:
        self.schema = schema
        self._connection = connection
        self._provider = provider
        self._known: dict[EcaRule, tuple[int, tuple[int, ...]]] = {}

    def store(
        self, template: EcaRule, constants: Sequence[str], text: Callable[[], str]
    ) -> tuple[int, tuple[str, ...]]:
        """Return the ID of a template, and the keys of the rule with these constants. `text` returns the plain text of
        the rule."""
        if template not in self._known:
            number = find_template(self._connection, text(), digest_of(template))
            written = write_template(template, number, self.schema, self._provider.eca_rules.property_id)
            self._known[template] = number, written.key_slots
        number, slots = self._known[template]
        return number, tuple(dict.fromkeys(constants[slot][:MAX_KEY] for slot in slots)) or ("",)
