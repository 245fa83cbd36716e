"""Where the parts of a rule are relevant: the schema nodes and resources that event, condition and actions mention.

A schema node is a class, a property, or `rdfs:ContainerMembershipProperty` for all members of collections. Section 3 of
the paper defines the three kinds of relevance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from mdv.model import RDFS_RESOURCE
from mdv.rdf.schema import Schema
from mdv.rdftl.cells import MEMBERSHIP, nodes
from mdv.rdftl.model import (
    Action,
    ArcAction,
    ArcEvent,
    Axis,
    CallAction,
    ChangeKind,
    EcaRule,
    Event,
    NamedNode,
    NodeAction,
    NodePath,
    NodeStep,
    SequenceNext,
    Triple,
    TripleNode,
)
from mdv.rdftl.template import find_parts


@dataclass(frozen=True, slots=True)
class RuleNodes:
    """What the parts of a rule mention.

    `event`: nodes that must all be present. `condition`: nodes of its steps, any of which makes a site relevant.
    `actions`: nodes that must all be present. `event_resources`, `action_resources`: resources that must be known.
    """

    event: frozenset[str]
    event_resources: frozenset[str]
    condition: frozenset[str]
    actions: frozenset[str]
    action_resources: frozenset[str]

    def is_e_relevant(self, present: Collection[str]) -> bool:
        """True if each step of each path of the event exists: there is no distributed detection of events."""
        return all(node in present for node in self.event)

    def is_c_relevant(self, present: Collection[str]) -> bool:
        """True if some step of the condition exists: a condition is evaluated at several sites."""
        return any(node in present for node in self.condition)

    def is_a_relevant(self, present: Collection[str]) -> bool:
        """True if all actions are relevant: a copy of them runs at one peer."""
        return all(node in present for node in self.actions)

    def may_become_e_relevant(self, grown: Collection[str]) -> bool:
        """True if the rule may be e-relevant where these nodes have come."""
        return not self.event or any(node in grown for node in self.event)


def nodes_of_rule(rule: EcaRule, schema: Schema) -> RuleNodes:
    """Return what a rule mentions. The schema tells the classes that paths select; other names need not be in it.

    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> from mdv.rdftl.compile import compile_rules
    >>> one, = compile_rules("on insert resource() if $delta/target(label) = 'a' do delete $delta", EMPTY_SCHEMA)
    >>> found = nodes_of_rule(one.rule, EMPTY_SCHEMA)
    >>> sorted(found.event), sorted(found.condition)
    ([], ['http://www.w3.org/2000/01/rdf-schema#label'])
    """
    return RuleNodes(
        frozenset(_event_nodes(rule.event)),
        _resources(rule.event),
        frozenset(_step_nodes(rule.condition)),
        frozenset(node for action in rule.actions for node in _action_nodes(action, rule.event, schema)),
        frozenset(uri for action in rule.actions for uri in _action_resources(action)),
    )


def _resources(part: object) -> frozenset[str]:
    return frozenset(node.uri for node in find_parts(part, NamedNode))


def _step_nodes(part: object) -> Iterator[str]:
    for step in find_parts(part, NodeStep):
        if step.axis is Axis.ELEMENT:
            yield MEMBERSHIP
        elif step.property is not None:
            yield schema_node(step.property)


def schema_node(property_iri: str) -> str:
    """Return the schema node of a property: the members of collections have one node.

    >>> schema_node("http://www.w3.org/1999/02/22-rdf-syntax-ns#_7").rpartition("#")[2]
    'ContainerMembershipProperty'
    """
    start, _, number = property_iri.rpartition("#_")
    is_member = start == "http://www.w3.org/1999/02/22-rdf-syntax-ns" and number.isdigit()
    return MEMBERSHIP if is_member else property_iri


def _event_nodes(event: Event) -> Iterator[str]:
    yield from _step_nodes(event)
    if isinstance(event, ArcEvent):
        yield from _arc_nodes(event.triple)
        for end in find_parts(event, TripleNode):
            if end.class_iri is not None:
                yield end.class_iri
    elif event.class_iri is not None:
        yield event.class_iri


def _arc_nodes(triple: Triple) -> Iterator[str]:
    if isinstance(triple.arc, SequenceNext):
        yield MEMBERSHIP
    elif triple.arc is not None:
        yield schema_node(triple.arc)


def _action_nodes(action: Action, event: Event, schema: Schema) -> Iterator[str]:
    if isinstance(action, CallAction):
        return  # what the action of ReAL needs is not known; the peer must know the action itself
    if isinstance(action, NodeAction):
        yield action.class_iri or _most_specific(action.path, event, schema)
        return
    for triple in action.triples:
        yield from _arc_nodes(triple)
        if triple.arc is None:
            for end in (triple.source, triple.target):
                if isinstance(end.value, NodePath):
                    yield end.class_iri or _most_specific(end.value, event, schema)


def _most_specific(path: NodePath, event: Event, schema: Schema) -> str:
    """Return the most specific class of the nodes that a path selects; rdfs:Resource if it is not known."""
    found = nodes(path, schema, event) or frozenset()
    classes = [iri for iri in found if iri in schema.classes]
    return max(classes, key=lambda iri: (len(schema.classes[iri].superclasses), iri), default=RDFS_RESOURCE)


def _action_resources(action: Action) -> frozenset[str]:
    """Return the resources that an action mentions, without one that it makes itself."""
    if isinstance(action, NodeAction) and action.kind is ChangeKind.INSERT:
        made = NodePath(action.path.head)
        return _resources(()) if action.path == made else _resources(action.path)
    if isinstance(action, ArcAction):
        return frozenset(uri for triple in action.triples for uri in _resources(triple))
    if isinstance(action, CallAction):
        return _resources(action.arguments) | {action.action}
    return _resources(action)
