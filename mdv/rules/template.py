"""Templates: rules that differ only in their constants are parsed once. This makes bulk registration of rules fast.

Law: `match` gives the same rules and refuses the same texts as parsing and normalising each text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from mdv.model import XSD
from mdv.rdf.parse import is_absolute_iri
from mdv.rdf.schema import Schema
from mdv.rdf.values import parse_instant
from mdv.rules.ast import Literal, LiteralKind, Not, ParsedRule, Predicate
from mdv.rules.normal import Comparison, Constant, NormalRule, Sort
from mdv.rules.normalise import RuleLookup, no_rules, normalise
from mdv.rules.operators import Operands
from mdv.rules.parse import MAX_BYTES, number_value, parse, text_value

Convert: TypeAlias = Callable[[str], Constant | None]

MAX_TEMPLATES = 10_000
"""Cached templates. When the cache is full, it is cleared."""

# Each alternative starts with the first character of a constant, which makes the search fast; look-behinds check the
# text before it. A URI counts only directly after a comparison: elsewhere `<…>` can be a name, or two comparisons.
# Wrong matches are detected when the first text of a skeleton is parsed. Then that skeleton is not used as a template.
_CONSTANT = re.compile(
    r"""(['<0-9tTfF-](?:
          (?<=')[^']*(?:''[^']*)*'
        | (?<![\w.:-][0-9-])(?:(?<=[0-9])|(?<=-)[0-9])[0-9]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.-])
        | (?<![\w.:-][tTfF])(?:(?<=[tT])[rR][uU]|(?<=[fF])[aA][lL][sS])[eE](?![\w:-])
        | (?:(?<=[=<>]<)|(?<=[=<>]\ <))[^\s<>"{}|\\^`\x00-\x20\x7f-\x9f]+>
        ))""",
    re.VERBOSE,
)
_KIND_BY_FIRST_CHARACTER = {
    "'": LiteralKind.TEXT,
    "<": LiteralKind.URI,
    **dict.fromkeys("-0123456789", LiteralKind.NUMBER),
    **dict.fromkeys("tTfF", LiteralKind.TRUTH),
}
# Rules cannot contain NUL, so a marker cannot be part of a text.
_MARKERS = {first: f"\0{written.value}\0" for first, written in _KIND_BY_FIRST_CHARACTER.items()}


def skeleton(text: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the text with markers for its constants, and the constants as written; None if the text may be invalid.

    >>> skeleton("search C c register c where c.a = 'it''s' and c.b > -5")[1]
    ("'it''s'", '-5')
    >>> skeleton("c.b > 5")[0] == skeleton("c.b > 6")[0] != skeleton("c.b > '6'")[0]
    True
    """
    # A code point has at most four bytes, so a text of this length is within the limit.
    if len(text) * 4 > MAX_BYTES or "\0" in text:
        return None
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return None
    parts = _CONSTANT.split(text)
    constants = tuple(parts[1::2])
    parts[1::2] = [_MARKERS[constant[0]] for constant in constants]
    return "".join(parts), constants


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Template:
    """The normal form of the first rule of its kind, and converters for the constants. Compared by identity."""

    rule: NormalRule
    converters: tuple[Convert, ...]
    last: list[Constant]
    """The constants of the previous rule. Consecutive rules often share constants."""


class Templates:
    """The templates of one schema. Rules that search other rules are not cached, because the other rules can change."""

    def __init__(self, schema: Schema, rules: RuleLookup = no_rules) -> None:
        self._schema, self._rules = schema, rules
        self._known: dict[str, Template] = {}

    def match(self, text: str) -> tuple[Template, tuple[Constant, ...]]:
        """Return a template and the constants of this rule. Constant i replaces every `Constant` with slot i.

        >>> from mdv.rdf.schema import EMPTY_SCHEMA
        >>> templates = Templates(EMPTY_SCHEMA)
        >>> first, _ = templates.match("search Resource r register r where r.label = 'a'")
        >>> second, constants = templates.match("search Resource r register r where r.label = 'b'")
        >>> first is second, constants
        (True, (Constant(value='b', shown="'b'", slot=0),))
        """
        found = skeleton(text)
        if found is None:
            return self._read(text)
        key, written = found
        template = self._known.get(key)
        if template is not None:
            constants = template.last.copy()
            for slot, one in enumerate(written):
                if one != constants[slot].shown:
                    constant = template.converters[slot](one)
                    if constant is None:
                        return self._read(text)
                    constants[slot] = constant
            template.last[:] = constants
            return template, tuple(constants)
        return self._learn(text, key)

    def _read(self, text: str) -> tuple[Template, tuple[Constant, ...]]:
        return self._template(parse(text))

    def _learn(self, text: str, key: str) -> tuple[Template, tuple[Constant, ...]]:
        parsed = parse(text)
        template, constants = self._template(parsed)
        as_parsed = [(one.span.start, one.span.end) for one in _literals(parsed)]
        if as_parsed == [one.span() for one in _CONSTANT.finditer(text)] and not template.rule.searches:
            if len(self._known) >= MAX_TEMPLATES:
                self._known.clear()
            self._known[key] = template
        return template, constants

    def _template(self, parsed: ParsedRule) -> tuple[Template, tuple[Constant, ...]]:
        rule = normalise(parsed, self._schema, self._rules)
        slots: dict[int, Comparison] = {}
        for part in rule.conjunctions:
            for predicate in part.predicates:
                if isinstance(predicate, Comparison) and predicate.constant.slot is not None:
                    slots[predicate.constant.slot] = predicate
        kinds = [literal.written for literal in _literals(parsed)]
        converters = tuple(self._converter(slot, slots[slot], kind) for slot, kind in enumerate(kinds))
        constants = [slots[slot].constant for slot in range(len(kinds))]
        return Template(rule, converters, constants), tuple(constants)

    def _converter(self, slot: int, comparison: Comparison, written: LiteralKind) -> Convert:
        """Return a function that converts a written constant for a slot. It returns None if the constant is invalid."""
        match comparison.sort, written:
            case Sort.NUMBER, _:
                return lambda one: None if (v := number_value(one)) is None else Constant(v, one, slot)
            case Sort.TRUTH, _:
                return lambda one: Constant(one.lower() == "true", one, slot)
            case Sort.INSTANT, _:
                declared = self._schema.property_of(comparison.access.property or "")
                range_ = (declared.range if declared else None) or XSD + "dateTime"
                read = text_value if written is LiteralKind.TEXT else str
                return lambda one: None if (v := parse_instant(read(one), range_)) is None else Constant(v, one, slot)
            case _, LiteralKind.URI:
                return lambda one: Constant(one[1:-1], one, slot) if is_absolute_iri(one[1:-1]) else None
        if comparison.operator.takes is Operands.TEXT:
            return lambda one: Constant(text_value(one), one, slot) if len(one) > 2 else None
        return lambda one: Constant(text_value(one), one, slot)


def _literals(parsed: ParsedRule) -> list[Literal]:
    """Return the constants of the text by slot."""
    found: list[Literal] = []
    todo = [parsed.where] if parsed.where is not None else []
    while todo:
        expression = todo.pop()
        if isinstance(expression, Predicate):
            found += [side for side in (expression.left, expression.right) if isinstance(side, Literal)]
        else:
            todo += [expression.part] if isinstance(expression, Not) else expression.parts
    return sorted(found, key=lambda literal: literal.slot)
