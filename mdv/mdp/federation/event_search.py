"""Find the instantiations of `$delta` of an event with paths in a change of this MDP."""

from __future__ import annotations

from collections.abc import Callable

from mdv.federation.conditions import NoCollection, SiteEvaluation
from mdv.federation.event_match import deltas_of_kind
from mdv.federation.fragment import CommittedChange, FoundTerm, StepQuestion
from mdv.model import RDF_TYPE, RDFS_RESOURCE, Term
from mdv.rdf.schema import Schema
from mdv.rdf.validate import ValueTyper
from mdv.rdftl.model import ChangeKind, ConstantValue, Delta, Event, NodeEvent, NodePath, TripleNode
from mdv.rdftl.template import arc_kind
from mdv.rules.operators import Operator

Select = Callable[[StepQuestion], frozenset[FoundTerm]]
IsMatch = Callable[[Term, frozenset[str]], bool]


def find_event(
    event: Event, strict: bool, change: CommittedChange, schema: Schema, now: Select, before: Select
) -> list[Delta]:
    """Return the instantiations. `now`, `before`: steps on the state after and before the change. A DELETE event and
    the old target of an UPDATE look at the state before."""
    typer = ValueTyper(schema)
    here = before if event.kind is ChangeKind.DELETE else now
    earlier = before if event.kind is ChangeKind.UPDATE else here
    found = deltas_of_kind(event, change)

    def matcher(node: TripleNode | None, select: Select) -> IsMatch:
        return _matcher(node, select, typer, strict, schema, event)

    try:
        if isinstance(event, NodeEvent):
            is_node = matcher(TripleNode(event.path), here)
            return sorted(delta for delta in found if is_node(Term.uri(delta.source), frozenset()))
        triple = event.triple
        is_source, is_target = matcher(triple.source, here), matcher(triple.target, earlier)
        is_new_target = matcher(triple.new_target, now)
        return sorted(
            delta
            for delta in found
            if is_source(Term.uri(delta.source), frozenset())
            and (delta.target is None or is_target(delta.target, frozenset([delta.arc_name])))
            and (delta.new_target is None or is_new_target(delta.new_target, frozenset([delta.arc_name])))
        )
    except NoCollection:
        return []


def _matcher(
    node: TripleNode | None, select: Select, typer: ValueTyper, strict: bool, schema: Schema, event: Event
) -> IsMatch:
    value, class_iri = (node.value, node.class_iri) if node is not None else (None, None)
    selected = _selected(value, select, typer, strict) if isinstance(value, NodePath) else frozenset()
    kind = None if isinstance(event, NodeEvent) else arc_kind(event.triple, schema)

    def is_match(term: Term, properties: frozenset[str]) -> bool:
        if class_iri is not None and not _is_instance(term, class_iri, select):
            return False
        if isinstance(value, ConstantValue):
            assert kind is not None
            evaluation = SiteEvaluation({}, typer, None, strict)
            one = FoundTerm(term, None, properties)
            values = evaluation.values(one, value, kind), evaluation.values(value, one, kind)
            return any(Operator.EQ.holds(left, right) for left in values[0] for right in values[1])
        return value is None or term in selected

    return is_match


def _selected(path: NodePath, select: Select, typer: ValueTyper, strict: bool) -> frozenset[Term]:
    """Return the terms that a path selects on this MDP alone."""
    answers: dict[StepQuestion, frozenset[FoundTerm]] = {}
    while True:
        evaluation = SiteEvaluation(answers, typer, None, strict)
        found = evaluation.select(path)
        if not evaluation.missing:
            return frozenset(one.term for one in found)
        answers |= {question: select(question) for question in evaluation.missing}


def _is_instance(term: Term, class_iri: str, select: Select) -> bool:
    if not term.is_uri:
        return False
    if class_iri == RDFS_RESOURCE:
        return bool(select(StepQuestion("target", term, None)))
    return any(one.term.value == class_iri for one in select(StepQuestion("target", term, RDF_TYPE)))
