"""The naive meaning of RDFTL: the definition that the engine is compared with.

It reads resolved rules (`mdv.rdftl.model`), recomputes everything after each update, and does no I/O. The comments cite
the laws of the specification: S (state), E (events), A (actions), X (execution).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cached_property, lru_cache
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from mdv.errors import InvalidDocument
from mdv.model import RDF, RDF_TYPE, RDFS_RESOURCE, Document, Statement, Term, is_blank
from mdv.rdf.schema import Schema
from mdv.rdf.validate import ValueTyper, validate
from mdv.rdf.values import ValueKind, parse_boolean, parse_instant, parse_number
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
    CallAction,
    ChangeKind,
    Condition,
    ConstantValue,
    ContextNode,
    Coupling,
    Delta,
    DeltaField,
    DeltaValue,
    EcaRule,
    Event,
    Exists,
    NamedNode,
    Negation,
    NodeAction,
    NodePath,
    NodeStep,
    Operand,
    SequenceNext,
    Triple,
    TripleNode,
    ValueComparison,
)
from mdv.real.resolve import read_program
from mdv.real.syntax import Program
from mdv.real.vocabulary import INPUT_SIGNATURE, LRM_BODY, REAL_CODE
from mdv.rules.operators import Operator
from tests.support.real_reference import Layer, ProgramError, Reference, Store, sees
from tests.support.rule_oracle import HOLDS

RULES_DOCUMENT = "urn:mdv:eca:main"
UPDATES_DOCUMENT = "urn:mdv:updates"
COLLECTIONS = (RDF + "Bag", RDF + "Seq", RDF + "Alt")
_MEMBER = re.compile(re.escape(RDF) + "_([1-9][0-9]*)")

Documents: TypeAlias = Mapping[str, frozenset[Statement]]


class ActionFailed(Exception):
    """An action that cannot be carried out. It has changed nothing."""


class StrictRuleFailed(Exception):
    """The event or condition of a STRICT rule applies `element` to something that is no collection (S7)."""


class RuleFailed(Exception):
    """A rule failed, and its ABORT dependency refuses the whole transaction. `action`: None if its condition failed."""

    def __init__(self, rule: int, delta: Delta | None, action: int | None, reason: str) -> None:
        super().__init__(rule, delta, action, reason)
        self.rule, self.delta, self.action, self.reason = rule, delta, action, reason


class RulesDoNotEnd(Exception):
    """A limit is exceeded (X6). `trace`: the steps up to there."""

    def __init__(self, limit: str, trace: tuple[Step, ...]) -> None:
        super().__init__(limit)
        self.limit, self.trace = limit, trace


# State


@dataclass(frozen=True)
class State:
    """The documents with their statements, and the schema. A document without statements is not present (A11)."""

    documents: Documents
    schema: Schema

    @cached_property
    def stated(self) -> frozenset[Statement]:
        return frozenset().union(*self.documents.values())

    @cached_property
    def arcs(self) -> dict[Statement, frozenset[str]]:
        """Return the closure (S1). Each arc has the properties of the statements that it follows from: by them, its
        target is typed."""
        found: dict[Statement, set[str]] = defaultdict(set)
        for statement in self.stated:
            for arc in entailed(statement, self.schema):
                found[arc].add(statement.property)
        return {arc: frozenset(properties) for arc, properties in found.items()}

    @cached_property
    def nodes(self) -> frozenset[str]:
        """Return the resources with at least one statement about them (S2)."""
        return frozenset(self.arcs_from)

    @cached_property
    def arcs_from(self) -> dict[str, list[Statement]]:
        found = defaultdict(list)
        for arc in self.arcs:
            found[arc.subject].append(arc)
        return dict(found)

    @cached_property
    def arcs_to(self) -> dict[Term, list[Statement]]:
        found = defaultdict(list)
        for arc in self.arcs:
            found[arc.object].append(arc)
        return dict(found)

    def extension(self, class_iri: str | None) -> frozenset[str]:
        """Return the instances of a class. Every node is an instance of rdfs:Resource, without a type arc (S8)."""
        if class_iri in (None, RDFS_RESOURCE):
            return self.nodes
        typed = self.arcs_to.get(Term.uri(class_iri), ())
        return frozenset(arc.subject for arc in typed if arc.property == RDF_TYPE)

    def is_instance(self, term: Term, *classes: str) -> bool:
        return term.is_uri and any(term.value in self.extension(class_iri) for class_iri in classes)

    def has(self, uri: str) -> bool:
        """True if `uri` is a subject or object (S2)."""
        return uri in self.arcs_from or Term.uri(uri) in self.arcs_to


def entailed(statement: Statement, schema: Schema) -> frozenset[Statement]:
    """Return what follows from a statement by subclasses and subproperties, including itself."""
    subject, property_, term = statement
    classes: tuple[str, ...] = ()
    if property_ == RDF_TYPE and term.value in schema.classes:
        classes = schema.classes[term.value].superclasses
    terms = {term, *(Term.uri(above) for above in classes if above != RDFS_RESOURCE)}
    return frozenset(Statement(subject, name, one) for name in superproperties(property_, schema) for one in terms)


def superproperties(iri: str, schema: Schema) -> tuple[str, ...]:
    declared = schema.property_of(iri)
    return declared.superproperties if declared is not None else (iri,)


def value_kind_of(arc: str | None, schema: Schema) -> ValueKind:
    """Return how constants are compared with the targets of an arc (S4)."""
    declared = schema.property_of(arc) if arc is not None else None
    return declared.kind if declared is not None else ValueKind.TEXT


# Paths and conditions


class Selected(NamedTuple):
    """A node or literal on a path, and the properties by which a literal is typed."""

    term: Term
    properties: frozenset[str] = frozenset()


Value: TypeAlias = Selected | ConstantValue


@lru_cache
def _typing(schema: Schema) -> ValueTyper:
    return ValueTyper(schema)


def compare(left: Value, operator: Operator, right: Value, kind: ValueKind, schema: Schema) -> bool:
    """Compare two values as contract §2 says (S4)."""
    pairs = product(_values(left, right, kind, schema), _values(right, left, kind, schema))
    return any(HOLDS[operator](one, other) for one, other in pairs)


def _values(value: Value, other: Value, kind: ValueKind, schema: Schema) -> set[Any]:
    if kind is ValueKind.TEXT:
        if isinstance(value, Selected):
            return {value.term.value}
        # The text also stands for the URI that it makes together with BASE.
        is_meant = isinstance(other, Selected) and other.term == Term.uri(value.uri)
        return {value.uri if is_meant else value.text}
    number = (ValueKind.NUMBER, ValueKind.INSTANT, ValueKind.TRUTH).index(kind)
    if isinstance(value, ConstantValue):
        return {(parse_number, parse_instant, parse_boolean)[number](value.text)} - {None}
    typing = _typing(schema)
    return {typing.typed_values(name, value.term)[number] for name in value.properties} - {None}


class Note(Enum):
    """What a user should know about a run."""

    NO_COLLECTION = "element of something that is no collection"  # S7
    NOT_STATED = "an arc that only follows from another was not deleted or updated"  # A9
    FAILED = "a rule failed, and its effects were undone"
    NOT_UNDONE = "a change was not undone, because what it left has changed"


@dataclass(frozen=True)
class Evaluation:
    """Paths and conditions on a state, for a delta. `in_action`: `element` needs a collection (S7)."""

    state: State
    delta: Delta | None = None
    strict: bool = False
    in_action: bool = False
    notes: set[Note] = field(default_factory=set)

    def select(self, path: NodePath, context: Selected | None = None, itself: bool = False) -> set[Selected]:
        """Return the nodes and literals that a path selects. `itself`: `resource(u)` is u, even if it is not in the
        graph (S2)."""
        found = self.qualified(self.start(path, context, itself), path.qualifiers)
        for step in path.steps:
            found = self.qualified({target for start in found for target in self.step(start, step)}, step.qualifiers)
        return found

    def start(self, path: NodePath, context: Selected | None, itself: bool) -> set[Selected]:
        match path.head:
            case AllNodes():
                return {Selected(Term.uri(uri)) for uri in self.state.nodes}
            case NamedNode(uri):
                return {Selected(Term.uri(uri))} if itself or self.state.has(uri) else set()
            case ContextNode():
                assert context is not None
                return {context}
            case DeltaValue(name):
                return {delta_value(self.delta, name)}

    def qualified(self, found: set[Selected], qualifiers: Iterable[Condition]) -> set[Selected]:
        for condition in qualifiers:
            found = {one for one in found if self.holds(condition, one)}
        return found

    def step(self, start: Selected, step: NodeStep) -> set[Selected]:
        if step.axis is Axis.SOURCE:
            arcs = self.state.arcs_to.get(start.term, ())
            return {Selected(Term.uri(arc.subject)) for arc in arcs if step.property in (None, arc.property)}
        if step.axis is Axis.ELEMENT and not self.is_collection(start.term, step.index):
            return set()
        arcs = self.state.arcs_from.get(start.term.value, ()) if start.term.is_uri else ()
        return {Selected(arc.object, self.state.arcs[arc]) for arc in arcs if is_step(arc.property, step)}

    def is_collection(self, term: Term, index: int | None) -> bool:
        """True if `element()`, or `element(i)`, applies (S3). If it must and does not, it is a failure (S7)."""
        if self.state.is_instance(term, *(COLLECTIONS if index is None else (RDF + "Seq",))):
            return True
        if self.in_action:
            raise ActionFailed(f"{term.value} is no collection")
        if self.strict:
            raise StrictRuleFailed(f"{term.value} is no collection")
        self.notes.add(Note.NO_COLLECTION)
        return False

    def holds(self, condition: Condition, context: Selected | None = None) -> bool:
        """True if a condition holds. All of its parts are evaluated, whatever the others say."""
        # Qualifiers are conditions, also those of an action.
        here = Evaluation(self.state, self.delta, self.strict, False, self.notes)
        match condition:
            case Always():
                return True
            case Exists(path):
                return bool(here.select(path, context))
            case Negation(part):
                return not here.holds(part, context)
            case AllOf(parts):
                return False not in [here.holds(part, context) for part in parts]
            case AnyOf(parts):
                return True in [here.holds(part, context) for part in parts]
            case ValueComparison(left, operator, right, kind):
                pairs = product(here.operand(left, context), here.operand(right, context))
                return any(compare(one, operator, other, kind, self.state.schema) for one, other in pairs)

    def operand(self, operand: Operand, context: Selected | None) -> set[Selected] | set[ConstantValue]:
        return {operand} if isinstance(operand, ConstantValue) else self.select(operand, context)


def is_step(property_: str, step: NodeStep) -> bool:
    if step.axis is Axis.TARGET:
        return step.property in (None, property_)
    found = _MEMBER.fullmatch(property_)
    return found is not None and step.index in (None, int(found[1]))


def delta_value(delta: Delta | None, name: DeltaField) -> Selected:
    assert delta is not None, "this rule has no $delta"
    match name:
        case DeltaField.SOURCE:
            return Selected(Term.uri(delta.source))
        case DeltaField.ARC_NAME:
            return Selected(Term.uri(delta.arc_name))
        case DeltaField.NEW_TARGET:
            term = delta.new_target
        case DeltaField.TARGET | DeltaField.OLD_TARGET:
            term = delta.target
    assert term is not None, f"this delta has no {name.value}"
    return Selected(term, frozenset((delta.arc_name,)))


def select(path: NodePath, state: State, delta: Delta | None = None) -> frozenset[Term]:
    """Return the nodes and literals that a path selects in a condition."""
    return frozenset(one.term for one in Evaluation(state, delta).select(path))


def holds(condition: Condition, state: State, delta: Delta | None = None) -> bool:
    """True if a condition holds."""
    return Evaluation(state, delta).holds(condition)


Matches: TypeAlias = Callable[[Term, frozenset[str]], bool]


def matcher(node: TripleNode | None, evaluation: Evaluation, kind: ValueKind = ValueKind.TEXT) -> Matches:
    """Return whether an end of an arc is a node of a triple. The paths are evaluated once."""
    state = evaluation.state
    value, class_iri = (node.value, node.class_iri) if node is not None else (None, None)
    selected = {one.term for one in evaluation.select(value)} if isinstance(value, NodePath) else set()

    def matches(term: Term, properties: frozenset[str]) -> bool:
        if class_iri is not None and not state.is_instance(term, class_iri):
            return False
        if isinstance(value, ConstantValue):
            return compare(Selected(term, properties), Operator.EQ, value, kind, state.schema)
        return value is None or term in selected

    return matches


# Events


class ArcChanges(NamedTuple):
    """The difference between two closures. No arc is in more than one part."""

    inserted: frozenset[Statement]
    deleted: frozenset[Statement]
    updated: frozenset[Delta]


Updates: TypeAlias = frozenset[Delta] | None
"""The arcs that an action updates; None for a registration, where they are found by comparison (E4)."""


def arc_changes(before: State, after: State, updates: Updates) -> ArcChanges:
    """Return the changes of arcs that one update made (E1, E3, E4)."""
    deleted, inserted = before.arcs.keys() - after.arcs.keys(), after.arcs.keys() - before.arcs.keys()
    if updates is None:
        updated = find_updates(deleted, inserted)
    else:
        updated = {
            update._replace(arc_name=name)
            for update in updates
            for name in superproperties(update.arc_name, after.schema)
            if Statement(update.source, name, update.target or Term.uri("")) in deleted
        }
    paired = {Statement(one.source, one.arc_name, term) for one in updated for term in one[2:] if term is not None}
    return ArcChanges(frozenset(inserted - paired), frozenset(deleted - paired), frozenset(updated))


def find_updates(deleted: Iterable[Statement], inserted: Iterable[Statement]) -> set[Delta]:
    """Return the updates of a registration (E4): where one value of a source and arc went and one came, first among
    those of one language tag (or without one), then among the others."""
    old, new = defaultdict(set), defaultdict(set)
    for arcs, found in ((deleted, old), (inserted, new)):
        for arc in arcs:
            found[arc.subject, arc.property].add(arc.object)
    updates = set()
    for key in old.keys() & new.keys():
        tags = {term.lang for term in old[key]}
        for tag in (*tags, "any"):
            olds = [term for term in old[key] if tag in (term.lang, "any")]
            news = [term for term in new[key] if tag in (term.lang, "any")]
            if len(olds) == len(news) == 1:
                updates.add(Delta(*key, *olds, *news))
                old[key] -= {*olds}
                new[key] -= {*news}
    return updates


def deltas(event: Event, before: State, after: State, updates: Updates = None, strict: bool = False) -> list[Delta]:
    """Return the instantiations of `$delta`, in the order of their copies (X4)."""
    return _deltas(event, before, after, arc_changes(before, after, updates), strict, set())


def _deltas(
    event: Event, before: State, after: State, changes: ArcChanges, strict: bool, notes: set[Note]
) -> list[Delta]:
    earlier, later = (Evaluation(state, strict=strict, notes=notes) for state in (before, after))
    # E5: INSERT and UPDATE look at the state after, DELETE at the state before.
    here, there = (earlier, later) if event.kind is ChangeKind.DELETE else (later, earlier)
    if not isinstance(event, ArcEvent):
        # E2: nodes that came into, or left, the extension of the class.
        nodes = here.state.extension(event.class_iri) - there.state.extension(event.class_iri)
        selected = {one.term for one in here.select(event.path)} if nodes else set()
        return sorted(Delta(uri) for uri in nodes if Term.uri(uri) in selected)
    if event.kind is ChangeKind.UPDATE:
        found = set(changes.updated)
    else:
        arcs = changes.inserted if event.kind is ChangeKind.INSERT else changes.deleted
        found = {Delta(*arc) for arc in arcs}
    found = {delta for delta in found if event.triple.arc in (None, delta.arc_name)}
    if not found:
        return []
    kind = value_kind_of(None if isinstance(event.triple.arc, SequenceNext) else event.triple.arc, after.schema)
    is_source = matcher(event.triple.source, here)
    # E5: the old target of an UPDATE is looked up in the state before.
    is_target = matcher(event.triple.target, earlier if event.kind is ChangeKind.UPDATE else here, kind)
    is_new_target = matcher(event.triple.new_target, later, kind)

    def properties(delta: Delta, term: Term) -> frozenset[str]:
        arc = Statement(delta.source, delta.arc_name, term)
        return before.arcs.get(arc, frozenset()) | after.arcs.get(arc, frozenset())

    return sorted(
        delta
        for delta in found
        if is_source(Term.uri(delta.source), frozenset())
        and (delta.target is None or is_target(delta.target, properties(delta, delta.target)))
        and (delta.new_target is None or is_new_target(delta.new_target, properties(delta, delta.new_target)))
    )


# Actions


class EffectiveChange(NamedTuple):
    """A statement that a document gained, lost, or replaced by another."""

    document: str
    removed: Statement | None
    added: Statement | None

    def sort_key(self) -> tuple[Any, ...]:
        """Deletions first (A8), then replacements, then insertions."""
        return (
            (self.added is not None) + (self.removed is None),
            self.document,
            *(statement.sort_key() if statement else () for statement in (self.removed, self.added)),
        )


class Effect(NamedTuple):
    """The result of an update: the state after it, its effective changes, and the arcs that an UPDATE updated."""

    state: State
    changes: tuple[EffectiveChange, ...]
    updates: Updates = frozenset()


@dataclass(frozen=True)
class Edits:
    """Statements that an action removes from documents and adds to them. `updates`: the pairs of an UPDATE."""

    removed: set[tuple[str, Statement]] = field(default_factory=set)
    added: set[tuple[str, Statement]] = field(default_factory=set)
    updates: set[Delta] = field(default_factory=set)

    def insert(self, statement: Statement, document: str, state: State) -> None:
        """A6: into one document, unless some document says it."""
        if statement not in state.stated:
            self.added.add((document, statement))

    def delete(self, statement: Statement, state: State) -> None:
        """A6: from every document that says it."""
        self.removed.update((uri, statement) for uri, said in state.documents.items() if statement in said)

    def update(self, old: Statement, new: Term, state: State) -> None:
        """A5: in each document that says it."""
        self.delete(old, state)
        self.added.update((uri, old._replace(object=new)) for uri, said in state.documents.items() if old in said)
        self.updates.add(Delta(*old, new))


def execute(
    action: Action,
    state: State,
    delta: Delta | None = None,
    *,
    document: str = RULES_DOCUMENT,
    strict: bool = False,
    notes: set[Note] | None = None,
) -> Effect:
    """Carry out an action. Raise `ActionFailed` if it fails; then nothing has changed."""
    notes = notes if notes is not None else set()
    evaluation = Evaluation(state, delta, strict, True, notes)
    edits = Edits()
    if isinstance(action, CallAction):
        return _call(action, evaluation, document)
    if isinstance(action, NodeAction):
        _edit_nodes(action, evaluation, document, edits)
    else:
        members: dict[str, int] = {}
        for triple in action.triples:
            _ARC_ACTIONS[action.kind](triple, evaluation, document, edits, members)
    effect = apply(edits, state)
    if isinstance(action, ArcAction) and action.kind is not ChangeKind.INSERT:
        derived = effect.state.arcs.keys() - state.stated
        if any(arc in derived for triple in action.triples for arc in matching(triple, evaluation, state.arcs)):
            notes.add(Note.NOT_STATED)  # A9
    return effect


class CalledProgram(Reference):
    """The body of an action, with what a provider refuses. `into`: where its default context writes."""

    def __init__(self, state: State, into: str) -> None:
        super().__init__()
        self.schema, self.into = state.schema, into

    def add(self, statement: Statement, contexts: tuple[str | None, ...], store: Store | Layer) -> bool:
        content, document = store.content(), contexts[0] or self.into
        if any(one == statement and sees(contexts[:1], uri) for uri, one in content):
            return False
        if flaw(document, {statement, *(one for uri, one in content if uri == document)}, self.schema):
            return False
        store.put((document, statement), True)
        return True


def _call(action: CallAction, evaluation: Evaluation, document: str) -> Effect:
    """Run an action of ReAL for every combination of what its arguments select. Its changes are one update."""
    state, edits = evaluation.state, Edits()
    calls = [*product(*(new_terms(TripleNode(one), evaluation) for one in action.arguments))]
    if calls:
        names, body = _action_of(action.action, state)
        if len(names) != len(action.arguments):
            raise ActionFailed("another number of inputs")
        before = {(uri, one) for uri, said in state.documents.items() for one in said}
        store = Store(set(before))
        try:
            for inputs in calls:
                given = dict(zip(names, inputs, strict=True))
                for _ in CalledProgram(state, document).solve(body.body, given, (None,), store):
                    """All solutions are pulled."""
        except ProgramError as error:
            raise ActionFailed(str(error)) from None
        edits.removed.update(before - store.pairs)
        edits.added.update(store.pairs - before)
    return apply(edits, state)._replace(updates=None)


def _action_of(iri: str, state: State) -> tuple[list[str], Program]:
    def values(subject: str, name: str) -> list[Term]:
        return [one.object for one in state.stated if (one.subject, one.property) == (subject, name)]

    codes = [code.value for body in values(iri, LRM_BODY) for code in values(body.value, REAL_CODE)]
    if len(codes) != 1:
        raise ActionFailed(f"no action {iri}")
    names = [name.strip() for one in values(iri, INPUT_SIGNATURE) for name in one.value.split(",")]
    return names, read_program(codes[0], state.schema.prefixes)


def _nodes(path: NodePath, evaluation: Evaluation, itself: bool = False) -> set[str]:
    """Return the nodes that a path selects. Literals are no nodes."""
    return {one.term.value for one in evaluation.select(path, itself=itself) if one.term.is_uri}


def _edit_nodes(action: NodeAction, evaluation: Evaluation, document: str, edits: Edits) -> None:
    state = evaluation.state
    if action.kind is ChangeKind.INSERT:
        for uri in _nodes(action.path, evaluation, itself=True):  # A1
            edits.insert(Statement(uri, RDF_TYPE, Term.uri(action.class_iri or RDFS_RESOURCE)), document, state)
        return
    nodes = _nodes(action.path, evaluation)  # A2
    if action.class_iri is not None:
        nodes &= state.extension(action.class_iri)
    for statement in state.stated:
        if statement.subject in nodes or (statement.object.is_uri and statement.object.value in nodes):
            edits.delete(statement, state)


def matching(triple: Triple, evaluation: Evaluation, arcs: Iterable[Statement]) -> list[Statement]:
    """Return those of `arcs` that a triple of a DELETE or UPDATE matches (A3, A10)."""
    assert not isinstance(triple.arc, SequenceNext)
    state = evaluation.state
    is_source = matcher(triple.source, evaluation)
    is_target = matcher(triple.target, evaluation, value_kind_of(triple.arc, state.schema))
    return [
        arc
        for arc in arcs
        if triple.arc in (None, arc.property)
        and is_source(Term.uri(arc.subject), frozenset())
        and is_target(arc.object, state.arcs[arc])
    ]


def new_terms(node: TripleNode, evaluation: Evaluation) -> list[Term]:
    """Return what a node of a triple to insert, or a new target, denotes, in order (S2, A3, A10, X4)."""
    match node.value:
        case None:
            terms = {Term.uri(uri) for uri in evaluation.state.nodes}
        case ConstantValue(text, _, lang, datatype):
            terms = {Term.literal(text, lang, datatype)}
        case path:
            terms = {one.term for one in evaluation.select(path, itself=True)}
    class_iri = node.class_iri
    return sorted(term for term in terms if class_iri is None or evaluation.state.is_instance(term, class_iri))


def _insert(triple: Triple, evaluation: Evaluation, document: str, edits: Edits, members: dict[str, int]) -> None:
    for source, target in product(new_terms(triple.source, evaluation), new_terms(triple.target, evaluation)):
        if not source.is_uri:
            continue  # A literal is no source.
        arc = triple.arc
        if isinstance(arc, SequenceNext):
            evaluation.is_collection(source, None)
            # A4: the numbers go on within an action.
            last = members.get(source.value) or last_member(source.value, evaluation.state)
            members[source.value] = last + 1
            arc = f"{RDF}_{last + 1}"
        assert arc is not None
        edits.insert(Statement(source.value, arc, target), document, evaluation.state)


def last_member(collection: str, state: State) -> int:
    """Return the highest n of the `rdf:_n` of a collection."""
    found = (_MEMBER.fullmatch(arc.property) for arc in state.arcs_from.get(collection, ()))
    return max((int(one[1]) for one in found if one), default=0)


def _delete(triple: Triple, evaluation: Evaluation, document: str, edits: Edits, members: dict[str, int]) -> None:
    for arc in matching(triple, evaluation, evaluation.state.stated):
        edits.delete(arc, evaluation.state)


def _update(triple: Triple, evaluation: Evaluation, document: str, edits: Edits, members: dict[str, int]) -> None:
    assert triple.new_target is not None
    olds, news = matching(triple, evaluation, evaluation.state.stated), new_terms(triple.new_target, evaluation)
    if olds and len(news) > 1:
        raise ActionFailed(f"an UPDATE with {len(news)} new targets")
    for old, new in product(olds, news):
        edits.update(old, new, evaluation.state)


_ARC_ACTIONS = {ChangeKind.INSERT: _insert, ChangeKind.DELETE: _delete, ChangeKind.UPDATE: _update}


def apply(edits: Edits, state: State) -> Effect:
    """Carry out edits as one update, deletions first (A8). Raise `ActionFailed` if a document becomes invalid (A7)."""
    documents: dict[str, frozenset[Statement]] = dict(state.documents)
    changes: list[EffectiveChange] = []
    for uri in {uri for uri, _ in edits.removed | edits.added}:
        before = documents.get(uri, frozenset())
        after = (before - {one for name, one in edits.removed if name == uri}) | {
            one for name, one in edits.added if name == uri
        }
        _set_document(documents, uri, after)
        if any(is_blank(name) for one in before ^ after for name in (one.subject, one.object.value)):
            raise ActionFailed("a statement about a blank node can only be changed by a registration")
        if after - before and (why := flaw(uri, after, state.schema)):
            raise ActionFailed(why)
        changes += paired_changes(uri, before - after, after - before, edits.updates)
    return Effect(
        State(documents, state.schema),
        tuple(sorted(changes, key=EffectiveChange.sort_key)),
        frozenset(edits.updates),
    )


def flaw(uri: str, statements: Iterable[Statement], schema: Schema) -> str | None:
    """Return why a document with these statements is invalid; None if it is valid."""
    try:
        validate(Document(uri, tuple(sorted(statements))), schema)
    except InvalidDocument as invalid:
        return str(invalid)
    return None


def _set_document(documents: dict[str, frozenset[Statement]], uri: str, statements: frozenset[Statement]) -> None:
    documents.pop(uri, None)
    if statements:
        documents[uri] = statements


def paired_changes(
    uri: str, removed: frozenset[Statement], added: frozenset[Statement], updates: Iterable[Delta]
) -> list[EffectiveChange]:
    """Return the changes of a document. An old value and the new value of an UPDATE are one change."""
    olds, news = set(removed), set(added)
    changes = []
    for source, name, old_target, new_target in sorted(updates):
        assert old_target is not None and new_target is not None
        old, new = Statement(source, name, old_target), Statement(source, name, new_target)
        if old in olds and new in news:
            changes.append(EffectiveChange(uri, old, new))
            olds.remove(old)
            news.remove(new)
    changes += [EffectiveChange(uri, old, None) for old in olds]
    return changes + [EffectiveChange(uri, None, new) for new in news]


def undo(changes: Iterable[EffectiveChange], state: State) -> tuple[State, tuple[EffectiveChange, ...]]:
    """Invert changes in reverse order, and return the inverse changes. A change is left as it is if what it left is not
    there any more, or if the document would become invalid."""
    documents = dict(state.documents)
    inverse = []
    for uri, removed, added in reversed([*changes]):
        said = documents.get(uri, frozenset())
        if (added is None or added in said) and removed not in said:
            restored = said - {added} | ({removed} if removed is not None else set())
            if removed is None or flaw(uri, restored, state.schema) is None:
                _set_document(documents, uri, restored)
                inverse.append(EffectiveChange(uri, added, removed))
    return State(documents, state.schema), tuple(inverse)


# Execution


class Registration(NamedTuple):
    """A document that is registered, or deleted if `statements` is None: one transaction with one update."""

    document: str
    statements: frozenset[Statement] | None


class Limits(NamedTuple):
    """Limits of a transaction (X6)."""

    steps: int = 10_000
    depth: int = 1_000


DEFAULT_LIMITS = Limits()


class Fired(NamedTuple):
    """A copy of the actions of a rule. `delta`: None for a set-oriented rule."""

    rule: int
    delta: Delta | None


class Step(NamedTuple):
    """An update that was executed, or undone. `rule`: None for the updates of the transaction itself.
    `action`: the index of the action in the rule or schedule. `changes`: its effective changes."""

    rule: int | None
    delta: Delta | None
    action: int
    changes: tuple[EffectiveChange, ...]
    undone: bool = False


class Outcome(NamedTuple):
    """The result of a transaction: the documents, the updates in order of execution, the copies in order of firing,
    the copies that run in transactions of their own, and notes (with the rule, or None)."""

    documents: Documents
    trace: tuple[Step, ...]
    fired: tuple[Fired, ...] = ()
    detached: tuple[Fired, ...] = ()
    notes: frozenset[tuple[int | None, Note]] = frozenset()


def mentions_delta(part: object) -> bool:
    """True if `$delta` occurs in a part of a rule."""
    if isinstance(part, tuple):
        return any(map(mentions_delta, part))
    if isinstance(part, DeltaValue):
        return True
    return is_dataclass(part) and any(mentions_delta(getattr(part, one.name)) for one in fields(part))


def is_set_oriented(rule: EcaRule) -> bool:
    """X3."""
    return not mentions_delta((rule.condition, rule.actions))


def rule_order(rules: Mapping[int, EcaRule]) -> list[int]:
    """Return the numbers of the rules in order (X5): of those that are free, the lowest first. Names of rules that have
    ended count for nothing. Raise `ValueError` if there is a cycle."""
    before = {
        number: {
            other
            for other, one in rules.items()
            if (one.name is not None and one.name in rule.follows)
            or (rule.name is not None and rule.name in one.precedes)
        }
        for number, rule in rules.items()
    }
    order: list[int] = []
    while len(order) < len(rules):
        free = [number for number in rules if number not in order and before[number] <= {*order}]
        if not free:
            raise ValueError("PRECEDES and FOLLOWS form a cycle")
        order.append(min(free))
    return order


def exec_sched(
    cause: Registration | Sequence[Action],
    rules: Mapping[int, EcaRule],
    state: State,
    limits: Limits = DEFAULT_LIMITS,
    *,
    document: str = UPDATES_DOCUMENT,
    rule_documents: Mapping[int, str] = MappingProxyType({}),
) -> Outcome:
    """Run a transaction: a registration, or a schedule of actions. `document`: where the schedule inserts.
    `rule_documents`: where rules insert, by default `RULES_DOCUMENT`.

    If it is refused, raise `InvalidDocument` or `ActionFailed` for the registration or schedule itself, `RuleFailed`
    for a rule, or `RulesDoNotEnd` for a limit. The state is then as before.
    """
    run = Execution(rules, state, limits, document, rule_documents)
    run.run(cause)
    return Outcome(
        run.state.documents, tuple(run.trace), tuple(run.fired), tuple(one.fired for one in run.detached),
        frozenset(run.notes),
    )  # fmt: skip


@dataclass(eq=False)
class Subtransaction:
    """A copy of the actions of a rule. Without a parent, it is the transaction itself, which has no rule unless it is a
    detached copy."""

    rule: EcaRule | None = None
    number: int | None = None
    delta: Delta | None = None
    parent: Subtransaction | None = None
    depth: int = 0

    @property
    def fired(self) -> Fired:
        assert self.number is not None
        return Fired(self.number, self.delta)

    @property
    def updates(self) -> list[_Update]:
        return [_Update(self, *one) for one in enumerate(self.rule.actions if self.rule else ())]

    def aborts_parent(self) -> bool:
        return self.rule is not None and self.rule.abort in (AbortDependency.CHILD_PARENT, AbortDependency.MUTUAL)

    def aborts_with_parent(self) -> bool:
        return self.rule is not None and self.rule.abort in (AbortDependency.PARENT_CHILD, AbortDependency.MUTUAL)


class _Update(NamedTuple):
    owner: Subtransaction
    index: int
    action: Action | Registration


class Execution:
    """A transaction in execution."""

    def __init__(
        self,
        rules: Mapping[int, EcaRule],
        state: State,
        limits: Limits,
        document: str,
        rule_documents: Mapping[int, str],
    ) -> None:
        self.rules, self.state, self.limits = rules, state, limits
        self.document, self.rule_documents = document, rule_documents
        self.order = rule_order(rules)
        self.schedule: list[_Update] = []
        self.deferred: list[Subtransaction] = []
        self.detached: list[Subtransaction] = []
        self.executed: list[tuple[_Update, tuple[EffectiveChange, ...]]] = []
        self.steps = 0
        self.trace: list[Step] = []
        self.fired: list[Fired] = []
        self.notes: set[tuple[int | None, Note]] = set()
        self.copies: list[Subtransaction] = []
        self.undone: set[Subtransaction] = set()
        self.culprits: set[int] = set()
        """The rules that failed themselves."""
        self.root = Subtransaction()

    def run(self, cause: Registration | Sequence[Action]) -> None:
        actions = [cause] if isinstance(cause, Registration) else cause
        self.work([_Update(self.root, *one) for one in enumerate(actions)])

    def run_copy(self, root: Subtransaction) -> None:
        """Run a detached copy as a transaction of its own."""
        self.root = root
        self.work(root.updates)

    def work(self, schedule: list[_Update]) -> None:
        self.schedule = schedule
        while self.schedule or self.deferred:
            if not self.schedule:
                self.schedule = self.deferred.pop(0).updates
            self.execute_first()

    def execute_first(self) -> None:
        update = self.schedule.pop(0)
        owner, index, _ = update
        self.steps += 1
        if self.steps > self.limits.steps or owner.depth > self.limits.depth:
            limit = "steps" if self.steps > self.limits.steps else "depth"
            raise RulesDoNotEnd(limit, tuple(self.trace))
        notes: set[Note] = set()
        try:
            effect = self.effect_of(update, notes)
        except (ActionFailed, StrictRuleFailed) as failure:
            if owner.rule is None:
                raise
            self.abort(owner, Fired(owner.number or 0, owner.delta), index, str(failure))
            return
        finally:
            self.notes |= {(owner.number, note) for note in notes}
        before, self.state = self.state, effect.state
        self.trace.append(Step(owner.number, owner.delta, index, effect.changes))
        self.executed.append((update, effect.changes))
        if effect.changes:
            self.react(owner, before, effect.updates)

    def effect_of(self, update: _Update, notes: set[Note]) -> Effect:
        owner, _, action = update
        if isinstance(action, Registration):
            return register(action, self.state)
        rule, document = owner.rule, self.document
        if owner.number is not None:
            document = self.rule_documents.get(owner.number, RULES_DOCUMENT)
        strict = rule is not None and rule.strict
        return execute(action, self.state, owner.delta, document=document, strict=strict, notes=notes)

    def react(self, owner: Subtransaction, before: State, updates: Updates) -> None:
        """Place a copy of the actions of every rule that fires. All conditions are evaluated on one state (X1, X2)."""
        changes = arc_changes(before, self.state, updates)
        prefix: list[_Update] = []
        failure: tuple[int, str] | None = None
        for number in self.order:
            try:
                found = self.firing(number, owner, before, changes)
            except StrictRuleFailed as why:
                self.notes.add((number, Note.FAILED))
                self.culprits.add(number)
                if Subtransaction(self.rules[number]).aborts_parent() and failure is None:
                    failure = number, str(why)
                continue
            self.fired += [copy.fired for copy in found]
            self.copies += found
            match self.rules[number].coupling:
                case Coupling.IMMEDIATE:
                    prefix += [update for copy in found for update in copy.updates]
                case Coupling.DEFERRED:
                    self.deferred += found
                case Coupling.DETACHED:
                    self.detached += found
        self.schedule = prefix + self.schedule
        if failure is not None:
            number, reason = failure
            self.abort(owner, Fired(number, None), None, reason)

    def firing(self, number: int, parent: Subtransaction, before: State, changes: ArcChanges) -> list[Subtransaction]:
        """Return the copies of a rule (X3, X4)."""
        rule = self.rules[number]
        notes: set[Note] = set()
        try:
            found: Sequence[Delta | None] = _deltas(rule.event, before, self.state, changes, rule.strict, notes)
            if found and is_set_oriented(rule):
                found = [None]
            return [
                Subtransaction(rule, number, delta, parent, parent.depth + 1)
                for delta in found
                if Evaluation(self.state, delta, rule.strict, notes=notes).holds(rule.condition)
            ]
        finally:
            self.notes |= {(number, note) for note in notes}

    def abort(self, failed: Subtransaction, culprit: Fired, action: int | None, reason: str) -> None:
        """Undo a subtransaction with those that depend on it. If the transaction itself does, refuse it."""
        self.culprits.add(culprit.rule)
        aborted = {failed}
        while True:
            more = {one.parent for one in aborted if one.aborts_parent() and one.parent is not None}
            more |= {copy for copy in self.copies if copy.parent in aborted and copy.aborts_with_parent()}
            if more <= aborted:
                break
            aborted |= more
        if any(one.parent is None for one in aborted):
            raise RuleFailed(culprit.rule, culprit.delta, action, reason)
        self.undone |= aborted
        self.notes |= {(one.number, Note.FAILED) for one in aborted}
        self.schedule = [update for update in self.schedule if update.owner not in aborted]
        self.deferred = [copy for copy in self.deferred if copy not in aborted]
        self.detached = [copy for copy in self.detached if copy not in aborted]
        for entry in [one for one in reversed(self.executed) if one[0].owner in aborted]:
            (owner, index, _), changes = entry
            self.executed.remove(entry)
            if not changes:
                continue
            self.state, inverse = undo(changes, self.state)
            self.trace.append(Step(owner.number, owner.delta, index, inverse, undone=True))
            if len(inverse) < len(changes):
                self.notes.add((owner.number, Note.NOT_UNDONE))


def register(registration: Registration, state: State) -> Effect:
    """Replace or delete a document. Raise `InvalidDocument` if it does not conform to the schema."""
    uri, statements = registration
    before, after = state.documents.get(uri, frozenset()), statements or frozenset()
    validate(Document(uri, tuple(sorted(after))), state.schema)
    documents = dict(state.documents)
    _set_document(documents, uri, after)
    changes = sorted(paired_changes(uri, before - after, after - before, ()), key=EffectiveChange.sort_key)
    return Effect(State(documents, state.schema), tuple(changes), None)
