"""Short ways to write resolved rules of RDFTL, and a schema for them."""

from __future__ import annotations

from functools import cache

import pyoxigraph

from mdv.model import MDV, RDF, RDFS, XSD, Statement, Term
from mdv.rdf.schema import Schema, read_schema
from mdv.rdftl.model import (
    Action,
    AllNodes,
    Always,
    ArcAction,
    ArcEvent,
    Axis,
    ChangeKind,
    Condition,
    ConstantValue,
    ContextNode,
    Coupling,
    DeltaField,
    DeltaValue,
    EcaRule,
    Event,
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
)

E = "http://example.org/e#"
PREFIXES = {"": E, "rdf": RDF, "rdfs": RDFS, "xsd": XSD, "mdv": MDV}
_HEAD = "".join(f"@prefix {prefix}: <{namespace}> .\n" for prefix, namespace in PREFIXES.items())

INSERT, DELETE, UPDATE = ChangeKind
SEQ = SequenceNext()
DELTA = NodePath(DeltaValue())
ALL = NodePath(AllNodes())
HERE = ContextNode()
"""The node that a qualifier tests."""


@cache
def schema_of(turtle: str) -> Schema:
    """Return the schema of a text in Turtle. The empty prefix is `E`."""
    found = pyoxigraph.parse(_HEAD + turtle, format=pyoxigraph.RdfFormat.TURTLE, base_iri="urn:mdv:schema")
    return read_schema([Statement(t.subject.value, t.predicate.value, _term(t.object)) for t in found], PREFIXES)


def _term(node: object) -> Term:
    return Term.literal(node.value) if isinstance(node, pyoxigraph.Literal) else Term.uri(node.value)


def iri(name: str) -> str:
    """Return the IRI of a name of the schema, or the name itself if it is an IRI."""
    return name if ":" in name else E + name


def named(uri: str, *steps: NodeStep, where: Condition | None = None) -> NodePath:
    """Return `resource(uri)[where]/steps`."""
    return path(NamedNode(iri(uri)), *steps, where=where)


def path(head: PathHead, *steps: NodeStep, where: Condition | None = None) -> NodePath:
    return NodePath(head, () if where is None else (where,), steps)


def delta(*steps: NodeStep, field: DeltaField = DeltaField.SOURCE) -> NodePath:
    return path(DeltaValue(field), *steps)


def target(name: str) -> NodeStep:
    return NodeStep(Axis.TARGET, iri(name))


def source(name: str) -> NodeStep:
    return NodeStep(Axis.SOURCE, iri(name))


def element() -> NodeStep:
    return NodeStep(Axis.ELEMENT)


def text(value: str) -> ConstantValue:
    return ConstantValue(value, E + value)


def node(value: Operand | str | None, class_name: str | None = None) -> TripleNode:
    """Return a node of a triple. A string is the name of a resource; None is the wildcard."""
    found = named(value) if isinstance(value, str) else value
    return TripleNode(found, None if class_name is None else iri(class_name))


def triple(
    source_: Operand | str | TripleNode | None,
    arc: str | SequenceNext | None,
    target_: Operand | str | TripleNode | None = None,
    new: Operand | str | None = None,
    update: bool = False,
) -> Triple:
    ends = [end if isinstance(end, TripleNode) else node(end) for end in (source_, target_)]
    arc = iri(arc) if isinstance(arc, str) else arc
    return Triple(ends[0], arc, ends[1], node(new) if update or new is not None else None)


def insert(*of: object, **more: object) -> ArcAction:
    """Return `INSERT (source, arc, target)`."""
    return ArcAction(INSERT, (triple(*of, **more),))  # type: ignore[arg-type]


def delete(*of: object, **more: object) -> ArcAction:
    """Return `DELETE (source, arc, target)`."""
    return ArcAction(DELETE, (triple(*of, **more),))  # type: ignore[arg-type]


def update(*of: object, **more: object) -> ArcAction:
    """Return `UPDATE (source, arc, target->new)`."""
    return ArcAction(UPDATE, (triple(*of, **more, update=True),))  # type: ignore[arg-type]


def insert_node(value: NodePath | str, class_name: str) -> NodeAction:
    return NodeAction(INSERT, named(value) if isinstance(value, str) else value, iri(class_name))


def delete_node(value: NodePath | str, class_name: str | None = None) -> NodeAction:
    return NodeAction(DELETE, named(value) if isinstance(value, str) else value, class_name and iri(class_name))


def on(
    event: ArcAction | NodeAction,
    *actions: Action,
    where: Condition | None = None,
    name: str | None = None,
    coupling: Coupling = Coupling.IMMEDIATE,
    precedes: tuple[str, ...] = (),
    follows: tuple[str, ...] = (),
) -> EcaRule:
    """Return a rule. Its event is written like an action."""
    return EcaRule(
        _event(event), where or Always(), actions, name, coupling=coupling, precedes=precedes, follows=follows
    )


def _event(event: ArcAction | NodeAction) -> Event:
    if isinstance(event, NodeAction):
        return NodeEvent(event.kind, event.path, event.class_iri)
    return ArcEvent(event.kind, event.triples[0])
