"""Teller: what satisfies the predicates of a rule, or what was found instead, in words."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mdv.db.why import Evidence, StoredValue
from mdv.mdp.because import Found, Satisfied
from mdv.mdp.beginnings import Stage, accesses
from mdv.query.compile import Names
from mdv.rdf.schema import Schema
from mdv.rdf.values import Kind
from mdv.rules.ast import Operator
from mdv.rules.normal import (
    Access,
    Comparison,
    Conjunction,
    Constant,
    Link,
    NormalPredicate,
    Sort,
    Variable,
)
from mdv.rules.show import show

MOST_SHOWN = 3
"""Values that a sentence names."""
MOST_CHARACTERS = 200

HOLDS: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
    Operator.CONTAINS: operator.contains,
    Operator.NOT_CONTAINS: lambda text, part: part not in text,
}


def access_text(access: Access, class_iri: str, schema: Schema) -> str:
    """`variable.property` as a rule writes it, where the variable is of that class.

    >>> from mdv.model import RDF_TYPE, RDFS_RESOURCE
    >>> from mdv.rdf.schema import EMPTY
    >>> access_text(Access("r", RDF_TYPE), RDFS_RESOURCE, EMPTY)
    'r.rdf:type?'
    """
    alone = Comparison(access, Operator.EQ, Sort.TEXT, Constant("", "''"))
    shown = show(Conjunction((Variable(access.variable, class_iri),), access.variable, (alone,)), schema)
    return shown.rpartition("\nwhere     ")[2].removesuffix(" = ''")


class Teller:
    """Says of one conjunction what holds and what fails.

    A variable that stands for a step of a path is called by that path, as the rule was written.
    """

    def __init__(
        self,
        evidence: Evidence,
        schema: Schema,
        names: Names,
        uri: str,
        conjunction: Conjunction,
        written: frozenset[str],
    ) -> None:
        self._evidence, self._schema, self._names, self._uri = evidence, schema, names, uri
        self._conjunction = conjunction
        self._classes = {variable.name: variable.class_iri for variable in conjunction.variables}
        self._paths: dict[str, str] = {}
        self._steps: set[Link] = set()
        self._uris: dict[int, str] = {}
        for predicate in conjunction.predicates:
            if isinstance(predicate, Link):
                self._note_path(predicate, written)

    def _note_path(self, link: Link, written: frozenset[str]) -> None:
        name = link.right.variable
        if not _is_reference(link) or name in written or name in self._paths or name == self._conjunction.register:
            return
        path = self._access(link.left)
        if path not in self._paths.values():  # each `?` is its own choice
            self._paths[name] = path
            self._steps.add(link)

    # -- words

    def _access(self, access: Access) -> str:
        text = access_text(access, self._classes[access.variable], self._schema)
        return self._variable(access.variable) + text.removeprefix(access.variable)

    def _short(self, access: Access) -> str:
        return self._schema.shorten(access.property) if access.property is not None else self._variable(access.variable)

    def _variable(self, name: str) -> str:
        return self._paths.get(name, name)

    def _text(self, predicate: NormalPredicate) -> str:
        if isinstance(predicate, Link):
            if predicate in self._steps:
                return self._access(predicate.left)
            return f"{self._access(predicate.left)} {predicate.operator.value} {self._access(predicate.right)}"
        left, constant = self._access(predicate.access), _clipped(predicate.constant.shown)
        if predicate.operator is Operator.NOT_CONTAINS:
            return f"not {left} contains {constant}"
        return f"{left} {predicate.operator.value} {constant}"

    def _who(self, number: int) -> str:
        uri = self._uri_of(number)
        return "it" if uri == self._uri else f"<{uri}>"

    def _uri_of(self, number: int) -> str:
        if number not in self._uris:
            self._uris |= self._evidence.uris([number])
        return self._uris[number]

    def _class(self, class_iri: str) -> str:
        return self._schema.shorten(class_iri)

    # -- values

    def _values(self, access: Access, numbers: Sequence[int]) -> list[StoredValue]:
        assert access.property is not None
        properties = self._names.properties[access.property]
        return self._evidence.values(numbers, properties)

    def _seen(self, access: Access, number: int, sort: Sort) -> list[tuple[Any, Found]]:
        """The values of an access as they are compared, with what to show of each."""
        uri = self._uri_of(number)
        if access.property is None:
            return [(uri, Found(uri, None, uri, True))]
        return [
            (compared, _found(uri, access.property, value))
            for value in self._values(access, [number])
            if (compared := _compared(value, sort)) is not None
        ]

    # -- what holds

    def satisfied(self, binding: Mapping[str, int]) -> tuple[dict[str, str], tuple[Satisfied, ...]]:
        """The resources that the variables stand for, and the predicates with the values that satisfy them."""
        self._uris |= self._evidence.uris(set(binding.values()))
        resources = {self._variable(name): self._uris[number] for name, number in binding.items()}
        # That a step leads to where it leads is told by what it leads to.
        told = [p for p in self._conjunction.predicates if not (isinstance(p, Link) and p in self._steps)]
        return resources, tuple(self._satisfied(predicate, binding) for predicate in told)

    def _satisfied(self, predicate: NormalPredicate, binding: Mapping[str, int]) -> Satisfied:
        text, how = self._text(predicate), HOLDS[predicate.operator]
        sides = [self._seen(access, binding[access.variable], predicate.sort) for access in accesses(predicate)]
        if isinstance(predicate, Comparison):
            constant = predicate.constant.value
            found = next((shown for value, shown in sides[0] if how(value, constant)), None)
            uri = self._uri_of(binding[predicate.access.variable])
            return Satisfied(
                text, predicate.operator.value, _clipped(predicate.constant.shown),
                found or Found(uri, predicate.access.property, None),
            )  # fmt: skip
        pair = next(((a, b) for one, a in sides[0] for other, b in sides[1] if how(one, other)), None)
        unseen = [Found(self._uri_of(binding[side.variable]), side.property, None) for side in accesses(predicate)]
        left, right = pair or (unseen[0], unseen[1])
        return Satisfied(text, predicate.operator.value, None, left, right)

    # -- what fails

    def failing(
        self, stage: Stage, bindings: Sequence[Mapping[str, int]], classes: Sequence[str]
    ) -> tuple[str | None, str, list[Found]]:
        """The predicate that fails (None: a class), in a sentence, with the values that were found instead."""
        predicate = stage.predicate
        if predicate is None:
            (variable,) = stage.variables
            asked = self._class(variable.class_iri)
            if variable.name == self._conjunction.register:
                return None, f"it is {_a(_listed(map(self._class, classes), 'and'))}, not {_a(asked)}", []
            return None, f"there is no {asked}, for {self._variable(variable.name)}", []
        fresh = {variable.name for variable in stage.variables}
        known = [access for access in accesses(predicate) if access.variable not in fresh]
        instead = {access: self._instead(access, bindings) for access in known}
        sentence = self._sentence(predicate, stage.variables, bindings, instead)
        return self._text(predicate), sentence, list(dict.fromkeys(one for some in instead.values() for one in some))

    def _numbers(self, access: Access, bindings: Sequence[Mapping[str, int]]) -> list[int]:
        return sorted({binding[access.variable] for binding in bindings})[:MOST_SHOWN]

    def _instead(self, access: Access, bindings: Sequence[Mapping[str, int]]) -> list[Found]:
        numbers = self._numbers(access, bindings)
        if access.property is None:
            return [Found(self._uri_of(number), None, self._uri_of(number), True) for number in numbers]
        values = self._values(access, numbers)
        some = [_found(self._uri_of(value.resource), access.property, value) for value in values]
        return list(dict.fromkeys(some))[:MOST_SHOWN]

    def _sentence(
        self,
        predicate: NormalPredicate,
        fresh: Sequence[Variable],
        bindings: Sequence[Mapping[str, int]],
        instead: Mapping[Access, Sequence[Found]],
    ) -> str:
        for access, found in instead.items():
            if access.property is not None and not found:
                who = _listed(map(self._who, self._numbers(access, bindings)), "or")
                return f"{who} has no value of {self._schema.shorten(access.property)}"
        if isinstance(predicate, Link) and _is_reference(predicate) and fresh:
            return self._astray(predicate, fresh, bindings, instead)
        text = f"{self._text(predicate)} fails"
        name = self._short if len(instead) == 1 else self._access
        those = [f"{name(access)} is {self._those(access, found)}" for access, found in instead.items()]
        if fresh:
            nothing = _listed((f"{self._class(v.class_iri)} {self._variable(v.name)}" for v in fresh), "with any")
            return f"{text}: no {nothing} satisfies it" + "".join(f"; {part}" for part in those)
        return f"{text}: {' and '.join(those)}"

    def _those(self, access: Access, found: Sequence[Found]) -> str:
        """The values that were found, for a sentence."""
        declared = self._schema.property_of(access.property) if access.property is not None else None
        quote = "" if declared is not None and declared.kind is not Kind.TEXT else "'"
        words = (f"<{one.value}>" if one.is_uri else f"{quote}{one.value}{quote}" for one in found)
        return _listed(dict.fromkeys(words), "or")

    def _astray(
        self,
        link: Link,
        fresh: Sequence[Variable],
        bindings: Sequence[Mapping[str, int]],
        instead: Mapping[Access, Sequence[Found]],
    ) -> str:
        """Where a reference leads, or what should have led here, since it is not what was asked."""
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
                target = _listed(map(self._who, self._numbers(link.right, bindings)), "or")
            return f"no {left} refers to {target} by {name}"
        for value in self._values(link.left, self._numbers(link.left, bindings)):
            if value.uri is not None:
                number = self._evidence.number(value.uri)
                said = number is not None and self._evidence.documents(number, 1)
                what = f"which is not {_a(right)}" if said else "of which nothing is said"
                return f"{name} is <{value.uri}>, {what}"
        return f"{name} is {self._those(link.left, instead[link.left])}, and refers to no resource"


def _is_reference(link: Link) -> bool:
    return link.operator is Operator.EQ and link.left.property is not None and link.right.property is None


def _compared(value: StoredValue, sort: Sort) -> Any:
    """A value as what it is compared as; None where it is not seen."""
    if sort is Sort.TEXT:
        return value.uri if value.uri is not None else value.text
    return {Sort.REFERENCE: value.uri, Sort.NUMBER: value.number, Sort.INSTANT: value.instant,
            Sort.TRUTH: value.truth}[sort]  # fmt: skip


def _found(resource: str, property_iri: str, value: StoredValue) -> Found:
    if value.uri is not None:
        return Found(resource, property_iri, value.uri, True)
    return Found(resource, property_iri, _clipped(value.text or ""))


def _clipped(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def _listed(words: Iterable[str], last: str) -> str:
    """
    >>> _listed(["a", "b", "c"], "or"), _listed(["a"], "or"), _listed([], "or")
    ('a, b or c', 'a', 'nothing')
    """
    some = list(words)
    if not some:
        return "nothing"
    return some[0] if len(some) == 1 else f"{', '.join(some[:-1])} {last} {some[-1]}"


def _a(noun: str) -> str:
    """
    >>> _a("Agent"), _a("v:Agent"), _a("Book")
    ('an Agent', 'a v:Agent', 'a Book')
    """
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"
