"""Paths and conditions of RDFTL as SQL on the visible statements, closed under subclasses and subproperties.

A value is a resource (`id`) or a literal (the other columns). A path becomes tables and conditions of a FROM and WHERE
clause; what it selects are the columns of its last table. A constant is the text of a slot (mdv/rdftl/template.py).
"""

# ruff: noqa: S608 (the parts are SQL written here, numbers, and quoted names of the schema)

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from mdv.model import RDF, RDF_TYPE
from mdv.rdf.schema import Schema
from mdv.rdf.values import ValueKind
from mdv.rdftl.model import (
    AllNodes,
    AllOf,
    Always,
    AnyOf,
    Axis,
    Condition,
    ConstantValue,
    ContextNode,
    DeltaField,
    DeltaValue,
    Exists,
    NamedNode,
    Negation,
    NodePath,
    NodeStep,
    Operand,
    ValueComparison,
)
from mdv.rdftl.template import TYPED_SLOT, find_parts, slot_number
from mdv.rules.operators import Operator

CONTAINERS = tuple(RDF + name for name in ("Bag", "Seq", "Alt"))

NOW = "filter_data"
"""The statements after the change that is looked at."""
BEFORE = """(select resource_id, property_id, target_id, value, lang, datatype_id, number, instant, truth
 from filter_data where position + 0 < %(position)s::bigint
 union all
 select resource_id, property_id, target_id, value, lang, datatype_id, number, instant, truth
 from filter_data_history where until_position = %(position)s::bigint)"""
"""The statements before the transaction, once its first change is written."""


class ValueSql(NamedTuple):
    """The SQL expressions of a value. `only`: "node" or "literal" if it cannot be the other; "name" for the name of an
    arc, which is a URI that need not be a resource. `uri`: the URI of a resource, if it is known."""

    id: str
    value: str = "null::text"
    lang: str = "null::text"
    datatype: str = "null::int"
    number: str = "null::numeric"
    instant: str = "null::numeric"
    truth: str = "null::boolean"
    only: str | None = "node"
    uri: str | None = None

    @property
    def text(self) -> str:
        """The text of a literal, or the URI of a resource."""
        uri = self.uri or f"(select u.uri from resources u where u.id = {self.id})"
        if self.only == "node":
            return uri
        return f"coalesce({self.value}, {uri})" if self.only is None else self.value

    def typed(self, kind: ValueKind) -> str:
        return {ValueKind.NUMBER: self.number, ValueKind.INSTANT: self.instant, ValueKind.TRUTH: self.truth}[kind]


@dataclass(slots=True)
class FromWhere:
    """The tables and conditions of a query."""

    tables: list[str] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)

    def copy(self) -> FromWhere:
        return FromWhere([*self.tables], [*self.conditions])

    def select(self, what: str) -> str:
        return f"select {what} from {', '.join(self.tables)} where {' and '.join(self.conditions) or 'true'}"

    def exists(self) -> str:
        """Return the condition that there is a row. OFFSET 0: it is evaluated for each row outside, not as a join, for
        which all statements of a property would be read."""
        return f"exists ({self.select('')} offset 0)" if self.tables else f"({' and '.join(self.conditions) or 'true'})"


@dataclass(frozen=True, slots=True)
class PathWriter:
    """Writes paths and conditions as SQL.

    `property_id` gives the ID of a property. `slot` gives the SQL of a slot's text. `delta`: the values of `$delta`.
    `context`: the node that a qualifier tests. `statements`: the table of statements.
    """

    schema: Schema
    property_id: Callable[[str], int]
    slot: Callable[[int], str]
    delta: Callable[[DeltaField], ValueSql] | None = None
    context: ValueSql | None = None
    statements: str = NOW
    aliases: list[int] = field(default_factory=lambda: [0])

    # Names

    def alias(self, prefix: str) -> str:
        self.aliases[0] += 1
        return f"{prefix}{self.aliases[0]}"

    def constant_text(self, constant: ConstantValue) -> str:
        return self.slot(slot_number(constant.text))

    def constant_uri(self, constant: ConstantValue) -> str:
        return self.slot(slot_number(constant.uri))

    def constant_typed(self, constant: ConstantValue, kind: ValueKind) -> str:
        text = self.slot(slot_number(constant.text) + TYPED_SLOT)
        return f"nullif({text}, '')::{'boolean' if kind is ValueKind.TRUTH else 'numeric'}"

    def property_ids(self, iri: str) -> list[int]:
        """Return the IDs of a property and its subproperties."""
        declared = self.schema.property_of(iri)
        names = declared.subproperties if declared is not None else (iri,)
        return [self.property_id(name) for name in names]

    def has_property(self, alias: str, iri: str) -> str:
        return f"{alias}.property_id {_one_of(self.property_ids(iri))}"

    # Paths

    def path(self, path: NodePath, into: FromWhere, itself: bool = False) -> ValueSql:
        """Add a path to a query. Return the values that it selects, with repetitions. `itself`: the head `resource(u)`
        is u, even if there is no statement with it."""
        value = self._head(path, into, itself)
        self._qualify(value, path.qualifiers, into)
        for step in path.steps:
            value = self._step(value, step, into)
            self._qualify(value, step.qualifiers, into)
        return value

    def _head(self, path: NodePath, into: FromWhere, itself: bool) -> ValueSql:
        match path.head:
            case NamedNode(name) if itself:
                alias, uri = self.alias("u"), self.slot(slot_number(name))
                into.tables.append(
                    f"lateral (select {uri} as uri, (select r.id from resources r where r.uri = {uri}) as id) {alias}"
                )
                return ValueSql(f"{alias}.id", uri=f"{alias}.uri")
            case AllNodes():
                alias = self.alias("n")
                into.tables.append(f"{self.statements} {alias}")
                return ValueSql(f"{alias}.resource_id")
            case NamedNode(name):
                alias = self.alias("u")
                into.tables.append(f"resources {alias}")
                value = ValueSql(f"{alias}.id")
                into.conditions.append(f"{alias}.uri = {self.slot(slot_number(name))}")
                if not _begins_with_target(path):
                    into.conditions.append(self.occurs(value))
                return value
            case DeltaValue(delta_field):
                assert self.delta is not None
                return self.delta(delta_field)
            case ContextNode():
                assert self.context is not None
                return self.context

    def is_node(self, value: ValueSql) -> str:
        """Return the condition that there is a statement about a value."""
        return f"exists (select from {self.statements} x where x.resource_id = {value.id} offset 0)"

    def occurs(self, value: ValueSql) -> str:
        """Return the condition that a resource is a subject or object of a statement."""
        return (
            f"({self.is_node(value)} or exists (select from {self.statements} x where x.target_id = {value.id})"
            f" or exists (select from eca_classes c, {self.statements} x where c.superclass_id = {value.id}"
            f" and x.target_id = c.class_id and {self.has_property('x', RDF_TYPE)}))"
        )

    def is_instance(self, value: ValueSql, classes: Iterable[str]) -> str:
        """Return the condition that a resource is an instance of one of these classes."""
        below = sorted({name for iri in classes for name in self._subclasses(iri)})
        names = ", ".join(quote_text(name) for name in below)
        return (
            f"exists (select from {self.statements} x where x.resource_id = {value.id}"
            f" and {self.has_property('x', RDF_TYPE)}"
            f" and x.target_id in (select c.id from resources c where c.uri in ({names})) offset 0)"
        )

    def _subclasses(self, iri: str) -> Sequence[str]:
        declared = self.schema.classes.get(iri)
        return declared.subclasses if declared is not None else (iri,)

    def _step(self, value: ValueSql, step: NodeStep, into: FromWhere) -> ValueSql:
        if step.axis is Axis.SOURCE:
            return self._source(value, step, into)
        alias = self.alias("f")
        into.tables.append(f"{self.statements} {alias}")
        into.conditions.append(f"{alias}.resource_id = {value.id}")
        if step.axis is Axis.ELEMENT:
            into.conditions.append(self.is_collection(value, step.index))
            into.conditions.append(self._is_member(alias, step.index))
        elif step.property == RDF_TYPE:
            into.conditions.append(self.has_property(alias, RDF_TYPE))
            return self._classes(alias, into)
        elif step.property is not None:
            into.conditions.append(self.has_property(alias, step.property))
        else:
            return self._any_target(alias, into)
        return object_of(alias, self._only(step.property))

    def is_collection(self, value: ValueSql, index: int | None) -> str:
        """Return the condition that a value is a collection; a sequence, if an element is selected by its index."""
        return self.is_instance(value, CONTAINERS if index is None else (RDF + "Seq",))

    def _is_member(self, alias: str, index: int | None) -> str:
        if index is not None:
            return f"{alias}.property_id = {self.property_id(f'{RDF}_{index}')}"
        return f"{alias}.property_id = any (array(select m.id from vocabulary m where m.uri ~ '^{RDF}_[1-9][0-9]*$'))"

    def _classes(self, alias: str, into: FromWhere) -> ValueSql:
        above = self.alias("c")
        into.tables.append(f"lateral ({_with_superclasses(alias)}) {above}")
        return ValueSql(f"{above}.id")

    def _any_target(self, alias: str, into: FromWhere) -> ValueSql:
        above = self.alias("c")
        type_arc = self.has_property(alias, RDF_TYPE)
        into.tables.append(
            f"lateral (select {alias}.target_id as id union all select c.superclass_id from eca_classes c"
            f" where {type_arc} and c.class_id = {alias}.target_id and c.superclass_id <> c.class_id) {above}"
        )
        return object_of(alias, None)._replace(id=f"{above}.id")

    def _source(self, value: ValueSql, step: NodeStep, into: FromWhere) -> ValueSql:
        alias = self.alias("f")
        into.tables.append(f"{self.statements} {alias}")
        if step.property is not None:
            into.conditions.append(self.has_property(alias, step.property))
        into.conditions.append(self.is_object(alias, value, step.property))
        return ValueSql(f"{alias}.resource_id")

    def is_object(self, alias: str, value: ValueSql, property_iri: str | None) -> str:
        """Return the condition that a value is the object of a statement, or a superclass of it for a type."""
        options = []
        if value.only != "literal":
            same = f"{alias}.target_id = {value.id}"
            below = f"{alias}.target_id in (select c.class_id from eca_classes c where c.superclass_id = {value.id})"
            if property_iri == RDF_TYPE:
                options.append(f"({same} or {below})")
            elif property_iri is None:
                options.append(f"({same} or {self.has_property(alias, RDF_TYPE)} and {below})")
            else:
                options.append(same)
        if value.only in ("literal", None):
            options.append(compare_identity(object_of(alias, "literal"), value._replace(only="literal")))
        return f"({' or '.join(options)})"

    def _only(self, property_iri: str | None) -> str | None:
        """Return "node" or "literal" if the range of a property allows only these."""
        declared = self.schema.property_of(property_iri) if property_iri is not None else None
        if declared is None or declared.range is None:
            return None
        return "literal" if self.schema.is_datatype(declared.range) else "node"

    def _qualify(self, value: ValueSql, qualifiers: Iterable[Condition], into: FromWhere) -> None:
        inner = replace(self, context=value)
        into.conditions += [inner.condition(qualifier) for qualifier in qualifiers]

    # Elements of something that is no collection

    def bad_elements(self, path: NodePath, within: FromWhere, itself: bool = False) -> Iterator[FromWhere]:
        """Yield queries that have a row if an `element` step of a path, or of one of its qualifiers, is applied to a
        value that is no collection. `within`: the tables of the context."""
        start, passed = NodePath(path.head), NodePath(path.head, path.qualifiers)
        yield from self._bad_qualifiers(start, path.qualifiers, within, itself)
        for step in path.steps:
            if step.axis is Axis.ELEMENT:
                body = within.copy()
                value = self.path(passed, body, itself)
                body.conditions.append(f"not {self.is_collection(value, step.index)}")
                yield body
            reached = replace(passed, steps=(*passed.steps, replace(step, qualifiers=())))
            yield from self._bad_qualifiers(reached, step.qualifiers, within, itself)
            passed = replace(passed, steps=(*passed.steps, step))

    def _bad_qualifiers(
        self, path: NodePath, qualifiers: Sequence[Condition], within: FromWhere, itself: bool
    ) -> Iterator[FromWhere]:
        """Yield the same queries for the qualifiers of what a path selects. Each tests what the ones before left."""
        for number, qualifier in enumerate(qualifiers):
            if mentions_elements(qualifier):
                body = within.copy()
                value = self.path(path, body, itself)
                self._qualify(value, qualifiers[:number], body)
                yield from replace(self, context=value).bad_elements_of(qualifier, body)

    def bad_elements_of(self, condition: Condition, within: FromWhere) -> Iterator[FromWhere]:
        """Yield the same queries for all paths of a condition."""
        match condition:
            case Exists(path):
                yield from self.bad_elements(path, within)
            case ValueComparison(left, _, right):
                for operand in (left, right):
                    if isinstance(operand, NodePath):
                        yield from self.bad_elements(operand, within)
            case Negation(part):
                yield from self.bad_elements_of(part, within)
            case AllOf(parts) | AnyOf(parts):
                for part in parts:
                    yield from self.bad_elements_of(part, within)

    # Conditions

    def condition(self, condition: Condition) -> str:
        """Return a condition as SQL. It is never null."""
        match condition:
            case Always():
                return "true"
            case Exists(path):
                query = FromWhere()
                self.path(path, query)
                return _never_null(query.exists())
            case ValueComparison():
                query = FromWhere()
                self.compare(condition, query)
                return _never_null(query.exists())
            case Negation(part):
                return f"not {self.condition(part)}"
            case AllOf(parts):
                return f"({' and '.join(map(self.condition, parts))})"
            case AnyOf(parts):
                return f"({' or '.join(map(self.condition, parts))})"

    def compare(self, condition: ValueComparison, into: FromWhere) -> None:
        """Add a comparison to a query."""
        left, sign, right = condition.left, condition.operator, condition.right
        if isinstance(left, ConstantValue):
            left, sign, right = right, sign.flipped or sign, left
        value = self._operand(left, into)
        if isinstance(right, ConstantValue):
            into.conditions.append(self.compare_constant(value, sign, right, condition.kind))
            return
        other = self._operand(right, into)
        into.conditions.append(compare_values(value, sign, other, condition.kind))

    def _operand(self, operand: Operand, into: FromWhere) -> ValueSql:
        assert isinstance(operand, NodePath)
        return self.path(operand, into)

    def compare_constant(self, value: ValueSql, sign: Operator, constant: ConstantValue, kind: ValueKind) -> str:
        """Return the comparison of a value with a constant. As text, a constant also equals the URI that it stands
        for."""
        if kind is not ValueKind.TEXT:
            return f"{value.typed(kind)} {sign.value} {self.constant_typed(constant, kind)}"
        text, uri = self.constant_text(constant), self.constant_uri(constant)
        is_equal = sign is Operator.EQ
        if value.only == "name":
            return f"{value.value} {'in' if is_equal else 'not in'} ({text}, {uri})"
        parts = []
        if value.only != "literal":
            named = f"{value.id} in (select u.id from resources u where u.uri in ({text}, {uri}))"
            parts.append(named if is_equal else f"{value.id} is not null and not {named}")
        if value.only != "node":
            parts.append(f"{value.value} {sign.value} {text}")
        return f"({' or '.join(parts)})"


def compare_values(left: ValueSql, sign: Operator, right: ValueSql, kind: ValueKind) -> str:
    """Return the comparison of two values."""
    if kind is not ValueKind.TEXT:
        return f"{left.typed(kind)} {sign.value} {right.typed(kind)}"
    if left.only == right.only == "node":
        return f"{left.id} {sign.value} {right.id}"
    return f"{left.text} {sign.value} {right.text}"


def compare_identity(left: ValueSql, right: ValueSql) -> str:
    """Return the condition that two values are the same resource, or literals with the same text, language tag and
    datatype."""
    options = []
    if "literal" not in (left.only, right.only):
        options.append(f"{left.id} = {right.id}")
    if left.only in ("literal", None) and right.only in ("literal", None):
        options.append(
            f"({left.value} = {right.value} and {left.lang} is not distinct from {right.lang}"
            f" and {left.datatype} is not distinct from {right.datatype})"
        )
    return f"({' or '.join(options) or 'false'})"


def quote_text(text: str) -> str:
    """Return a text as a constant of SQL. Percent signs are doubled for the driver."""
    return "'" + text.replace("'", "''").replace("%", "%%") + "'"


def _never_null(sql: str) -> str:
    return sql if sql.startswith("exists") else f"coalesce({sql}, false)"


def _one_of(ids: Sequence[int]) -> str:
    if len(ids) == 1:
        return f"= {ids[0]}"
    return f"= any ('{{{','.join(map(str, ids))}}}'::int[])"


def mentions_elements(part: object) -> bool:
    """True if a part of a rule has an `element` step."""
    return Axis.ELEMENT in {step.axis for step in find_parts(part, NodeStep)}


def _begins_with_target(path: NodePath) -> bool:
    return bool(path.steps) and path.steps[0].axis is Axis.TARGET


def object_of(alias: str, only: str | None) -> ValueSql:
    """Return the object of the statement of a table."""
    return ValueSql(f"{alias}.target_id", f"{alias}.value", f"{alias}.lang", f"{alias}.datatype_id",
                    f"{alias}.number", f"{alias}.instant", f"{alias}.truth", only)  # fmt: skip


def _with_superclasses(alias: str) -> str:
    return (
        f"select {alias}.target_id as id union all select c.superclass_id from eca_classes c"
        f" where c.class_id = {alias}.target_id and c.superclass_id <> c.class_id"
    )
