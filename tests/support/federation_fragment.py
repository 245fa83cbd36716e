"""A fragment in memory, for simulations: documents under the naive meaning of RDFTL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mdv.federation.fragment import (
    ActionNotPermitted,
    ActionRefused,
    CommittedChange,
    FoundTerm,
    IndexChange,
    ResourceClasses,
    StepQuestion,
)
from mdv.federation.privileges import Grant, privilege_on
from mdv.federation.relevance import schema_node
from mdv.model import RDF_TYPE, Statement, Term
from mdv.rdf.schema import Schema
from mdv.rdftl.cells import MEMBERSHIP
from mdv.rdftl.model import Action, Axis, Delta, Event, NodeStep
from tests.support.rdftl_oracle import (
    COLLECTIONS,
    ActionFailed,
    ArcChanges,
    EffectiveChange,
    Registration,
    State,
    StrictRuleFailed,
    Updates,
    _deltas,
    arc_changes,
    execute,
    is_step,
    register,
    undo,
)

NO_NODES: frozenset[str] = frozenset()


class MemoryFragment:
    """The documents of one peer. `journal`: the effective changes of each transaction, for compensation."""

    def __init__(self, schema: Schema, documents: Mapping[str, frozenset[Statement]] | None = None) -> None:
        self.schema = schema
        self.state = State(dict(documents or {}), schema)
        self.journal: dict[str, list[tuple[EffectiveChange, ...]]] = {}
        self.compensated: list[str] = []
        self.executed: list[tuple[str, int]] = []

    # Changes of the peer itself

    def register(self, transaction: str, uri: str, statements: Iterable[Statement]) -> CommittedChange:
        """Register a document, as a transaction of the peer."""
        effect = register(Registration(uri, frozenset(statements) or None), self.state)
        return self._commit(transaction, 0, effect.state, effect.changes, None)

    def _commit(
        self, transaction: str, step: int, after: State, changes: tuple[EffectiveChange, ...], updates: Updates
    ) -> CommittedChange:
        before, self.state = self.state, after
        self.journal.setdefault(transaction, []).append(changes)
        arcs = arc_changes(before, after, updates)
        return CommittedChange(
            transaction, step, tuple(sorted(arcs.inserted)), tuple(sorted(arcs.deleted)), tuple(sorted(arcs.updated)),
            tuple(sorted(after.nodes - before.nodes)), tuple(sorted(before.nodes - after.nodes)),
            index_change(before, after),
        )  # fmt: skip

    # The protocol of a fragment

    def contents(self) -> IndexChange:
        return index_change(State({}, self.schema), self.state)

    def select(self, question: StepQuestion) -> frozenset[FoundTerm]:
        state, term = self.state, question.term
        if question.axis == "nodes":
            return frozenset(FoundTerm(Term.uri(uri)) for uri in state.nodes)
        assert term is not None
        if question.axis == "node":
            return frozenset([FoundTerm(term)] if state.has(term.value) else [])
        if question.axis == "source":
            arcs = [arc for arc in state.arcs_to.get(term, ()) if question.property in (None, arc.property)]
            return frozenset(FoundTerm(Term.uri(arc.subject), arc) for arc in arcs)
        axis = Axis.TARGET if question.axis == "target" else Axis.ELEMENT
        step = NodeStep(axis, question.property, question.number)
        arcs = [arc for arc in state.arcs_from.get(term.value, ()) if is_step(arc.property, step)]
        return frozenset(FoundTerm(arc.object, arc, state.arcs[arc]) for arc in arcs)

    def find_event(self, event: Event, strict: bool, change: CommittedChange) -> list[Delta]:
        after = self.state
        before = self._before(change)
        arcs = ArcChanges(frozenset(change.inserted), frozenset(change.deleted), frozenset(change.updated))
        try:
            return _deltas(event, before, after, arcs, strict, set())
        except StrictRuleFailed:
            return []

    def _before(self, change: CommittedChange) -> State:
        changes = self.journal.get(change.transaction, [])
        if change.step < len(changes):
            state, _ = undo(changes[change.step], self.state)
            return state
        return self.state

    def execute(
        self,
        transaction: str,
        step: int,
        action: Action,
        delta: Delta | None,
        strict: bool,
        grants: tuple[Grant, ...] | None,
    ) -> CommittedChange:
        try:
            effect = execute(action, self.state, delta, strict=strict)
        except (ActionFailed, StrictRuleFailed) as failed:
            raise ActionRefused(str(failed)) from failed
        for change in effect.changes if grants is not None else ():
            for one in (change.removed, change.added):
                if one is not None and not self._is_writable(one, grants or ()):
                    raise ActionNotPermitted(f"{one.subject} {one.property} is not read-write")
        assert (transaction, step) not in self.executed, f"{transaction} ran step {step} twice"
        self.executed.append((transaction, step))
        return self._commit(transaction, step, effect.state, effect.changes, effect.updates)

    def _is_writable(self, statement: Statement, grants: tuple[Grant, ...]) -> bool:
        classes = classes_of(statement.subject, self.state)
        return privilege_on(statement, classes, grants, self.schema).writes

    def compensate(self, transaction: str) -> CommittedChange:
        assert transaction not in self.compensated, f"{transaction} is compensated twice"
        self.compensated.append(transaction)
        state = self.state
        for changes in reversed(self.journal.get(transaction, [])):
            state, _ = undo(changes, state)
        change = self._commit("", 0, state, (), None)
        return change._replace(transaction=transaction, reacts=False)


def classes_of(uri: str, state: State) -> frozenset[str]:
    return frozenset(arc.object.value for arc in state.arcs_from.get(uri, ()) if arc.property == RDF_TYPE)


def present_nodes(state: State) -> frozenset[str]:
    """Return the schema nodes that a state has data of, naively."""
    found = {schema_node(arc.property) for arc in state.arcs}
    found |= {arc.object.value for arc in state.arcs if arc.property == RDF_TYPE}
    if found & set(COLLECTIONS):
        found.add(MEMBERSHIP)
    if state.arcs:
        found.add("http://www.w3.org/2000/01/rdf-schema#Resource")
    return frozenset(found)


def mentioned(state: State) -> dict[str, frozenset[str]]:
    """Return the resources that a state mentions, with their classes."""
    uris = state.nodes | {arc.object.value for arc in state.arcs if arc.object.is_uri}
    return {uri: classes_of(uri, state) for uri in uris}


def index_change(before: State, after: State) -> IndexChange:
    old, new = present_nodes(before), present_nodes(after)
    here, there = mentioned(before), mentioned(after)
    came = [ResourceClasses(uri, classes) for uri, classes in sorted(there.items()) if here.get(uri) != classes]
    return IndexChange(new - old, old - new, tuple(came), frozenset(here.keys() - there.keys()))
