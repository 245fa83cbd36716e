"""Strict mode against execution: rules that it calls commuting have the same result in either order."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mdv.model import RDF, RDF_TYPE, XSD, Statement, Term
from mdv.rdf.values import ValueKind
from mdv.rdftl.analysis import analyse
from mdv.rdftl.model import (
    AbortDependency,
    Action,
    AllOf,
    Always,
    AnyOf,
    ArcAction,
    ArcEvent,
    ChangeKind,
    Condition,
    Coupling,
    DeltaField,
    EcaRule,
    Event,
    Exists,
    Negation,
    NodeAction,
    NodeEvent,
    NodePath,
    Triple,
    TripleNode,
    ValueComparison,
)
from mdv.rules.operators import Operator
from tests.support import rdftl_oracle
from tests.support.rdftl_builders import (
    ALL,
    HERE,
    SEQ,
    E,
    delta,
    element,
    iri,
    named,
    path,
    schema_of,
    source,
    target,
    text,
)
from tests.support.rdftl_oracle import ActionFailed, Limits, Registration, RuleFailed, RulesDoNotEnd, State

SCHEMA = schema_of("""
:C a rdfs:Class . :D rdfs:subClassOf :C . :F a rdfs:Class .
:Basket rdfs:subClassOf rdf:Bag . :Row rdfs:subClassOf rdf:Seq .
:p mdv:setValued true . :q rdfs:subPropertyOf :p . :r mdv:setValued true . :s mdv:setValued true .
:one rdfs:range xsd:string . :number rdfs:range xsd:decimal . :basket rdfs:range :Basket ; mdv:setValued true .
:go mdv:setValued true . :G a rdfs:Class .
""")
NODES, BASKETS = ("x", "y", "z", "row"), ("b1", "b2")
CLASSES = ("C", "D", "F")
LINKS, TEXTS = ("p", "q", "r", "s"), ("one", "number")
DOCUMENTS = ("http://a/", "http://b/", rdftl_oracle.RULES_DOCUMENT)
EXAMPLES = int(os.environ.get("MDV_MODEL_EXAMPLES", "20"))

# Graphs

names = st.sampled_from(NODES)
fixed = [
    Statement(E + "row", RDF_TYPE, Term.uri(E + "Row")),
    *(Statement(E + name, RDF_TYPE, Term.uri(E + "Basket")) for name in BASKETS),
    Statement(E + "x", E + "basket", Term.uri(E + "b1")),
    Statement(E + "y", E + "basket", Term.uri(E + "b2")),
]


def uri_statement(subject: str, property_: str, object_: str) -> Statement:
    return Statement(iri(subject), iri(property_), Term.uri(iri(object_)))


values = {
    "one": st.sampled_from(["1", "2"]).map(partial(Term.literal, lang=None, datatype=XSD + "string")),
    "number": st.sampled_from(["1", "1.0", "2"]).map(partial(Term.literal, lang=None, datatype=XSD + "decimal")),
}
statements = st.one_of(
    st.builds(uri_statement, names, st.sampled_from(LINKS), names),
    st.builds(uri_statement, names, st.just(RDF_TYPE), st.sampled_from(CLASSES)),
    st.builds(uri_statement, st.sampled_from(BASKETS), st.just(RDF + "_1"), names),
    *(st.builds(Statement, names.map(iri), st.just(E + name), value) for name, value in values.items()),
)


def one_value_each(found: list[Statement]) -> frozenset[Statement]:
    """Return the statements without further values of properties that can have only one."""
    many = {iri(name) for name in LINKS} | {RDF_TYPE}
    first = {(one.subject, one.property): one for one in found if one.property not in many}
    return frozenset(first.values()) | {one for one in found if one.property in many}


contents = st.lists(statements, min_size=1, max_size=8).map(one_value_each)
graphs = st.tuples(contents, contents, contents)

# Rules

steps = st.one_of(
    st.sampled_from((*LINKS, "one", RDF_TYPE)).map(target),
    st.sampled_from((*LINKS, RDF_TYPE)).map(source),
    st.just(element()),
)
heads = st.one_of(names.map(named), st.just(ALL))
fields = st.sampled_from([DeltaField.SOURCE, DeltaField.SOURCE, DeltaField.TARGET])


def with_steps(head: NodePath, more: list[object], where: Condition | None = None) -> NodePath:
    return replace(head, steps=tuple(more), qualifiers=() if where is None else (where,))  # type: ignore[arg-type]


def qualifiers(depth: int = 1) -> st.SearchStrategy[Condition]:
    here = st.lists(steps, min_size=1, max_size=2).map(lambda found: path(HERE, *found))
    return conditions(here, depth)


def conditions(paths: st.SearchStrategy[NodePath], depth: int = 1) -> st.SearchStrategy[Condition]:
    equal = st.builds(
        ValueComparison, paths, st.sampled_from([Operator.EQ, Operator.NE]), st.just(text("1")), st.just(ValueKind.TEXT)
    )
    atoms = st.one_of(paths.map(Exists), equal)
    if depth == 0:
        return atoms
    parts = st.lists(conditions(paths, depth - 1), min_size=2, max_size=2).map(tuple)
    return st.one_of(atoms, conditions(paths, depth - 1).map(Negation), parts.map(AllOf), parts.map(AnyOf))


def paths(deltas: st.SearchStrategy[NodePath] | None) -> st.SearchStrategy[NodePath]:
    start = heads if deltas is None else st.one_of(heads, deltas)
    plain = st.one_of(start, names.map(named))
    return st.one_of(plain, plain, st.builds(with_steps, start, st.lists(steps, max_size=2), st.none() | qualifiers()))


def deltas_of(event: Event) -> st.SearchStrategy[NodePath]:
    if isinstance(event, NodeEvent):
        return st.just(delta())
    if event.kind is ChangeKind.UPDATE:
        return st.sampled_from([delta(), delta(field=DeltaField.OLD_TARGET), delta(field=DeltaField.NEW_TARGET)])
    return st.sampled_from([delta(), delta(), delta(field=DeltaField.TARGET)])


def ends(of: st.SearchStrategy[NodePath], wildcard: bool = True) -> st.SearchStrategy[TripleNode]:
    classes = st.sampled_from([None, None, None, E + "C", E + "D"])
    return st.builds(TripleNode, st.none() | of if wildcard else of, classes)


texts = st.sampled_from(["1", "2"]).map(text).map(TripleNode)


@st.composite
def triples(draw: st.DrawFn, of: st.SearchStrategy[NodePath], kind: ChangeKind, event: bool = False) -> Triple:
    arc = draw(st.sampled_from((*LINKS, *LINKS, *TEXTS, RDF_TYPE)))
    wild = event or kind is not ChangeKind.INSERT or draw(st.integers(0, 5)) == 0
    subject = draw(ends(of, wild))
    if arc in TEXTS:
        objects = texts
    elif arc == RDF_TYPE:
        objects = st.sampled_from(CLASSES).map(lambda name: TripleNode(named(name)))
    else:
        objects = ends(of, wild)
    if kind is ChangeKind.UPDATE:
        old = draw(objects | st.just(TripleNode()))
        new = TripleNode() if event and draw(st.booleans()) else draw(objects)
        return Triple(subject, iri(arc), old, new)
    named_arc = None if kind is ChangeKind.DELETE and draw(st.integers(0, 9)) == 0 else iri(arc)
    return Triple(subject, named_arc, draw(objects))


@st.composite
def events(draw: st.DrawFn) -> Event:
    kind = draw(st.sampled_from(ChangeKind))
    if kind is not ChangeKind.UPDATE and draw(st.booleans()):
        return NodeEvent(kind, draw(paths(None)), draw(st.sampled_from([None, E + "C", E + "D", E + "F"])))
    return ArcEvent(kind, draw(triples(paths(None), kind, event=True)))


@st.composite
def actions(draw: st.DrawFn, event: Event | None) -> Action:
    of = paths(deltas_of(event) if event else None)
    form = draw(st.integers(0, 9))
    if form < 2:
        kind = draw(st.sampled_from([ChangeKind.INSERT, ChangeKind.INSERT, ChangeKind.DELETE]))
        class_ = draw(st.sampled_from(CLASSES)) if kind is ChangeKind.INSERT else draw(st.sampled_from(["C", None]))
        return NodeAction(kind, draw(of), class_ and E + class_)
    if form == 2:
        collections = [named("x", target("basket")), named("y", target("basket")), named("row"), named("b1")]
        subject = TripleNode(draw(st.sampled_from(collections)))
        return ArcAction(ChangeKind.INSERT, (Triple(subject, SEQ, TripleNode(draw(of))),))
    kind = draw(st.sampled_from(ChangeKind))
    return ArcAction(kind, tuple(draw(st.lists(triples(of, kind), min_size=1, max_size=2))))


GO_ARC = ArcEvent(ChangeKind.INSERT, Triple(TripleNode(), E + "go", TripleNode()))
GO_NODE = NodeEvent(ChangeKind.INSERT, ALL, E + "G")
GO = frozenset(
    [uri_statement(*arc) for arc in (("x", "go", "y"), ("x", "go", "z"), ("y", "go", "x"))]
    + [uri_statement(name, RDF_TYPE, "G") for name in ("x", "y", "z")]
)
"""Statements that raise three events of each of the two kinds."""
loose_events = st.sampled_from(
    [ArcEvent(kind, Triple(TripleNode(), iri(arc), TripleNode())) for kind in list(ChangeKind)[:2] for arc in LINKS]
    + [NodeEvent(kind, ALL, class_) for kind in list(ChangeKind)[:2] for class_ in (None, E + "C")]
    + [ArcEvent(ChangeKind.UPDATE, Triple(TripleNode(), E + "one", TripleNode(), TripleNode()))]
)


@st.composite
def rules(draw: st.DrawFn, of: st.SearchStrategy[Event]) -> EcaRule:
    event = draw(of)
    tested = conditions(paths(deltas_of(event)))
    return EcaRule(
        event,
        draw(st.just(Always()) | st.just(Always()) | st.just(Always()) | tested),
        tuple(draw(st.lists(actions(event), min_size=1, max_size=2))),
        coupling=draw(st.sampled_from([Coupling.IMMEDIATE, Coupling.IMMEDIATE, Coupling.DEFERRED])),
        abort=draw(st.sampled_from([AbortDependency.MUTUAL, AbortDependency.INDEPENDENT])),
    )


def base_of(parts: tuple[list[EcaRule], list[EcaRule]]) -> list[EcaRule]:
    return [*parts[0], *parts[1]]


triggered = st.lists(rules(st.sampled_from([GO_ARC, GO_NODE])), min_size=2, max_size=2)
bases = st.tuples(triggered, st.lists(rules(loose_events | events()), max_size=2)).map(base_of)
"""Two rules that the registration of GO triggers, and others."""
causes = contents.map(lambda more: Registration("http://go/", GO | more))

# Execution


class _Reversed(rdftl_oracle.Execution):
    """An execution with the copies of each rule in reverse order."""

    def firing(self, *of: object) -> list[object]:
        return list(reversed(super().firing(*of)))


def result(cause: Registration, rules: Mapping[int, EcaRule], state: State, backwards: bool = False) -> object:
    """Return the final graph, up to the order of the members of bags; None if the transaction is refused."""
    run = (_Reversed if backwards else rdftl_oracle.Execution)(rules, state, Limits(300, 60), DOCUMENTS[0], {})
    try:
        run.run(cause)
    except (RuleFailed, ActionFailed):
        return None
    return graph_of(run.state)


def graph_of(state: State) -> Counter[tuple[str, ...]]:
    bags = {iri(name) for name in BASKETS}
    return Counter(
        (
            one.subject,
            "member" if one.subject in bags and one.property.startswith(RDF + "_") else one.property,
            one.object,
        )
        for one in state.stated
    )


def state_of(graph: Sequence[frozenset[Statement]]) -> State:
    documents = dict(zip(DOCUMENTS, graph, strict=True)) | {"http://fixed/": frozenset(fixed)}
    return State({uri: said for uri, said in documents.items() if said}, SCHEMA)


many = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@many
@given(bases, st.lists(st.tuples(graphs, causes), min_size=4, max_size=4))
def test_rules_that_commute_in_strict_mode_have_one_result(
    base: list[EcaRule], worlds: list[tuple[Sequence[frozenset[Statement]], Registration]]
) -> None:
    numbered = dict(enumerate(base))
    found = analyse({str(number): rule for number, rule in numbered.items()}, SCHEMA)
    if found.commute("0", "1"):
        swapped = numbered | {0: base[1], 1: base[0]}
        for graph, cause in worlds:
            same_in_both(cause, graph, (numbered, False), (swapped, False))


@many
@given(bases, st.lists(st.tuples(graphs, causes), min_size=4, max_size=4))
def test_rules_that_are_well_defined_in_strict_mode_have_one_result(
    base: list[EcaRule], worlds: list[tuple[Sequence[frozenset[Statement]], Registration]]
) -> None:
    numbered = dict(enumerate(base))
    found = analyse({str(number): rule for number, rule in numbered.items()}, SCHEMA)
    if all(found.is_well_defined(str(number)) for number in numbered):
        for graph, cause in worlds:
            same_in_both(cause, graph, (numbered, False), (numbered, True))


def same_in_both(
    cause: Registration,
    graph: Sequence[frozenset[Statement]],
    one: tuple[dict[int, EcaRule], bool],
    other: tuple[dict[int, EcaRule], bool],
) -> None:
    try:
        results = [result(cause, order, state_of(graph), backwards) for order, backwards in (one, other)]
    except RulesDoNotEnd:
        return
    assert results[0] == results[1]


@many
@given(bases, st.lists(st.tuples(graphs, causes), min_size=4, max_size=4))
def test_rules_without_a_cycle_that_may_not_terminate_end(
    base: list[EcaRule], worlds: list[tuple[Sequence[frozenset[Statement]], Registration]]
) -> None:
    numbered = dict(enumerate(base))
    found = analyse({str(number): rule for number, rule in numbered.items()}, SCHEMA)
    if all(cycle.reason is None for cycle in found.cycles):
        for graph, cause in worlds:
            result(cause, numbered, state_of(graph))
