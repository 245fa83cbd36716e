"""Random worlds for RDFTL: documents, registrations, schedules and rules that often concern the same few things.

3 classes and one subclass, 4 resources, 2 collections, and properties with one value or many, of every kind. Rules are
well-typed: constants and comparisons fit the ranges of the properties. Their effects may be invalid, so that they fail.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from hypothesis import strategies as st

from mdv.model import BLANK_MARK, RDF, RDF_TYPE, XSD, Statement, Term
from mdv.rdf.values import ValueKind
from mdv.rdftl.model import (
    AbortDependency,
    Action,
    AllNodes,
    AllOf,
    Always,
    AnyOf,
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
    Exists,
    NamedNode,
    Negation,
    NodeAction,
    NodeEvent,
    NodePath,
    NodeStep,
    PathHead,
    SequenceNext,
    Triple,
    TripleNode,
    ValueComparison,
)
from mdv.rules.operators import Operator
from tests.support.rdftl_oracle import Registration, value_kind_of
from tests.support.rdftl_rules import V, schema_of_turtle

SCHEMA_TEXT = """
:Book a rdfs:Class . :Novel rdfs:subClassOf :Book . :Agent a rdfs:Class .
:about mdv:setValued true . :mentions rdfs:subPropertyOf :about . :author rdfs:range :Agent .
:size rdfs:range xsd:decimal . :pages rdfs:subPropertyOf :size ; rdfs:range xsd:integer .
:rating rdfs:range xsd:decimal ; mdv:setValued true . :born rdfs:range xsd:date .
:label rdfs:range rdfs:Literal ; mdv:setValued true . :name rdfs:range xsd:string .
"""
SCHEMA = schema_of_turtle(SCHEMA_TEXT)
CLASSES = [V + name for name in ("Book", "Novel", "Agent")]
RESOURCES = [f"http://r/{n}" for n in range(4)]
BAG, SEQ = "http://r/bag", "http://r/seq"
NODES = [*RESOURCES, BAG, SEQ]
DOCUMENTS = ["http://d/1", "http://d/2"]
MEMBERS = [f"{RDF}_{n}" for n in (1, 2, 3)]
REFERENCES = [V + name for name in ("about", "mentions", "author")]
VALUES: dict[str, list[Term]] = {
    **{name: [Term.uri(uri) for uri in NODES] for name in (*REFERENCES, *MEMBERS)},
    V + "size": [Term.literal(text) for text in ("1", "2.0", "3")],
    V + "pages": [Term.literal("2"), Term.literal("3", datatype=XSD + "integer")],
    V + "rating": [Term.literal(text) for text in ("1", "1.0", "2", "3")],
    V + "born": [Term.literal(text) for text in ("1900-01-01", "1950-06-15")],
    V + "label": [Term.literal("a", lang) for lang in (None, "en", "de")]
    + [Term.literal("b", lang) for lang in (None, "en", "de")],
    V + "name": [Term.literal("a"), Term.literal("b")],
    RDF_TYPE: [Term.uri(name) for name in CLASSES],
}
SINGLE = {V + "size": "size", V + "pages": "size", **{V + name: name for name in ("author", "born", "name")}}
"""Properties that take one value per document; `size` and `pages` share it."""
_ORDERED = [Operator.EQ, Operator.NE, Operator.LT, Operator.GE]


class TransactionStep(NamedTuple):
    """A transaction of a world, and the rules in force by number."""

    cause: Registration | tuple[Action, ...]
    rules: dict[int, EcaRule]


# Documents


def valid(statements: Iterable[Statement]) -> frozenset[Statement]:
    """Drop the second value, in one document, of a property that takes one."""
    first: dict[tuple[str, str], Term] = {}
    kept = set()
    for one in statements:
        single = SINGLE.get(one.property) or (one.property if one.property in MEMBERS else None)
        if single is None or first.setdefault((one.subject, single), one.object) == one.object:
            kept.add(one)
    return frozenset(kept)


@cache
def statements() -> st.SearchStrategy[Statement]:
    about_resources = [Statement(s, p, o) for s in RESOURCES for p in VALUES for o in VALUES[p] if p not in MEMBERS]
    members = [Statement(s, p, o) for s in (BAG, SEQ) for p in MEMBERS for o in VALUES[p]]
    types = [Statement(BAG, RDF_TYPE, Term.uri(RDF + "Bag")), Statement(SEQ, RDF_TYPE, Term.uri(RDF + "Seq"))]
    return st.one_of(*map(st.sampled_from, (about_resources, about_resources, members, types)))


@cache
def contents(most: int = 12) -> st.SearchStrategy[frozenset[Statement]]:
    """The statements of a document: valid, and never empty."""
    return st.lists(statements(), min_size=1, max_size=most).map(valid)


def with_blank_node(document: str, said: frozenset[Statement]) -> frozenset[Statement]:
    """Return the statements with a blank node of the document in place of the last resource."""
    last, blank = Term.uri(RESOURCES[-1]), Term.uri(document + BLANK_MARK + "b")
    return frozenset(
        Statement(
            blank.value if one.subject == last.value else one.subject,
            one.property,
            blank if one.object == last else one.object,
        )
        for one in said
    )


@cache
def documents() -> st.SearchStrategy[dict[str, frozenset[Statement]]]:
    return st.dictionaries(st.sampled_from(DOCUMENTS), contents(), min_size=1)


@cache
def registrations() -> st.SearchStrategy[Registration]:
    return st.builds(Registration, st.sampled_from(DOCUMENTS), st.one_of(contents(), contents(), st.none()))


# Paths and conditions


@cache
def steps(depth: int) -> st.SearchStrategy[NodeStep]:
    names = st.sampled_from([None, RDF_TYPE, *REFERENCES, *REFERENCES])
    qualifiers = (
        st.just(()) if depth == 0 else st.one_of(st.just(()), st.tuples(conditions((ContextNode(),), depth - 1)))
    )
    arcs = st.builds(NodeStep, st.sampled_from((Axis.TARGET, Axis.SOURCE)), names, st.none(), qualifiers)
    elements = st.builds(NodeStep, st.just(Axis.ELEMENT), st.none(), st.sampled_from((None, None, 1)), qualifiers)
    return st.one_of(arcs, arcs, elements)


def heads(delta: bool = False) -> tuple[PathHead, ...]:
    """What a path may begin with. `delta`: `$delta` too."""
    return (AllNodes(), *map(NamedNode, NODES), *([DeltaValue()] * 6 if delta else []))


@cache
def paths(heads: tuple[PathHead, ...], depth: int = 1, fewest: int = 0) -> st.SearchStrategy[NodePath]:
    qualifiers = (
        st.just(()) if depth == 0 else st.one_of(st.just(()), st.tuples(conditions((ContextNode(),), depth - 1)))
    )
    some = st.lists(steps(depth), min_size=fewest, max_size=2).map(tuple)
    return st.builds(NodePath, st.sampled_from(heads), qualifiers, some)


@cache
def constants(property_: str | None) -> st.SearchStrategy[ConstantValue]:
    """Constants for values of a property; None stands for any."""
    terms = VALUES[property_] if property_ is not None else [*VALUES[V + "about"], *VALUES[V + "label"]]
    # A text may also be a URI: as a whole, or after BASE.
    return st.sampled_from([ConstantValue(one.value, _after_base(one), one.lang, one.datatype) for one in terms])


def _after_base(term: Term) -> str:
    return term.value if term.is_uri else "http://r/" + term.value


@cache
@st.composite
def comparisons(draw: st.DrawFn, heads: tuple[PathHead, ...]) -> ValueComparison:
    name = draw(st.sampled_from([None, *(name for name in VALUES if name not in MEMBERS)]))
    kind = value_kind_of(name, SCHEMA)
    start = draw(paths(heads, 0))
    left = NodePath(start.head, (), (*start.steps, NodeStep(Axis.TARGET, name)))
    operator = draw(st.sampled_from(_ORDERED if kind is not ValueKind.TEXT else _ORDERED[:2]))
    right: NodePath | ConstantValue = draw(constants(name))
    if draw(st.integers(0, 3)) == 0:
        other = draw(paths(heads, 0))
        right = NodePath(other.head, (), (*other.steps, NodeStep(Axis.TARGET, name)))
    return ValueComparison(left, operator, right, kind)


@cache
def conditions(heads: tuple[PathHead, ...], depth: int = 1) -> st.SearchStrategy[Condition]:
    fewest = 1 if ContextNode() in heads else 0
    simple = st.one_of(st.builds(Exists, paths(heads, depth, fewest)), comparisons(heads), comparisons(heads))
    if depth == 0:
        return simple
    parts = st.tuples(simple, simple)
    return st.one_of(simple, simple, st.builds(Negation, simple), st.builds(AllOf, parts), st.builds(AnyOf, parts))


# Events and actions


@cache
def arc_names() -> st.SearchStrategy[str | None]:
    return st.sampled_from([None, *VALUES])


@cache
def classes() -> st.SearchStrategy[str | None]:
    return st.sampled_from([None, None, None, *CLASSES])


@cache
@st.composite
def triple_nodes(draw: st.DrawFn, heads: tuple[PathHead, ...], constant: str | bool | None = False) -> TripleNode:
    """A node that is matched. `constant`: the property whose constants it may be, if any."""
    choices: list[st.SearchStrategy[object]] = [st.none(), paths(heads)]
    if constant is not False:
        choices.append(constants(None if constant is True else constant))
    return TripleNode(draw(st.one_of(*choices)), draw(classes()))  # type: ignore[arg-type]


@cache
@st.composite
def events(draw: st.DrawFn) -> Event:
    some, everything = heads(), st.just(NodePath(AllNodes()))
    if draw(st.booleans()):
        kind = draw(st.sampled_from((ChangeKind.INSERT, ChangeKind.DELETE)))
        return NodeEvent(kind, draw(st.one_of(everything, everything, everything, paths(some))), draw(classes()))
    kind = draw(st.sampled_from(ChangeKind))
    arc = draw(st.one_of(st.none(), arc_names()))
    loose = st.just(TripleNode())
    ends = [draw(st.one_of(loose, loose, loose, triple_nodes(some, arc))) for _ in range(2)]
    start = draw(st.one_of(loose, loose, loose, triple_nodes(some)))
    return ArcEvent(kind, Triple(start, arc, ends[0], ends[1] if kind is ChangeKind.UPDATE else None))


@cache
@st.composite
def new_nodes(draw: st.DrawFn, heads: tuple[PathHead, ...], property_: str) -> TripleNode:
    """The target of a triple to insert, or a new target: a constant if the range is a datatype, else a path."""
    if all(not term.is_uri for term in VALUES[property_]):
        return TripleNode(draw(constants(property_)))
    named = st.sampled_from([head for head in heads if not isinstance(head, AllNodes)]).map(NodePath)
    if property_ == RDF_TYPE:
        return TripleNode(draw(st.sampled_from([NodePath(NamedNode(name)) for name in CLASSES])))
    return TripleNode(draw(st.one_of(named, named, paths(heads, 0))))


@cache
@st.composite
def triples(draw: st.DrawFn, kind: ChangeKind, heads: tuple[PathHead, ...]) -> Triple:
    named = [head for head in heads if not isinstance(head, AllNodes)]
    start = draw(st.one_of(st.sampled_from(named).map(lambda head: TripleNode(NodePath(head))), triple_nodes(heads)))
    if kind is ChangeKind.DELETE:
        arc = draw(arc_names())
        return Triple(start, arc, draw(triple_nodes(heads, arc)))
    property_ = draw(st.sampled_from([*VALUES]))
    if kind is ChangeKind.UPDATE:
        old = draw(st.one_of(st.just(TripleNode()), triple_nodes(heads, property_)))
        return Triple(start, property_, old, draw(new_nodes(heads, property_)))
    if draw(st.integers(0, 3)) == 0:
        collection = draw(st.sampled_from([BAG, SEQ, SEQ, RESOURCES[0]]))
        return Triple(TripleNode(NodePath(NamedNode(collection))), SequenceNext(), draw(new_nodes(heads, V + "about")))
    return Triple(start, property_, draw(new_nodes(heads, property_)))


@cache
@st.composite
def actions(draw: st.DrawFn, delta: bool = False) -> Action:
    """An action; with `delta`, one of a rule whose deltas are any."""
    some = heads(delta)
    kind = draw(st.sampled_from(ChangeKind))
    if kind is not ChangeKind.UPDATE and draw(st.integers(0, 3)) == 0:
        named = st.sampled_from([head for head in some if not isinstance(head, AllNodes)]).map(NodePath)
        class_iri = draw(st.sampled_from(CLASSES) if kind is ChangeKind.INSERT else classes())
        return NodeAction(kind, draw(st.one_of(named, named, paths(some, 0))), class_iri)
    return ArcAction(kind, tuple(draw(st.lists(triples(kind, some), min_size=1, max_size=2))))


def _named(uri: str) -> TripleNode:
    return TripleNode(NodePath(NamedNode(uri)))


@cache
def schedules() -> st.SearchStrategy[tuple[Action, ...]]:
    """The actions of an update."""
    return st.lists(actions(), min_size=1, max_size=3).map(tuple)


def effective_actions() -> st.SearchStrategy[Action]:
    """Actions that always succeed, and mostly change something."""
    nodes = st.sampled_from([NodePath(NamedNode(uri)) for uri in RESOURCES])
    inserted = st.builds(NodeAction, st.just(ChangeKind.INSERT), nodes, st.sampled_from(CLASSES))
    return st.one_of(inserted, st.builds(NodeAction, st.just(ChangeKind.DELETE), nodes))


FAILING = ArcAction(ChangeKind.INSERT, (Triple(_named(RESOURCES[0]), SequenceNext(), _named(RESOURCES[1])),))
"""Fails, because the source is no collection."""


# Rules


def _fields(event: Event) -> list[DeltaField]:
    if not isinstance(event, ArcEvent):
        return []
    if event.kind is ChangeKind.UPDATE:
        return [DeltaField.OLD_TARGET, DeltaField.NEW_TARGET]
    return [DeltaField.TARGET]


@cache
@st.composite
def rules(draw: st.DrawFn, strict: bool = True) -> EcaRule:
    """A rule of mode Immediate or Deferred. `strict`: also STRICT ones."""
    # Short draws come first: hypothesis often ends an example with the simplest values.
    coupling = draw(st.sampled_from((Coupling.IMMEDIATE, Coupling.IMMEDIATE, Coupling.DEFERRED)))
    abort = draw(st.sampled_from((AbortDependency.MUTUAL, *AbortDependency)))
    fails, is_strict = draw(st.integers(0, 2)) == 2, strict and draw(st.integers(0, 7)) == 7
    event = draw(events())
    some = (*heads(delta=True), *map(DeltaValue, _fields(event)))
    condition = draw(st.one_of(st.just(Always()), st.just(Always()), conditions(some)))
    parts = draw(st.lists(actions(delta=True), min_size=1, max_size=2))
    if fails:
        parts = [draw(effective_actions()), *parts, FAILING]
    return EcaRule(event, condition, tuple(parts), coupling=coupling, abort=abort, strict=is_strict)


@cache
@st.composite
def rule_sets(draw: st.DrawFn, most: int = 3, strict: bool = True) -> dict[int, EcaRule]:
    """Rules by number. PRECEDES and FOLLOWS form no cycle."""
    made = draw(st.lists(rules(strict), min_size=2, max_size=most))
    order = draw(st.permutations(range(len(made))))
    named = {}
    for place, index in enumerate(order):
        later = [f"rule {other}" for other in order[place + 1 :]]
        one = made[index]
        precedes = tuple(draw(st.lists(st.sampled_from(later), max_size=1))) if later else ()
        named[index + 1] = EcaRule(
            one.event,
            one.condition,
            one.actions,
            f"rule {index}",
            one.coupling,
            one.abort,
            precedes,
            (),
            False,
            one.strict,
        )
    return dict(sorted(named.items()))


@cache
@st.composite
def transactions(draw: st.DrawFn, strict: bool = True) -> TransactionStep:
    """A registration, deletion or update, under random rules."""
    in_force = draw(rule_sets(strict=strict))
    return TransactionStep(draw(st.one_of(registrations(), schedules())), in_force)
