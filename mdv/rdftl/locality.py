"""What event and condition of a rule read besides the statements about the source of `$delta`.

If several documents are registered, each about other resources, and none of them changes what is read in common, then a
rule sees the same for each document, whether they are registered together or one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable

from mdv.model import RDF_TYPE
from mdv.rdftl.model import (
    AllNodes,
    AllOf,
    Always,
    AnyOf,
    ArcEvent,
    Axis,
    Condition,
    ConstantValue,
    ContextNode,
    DeltaField,
    DeltaValue,
    EcaRule,
    Exists,
    NamedNode,
    Negation,
    NodePath,
    Operand,
    TripleNode,
    ValueComparison,
)
from mdv.rules.operators import Operator


class _ReadsAnything(Exception):
    """A part of a rule may read any statement."""


def shared_reads(rule: EcaRule) -> frozenset[str] | None:
    """Return the properties that event and condition of a rule read of other resources than the source of `$delta`;
    None if they may read any statement.

    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> from mdv.rdftl.compile import compile_rules
    >>> one, = compile_rules("on insert resource() if $delta/target(label) = 'a' do delete $delta", EMPTY_SCHEMA)
    >>> shared_reads(one.rule)
    frozenset()
    >>> two, = compile_rules("on insert resource() if $delta/target(seeAlso)/target(label) = 'a' do delete $delta",
    ...                      EMPTY_SCHEMA)
    >>> shared_reads(two.rule)
    frozenset({'http://www.w3.org/2000/01/rdf-schema#label'})
    """
    reads = _SharedReads()
    try:
        event = rule.event
        if isinstance(event, ArcEvent):
            triple = event.triple
            reads.source(triple.source)
            for node in (triple.target, triple.new_target):
                if node is not None:
                    reads.target(node)
        else:
            reads.source(TripleNode(event.path))
        reads.condition(rule.condition, is_source=False)
    except _ReadsAnything:
        return None
    return frozenset(reads.properties)


class _SharedReads:
    """Collects the properties. `is_source`: the node that a qualifier tests is the source of `$delta`."""

    def __init__(self) -> None:
        self.properties: set[str] = set()

    def source(self, node: TripleNode) -> None:
        match node.value:
            case None | NodePath(NamedNode(), (), ()):
                return
            case NodePath(AllNodes(), qualifiers, ()):
                self.conditions(qualifiers, is_source=True)
            case NodePath() as path:
                self.path(path, is_source=False)

    def target(self, node: TripleNode) -> None:
        if node.class_iri is not None:
            self.properties.add(RDF_TYPE)
        if isinstance(node.value, NodePath):
            self.path(node.value, is_source=False)

    def conditions(self, conditions: Iterable[Condition], is_source: bool) -> None:
        for one in conditions:
            self.condition(one, is_source)

    def condition(self, condition: Condition, is_source: bool) -> None:
        match condition:
            case Always():
                return
            case Exists(path):
                self.path(path, is_source)
            case Negation(part):
                self.condition(part, is_source)
            case AllOf(parts) | AnyOf(parts):
                self.conditions(parts, is_source)
            case ValueComparison(left, operator, right):
                for operand in (left, right):
                    self.operand(operand, operator, is_source)

    def operand(self, operand: Operand, operator: Operator, is_source: bool) -> None:
        """If a value equals a URI, there is a statement with the URI."""
        is_uri = isinstance(operand, NodePath) and isinstance(operand.head, NamedNode) and not operand.steps
        if isinstance(operand, ConstantValue) or (is_uri and operator is Operator.EQ and not operand.qualifiers):
            return
        self.path(operand, is_source)

    def path(self, path: NodePath, is_source: bool) -> None:
        match path.head:
            case ContextNode():
                at_source = is_source
            case DeltaValue(field):
                at_source = field is DeltaField.SOURCE
            case _:
                at_source = False
                if not path.steps:
                    raise _ReadsAnything
        self.conditions(path.qualifiers, at_source)
        for step in path.steps:
            is_local = at_source and step.axis is Axis.TARGET
            if not is_local:
                if step.property is None:  # also `element( )`, which looks at the type of the collection
                    raise _ReadsAnything
                self.properties.add(step.property)
            at_source = False
            self.conditions(step.qualifiers, is_source=False)
