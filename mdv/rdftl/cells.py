"""Schema cells: the schema triples (domain, property, range) whose extents an expression of RDFTL reads or writes.

Writes are closed under superclasses and superproperties, because the graph is. Reads are not: a write of a subproperty
includes the cell of the property that is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from mdv.model import RDF, RDF_TYPE, RDFS, RDFS_RESOURCE
from mdv.rdf.schema import Schema
from mdv.rdf.values import ValueKind
from mdv.rdftl.model import (
    Axis,
    ConstantValue,
    ContextNode,
    DeltaField,
    DeltaValue,
    Event,
    NamedNode,
    NodeEvent,
    NodePath,
    NodeStep,
    Operand,
    SequenceNext,
    Triple,
)

MEMBERSHIP = RDFS + "ContainerMembershipProperty"
CONTAINER = RDFS + "Container"
_MEMBER = re.compile(re.escape(RDF) + "_[1-9][0-9]*")


class Cell(NamedTuple):
    """A schema triple. None: not declared. The cell of a class is (class, rdf:type, rdfs:Class)."""

    domain: str | None
    property: str | None
    range: str | None

    def show(self, schema: Schema) -> str:
        """Return the cell with short names.

        >>> from mdv.rdf.schema import EMPTY_SCHEMA
        >>> class_cell(RDF + "Seq").show(EMPTY_SCHEMA), ANY_CELL.show(EMPTY_SCHEMA)
        ('(rdf:Seq, rdf:type, rdfs:Class)', '(_, _, _)')
        """
        return f"({', '.join('_' if part is None else schema.shorten(part) for part in self)})"


ANY_CELL = Cell(None, None, None)
"""Every cell: that of the wildcard arc. It meets all others."""
TYPE_CELL = Cell(None, RDF_TYPE, None)
"""The cells of all classes."""

Values = frozenset[str] | None
"""The constants that a node can be; None if unknown."""
DELTA: Values = frozenset(("$delta",))
"""The node that is `$delta`."""


@dataclass(frozen=True, slots=True)
class CellAccess:
    """A cell that is read or written, limited to arcs with these subjects and targets."""

    cell: Cell
    subject: Values = None
    target: Values = None

    def without_constants(self) -> CellAccess:
        """Return the access of any rule that differs from this one only in its constants."""
        return CellAccess(self.cell, _without_constants(self.subject), _without_constants(self.target))


def _without_constants(values: Values) -> Values:
    return DELTA if values == DELTA else None


def cells_meet(one: Cell, other: Cell) -> bool:
    """True if the cells can have an arc in common, by domain, property and range as the paper compares them.

    >>> cells_meet(class_cell("u:A"), TYPE_CELL), cells_meet(class_cell("u:A"), class_cell("u:B"))
    (True, False)
    """
    return all(a is None or b is None or a == b for a, b in zip(one, other, strict=True))


def may_coincide(one: CellAccess, other: CellAccess, distinct: bool = False) -> bool:
    """True if both can access the same arc. Domains do not count, because they refuse nothing.

    `distinct`: the two accesses have different nodes as `$delta`.

    >>> a, b = (CellAccess(Cell(None, "u:p", None), frozenset((uri,))) for uri in ("u:a", "u:b"))
    >>> may_coincide(a, a), may_coincide(a, b), may_coincide(a, CellAccess(ANY_CELL))
    (True, False, True)
    """
    return (
        _properties_meet(one.cell, other.cell)
        and _values_meet(one.subject, other.subject, distinct)
        and _values_meet(one.target, other.target, distinct)
    )


def _properties_meet(one: Cell, other: Cell) -> bool:
    if one.property is None or other.property is None:
        return True
    if one.property != other.property:
        return False
    return one.property != RDF_TYPE or one.domain is None or other.domain is None or one.domain == other.domain


def _values_meet(one: Values, other: Values, distinct: bool) -> bool:
    if one is None or other is None:
        return True
    if one == DELTA or other == DELTA:
        return not (distinct and one == other)
    return not one.isdisjoint(other)


def class_cell(class_iri: str) -> Cell:
    """Return the cell of the instances of a class."""
    return Cell(class_iri, RDF_TYPE, RDFS + "Class")


def class_accesses(class_iri: str, schema: Schema, subject: Values = None) -> list[CellAccess]:
    """Return the accesses of a statement that something is an instance of the class, superclasses included.

    A statement that something is an instance of rdfs:Resource alone keeps the cell of rdfs:Resource.
    """
    return [CellAccess(class_cell(above), subject) for above in superclasses(class_iri, schema) or (class_iri,)]


def superclasses(class_iri: str, schema: Schema) -> tuple[str, ...]:
    """Return the class and its superclasses, without rdfs:Resource."""
    class_ = schema.classes.get(class_iri)
    return tuple(iri for iri in (class_.superclasses if class_ else (class_iri,)) if iri != RDFS_RESOURCE)


def _closed(classes: Iterable[str | None], schema: Schema) -> frozenset[str] | None:
    known = [iri for iri in classes if iri is not None and iri != RDFS_RESOURCE]
    return frozenset(up for iri in known for up in superclasses(iri, schema)) or None


def nodes(
    path: NodePath,
    schema: Schema,
    event: Event | None = None,
    context: frozenset[str] | None = None,
) -> frozenset[str] | None:
    """Return the classes and datatypes of the nodes that the path selects, superclasses included; None if unknown.

    `event`: the event of the rule, for `$delta`. `context`: the classes of the node that a qualifier tests.
    """
    found = head_nodes(path, schema, event, context)
    for step in path.steps:
        found = step_nodes(step, found, schema)
    return found


def head_nodes(
    path: NodePath, schema: Schema, event: Event | None, context: frozenset[str] | None
) -> frozenset[str] | None:
    """Return the classes of the nodes of the head of a path; None if unknown."""
    if isinstance(path.head, ContextNode):
        return context
    if isinstance(path.head, DeltaValue) and event is not None:
        return _delta_nodes(path.head.field, event, schema)
    return None


def _delta_nodes(field: DeltaField, event: Event, schema: Schema) -> frozenset[str] | None:
    if isinstance(event, NodeEvent):
        return _closed([event.class_iri], schema)
    arc = event.triple.arc
    property_ = schema.property_of(arc) if isinstance(arc, str) else None
    if field is DeltaField.ARC_NAME or property_ is None:
        return None
    if field is DeltaField.SOURCE:
        return _closed([*property_.domains, event.triple.source.class_iri], schema)
    return _closed([property_.range], schema)


def step_nodes(step: NodeStep, before: frozenset[str] | None, schema: Schema) -> frozenset[str] | None:
    """Return the classes of the nodes that a step selects; None if unknown."""
    if step.axis is Axis.ELEMENT:
        return _closed([schema.members[iri] for iri in before or () if iri in schema.members], schema)
    property_ = schema.property_of(step.property) if step.property else None
    if property_ is None:
        return None
    return _closed(property_.domains if step.axis is Axis.SOURCE else [property_.range], schema)


def arc_cells(arc: str | None, sources: frozenset[str] | None, schema: Schema) -> list[Cell]:
    """Return the cells of a property itself; those of collections depend on the classes of the source."""
    if arc is None:
        return [ANY_CELL]
    if arc == RDF_TYPE:
        return [TYPE_CELL]
    if arc == MEMBERSHIP or _MEMBER.fullmatch(arc):
        return membership_cells(sources, schema)
    property_ = schema.property_of(arc)
    if property_ is None or not property_.domains:
        return [Cell(None, arc, property_.range if property_ else None)]
    return [Cell(domain, arc, property_.range) for domain in property_.domains]


def membership_cells(sources: frozenset[str] | None, schema: Schema) -> list[Cell]:
    """Return the cells of the members of collections of these classes; all of them if the members are not declared."""
    declared = [iri for iri in schema.members if iri in (sources or ())]
    if declared:
        return [Cell(iri, MEMBERSHIP, schema.members[iri]) for iri in declared]
    everything = [Cell(iri, MEMBERSHIP, members) for iri, members in schema.members.items()]
    return [*everything, Cell(CONTAINER, MEMBERSHIP, None)]


def constant(value: Operand | None, event: Event | None = None, kind: ValueKind = ValueKind.TEXT) -> Values:
    """Return the constants that the value can be. Constants of other kinds than text can be equal in other forms.

    `event`: the event of the rule, for `$delta`.
    """
    if isinstance(value, ConstantValue):
        return frozenset((value.text, value.uri)) if kind is ValueKind.TEXT else None
    if value is None or value.steps:
        return None
    if isinstance(value.head, NamedNode):
        return frozenset((value.head.uri,))
    return _delta_constant(value.head.field, event) if isinstance(value.head, DeltaValue) else None


def _delta_constant(field: DeltaField, event: Event | None) -> Values:
    watched: Operand | None = None
    if isinstance(event, NodeEvent):
        watched = event.path
    elif event is not None and field is DeltaField.SOURCE:
        watched = event.triple.source.value
    if isinstance(watched, NodePath) and isinstance(watched.head, NamedNode) and not watched.steps:
        return frozenset((watched.head.uri,))
    return DELTA if field is DeltaField.SOURCE else None


def triple_accesses(triple: Triple, schema: Schema, event: Event | None = None, write: bool = True) -> list[CellAccess]:
    """Return the accesses of a triple. `write`: with superclasses and superproperties. `event`: that of the rule."""
    source = triple.source.value
    subject = constant(source, event)
    sources = nodes(source, schema, event) if isinstance(source, NodePath) else None
    if isinstance(triple.arc, SequenceNext):
        return [CellAccess(cell, subject) for cell in membership_cells(sources, schema)]
    property_ = schema.property_of(triple.arc) if triple.arc else None
    # The values of a property that is not declared can be of any kind.
    kind = property_.kind if property_ else ValueKind.NUMBER
    target = None if triple.new_target else constant(triple.target.value, event, kind)
    if triple.arc == RDF_TYPE:
        return _type_accesses(subject, target, schema, write)
    arcs: Iterable[str | None] = property_.superproperties if property_ and write else (triple.arc,)
    return [CellAccess(cell, subject, target) for arc in arcs for cell in arc_cells(arc, sources, schema)]


def _type_accesses(subject: Values, target: Values, schema: Schema, write: bool) -> list[CellAccess]:
    classes = [iri for iri in sorted(target or ()) if iri in schema.classes]
    if not classes:
        return [CellAccess(TYPE_CELL, subject)]
    if write:
        return [access for iri in classes for access in class_accesses(iri, schema, subject)]
    return [CellAccess(class_cell(iri), subject) for iri in classes]


def triples(triple: Triple, schema: Schema, event: Event | None = None) -> frozenset[Cell]:
    """Return the schema triples that a triple matches, superproperties included."""
    return frozenset(access.cell for access in triple_accesses(triple, schema, event))
