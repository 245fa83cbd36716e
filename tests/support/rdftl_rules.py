"""Short ways to write RDFTL paths, events and actions as values, and schemas as Turtle."""

from __future__ import annotations

from functools import cache

import pyoxigraph

from mdv.model import MDV, RDF, RDFS, XSD, Statement, Term
from mdv.rdf.parse import read_literal
from mdv.rdf.schema import Schema, read_schema
from mdv.rdf.values import ValueKind
from mdv.rdftl.model import (
    AllNodes,
    ArcAction,
    ArcEvent,
    Axis,
    ChangeKind,
    Condition,
    ConstantValue,
    ContextNode,
    DeltaField,
    DeltaValue,
    NamedNode,
    NodeAction,
    NodeEvent,
    NodePath,
    NodeStep,
    Operand,
    PathHead,
    SequenceNext,
    Triple,
    TripleNode,
    ValueComparison,
)
from mdv.rules.operators import Operator

V = "http://v/"
_PREFIXES = (
    f"@prefix : <{V}> . @prefix mdv: <{MDV}> . @prefix xsd: <{XSD}> . @prefix rdf: <{RDF}> . @prefix rdfs: <{RDFS}> .\n"
)
ANY = TripleNode()
SEQ_NEXT = SequenceNext()
DELTA = NodePath(DeltaValue())
EVERYTHING = NodePath(AllNodes())


def turtle(text: str) -> frozenset[Statement]:
    """Return the statements of Turtle with the prefixes `:` (http://v/), `mdv`, `xsd`, `rdf` and `rdfs`."""
    triples = pyoxigraph.parse(
        (_PREFIXES + text).encode(), format=pyoxigraph.RdfFormat.TURTLE, base_iri="urn:mdv:schema"
    )
    return frozenset(Statement(one.subject.value, one.predicate.value, _term(one.object)) for one in triples)


def _term(node: object) -> Term:
    return read_literal(node) if isinstance(node, pyoxigraph.Literal) else Term.uri(node.value)


@cache
def schema_of_turtle(text: str) -> Schema:
    return read_schema(sorted(turtle(text)), {"": V})


def resource(name: str) -> NodePath:
    """`resource(name)`, where names without a colon are in http://v/."""
    return NodePath(NamedNode(iri(name)))


def iri(name: str) -> str:
    return name if ":" in name else V + name


def target(name: str | None = None, *qualifiers: Condition) -> NodeStep:
    return NodeStep(Axis.TARGET, None if name is None else iri(name), None, qualifiers)


def source(name: str | None = None, *qualifiers: Condition) -> NodeStep:
    return NodeStep(Axis.SOURCE, None if name is None else iri(name), None, qualifiers)


def element(index: int | None = None, *qualifiers: Condition) -> NodeStep:
    return NodeStep(Axis.ELEMENT, None, index, qualifiers)


def path(head: PathHead | NodePath | str, *steps: NodeStep) -> NodePath:
    """`head/step/…`; a text is the name of a resource."""
    if isinstance(head, str):
        head = resource(head)
    if isinstance(head, NodePath):
        return NodePath(head.head, head.qualifiers, (*head.steps, *steps))
    return NodePath(head, (), steps)


def relative(*steps: NodeStep) -> NodePath:
    """A path in a qualifier."""
    return NodePath(ContextNode(), (), steps)


def delta(name: str = "source") -> NodePath:
    return NodePath(DeltaValue(DeltaField(name)))


def text(value: str, lang: str | None = None, datatype: str | None = None) -> ConstantValue:
    return ConstantValue(value, V + value, lang, datatype)


def equal(left: Operand, right: Operand, kind: ValueKind = ValueKind.TEXT, operator: str = "=") -> ValueComparison:
    return ValueComparison(left, Operator(operator), right, kind)


def node(value: Operand | str | None, class_name: str | None = None) -> TripleNode:
    operand = resource(value) if isinstance(value, str) else value
    return TripleNode(operand, None if class_name is None else iri(class_name))


def triple(
    start: TripleNode | Operand | str | None,
    arc: str | SequenceNext | None,
    end: TripleNode | Operand | str | None,
    new: TripleNode | Operand | str | None = None,
) -> Triple:
    ends = [one if isinstance(one, TripleNode) else node(one) for one in (start, end)]
    new_target = new if isinstance(new, TripleNode) or new is None else node(new)
    return Triple(ends[0], iri(arc) if isinstance(arc, str) else arc, ends[1], new_target)


def on_node(kind: str, selected: NodePath | str, class_name: str | None = None) -> NodeEvent:
    selected = resource(selected) if isinstance(selected, str) else selected
    return NodeEvent(ChangeKind(kind), selected, None if class_name is None else iri(class_name))


def on_arc(kind: str, one: Triple) -> ArcEvent:
    return ArcEvent(ChangeKind(kind), one)


def do_node(kind: str, selected: NodePath | str, class_name: str | None = None) -> NodeAction:
    selected = resource(selected) if isinstance(selected, str) else selected
    return NodeAction(ChangeKind(kind), selected, None if class_name is None else iri(class_name))


def do_arcs(kind: str, *triples: Triple) -> ArcAction:
    return ArcAction(ChangeKind(kind), triples)
