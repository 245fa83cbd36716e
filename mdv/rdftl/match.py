"""Compile rules that differ only in their name and constants without parsing each. This makes bulk changes fast.

Law: `RuleMatcher.compile` returns what `compile_rules` and `abstract_rule` return, or raises the same error.

The text of a rule is split at its name, at the URIs of `resource(…)` and at quoted texts. The rest is its skeleton.
The first rule with a skeleton is compiled with markers in their places. Then the result for another rule is that for
the markers, with its own values. A skeleton is not used if a value could change more than itself: if it could be
refused, or could be a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mdv.errors import Flaw, InvalidRule
from mdv.model import RDFS, XSD_STRING
from mdv.rdf.parse import is_absolute_iri
from mdv.rdf.schema import Schema
from mdv.rdf.values import ValueKind
from mdv.rdftl.compile import CompiledRule, compile_rules
from mdv.rdftl.model import ConstantValue, EcaRule, NamedNode, Triple, TripleNode, ValueComparison
from mdv.rdftl.template import abstract_rule, slot_number

MAX_SKELETONS = 10_000
"""Cached skeletons. When the cache is full, it is cleared."""
MAX_MATCHED_CHARS = 2_000
"""Longer texts are parsed."""

_VALUE = re.compile(
    r"""(?<=\bRULE[ ])(?P<name>[A-Za-z_]\w{0,100}[0-9])(?=\s)     # no keyword ends with a digit
      | (?<=\()(?P<uri>https?://[^\s()<>"'{}|\\^`]+)(?=\))
      | (?<=\bresource\(<)(?P<iri>https?://[^\s<>"'{}|\\^`]+)(?=>\))
      | '(?P<text>(?:[^'\x00-\x1f:]|'')*)'
    """,
    re.VERBOSE | re.IGNORECASE,
)
_URIS = ("uri", "iri")
_PLAIN_RANGES = (None, XSD_STRING, RDFS + "Literal")
"""Ranges that every text belongs to."""


class MatchedRule(NamedTuple):
    """A compiled rule with its template and the texts of the slots. `rule`: the template, with the name and the order
    of the rule."""

    name: str | None
    rule: EcaRule
    text: str
    normal: str
    warnings: tuple[Flaw, ...]
    template: EcaRule
    constants: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Skeleton:
    """The result for markers. Each part is a text, or the number of a value and what it begins with."""

    template: EcaRule
    name: int | None
    constants: tuple[str | tuple[int, str], ...]
    normal: tuple[str | tuple[int, bool], ...]
    """The number of a value, and whether it is written in quotes."""

    def rule_of(self, text: str, values: Sequence[str]) -> MatchedRule:
        name = values[self.name] if self.name is not None else None
        constants = tuple(
            part if isinstance(part, str) else part[1] + values[part[0]] for part in self.constants
        )  # fmt: skip
        normal = "".join(
            part if isinstance(part, str) else values[part[0]].replace("'", "''") if part[1] else values[part[0]]
            for part in self.normal
        )
        return MatchedRule(name, self.template, text.strip(), normal, (), self.template, constants)


class RuleMatcher:
    """Compiles rules under one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._skeletons: dict[tuple[str, ...], _Skeleton | None] = {}

    def compile(self, text: str) -> tuple[MatchedRule, ...]:
        """Return the rules of a text. Raise `InvalidRule` with all flaws of the text."""
        split = _split(text)
        if split is None:
            return self._parse(text)
        parts, values = split
        if parts not in self._skeletons:
            rules = self._parse(text)
            if len(self._skeletons) >= MAX_SKELETONS:
                self._skeletons.clear()
            self._skeletons[parts] = self._learn(text, parts, values, rules)
            return rules
        known = self._skeletons[parts]
        return self._parse(text) if known is None else (known.rule_of(text, values),)

    def _parse(self, text: str) -> tuple[MatchedRule, ...]:
        return tuple(self._matched(one) for one in compile_rules(text, self._schema))

    def _matched(self, one: CompiledRule) -> MatchedRule:
        template, constants = abstract_rule(one.rule, self._schema)
        rule = replace(template, name=one.rule.name, precedes=one.rule.precedes, follows=one.rule.follows)
        return MatchedRule(one.rule.name, rule, one.text, one.normal, one.warnings, template, constants)

    def _learn(
        self, text: str, parts: tuple[str, ...], values: Sequence[str], rules: tuple[MatchedRule, ...]
    ) -> _Skeleton | None:
        """Return the skeleton of a text that was parsed; None if other texts with it must be parsed, too."""
        markers = [_marker(number, part) for number, part in enumerate(parts[1::2])]
        if any(marker in text for marker in markers):
            return None
        marked = "".join(
            part if number % 2 == 0 else _written(part, markers[number // 2]) for number, part in enumerate(parts)
        )
        try:
            found = self._parse(marked)
        except InvalidRule:
            return None
        if len(rules) != 1 or len(found) != 1 or found[0].warnings or rules[0].rule.precedes or rules[0].rule.follows:
            return None
        skeleton = self._skeleton(found[0], markers)
        if skeleton is None or skeleton.rule_of(text, values) != rules[0]._replace(rule=skeleton.template):
            return None
        return skeleton

    def _skeleton(self, found: MatchedRule, markers: Sequence[str]) -> _Skeleton | None:
        if any(marker in repr(found.template) for marker in markers):
            return None  # a value is a name
        resources = {slot_number(node.uri) for node in _named_nodes(found.template)}
        constants = tuple(_constant_part(constant, markers) for constant in found.constants)
        numbers = {part[0] for part in constants if not isinstance(part, str)}
        named = [number for number, marker in enumerate(markers) if marker == found.name]
        if numbers | set(named) != set(range(len(markers))):
            return None  # a value is in a comment
        if any(not isinstance(constants[slot], str) and not _is_uri(found.constants[slot]) for slot in resources):
            return None  # a text is the name of a resource
        if not all(self._takes_any_text(one) for one in _constants_in_place(found.template)):
            return None
        normal = tuple(_normal_parts(found.normal, markers))
        return _Skeleton(found.template, named[0] if named else None, constants, normal)

    def _takes_any_text(self, place: tuple[ConstantValue, ValueKind | None, str | None]) -> bool:
        constant, kind, arc = place
        if constant.lang is not None or constant.datatype is not None:
            return False
        if kind is not None:
            return kind is ValueKind.TEXT
        declared = self._schema.property_of(arc) if arc is not None else None
        return declared is None or declared.range in _PLAIN_RANGES


def _split(text: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return a text without its values, with what they are at the odd places, and the values; None if it must be
    parsed.

    >>> _split("RULE r7 ON INSERT (_, p, 'it''s') IF TRUE DO DELETE resource(http://a/b)")
    (('RULE ', 'name', ' ON INSERT (_, p, ', 'text', ') IF TRUE DO DELETE resource(', 'uri', ')'),
     ('r7', "it's", 'http://a/b'))
    """
    if len(text) > MAX_MATCHED_CHARS or ";;" in text or (not text.isprintable() and not _is_plain(text)):
        return None
    parts: list[str] = []
    values: list[str] = []
    end = 0
    for found in _VALUE.finditer(text):
        kind = found.lastgroup or ""
        value = found[kind]
        if kind in _URIS and not is_absolute_iri(value):
            return None
        parts += [text[end : found.start()], kind]
        values.append(value.replace("''", "'") if kind == "text" else value)
        end = found.end()
    parts.append(text[end:])
    return tuple(parts), tuple(values)


def _is_plain(text: str) -> bool:
    """True if a text has no control characters but white space, and no surrogates."""
    return text.replace("\n", "").replace("\t", "").isprintable()


def _marker(number: int, kind: str) -> str:
    if kind in _URIS:
        return f"http://marker.invalid/x{number}x"
    return f"marker{number}x{number}"


def _written(kind: str, marker: str) -> str:
    return f"'{marker}'" if kind == "text" else marker


def _constant_part(constant: str, markers: Sequence[str]) -> str | tuple[int, str]:
    for number, marker in enumerate(markers):
        if constant.endswith(marker):
            return number, constant.removesuffix(marker)
    return constant


def _normal_parts(normal: str, markers: Sequence[str]) -> Iterator[str | tuple[int, bool]]:
    numbers: Mapping[str, int] = {marker: number for number, marker in enumerate(markers)}
    if not markers:
        yield normal
        return
    pattern = "|".join(re.escape(marker) for marker in sorted(markers, key=len, reverse=True))
    for index, part in enumerate(re.split(f"({pattern})", normal)):
        yield part if index % 2 == 0 else (numbers[part], not part.startswith("http:"))


def _is_uri(constant: str) -> bool:
    return constant.startswith("http://marker.invalid/")


def _named_nodes(part: object) -> Iterator[NamedNode]:
    if isinstance(part, NamedNode):
        yield part
    elif isinstance(part, tuple):
        for one in part:
            yield from _named_nodes(one)
    elif hasattr(part, "__dataclass_fields__"):
        for name in part.__dataclass_fields__:
            yield from _named_nodes(getattr(part, name))


def _constants_in_place(
    part: object, kind: ValueKind | None = None, arc: str | None = None
) -> Iterator[tuple[ConstantValue, ValueKind | None, str | None]]:
    """Yield the constants of a template, with the kind of their comparison or the property of their triple."""
    match part:
        case ConstantValue():
            yield part, kind, arc
        case ValueComparison():
            for side in (part.left, part.right):
                yield from _constants_in_place(side, part.kind)
        case Triple():
            for node in (part.source, part.target, part.new_target):
                yield from _constants_in_place(node, None, part.arc if isinstance(part.arc, str) else None)
        case TripleNode():
            yield from _constants_in_place(part.value, kind, arc)
        case tuple():
            for one in part:
                yield from _constants_in_place(one)
        case _ if hasattr(part, "__dataclass_fields__"):
            for name in part.__dataclass_fields__:
                yield from _constants_in_place(getattr(part, name))
