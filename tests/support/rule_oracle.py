"""The naive meaning of a rule: every binding of its variables is tried on all statements.

This is the definition that the filter is compared with. It reads the rule as written (`mdv.rules.ast`), knows no
normal form and no atomic rules, and has no state. It expects a valid rule.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import product
from types import MappingProxyType
from typing import Any, TypeAlias

from mdv.model import RDF_TYPE, RDFS_RESOURCE, Statement
from mdv.rdf.schema import Schema, SchemaProperty, UnknownName
from mdv.rdf.validate import ValueTyper
from mdv.rdf.values import ValueKind, parse_instant
from mdv.rules.ast import And, Expression, Literal, LiteralKind, Not, Operand, ParsedRule, Path, Predicate
from mdv.rules.normal import Sort
from mdv.rules.operators import Operator

Rules: TypeAlias = Mapping[str, ParsedRule]
Place: TypeAlias = tuple[object, ...]
"""A resource on a path: its variable and the properties so far. Each `?` makes a place of its own."""
Binding: TypeAlias = dict[Place, str]
Value: TypeAlias = Decimal | bool | str

HOLDS: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
    Operator.CONTAINS: operator.contains,
    Operator.NOT_CONTAINS: lambda text, part: part not in text,
    Operator.STARTSWITH: lambda text, part: text[: len(part)] == part,
    Operator.NOT_STARTSWITH: lambda text, part: text[: len(part)] != part,
    Operator.ENDSWITH: lambda text, part: text[::-1][: len(part)] == part[::-1],
    Operator.NOT_ENDSWITH: lambda text, part: text[::-1][: len(part)] != part[::-1],
}


def matches(
    rule: ParsedRule, schema: Schema, statements: Iterable[Statement], rules: Rules = MappingProxyType({})
) -> set[str]:
    """The URIs of the resources that `rule` registers; `rules` are the others that it may search, by name."""
    return World(schema, frozenset(statements), rules).registered(rule)


def conjunctions(where: Expression | None, negated: bool = False) -> list[list[Predicate]]:
    """Push `not` to the operators, then split the rule at `or`."""
    if where is None:
        return [[]]
    if isinstance(where, Not):
        return conjunctions(where.part, not negated)
    if isinstance(where, Predicate):
        return [[replace(where, operator=where.operator.negated) if negated else where]]
    parts = [conjunctions(part, negated) for part in where.parts]
    if isinstance(where, And) is not negated:
        return [[predicate for conjunction in choice for predicate in conjunction] for choice in product(*parts)]
    return [conjunction for part in parts for conjunction in part]


@dataclass(frozen=True)
class Access:
    """The values of a property at a place; without a property, the URI of the resource there."""

    place: Place
    property: SchemaProperty | None


class Walk:
    """The paths of one conjunction: the places they pass, and how each place is reached from the previous one."""

    def __init__(self, schema: Schema, classes: Mapping[str, str], conjunction: list[Predicate]) -> None:
        self.schema, self.classes = schema, classes
        self.steps: dict[Place, tuple[Place, SchemaProperty]] = {}  # the nearer places first
        self.predicates: list[tuple[Access | Literal, Operator, Access | Literal]] = [
            (self.operand(p.left, (n, "left")), p.operator, self.operand(p.right, (n, "right")))
            for n, p in enumerate(conjunction)
        ]

    def operand(self, operand: Operand, occurrence: tuple[int, str]) -> Access | Literal:
        if isinstance(operand, Literal):
            return operand
        place: Place = (operand.variable.text,)
        properties = list(self.resolve(operand, self.classes[operand.variable.text]))
        for property_ in properties[:-1]:
            # Properties that are not set-valued lead all paths to one place; each `?` is its own choice.
            further = (*place, property_.iri, occurrence) if property_.set_valued else (*place, property_.iri)
            self.steps[further] = place, property_
            place = further
        return Access(place, properties[-1] if properties else None)

    def resolve(self, path: Path, class_iri: str) -> Iterator[SchemaProperty]:
        for step in path.steps:
            property_ = self.schema.property_of(self.schema.resolve_property(step.name.text, class_iri))
            assert property_ is not None
            assert property_.set_valued is step.any
            yield property_
            class_iri = property_.range or RDFS_RESOURCE


class World:
    """All statements, under a schema, with the named rules."""

    def __init__(self, schema: Schema, statements: Iterable[Statement], rules: Rules) -> None:
        self.schema, self.rules, self.typing = schema, rules, ValueTyper(schema)
        self.about: dict[str, list[Statement]] = defaultdict(list)
        for statement in statements:
            self.about[statement.subject].append(statement)
        self.resources = frozenset(self.about)

    def registered(self, rule: ParsedRule) -> set[str]:
        extensions = [self.extension(searched.name.text) for searched in rule.search]
        variables: list[Place] = [(searched.variable.text,) for searched in rule.search]
        classes = {searched.variable.text: self.class_of(searched.name.text) for searched in rule.search}
        walks = [Walk(self.schema, classes, conjunction) for conjunction in conjunctions(rule.where)]
        found = set()
        for resources in product(*extensions):
            binding: Binding = dict(zip(variables, resources, strict=True))
            if any(self.holds(walk, binding) for walk in walks):
                found.add(binding[rule.register.text,])
        return found

    # -- the range of variables

    def searched_rule(self, name: str) -> ParsedRule | None:
        """Return the rule of that name, unless it is the name of a class."""
        try:
            self.schema.resolve_class(name)
        except UnknownName:
            return self.rules[name]
        return None

    def class_of(self, name: str) -> str:
        rule = self.searched_rule(name)
        if rule is None:
            return self.schema.resolve_class(name)
        return self.class_of(next(s.name.text for s in rule.search if s.variable.text == rule.register.text))

    def extension(self, name: str) -> frozenset[str]:
        rule = self.searched_rule(name)
        return self.instances(self.schema.resolve_class(name)) if rule is None else frozenset(self.registered(rule))

    def instances(self, class_iri: str) -> frozenset[str]:
        if class_iri == RDFS_RESOURCE:
            return self.resources
        below = self.schema.classes[class_iri].subclasses
        return frozenset(
            resource
            for resource in self.resources
            if any(s.property == RDF_TYPE and s.object.value in below for s in self.about[resource])
        )

    # -- evaluation of a conjunction

    def holds(self, walk: Walk, variables: Binding) -> bool:
        bindings = [variables]
        for place, (start, property_) in walk.steps.items():
            bindings = [b | {place: target} for b in bindings for target in self.targets(b[start], property_)]
        return any(all(self.satisfied(*predicate, binding) for predicate in walk.predicates) for binding in bindings)

    def targets(self, resource: str, property_: SchemaProperty) -> frozenset[str]:
        """Return the targets of a step: instances of the range if that is a class, any resource if there is none."""
        reached = {s.object.value for s in self.values(resource, property_) if s.object.is_uri}
        return self.instances(property_.range or RDFS_RESOURCE) & reached

    def values(self, resource: str, property_: SchemaProperty) -> list[Statement]:
        """A value of a property is a value of its superproperties."""
        return [s for s in self.about[resource] if s.property in property_.subproperties]

    def satisfied(self, left: Access | Literal, operator_: Operator, right: Access | Literal, binding: Binding) -> bool:
        """Existential over the values present: without values it is false."""
        sort = self.sort(left, right)
        pairs = product(self.seen(left, sort, right, binding), self.seen(right, sort, left, binding))
        return any(HOLDS[operator_](one, other) for one, other in pairs)

    def sort(self, left: Access | Literal, right: Access | Literal) -> Sort:
        """Return how two operands are compared: by the range and, if that is no number, instant or boolean, as the
        texts of all values or as the URIs of references only."""
        accesses = [side for side in (left, right) if isinstance(side, Access)]
        properties = [access.property for access in accesses if access.property]
        for property_ in properties:
            if property_.kind is not ValueKind.TEXT:
                return Sort(property_.kind.value)
        if len(properties) < len(accesses):  # a bare variable
            return Sort.REFERENCE
        if all(property_.range and not self.schema.is_datatype(property_.range) for property_ in properties):
            return Sort.REFERENCE
        uri = any(isinstance(side, Literal) and side.written is LiteralKind.URI for side in (left, right))
        return Sort.REFERENCE if uri and properties[0].range is None else Sort.TEXT

    def seen(self, operand: Access | Literal, sort: Sort, other: Access | Literal, binding: Binding) -> list[Value]:
        """Return the values of an operand as `sort` compares them; values of another sort are ignored."""
        if isinstance(operand, Literal):
            range_ = other.property.range if isinstance(other, Access) and other.property else None
            value = parse_instant(str(operand.value), range_) if sort is Sort.INSTANT else operand.value
            return [] if value is None else [value]
        resource = binding[operand.place]
        if operand.property is None:
            return [resource]
        values = (self.value(statement, sort) for statement in self.values(resource, operand.property))
        return [value for value in values if value is not None]

    def value(self, statement: Statement, sort: Sort) -> Value | None:
        number, instant, truth = self.typing.typed_values(statement.property, statement.object)
        if sort is Sort.TEXT or (sort is Sort.REFERENCE and statement.object.is_uri):
            return statement.object.value
        return {Sort.NUMBER: number, Sort.INSTANT: instant, Sort.TRUTH: truth}.get(sort)
