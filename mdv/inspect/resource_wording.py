"""Describe which values satisfy the predicates of a rule, or which values were found instead, as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from mdv.inspect.match_origins import MatchStage, accesses
from mdv.inspect.resource_reasons import FoundValue, SatisfiedPredicate
from mdv.inspect.sql.explain_resource import EvidenceReader, ResourceValue
from mdv.query.compile import VocabularyIds
from mdv.rdf.schema import Schema
from mdv.rdf.values import ValueKind
from mdv.rules.normal import (
    Access,
    Comparison,
    Conjunction,
    Link,
    NormalPredicate,
    Sort,
    Variable,
)
from mdv.rules.operators import Operator
from mdv.rules.show import path_text

MAX_SHOWN_VALUES = 3
"""How many values a sentence names."""
MAX_VALUE_CHARACTERS = 200


class FailedStage(NamedTuple):
    """A stage that fails: its predicate (None for a class), a sentence, and the values that were found instead."""

    predicate: str | None
    sentence: str
    found: list[FoundValue]


class MatchWording:
    """Describes which predicates of one conjunction are satisfied and which one fails.

    A variable that stands for a step of a path is shown as that path, as in the text of the rule.
    """

    def __init__(
        self,
        evidence: EvidenceReader,
        schema: Schema,
        names: VocabularyIds,
        uri: str,
        conjunction: Conjunction,
        written: frozenset[str],
    ) -> None:
        self._evidence, self._schema, self._names, self._uri = evidence, schema, names, uri
        self._conjunction = conjunction
        self._classes = {variable.name: variable.class_iri for variable in conjunction.variables}
        self._paths: dict[str, str] = {}
        self._steps: set[Link] = set()
        self._unwritten: dict[str, Link] = {}
        """By variable, the link that is a step of a path in the text."""
        self._uris: dict[int, str] = {}
        for predicate in conjunction.predicates:
            if isinstance(predicate, Link):
                self._note_path(predicate, written)

    def _note_path(self, link: Link, written: frozenset[str]) -> None:
        name = link.right.variable
        if not _is_reference(link) or name in written or name in self._unwritten or name == self._conjunction.register:
            return
        self._unwritten[name] = link
        path = self._access(link.left)
        if path not in self._paths.values():  # each `?` is an independent choice
            self._paths[name] = path
            self._steps.add(link)

    # -- text

    def _access(self, access: Access) -> str:
        text = path_text(access, self._classes[access.variable], self._schema)
        return self._variable(access.variable) + text.removeprefix(access.variable)

    def _short(self, access: Access) -> str:
        return self._schema.shorten(access.property) if access.property is not None else self._variable(access.variable)

    def _variable(self, name: str) -> str:
        return self._paths.get(name, name)

    def _text(self, predicate: NormalPredicate) -> str:
        if isinstance(predicate, Link):
            if predicate in self._steps:
                return self._access(predicate.left)
            return predicate.operator.text(self._access(predicate.left), self._access(predicate.right))
        return predicate.operator.text(self._access(predicate.access), _clipped(predicate.constant.shown))

    def text(self, predicate: NormalPredicate) -> str:
        """Return a predicate as in the text of the rule."""
        return self._text(predicate)

    def is_written(self, predicate: NormalPredicate) -> bool:
        """True if a predicate is in the text of the rule. Others are steps of paths."""
        return not (isinstance(predicate, Link) and self._unwritten.get(predicate.right.variable) == predicate)

    def _resource_text(self, number: int) -> str:
        uri = self._uri_of(number)
        return "it" if uri == self._uri else f"<{uri}>"

    def _uri_of(self, number: int) -> str:
        if number not in self._uris:
            self._uris |= self._evidence.uris([number])
        return self._uris[number]

    def _class(self, class_iri: str) -> str:
        return self._schema.shorten(class_iri)

    # -- values

    def _values(self, access: Access, numbers: Sequence[int]) -> list[ResourceValue]:
        assert access.property is not None
        properties = self._names.properties[access.property]
        return self._evidence.values(numbers, properties)

    def _compared_values(self, access: Access, number: int, sort: Sort) -> list[tuple[Any, FoundValue]]:
        """Return the values of an access as they are compared, each with the value to show."""
        uri = self._uri_of(number)
        if access.property is None:
            return [(uri, FoundValue(uri, None, uri, True))]
        return [
            (compared, _found(uri, access.property, value))
            for value in self._values(access, [number])
            if (compared := _compared(value, sort)) is not None
        ]

    # -- satisfied predicates

    def satisfied(self, binding: Mapping[str, int]) -> tuple[dict[str, str], tuple[SatisfiedPredicate, ...]]:
        """Return the resources of the variables, and the predicates with the values that satisfy them."""
        self._uris |= self._evidence.uris(set(binding.values()))
        resources = {self._variable(name): self._uris[number] for name, number in binding.items()}
        # Steps of paths are left out: the resources of the variables show them.
        predicates = [p for p in self._conjunction.predicates if not (isinstance(p, Link) and p in self._steps)]
        return resources, tuple(self._satisfied(predicate, binding) for predicate in predicates)

    def _satisfied(self, predicate: NormalPredicate, binding: Mapping[str, int]) -> SatisfiedPredicate:
        text, how = self._text(predicate), predicate.operator.holds
        sides = [
            self._compared_values(access, binding[access.variable], predicate.sort) for access in accesses(predicate)
        ]
        if isinstance(predicate, Comparison):
            constant = predicate.constant.value
            found = next((shown for value, shown in sides[0] if how(value, constant)), None)
            uri = self._uri_of(binding[predicate.access.variable])
            return SatisfiedPredicate(
                text, predicate.operator.value, _clipped(predicate.constant.shown),
                found or FoundValue(uri, predicate.access.property, None),
            )  # fmt: skip
        pair = next(((a, b) for one, a in sides[0] for other, b in sides[1] if how(one, other)), None)
        unseen = [FoundValue(self._uri_of(binding[side.variable]), side.property, None) for side in accesses(predicate)]
        left, right = pair or (unseen[0], unseen[1])
        return SatisfiedPredicate(text, predicate.operator.value, None, left, right)

    # -- failing predicates

    def failing(
        self, stage: MatchStage, bindings: Sequence[Mapping[str, int]], classes: Sequence[str]
    ) -> tuple[str | None, str, list[FoundValue]]:
        """Return the failing predicate (None if a class fails), a sentence, and the values that were found instead."""
        predicate = stage.predicate
        if predicate is None:
            (variable,) = stage.variables
            expected = self._class(variable.class_iri)
            if variable.name == self._conjunction.register:
                return None, f"it is {_a(_listed(map(self._class, classes), 'and'))}, not {_a(expected)}", []
            return None, f"there is no {expected}, for {self._variable(variable.name)}", []
        fresh = {variable.name for variable in stage.variables}
        known = [access for access in accesses(predicate) if access.variable not in fresh]
        instead = {access: self._instead(access, bindings) for access in known}
        sentence = self._sentence(predicate, stage.variables, bindings, instead)
        return self._text(predicate), sentence, list(dict.fromkeys(one for some in instead.values() for one in some))

    def _numbers(self, access: Access, bindings: Sequence[Mapping[str, int]]) -> list[int]:
        return sorted({binding[access.variable] for binding in bindings})[:MAX_SHOWN_VALUES]

    def _instead(self, access: Access, bindings: Sequence[Mapping[str, int]]) -> list[FoundValue]:
        numbers = self._numbers(access, bindings)
        if access.property is None:
            return [FoundValue(self._uri_of(number), None, self._uri_of(number), True) for number in numbers]
        values = self._values(access, numbers)
        shown = [_found(self._uri_of(value.resource), access.property, value) for value in values]
        return list(dict.fromkeys(shown))[:MAX_SHOWN_VALUES]

    def _sentence(
        self,
        predicate: NormalPredicate,
        fresh: Sequence[Variable],
        bindings: Sequence[Mapping[str, int]],
        instead: Mapping[Access, Sequence[FoundValue]],
    ) -> str:
        for access, found in instead.items():
            if access.property is not None and not found:
                subject = _listed(map(self._resource_text, self._numbers(access, bindings)), "or")
                return f"{subject} has no value of {self._schema.shorten(access.property)}"
        if isinstance(predicate, Link) and _is_reference(predicate) and fresh:
            return self._wrong_reference(predicate, fresh, bindings, instead)
        text = f"{self._text(predicate)} fails"
        name = self._short if len(instead) == 1 else self._access
        found_values = [f"{name(access)} is {self._values_text(access, found)}" for access, found in instead.items()]
        if fresh:
            nothing = _listed((f"{self._class(v.class_iri)} {self._variable(v.name)}" for v in fresh), "with any")
            return f"{text}: no {nothing} satisfies it" + "".join(f"; {part}" for part in found_values)
        return f"{text}: {' and '.join(found_values)}"

    def _values_text(self, access: Access, found: Sequence[FoundValue]) -> str:
        """Return the values that were found, for a sentence."""
        declared = self._schema.property_of(access.property) if access.property is not None else None
        quote = "" if declared is not None and declared.kind is not ValueKind.TEXT else "'"
        words = (f"<{one.value}>" if one.is_uri else f"{quote}{one.value}{quote}" for one in found)
        return _listed(dict.fromkeys(words), "or")

    def _wrong_reference(
        self,
        link: Link,
        fresh: Sequence[Variable],
        bindings: Sequence[Mapping[str, int]],
        instead: Mapping[Access, Sequence[FoundValue]],
    ) -> str:
        """Return a sentence about a reference to a wrong target, or about a missing reference."""
        assert link.left.property is not None
        name = self._schema.shorten(link.left.property)
        left, right = (self._class(self._classes[side.variable]) for side in accesses(link))
        unbound = {variable.name for variable in fresh}
        if link.left.variable in unbound:
            if link.right.variable == link.left.variable:
                target = "itself"
            elif link.right.variable in unbound:
                target = _a(right)
            else:
                target = _listed(map(self._resource_text, self._numbers(link.right, bindings)), "or")
            return f"no {left} refers to {target} by {name}"
        for value in self._values(link.left, self._numbers(link.left, bindings)):
            if value.uri is not None:
                number = self._evidence.number(value.uri)
                is_described = number is not None and self._evidence.documents(number, 1)
                what = f"which is not {_a(right)}" if is_described else "which no document describes"
                return f"{name} is <{value.uri}>, {what}"
        return f"{name} is {self._values_text(link.left, instead[link.left])}, which is not a reference"


def _is_reference(link: Link) -> bool:
    return link.operator is Operator.EQ and link.left.property is not None and link.right.property is None


def _compared(value: ResourceValue, sort: Sort) -> Any:
    """Return a value as it is compared; None if it does not have this type."""
    if sort is Sort.TEXT:
        return value.uri if value.uri is not None else value.text
    return {Sort.REFERENCE: value.uri, Sort.NUMBER: value.number, Sort.INSTANT: value.instant,
            Sort.TRUTH: value.truth}[sort]  # fmt: skip


def _found(resource: str, property_iri: str, value: ResourceValue) -> FoundValue:
    if value.uri is not None:
        return FoundValue(resource, property_iri, value.uri, True)
    return FoundValue(resource, property_iri, _clipped(value.text or ""))


def _clipped(text: str) -> str:
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 1] + "…"


def _listed(words: Iterable[str], last: str) -> str:
    """
    >>> _listed(["a", "b", "c"], "or"), _listed(["a"], "or"), _listed([], "or")
    ('a, b or c', 'a', 'nothing')
    """
    items = list(words)
    if not items:
        return "nothing"
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}"


def _a(noun: str) -> str:
    """
    >>> _a("Agent"), _a("v:Agent"), _a("Book")
    ('an Agent', 'a v:Agent', 'a Book')
    """
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"
