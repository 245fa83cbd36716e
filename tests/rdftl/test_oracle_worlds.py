"""The oracle of RDFTL on random worlds: invariants, paths against SPARQL, and the closure against owlrl."""

from __future__ import annotations

import re
from collections import Counter
from itertools import count

import owlrl
import pyoxigraph
import rdflib
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mdv.model import RDF, RDF_TYPE, RDFS, XSD_STRING, Document, Statement, Term
from mdv.rdf.validate import validate
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
    Delta,
    DeltaValue,
    Exists,
    NamedNode,
    Negation,
    NodePath,
    ValueComparison,
)
from tests.support.rdftl_oracle import (
    COLLECTIONS,
    ActionFailed,
    Limits,
    RuleFailed,
    RulesDoNotEnd,
    State,
    exec_sched,
    holds,
    select,
)
from tests.support.rdftl_rules import turtle
from tests.support.rdftl_worlds import (
    NODES,
    SCHEMA,
    SCHEMA_TEXT,
    TransactionStep,
    conditions,
    documents,
    heads,
    paths,
    transactions,
)

LIMITS = Limits(100, 20)
FAST = settings(max_examples=300, suppress_health_check=[*HealthCheck], deadline=None)


@given(documents(), transactions())
@settings(FAST, max_examples=150)
def test_random_transactions_keep_documents_valid(said: dict[str, frozenset[Statement]], step: TransactionStep) -> None:
    state = State(said, SCHEMA)
    try:
        outcome = exec_sched(step.cause, step.rules, state, LIMITS)
    except (ActionFailed, RuleFailed, RulesDoNotEnd):
        return
    # The effective changes of the trace lead from the documents before to those after.
    replayed = {uri: set(statements) for uri, statements in said.items()}
    for one in outcome.trace:
        for uri, removed, added in one.changes:
            there = replayed.setdefault(uri, set())
            if removed is not None:
                there.remove(removed)
            if added is not None:
                assert added not in there
                there.add(added)
    assert {uri: there for uri, there in replayed.items() if there} == outcome.documents
    for uri, statements in outcome.documents.items():
        validate(Document(uri, tuple(statements)), SCHEMA)
    assert outcome == exec_sched(step.cause, step.rules, state, LIMITS)


def test_random_transactions_fire_fail_and_are_undone() -> None:
    """A check of the random worlds themselves. The examples are always the same, so that the counts are, too."""
    seen: Counter[str] = Counter()

    @given(documents(), transactions())
    @settings(FAST, max_examples=150, derandomize=True, database=None)
    def count_outcome(said: dict[str, frozenset[Statement]], step: TransactionStep) -> None:
        try:
            outcome = exec_sched(step.cause, step.rules, State(said, SCHEMA), LIMITS)
        except (ActionFailed, RuleFailed, RulesDoNotEnd) as refused:
            seen[type(refused).__name__] += 1
            return
        seen["fired"] += bool(outcome.fired)
        seen["undone"] += any(one.undone for one in outcome.trace)

    count_outcome()
    assert all(seen[name] for name in ("fired", "undone", "ActionFailed", "RuleFailed")), seen


# Paths against SPARQL

TYPED = {ValueKind.NUMBER: "decimal", ValueKind.INSTANT: "dateTime"}


def sparql_term(term: Term) -> str:
    if term.is_uri:
        return f"<{term.value}>"
    suffix = f"@{term.lang}" if term.lang else f"^^<{term.datatype or XSD_STRING}>"
    return f'"{term.value}"{suffix}'


class Translation:
    """Paths and conditions as SPARQL over the closure. Variables are numbered."""

    def __init__(self, delta: Delta) -> None:
        self.delta, self.numbers = delta, count(1)

    def new(self) -> str:
        return f"?v{next(self.numbers)}"

    def path(self, path: NodePath, context: str | None) -> tuple[str, str]:
        """Return a pattern, and the variable of what the path selects."""
        variable = self.new()
        a, b = self.new(), self.new()
        match path.head:
            case AllNodes():
                pattern = f"{{ select distinct {variable} {{ {variable} {a} {b} }} }}"
            case NamedNode(uri):
                present = f"exists {{ <{uri}> {a} {b} }} || exists {{ {a} {b} <{uri}> }}"
                pattern = f"bind(<{uri}> as {variable}) filter({present})"
            case ContextNode():
                pattern = f"bind({context} as {variable})"
            case DeltaValue():
                pattern = f"bind(<{self.delta.source}> as {variable})"
        pattern += "".join(f" filter({self.condition(one, variable)})" for one in path.qualifiers)
        for step in path.steps:
            start, variable, arc = variable, self.new(), self.new()
            ends = f"{start} {arc} {variable}" if step.axis is not Axis.SOURCE else f"{variable} {arc} {start}"
            pattern += f" {ends} ."
            if step.axis is Axis.ELEMENT:
                classes = COLLECTIONS if step.index is None else (RDF + "Seq",)
                pattern += f' filter(regex(str({arc}), "^{re.escape(RDF)}_{step.index or "[1-9][0-9]*"}$"))'.replace(
                    "\\", "\\\\"
                )
                pattern += f" filter({' || '.join(f'exists {{ {start} a <{one}> }}' for one in classes)})"
            elif step.property is not None:
                pattern += f" filter({arc} = <{step.property}>)"
            pattern += "".join(f" filter({self.condition(one, variable)})" for one in step.qualifiers)
        return pattern, variable

    def condition(self, condition: Condition, context: str | None) -> str:
        match condition:
            case Always():
                return "true"
            case Exists(path):
                return f"exists {{ {self.path(path, context)[0]} }}"
            case Negation(part):
                return f"(!{self.condition(part, context)})"
            case AllOf(parts):
                return f"({' && '.join(self.condition(part, context) for part in parts)})"
            case AnyOf(parts):
                return f"({' || '.join(self.condition(part, context) for part in parts)})"
            case ValueComparison(left, operator, right, kind):
                first, value = self.path(left, context)  # type: ignore[arg-type]
                if isinstance(right, ConstantValue):
                    if kind is ValueKind.TEXT:
                        same = f'(str({value}) = "{right.text}" || sameTerm({value}, <{right.uri}>))'
                        return f"exists {{ {first} filter({'!' if operator.value == '!=' else ''}{same}) }}"
                    second, other = "", f'"{right.text}"'
                else:
                    second, other = self.path(right, context)
                shown = [
                    f"str({one})" if kind is ValueKind.TEXT else f"<{self.cast(kind)}>({self.typed(one, kind)})"
                    for one in (value, other)
                ]
                return f"exists {{ {first} {second} filter({shown[0]} {operator.value} {shown[1]}) }}"

    def cast(self, kind: ValueKind) -> str:
        return f"http://www.w3.org/2001/XMLSchema#{TYPED[kind]}"

    def typed(self, value: str, kind: ValueKind) -> str:
        """Dates become instants at midnight in UTC."""
        return f'concat(str({value}), "T00:00:00Z")' if kind is ValueKind.INSTANT else f"str({value})"


def store_of(state: State) -> pyoxigraph.Store:
    store = pyoxigraph.Store()
    lines = (f"<{one.subject}> <{one.property}> {sparql_term(one.object)} ." for one in state.arcs)
    store.load("\n".join(lines).encode(), format=pyoxigraph.RdfFormat.N_TRIPLES)
    return store


def read_terms(found: pyoxigraph.QuerySolutions) -> set[tuple[str, str, str | None]]:
    return {(type(one[0]).__name__, one[0].value, getattr(one[0], "language", None)) for one in found}


@given(documents(), paths(heads(delta=True), 1), conditions(heads(delta=True), 1), st.sampled_from(NODES))
@FAST
def test_paths_and_conditions_agree_with_sparql(
    said: dict[str, frozenset[Statement]], path: NodePath, condition: Condition, source: str
) -> None:
    state, delta = State(said, SCHEMA), Delta(source)
    store = store_of(state)
    pattern, variable = Translation(delta).path(path, None)
    found = read_terms(store.query(f"select distinct {variable} {{ {pattern} }}"))
    expected = {("NamedNode" if one.is_uri else "Literal", one.value, one.lang) for one in select(path, state, delta)}
    assert found == expected
    asked = Translation(delta).condition(condition, None)
    assert bool(store.query(f"ask {{ filter({asked}) }}")) == holds(condition, state, delta)


# The closure against owlrl


@given(documents())
@settings(FAST, max_examples=40)
def test_the_closure_agrees_with_owlrl(said: dict[str, frozenset[Statement]]) -> None:
    state = State(said, SCHEMA)
    graph = rdflib.Graph()
    # Domains and ranges infer types in RDFS. In MDV they do not, so they are left out.
    schema = {one for one in turtle(SCHEMA_TEXT) if one.property in (RDFS + "subClassOf", RDFS + "subPropertyOf")}
    lines = (f"<{one.subject}> <{one.property}> {sparql_term(one.object)} ." for one in schema | state.stated)
    graph.parse(data="\n".join(lines), format="nt")
    owlrl.DeductiveClosure(owlrl.RDFS_Semantics, axiomatic_triples=False, datatype_axioms=False).expand(graph)
    # owlrl confuses literals that differ only in their language, so languages are not compared.
    # MDV has no rdfs:member arcs, no type arcs to rdfs:Resource, and rdfs:Container is built in.
    built_in = (RDFS, RDF, "http://www.w3.org/2001/XMLSchema#")
    found = {
        (str(s), str(p), str(o))
        for s, p, o in graph
        if str(s) in state.nodes
        and not (str(p) == RDF_TYPE and str(o).startswith(built_in))
        and str(p) != RDFS + "member"
    }
    arcs = {
        (one.subject, one.property, one.object.value)
        for one in state.arcs
        if not (one.property == RDF_TYPE and one.object.value.startswith(built_in))
    }
    assert found == arcs
    for name in ("Bag", "Seq"):
        assert state.extension(RDF + name) <= state.extension(RDFS + "Container")
