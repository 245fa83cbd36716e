"""Rules that differ in their constants alone are read once: what the bulk registration of rules lives on.

Law: `match` and the slow way, parsing and normalising each text, give the same rule and refuse the same texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from mdv.model import XSD
from mdv.rdf.parse import is_absolute_iri
from mdv.rdf.schema import Schema
from mdv.rdf.values import instant_of
from mdv.rules.ast import Literal, Not, Operator, ParsedRule, Predicate, Written
from mdv.rules.normal import Comparison, Constant, NormalRule, Sort
from mdv.rules.normalise import Rules, no_rules, normalise
from mdv.rules.parse import MAX_BYTES, number_value, parse, text_value

Convert: TypeAlias = Callable[[str], Constant | None]

MAX_TEMPLATES = 10_000
"""More skeletons than this are forgotten, and met anew."""

# Each constant is known by its first character, so that the search for it is fast; what stood before that is looked at
# only then. A URI counts only right after a comparison: elsewhere `<…>` may be a name, or two comparisons. What this
# misses or takes wrongly is seen when the first text of a skeleton is parsed: then that skeleton is no template.
_CONSTANT = re.compile(
    r"""(['<0-9tTfF-](?:
          (?<=')[^']*(?:''[^']*)*'
        | (?<![\w.:-][0-9-])(?:(?<=[0-9])|(?<=-)[0-9])[0-9]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.-])
        | (?<![\w.:-][tTfF])(?:(?<=[tT])[rR][uU]|(?<=[fF])[aA][lL][sS])[eE](?![\w:-])
        | (?:(?<=[=<>]<)|(?<=[=<>]\ <))[^\s<>"{}|\\^`\x00-\x20\x7f-\x9f]+>
        ))""",
    re.VERBOSE,
)
_WRITTEN = {
    "'": Written.TEXT,
    "<": Written.URI,
    **dict.fromkeys("-0123456789", Written.NUMBER),
    **dict.fromkeys("tTfF", Written.TRUTH),
}
# No text with NUL in it is a rule, so no marker is taken for a text.
_MARKERS = {first: f"\0{written.value}\0" for first, written in _WRITTEN.items()}


def skeleton(text: str) -> tuple[str, tuple[str, ...]] | None:
    """The text with markers for its constants, and the constants as written; None where in doubt.

    >>> skeleton("search C c register c where c.a = 'it''s' and c.b > -5")[1]
    ("'it''s'", '-5')
    >>> skeleton("c.b > 5")[0] == skeleton("c.b > 6")[0] != skeleton("c.b > '6'")[0]
    True
    """
    # A code point has at most four bytes, so this much is within the limit, whatever it is.
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
    """The normal form of the first rule of its kind, and how constants come into its slots. It equals itself alone."""

    rule: NormalRule
    converters: tuple[Convert, ...]
    last: list[Constant]
    """The constants of the rule before: many of the next one's are the same."""


class Templates:
    """What has been read under one schema. A rule that searches others is read anew each time, since they change."""

    def __init__(self, schema: Schema, rules: Rules = no_rules) -> None:
        self._schema, self._rules = schema, rules
        self._known: dict[str, Template] = {}

    def match(self, text: str) -> tuple[Template, tuple[Constant, ...]]:
        """A template and the constants that make it this rule: every `Constant` of slot i is to be the i-th of them.

        >>> from mdv.rdf.schema import EMPTY
        >>> templates = Templates(EMPTY)
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

    def _converter(self, slot: int, comparison: Comparison, written: Written) -> Convert:
        """Makes a constant that is written this way into what the slot is compared as; None where it is refused."""
        match comparison.sort, written:
            case Sort.NUMBER, _:
                return lambda one: None if (v := number_value(one)) is None else Constant(v, one, slot)
            case Sort.TRUTH, _:
                return lambda one: Constant(one.lower() == "true", one, slot)
            case Sort.INSTANT, _:
                declared = self._schema.property_of(comparison.access.property or "")
                range_ = (declared.range if declared else None) or XSD + "dateTime"
                read = text_value if written is Written.TEXT else str
                return lambda one: None if (v := instant_of(read(one), range_)) is None else Constant(v, one, slot)
            case _, Written.URI:
                return lambda one: Constant(one[1:-1], one, slot) if is_absolute_iri(one[1:-1]) else None
        if comparison.operator in (Operator.CONTAINS, Operator.NOT_CONTAINS):
            return lambda one: Constant(text_value(one), one, slot) if len(one) > 2 else None
        return lambda one: Constant(text_value(one), one, slot)


def _literals(parsed: ParsedRule) -> list[Literal]:
    """The constants of the text, by slot."""
    found: list[Literal] = []
    todo = [parsed.where] if parsed.where is not None else []
    while todo:
        expression = todo.pop()
        if isinstance(expression, Predicate):
            found += [side for side in (expression.left, expression.right) if isinstance(side, Literal)]
        else:
            todo += [expression.part] if isinstance(expression, Not) else expression.parts
    return sorted(found, key=lambda literal: literal.slot)
