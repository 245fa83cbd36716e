"""The fragment of an MDP in a federation: its statements, read and changed for the core."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import groupby

from sqlalchemy import Connection

from mdv.cause import COMPENSATION, RULE, Cause
from mdv.db.federation.fragment_reads import (
    all_statements,
    all_subjects,
    clear_presence,
    count_arcs,
    mentioned_now,
    stated_classes,
    statements_about,
    statements_with_literal,
    statements_with_object,
)
from mdv.db.federation.record_store import find_position, read_journal
from mdv.db.state import LockPurpose
from mdv.errors import RuleFailed, RulesDoNotEnd
from mdv.federation.event_match import deltas_of_kind
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
from mdv.mdp.eca.actions import ActionFailed
from mdv.mdp.eca.changes import EffectiveChange
from mdv.mdp.eca.run import RuleCopy, RuleRun
from mdv.mdp.eca.undo import undo_changes
from mdv.mdp.edit import Edit
from mdv.mdp.federation.capture import FederatedStep, closed_classes, nodes_of_arc, uris_of_arc
from mdv.mdp.federation.event_search import find_event
from mdv.mdp.provider import Provider
from mdv.mdp.transaction import Transaction
from mdv.model import RDF_TYPE, RDFS_RESOURCE, Statement, Term
from mdv.rdf.schema import Schema
from mdv.rdftl.cells import MEMBERSHIP
from mdv.rdftl.events import entailed_arcs
from mdv.rdftl.model import Action, AllNodes, Always, ChangeKind, Delta, EcaRule, Event, NodeEvent, NodePath
from mdv.rdftl.template import abstract_part

DOCUMENT = "urn:mdv:federation:"
"""Where insertions go, without the name of the superpeer whose group made the change that caused them."""


class StoredFragment:
    """The statements of an MDP. `connection`: the transaction, which the caller commits. It holds the lock."""

    def __init__(self, provider: Provider, connection: Connection, schema: Schema, writes: bool = True) -> None:
        self.provider, self.connection, self.schema = provider, connection, schema
        self._writes = writes

    # Reading

    def contents(self) -> IndexChange:
        """Return everything that there is. Count the arcs again."""
        classes: dict[str, set[str]] = {}
        counts: dict[str, int] = {}
        for subject, statements in groupby(all_statements(self.connection), key=lambda one: one.subject):
            for arc in {arc for one in statements for arc in entailed_arcs(one, self.schema)}:
                for uri in uris_of_arc(arc):
                    classes.setdefault(uri, set())
                if arc.property == RDF_TYPE:
                    classes[subject].add(arc.object.value)
                for node in nodes_of_arc(arc):
                    counts[node] = counts.get(node, 0) + 1
        clear_presence(self.connection)
        count_arcs(self.connection, counts)
        came = tuple(ResourceClasses(uri, frozenset(found)) for uri, found in sorted(classes.items()))
        return IndexChange(frozenset(counts), frozenset(), came)

    def select(self, question: StepQuestion) -> Collection[FoundTerm]:
        return select_step(self.connection, self.schema, question)

    def find_event(self, event: Event, strict: bool, change: CommittedChange) -> Collection[Delta]:
        if not deltas_of_kind(event, change):
            return []
        position = find_position(self.connection, change.transaction, change.step)

        def now(question: StepQuestion) -> frozenset[FoundTerm]:
            return select_step(self.connection, self.schema, question)

        def before(question: StepQuestion) -> frozenset[FoundTerm]:
            return select_step(self.connection, self.schema, question, position)

        return find_event(event, strict, change, self.schema, now, before)

    # Changes

    def execute(
        self,
        transaction: str,
        step: int,
        action: Action,
        delta: Delta | None,
        strict: bool,
        grants: tuple[Grant, ...] | None,
    ) -> CommittedChange:
        savepoint = self.connection.begin_nested()
        try:
            change = self._execute(FederatedStep(transaction, step), action, delta, strict, grants)
        except (ActionFailed, RuleFailed, RulesDoNotEnd) as failed:
            savepoint.rollback()
            raise ActionRefused(getattr(failed, "detail", None) or str(failed)) from failed
        except BaseException:
            savepoint.rollback()
            raise
        savepoint.commit()
        return change

    def _execute(
        self, step: FederatedStep, action: Action, delta: Delta | None, strict: bool,
        grants: tuple[Grant, ...] | None,
    ) -> CommittedChange:  # fmt: skip
        tx = self._transaction()
        actions, constants = abstract_part((action,), self.schema)
        origin = origin_of_transaction(step.transaction)
        root = RuleCopy(
            tuple(actions), tuple(constants), delta=delta, document=DOCUMENT + origin, agent=step.transaction,
            kind=RULE, template=_strict_rule(tuple(actions)) if strict else None,
        )  # fmt: skip
        tx.execute_copy(root)
        run = tx.scheduler.run
        if grants is not None:
            self._check_grants(run, grants)
        tx.federated_step = step._replace(updates=_updates_of(run))
        tx.finish()
        return tx.captured or CommittedChange(step.transaction, step.step)

    def _transaction(self) -> Transaction:
        tx = Transaction(self.provider, self.connection)
        with tx.locking(LockPurpose.DOCUMENTS):
            """There are no look-ups."""
        return tx

    def _check_grants(self, run: RuleRun, grants: tuple[Grant, ...]) -> None:
        """Raise `ActionNotPermitted` if the action itself affects a statement that others must not write."""
        every = [change for one in run.steps if one.owner is run.root for change in one.changes]
        statements = [one for change in every for one in (change.removed, change.added) if one is not None]
        stated = stated_classes(self.connection, {one.subject for one in statements}) if statements else {}
        for one in statements:
            classes = closed_classes(stated.get(one.subject, ()), self.schema)
            if not privilege_on(one, classes, grants, self.schema).writes:
                raise ActionNotPermitted(f"{one.subject} {one.property} is not read-write for other superpeers")

    def compensate(self, transaction: str) -> CommittedChange:
        tx = self._transaction()
        tx.reacts = False
        tx.federated_step = FederatedStep(f"undo {transaction}", reacts=False)
        entries = read_journal(self.connection, transaction)
        changes = [
            tuple(EffectiveChange(uri, removed, added) for uri, removed, added in entry.changes) for entry in entries
        ]
        edits = [
            Edit(statement, uri)
            for some in changes
            for uri, *pair in some
            for statement in pair
            if statement is not None
        ]
        if edits:
            tx.look_up_edits(list(dict.fromkeys(edits)))
        for some in changes:
            undo_changes(tx, some, Cause(COMPENSATION, transaction))
        tx.finish()
        done = tx.captured or CommittedChange(transaction)
        return done._replace(transaction=transaction, step=0, reacts=False)


def origin_of_transaction(transaction: str) -> str:
    """Return the superpeer that has made a copy, from the name of a transaction that runs it.

    >>> origin_of_transaction("lib-a:17@lib-b/p1")
    'lib-a'
    """
    return transaction.partition("@")[0].rpartition(":")[0] or transaction


def _updates_of(run: RuleRun) -> frozenset[Delta]:
    """Return the pairs that the UPDATE actions of a run have changed."""
    pairs = ((change.removed, change.added) for step in run.steps for change in step.changes)
    return frozenset(
        Delta(*removed, added.object)
        for removed, added in pairs
        if removed is not None and added is not None and removed[:2] == added[:2]
    )


def _strict_rule(actions: tuple[Action, ...]) -> EcaRule:
    event = NodeEvent(ChangeKind.INSERT, NodePath(AllNodes(), (), ()), None)
    return EcaRule(event, Always(), actions, strict=True)


def select_step(
    connection: Connection, schema: Schema, question: StepQuestion, before: int | None = None
) -> frozenset[FoundTerm]:
    """Return where a step leads, in the closure of the statements. `before`: on the state before a transaction."""
    term = question.term
    if question.axis == "nodes":
        return frozenset(FoundTerm(Term.uri(uri)) for uri in all_subjects(connection, before))
    assert term is not None
    if question.axis == "node":
        return frozenset([FoundTerm(term)] if _occurs(connection, schema, term, before) else [])
    if question.axis == "source":
        arcs = _closed(_statements_to(connection, schema, term, before), schema)
        return frozenset(
            FoundTerm(Term.uri(arc.subject), arc)
            for arc in arcs
            if arc.object == term and question.property in (None, arc.property)
        )
    found = _closed(statements_about(connection, term.value, before), schema)
    return frozenset(
        FoundTerm(arc.object, arc, frozenset(properties))
        for arc, properties in found.items()
        if _is_step(arc.property, question)
    )


def _occurs(connection: Connection, schema: Schema, term: Term, before: int | None) -> bool:
    if before is None:
        return bool(mentioned_now(connection, [term.value]))
    return bool(
        statements_about(connection, term.value, before) or _statements_to(connection, schema, term, before)
    )  # fmt: skip


def _statements_to(connection: Connection, schema: Schema, term: Term, before: int | None) -> list[Statement]:
    """Return the statements from which arcs to a term may follow."""
    if not term.is_uri:
        return statements_with_literal(connection, term, before)
    declared = schema.classes.get(term.value)
    below = declared.subclasses if declared is not None and term.value != RDFS_RESOURCE else (term.value,)
    return statements_with_object(connection, {term.value, *below}, before)


def _closed(statements: Iterable[Statement], schema: Schema) -> dict[Statement, set[str]]:
    """Return the arcs that follow from statements, with the properties of these."""
    found: dict[Statement, set[str]] = {}
    for one in statements:
        for arc in entailed_arcs(one, schema):
            found.setdefault(arc, set()).add(one.property)
    return found


def _is_step(property_iri: str, question: StepQuestion) -> bool:
    if question.axis == "target":
        return question.property in (None, property_iri)
    if schema_node(property_iri) != MEMBERSHIP or property_iri == MEMBERSHIP:
        return False
    return question.number in (None, int(property_iri.rpartition("_")[2]))
