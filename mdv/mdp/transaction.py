"""The transaction of an MDP: every change of its visible state goes through one.

    lock → change documents, rules or the schema → react → filter → publish → advance the position

The lock gives all changes one order. Only this module takes it, advances the position, runs the filter on a change and
publishes. The caller commits the database transaction.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from itertools import chain
from secrets import randbits
from typing import NamedTuple

from psycopg.errors import QueryCanceled
from sqlalchemy import Connection, NestedTransaction

from mdv.backbone.etag import token_of
from mdv.backbone.local_operation import LocalFacts
from mdv.cause import REPLICA, Cause
from mdv.db.delta import EffectiveEdits, EncodedStatement, Replacement, ResourceCounts, StoreChange, StoredDocument
from mdv.db.eca.rules import has_classes, quarantine_rules, set_version, store_classes
from mdv.db.eca.runs import (
    DETACHED_RUN,
    REGISTRATION_RUN,
    UPDATE_RUN,
    ParentCopy,
    RunRecord,
    queue_detached,
    queue_run,
    store_run,
)
from mdv.db.federation.site_store import INTRODUCE, add_to_inbox
from mdv.db.jobs import PRIORITY_BACKGROUND
from mdv.db.pipeline import Pipeline
from mdv.db.publish import Publication, RuleNotices
from mdv.db.real.processes import count_live, start_process
from mdv.db.replica.effects import Replication
from mdv.db.replica.facts import read_facts
from mdv.db.replica.local_operations import LocalOperations
from mdv.db.rule_graph import RuleGraph, RulesAdvance
from mdv.db.schemas import store_schema_version
from mdv.db.state import LockPurpose, State, queue_state_lock
from mdv.db.statement_store import StatementStore
from mdv.db.store_lookups import EditLookups, queue_edit_lookups, queue_store_lookups
from mdv.db.vocabulary import Vocabulary
from mdv.errors import InvalidDocument, MdvError, RuleFailed, RulesDoNotEnd
from mdv.failpoints import AFTER_EDIT, AFTER_REACTION, hit_failpoint
from mdv.federation.fragment import CommittedChange
from mdv.mdp.driving_predicate import revise_driving_predicates
from mdv.mdp.eca.detached import encode_detached
from mdv.mdp.eca.rule_set import RuleSet
from mdv.mdp.eca.run import DetachedCall, RuleCopy, RuleRun, Scheduler, count_copies, is_called
from mdv.mdp.eca.slow_rules import RuleTimedOut, SlowRules
from mdv.mdp.eca.trace import audit_rows, stored_copies, write_trace
from mdv.mdp.edit import Edit, encode_edits, names_of_edits, refuse_reserved_names, single_values
from mdv.mdp.federation.capture import FederatedStep, capture_change, own_transaction, queue_change
from mdv.mdp.filter import Candidates, ScheduledFilterRun, TimeLimits, count_matched, filter_changes
from mdv.mdp.groups import Groups
from mdv.mdp.provider import Provider
from mdv.mdp.publish import NOTHING_PUBLISHED, PublicationResult, publish_changes, strong_ids
from mdv.mdp.real.start import called_process
from mdv.mdp.real.wake import wake_waiting
from mdv.mdp.replica_changes import ReplicatedChanges
from mdv.mdp.rule_cache import RuleOverBudget
from mdv.mdp.schemas import SchemaInForce, build_schema, read_schema_document
from mdv.mdp.write_limits import UNLIMITED, WriteLimits
from mdv.metrics import RESOURCES_MATCHED, time_stage
from mdv.model import RDF_TYPE, Document, Statement
from mdv.rdf.schema import Schema
from mdv.rdf.syntax import TURTLE
from mdv.rdf.validate import validate
from mdv.rdftl.events import class_pairs
from mdv.rdftl.model import Action

MAX_RULE_FAILURES = 5
"""A rule that fails in this many transactions in a row is quarantined."""


def stop_failing_rules(
    connection: Connection, failing: Collection[int], uncounted: int, position: int, slow: SlowRules
) -> bool:
    """Quarantine those of these rules that have failed in too many transactions in a row, and at once those that took
    too long. Return True if there are any. `uncounted`: failures that are not stored yet."""
    too_long = {rule: reason for rule in failing if (reason := slow.reason(rule)) is not None}
    return bool(quarantine_rules(connection, failing, MAX_RULE_FAILURES, uncounted, position, too_long))


class OneByOne(Exception):
    """Event-condition-action rules may fire for one of several documents, so each needs a transaction of its own."""


class DocumentOutcome(NamedTuple):
    """The effect of a transaction on a document: its resources, newly matched resources, affected LMRs, whether it has
    statements now, and its digest if there is a backbone."""

    counts: ResourceCounts
    matched: int
    lmrs: int
    present: bool = True
    digest: int | None = None


class TransactionOutcome(NamedTuple):
    """The effect of a transaction that changed documents. `run`: the ID of the run of event-condition-action rules.
    `token`: of its operation, if there is a backbone."""

    position: int
    documents: Mapping[str, DocumentOutcome]
    publication: PublicationResult
    run: int | None = None
    token: str | None = None


class Transaction:
    """One change of an MDP's visible state. The caller commits the database transaction of `connection`.

    Call `lock` or `lock_documents` first. `state` and `schema` are then those before the change, and those after it
    once it has advanced. `position` is the position of the change.
    """

    def __init__(self, provider: Provider, connection: Connection) -> None:
        self.provider = provider
        self.connection = connection
        self.state: State
        self.schema: SchemaInForce
        self._is_locked = False
        self._numbers: dict[str, int] = {}
        self._store: StatementStore | None = None
        self._single_values: dict[str, dict[EncodedStatement, Statement]] = defaultdict(dict)
        self._replaced: Sequence[Replacement] = ()
        self._scheduler: Scheduler | None = None
        self._subject: str | None = None
        self._by: str | None = None
        self._parent: ParentCopy | None = None
        self._replicated: ReplicatedChanges | None = None
        self._is_restoration = False
        self.reacts = True
        """False: event-condition-action rules are not run."""
        self.federated_step: FederatedStep | None = None
        """The step of a federation that this transaction is, if it is one."""
        self.captured: CommittedChange | None = None
        """What this step has changed."""
        self._known_facts: tuple[str, LocalFacts] | None = None
        self._tentative: NestedTransaction | None = None
        """A batch is registered together, provided that no rule fires."""

    # Lock

    def lock(self) -> None:
        """Take the lock, and read the state."""
        with self.locking(LockPurpose.OTHER):
            """There are no look-ups."""

    @contextmanager
    def locking(self, purpose: LockPurpose) -> Iterator[Pipeline]:
        """Take the lock at the end of the block, and read the state.

        Look-ups that the block queues in the pipeline are sent in the same message. Postgres runs them after the lock
        is granted.
        """
        pipeline = Pipeline(self.connection)
        state = queue_state_lock(pipeline, purpose)
        yield pipeline
        pipeline.send()
        self.state = state()
        self.schema = self.provider.schemas.at(self.connection, self.state.schema_version)
        self.position = self.state.position + 1
        self._is_locked = True
        self.provider.is_in_backbone = self.state.replica is not None

    def lock_documents(self, documents: Collection[str], resources: Collection[str]) -> Mapping[str, StoredDocument]:
        """Take the lock. Return those of `documents` that are or were registered. `resources`: all URIs that their new
        statements contain."""
        with time_stage("turn"), self.locking(LockPurpose.DOCUMENTS) as pipeline:
            lookups = queue_store_lookups(pipeline, documents, resources)
        self._numbers = lookups.resource_ids()
        return lookups.documents()

    def groups(self) -> Groups:
        """Return the rule groups in the current state of this transaction."""
        provider = self.provider
        fresh = self.state.position == self.position
        return provider.rules.groups(self.connection, self.state, self.schema, provider.vocabulary, fresh)

    # Documents

    def replace_documents(
        self, replacements: Sequence[Replacement], names: Collection[str], is_batch: bool = False
    ) -> set[str]:
        """Replace the statements of documents. Return the URIs of those that are identical to what is stored.

        `names`: the properties and datatypes of the new statements. `is_batch`: `finish` raises `OneByOne` and undoes
        all if event-condition-action rules may fire, or if there is a federation.
        """
        if self.state.federated and self.reacts and is_batch:
            raise OneByOne  # each document is a change of its own for global rules
        ids = self.provider.vocabulary.ids(names)
        self._store = StatementStore(self.connection, self.state, self._numbers, ids, self._replication())
        if self.state.eca_version and self.reacts and self._is_watched(self._store, replacements, names):
            self._tentative = self.connection.begin_nested() if is_batch else None
            self._replaced, self._subject, self._by = replacements, replacements[0].uri, replacements[0].by
        return self._store.replace(replacements)

    def _is_watched(self, store: StatementStore, replacements: Sequence[Replacement], names: Collection[str]) -> bool:
        """True if event-condition-action rules may watch a change of these documents."""
        rules = self.rule_set
        wants = rules.wants
        if any(wants(name) for name in names if name != RDF_TYPE):
            return True
        types = (one for item in replacements for one in item.statements if one.property == RDF_TYPE)
        if RDF_TYPE in names and wants(RDF_TYPE) and any(map(rules.wants_statement, types)):
            return True
        stored = store.read_stored(replacements)
        found = self.vocabulary.names(stored)
        return any(wants(found[number]) for number in stored)

    # Event-condition-action rules

    @property
    def rule_set(self) -> RuleSet:
        """The event-condition-action rules in the current state of this transaction."""
        return self.provider.eca_rules.at(self.connection, self.state.eca_version, self.schema)

    def execute_actions(self, actions: Sequence[Action], constants: Sequence[str], document: str, cause: Cause,
                        limits: WriteLimits = UNLIMITED) -> None:  # fmt: skip
        """Execute actions in order, with the rules that they trigger. The lock is taken. Raise `ActionFailed` if one
        of them fails."""
        self._subject, self._by = document, cause.by
        root = RuleCopy(
            tuple(actions), tuple(constants), document=document, limits=limits, by=cause.by, agent=cause.agent
        )  # fmt: skip
        with self._refusals():
            self.scheduler.execute(root)
            hit_failpoint(AFTER_REACTION)

    @contextmanager
    def detached_copy(self, parent: ParentCopy, by: str | None) -> Iterator[None]:
        """Execute a detached copy in the block, with `execute_copy`. `parent`: the copy as its run knows it. A failure
        in the block is recorded as one of the copy. The lock is taken."""
        self._parent, self._by = parent, by
        with self._refusals():
            yield

    def execute_copy(self, root: RuleCopy) -> None:
        """Execute a detached copy, with the rules that it triggers. Raise `RuleFailed` if it fails."""
        self._subject = root.document
        self.scheduler.execute(root)
        hit_failpoint(AFTER_REACTION)

    def number_classes(self) -> None:
        """Store the classes of the schema with their superclasses, unless they are stored. Paths through rdf:type need
        them. The lock is taken."""
        if not has_classes(self.connection):
            self._store_classes()

    def renew_classes(self) -> None:
        """Store the classes of a new schema with their superclasses, if those of the old one are stored."""
        if has_classes(self.connection):
            self._store_classes()

    def _store_classes(self) -> None:
        pairs = class_pairs(self.schema.schema)
        last_resource = store_classes(self.connection, pairs, self.state.last_resource)
        self.state = replace(self.state, last_resource=last_resource)

    @property
    def scheduler(self) -> Scheduler:
        """Runs event-condition-action rules in this transaction."""
        if self._scheduler is None:
            self._scheduler = Scheduler(
                self, self.rule_set, self.provider.run_limits, self.provider.slow_rules, self.reacts
            )  # fmt: skip
        return self._scheduler

    @property
    def rule_run(self) -> RuleRun | None:
        """What event-condition-action rules did in this transaction; None if none was looked at."""
        return self._scheduler.run if self._scheduler is not None else None

    def has_changed(self, document: str) -> bool:
        """True if this transaction has changed a document."""
        return self._store is not None and self._store.has_changed(document)

    def is_in(self, document: str, statement: Statement) -> bool:
        """True if a document contains a statement that an edit of this transaction concerned."""
        (edit,) = encode_edits([Edit(statement, document)], self.schema)
        return self._store is not None and self._store.is_in(document, edit)

    @property
    def new_documents(self) -> Mapping[str, int]:
        """The documents that this transaction registers, with their IDs. They are not stored yet."""
        return self._store.new_documents if self._store is not None else {}

    @property
    def new_prefixes(self) -> Mapping[str, Mapping[str, str]]:
        """The prefixes of the documents that this transaction replaces."""
        return self._store.new_prefixes if self._store is not None else {}

    def name_document(self, number: int) -> str:
        """Return the URI of a document that this transaction changes, by its ID. A new one is not stored yet."""
        assert self._store is not None
        return self._store.name_document(number)

    @property
    def vocabulary(self) -> Vocabulary:
        return self.provider.vocabulary

    def _react(self, store: StatementStore) -> None:
        """Run the rules that replaced documents trigger."""
        if not self._replaced:
            return
        if self._tentative is not None:
            with suppress(RuleTimedOut), self._tentative:
                if self.scheduler.is_quiet(store):
                    return
                raise OneByOne
            raise OneByOne  # the document to blame is found one by one
        by, self._replaced = self._replaced[0].by, ()
        with self._refusals():
            self.scheduler.react_to_replacement(store, RuleCopy(by=by))
            hit_failpoint(AFTER_REACTION)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Add the record of the run to the error of a change that rules refuse."""
        try:
            yield
        except (RuleFailed, RulesDoNotEnd) as error:
            error.record = self.run_record("refused")
            raise

    # Edits

    def edit(
        self,
        cause: Cause,
        additions: Sequence[Edit],
        deletions: Sequence[Edit] = (),
        document: str | None = None,
        limits: WriteLimits = UNLIMITED,
        has_blank_nodes: bool = False,
    ) -> EffectiveEdits:
        """Remove and add single statements, in this order. `document`: where additions without a document go.
        `has_blank_nodes`: the names of the blank nodes are those that a registration would give.

        It may be called several times: each call sees the result of those before. Edits that change nothing are
        dropped; the others are returned. The first call takes the lock, unless this was done before. `finish` validates
        the documents. Raise `Forbidden` if an edit is outside of the limits. Event-condition-action rules run at once.
        """
        effective = self.apply_edits(cause, additions, deletions, document, limits, is_restored=has_blank_nodes)
        if self.state.eca_version and self.reacts and (effective.gained or effective.lost):
            self._subject, self._by = document, cause.by
            with self._refusals():
                self.scheduler.react_to_edit(effective, RuleCopy(by=cause.by))
                hit_failpoint(AFTER_REACTION)
        return effective

    def apply_edits(
        self,
        cause: Cause,
        additions: Sequence[Edit],
        deletions: Sequence[Edit],
        document: str | None,
        limits: WriteLimits,
        is_checked: bool = False,
        is_restored: bool = False,
    ) -> EffectiveEdits:
        """Remove and add single statements, without running rules. `is_checked`: validate what was added at once. If it
        is invalid or not allowed, nothing changes. `is_restored`: the documents had these statements before, so that
        they may concern blank nodes."""
        if not is_restored:
            refuse_reserved_names(additions, deletions, document)
        found, schema = None, self.schema if self._is_locked else self.provider.schemas.last_known
        if not self._is_locked:
            with time_stage("turn"), self.locking(LockPurpose.DOCUMENTS) as pipeline:
                found = self._queue_lookups(pipeline, schema, additions, deletions, document)
        if found is None or schema is not self.schema:
            with Pipeline(self.connection) as pipeline:
                found = self._queue_lookups(pipeline, self.schema, additions, deletions, document)
        store = self._statement_store()
        effective = store.edit(
            encode_edits(additions, self.schema), encode_edits(deletions, self.schema), document, found, cause
        )
        for uri, key, statement in found.single_values():
            self._single_values[uri][key] = statement
        try:
            limits.check(effective)
            if is_checked:
                self._validate_round(store, effective)
        except MdvError:
            self._revert(store, effective, found, cause)
            raise
        hit_failpoint(AFTER_EDIT)
        return effective

    def keep(self, document: str, cause: Cause) -> None:
        """Give a document that was edited a new version even if none of its statements changes."""
        self._statement_store().keep(document, cause)

    def look_up_edits(self, edits: Sequence[Edit]) -> None:
        """Look up the statements of edits, so that `is_in` knows them. The lock is taken."""
        with Pipeline(self.connection) as pipeline:
            found = self._queue_lookups(pipeline, self.schema, edits, (), None)
        self._statement_store().look_up(found)
        for uri, key, statement in found.single_values():
            self._single_values[uri][key] = statement

    def _statement_store(self) -> StatementStore:
        if self._store is None:
            ids = self.provider.vocabulary.ids(())
            self._store = StatementStore(self.connection, self.state, self._numbers, ids, self._replication())
        return self._store

    def _replication(self) -> Replication | None:
        """Return what writes the log of the backbone; None without one."""
        if self._replicated is not None or (facts := self._local_facts()) is None:
            return self._replicated
        return LocalOperations(self.connection, self.state, facts, self.provider.signer)

    # Operations of other members

    def apply_operations(self, replicated: ReplicatedChanges) -> TransactionOutcome:
        """Store what operations of other members change, filter and publish. The lock is taken. The changes are not
        validated, and event-condition-action rules do not react."""
        self.reacts, self._replicated, cause = False, replicated, Cause(REPLICA)
        self._is_restoration = replicated.is_restoration
        if replicated.replacements:
            statements = chain.from_iterable(item.statements for item in replicated.replacements)
            names = {name for one in statements for name in (one.property, one.object.datatype) if name is not None}
            self._numbers = dict(replicated.resource_ids)
            self.replace_documents(replicated.replacements, names)
        store = self._statement_store()
        if replicated.kept:
            assert replicated.found is not None
            store.edit(replicated.additions, replicated.deletions, None, replicated.found, cause)
            for uri in replicated.kept:
                store.keep(uri, cause)
        return self._store_filter_publish(store, None)

    def _validate_round(self, store: StatementStore, effective: EffectiveEdits) -> None:
        """Raise `InvalidDocument` if the additions of the last round make a document invalid."""
        added: dict[str, list[Statement]] = defaultdict(list)
        for uri, statement in effective.added:
            added[uri].append(statement)
        for uri, statements in added.items():
            subjects = {statement.subject for statement in statements}
            present = store.statements_about(uri, subjects)
            stored = [(key, one) for key, one in self._single_values[uri].items() if one.subject in subjects]
            values = store.values_after(uri, stored)
            document = Document(uri, tuple(dict.fromkeys((*statements, *present, *values))))
            validate(document, self.schema.schema)
            self.refuse_held(document)

    def _revert(self, store: StatementStore, effective: EffectiveEdits, found: EditLookups, cause: Cause) -> None:
        """Undo the last round of edits."""
        back = encode_edits([Edit(statement, uri) for uri, statement in effective.removed], self.schema)
        away = encode_edits([Edit(statement, uri) for uri, statement in effective.added], self.schema)
        store.edit(back, away, None, found, cause)

    def stored_document(self, uri: str) -> StoredDocument | None:
        """Return a document that an edit names, as it was before this transaction; None if it was never registered."""
        return None if self._store is None else self._store.stored_document(uri)

    def _queue_lookups(
        self,
        pipeline: Pipeline,
        schema: SchemaInForce,
        additions: Sequence[Edit],
        deletions: Sequence[Edit],
        document: str | None,
    ) -> EditLookups:
        every = [*additions, *deletions]
        singles = single_values(additions, document, schema.schema)
        ids = self.provider.vocabulary.ids(names_of_edits(every) | {name for _, _, name in singles})
        named = {uri for _, uri in every if uri is not None} | ({document} if document is not None else set())
        return queue_edit_lookups(pipeline, encode_edits(every, schema), named, singles, ids)

    def _validate_edits(self, store: StatementStore) -> None:
        """Raise `InvalidDocument` if an edited document is invalid."""
        for uri, statements in store.edited_documents():
            values = store.values_after(uri, self._single_values[uri].items())
            validate(Document(uri, (*statements, *values)), self.schema.schema)
            self.refuse_held(Document(uri, (*statements, *values)))

    def flush(self) -> None:
        """Write the edits so far, so that queries on this connection see them."""
        if self._store is not None:
            self._store.flush()

    # End

    def finish(self, candidates: Candidates | None = None) -> TransactionOutcome:
        """Store the changed documents, run the filter and publish. `candidates`: the resources that rules can match, if
        they were determined before. Without a change, the position does not advance."""
        store = self._store
        if store is not None and store.is_changed:
            self._react(store)
        if self._tentative is not None and self._tentative.is_active:
            self._tentative.commit()
        if store is None or not store.is_changed:
            if store is not None:
                store.withdraw()
            run = self._store_run(self.state.position)
            return TransactionOutcome(self.state.position, {}, NOTHING_PUBLISHED, run, self.token)
        self._validate_edits(store)
        return self._store_filter_publish(store, candidates)

    def _store_filter_publish(self, store: StatementStore, candidates: Candidates | None) -> TransactionOutcome:
        groups, state, rules = self.groups(), self.state, self.provider.rules
        pipeline, found = Pipeline(self.connection), ScheduledFilterRun()
        publication = NOTHING_PUBLISHED
        try:
            with time_stage("answer"), pipeline:  # a small run is sent as one message
                with time_stage("store"):
                    store.write(pipeline)
                hit_failpoint("after the store")
                change = store.change
                has_rule_changes = self._scheduler is not None  # they may concern other resources
                candidate_ids = (
                    candidates.ids(state, self._numbers) if candidates is not None and not has_rule_changes else None
                )
                limits = TimeLimits(rules.seconds, rules.limits)
                with time_stage("filter"):
                    if not self._is_restoration:
                        found = filter_changes(pipeline, groups, change, limits, candidate_ids)
                    pipeline.send_unless_waiting(store.is_small)
                hit_failpoint("after the filter")
                if state.lmrs and (groups.groups or groups.suspended) and not self._is_restoration:
                    with time_stage("publish"):
                        publication = publish_changes(
                            pipeline, change, state, self.schema, self.provider.vocabulary, groups.suspended
                        )
                        pipeline.send_unless_waiting(store.is_small)
                stored_run = self._queue_run(pipeline)
        except QueryCanceled:
            group = found.group_of(pipeline.failed)
            if group is None:
                raise
            raise RuleOverBudget(group, rules.limits.get(group, rules.seconds)) from None
        hit_failpoint("after the publication")
        if state.federated:
            self._capture(store, change)
        if state.watched:
            woken = wake_waiting(self.connection, store, state.watched, self.vocabulary, self.schema.schema)
            self.provider.note_woken(woken)
        if state.last_resource >= groups.revise_at_resources:
            self._revise(groups, RuleGraph(self.connection).groups_to_revise(state.last_resource)())
        run = stored_run() if stored_run is not None else self._store_run(self.position)
        return self._outcome(store, change, found, publication, run)

    def _capture(self, store: StatementStore, change: StoreChange) -> None:
        """Record what changed for the federation."""
        step = self.federated_step
        if step is None:
            reacts = self.reacts or self._replicated is not None
            step = FederatedStep(own_transaction(self.connection, change.position), reacts=reacts)
        captured = capture_change(
            self.connection, store.changes_of(None), change, self.schema.schema, self.vocabulary, step
        )  # fmt: skip
        if self.federated_step is None:
            queue_change(self.connection, captured)
        self.captured = captured

    def _outcome(
        self,
        store: StatementStore,
        change: StoreChange,
        found: ScheduledFilterRun,
        publication: PublicationResult,
        run: int | None,
    ) -> TransactionOutcome:
        matched = count_matched(self.connection, found.matched(), change)
        RESOURCES_MATCHED.inc(sum(matched.values()))
        lmrs = publication.by_document(self.connection, change.described)
        replicas = store.effects.documents if store.effects is not None else {}
        digests = {uri: replica.digest for uri, replica in replicas.items()}
        documents = {
            uri: DocumentOutcome(counts, matched[uri], lmrs[uri], present, digests.get(uri))
            for uri, (counts, present) in store.outcomes.items()
        }
        return TransactionOutcome(self.position, documents, publication, run, self.token)

    @property
    def token(self) -> str | None:
        """The token of this change, or of the last one if nothing has changed; None without a backbone."""
        if self._store is not None and self._store.effects is not None:
            return self._store.effects.token
        facts = self._local_facts()
        return None if facts is None else token_of((facts.life, facts.seq))

    def _local_facts(self) -> LocalFacts | None:
        text = self.state.replica
        if text is None:
            return None
        if self._known_facts is None or self._known_facts[0] is not text:
            self._known_facts = text, LocalFacts.from_json(json.loads(text))
        return self._known_facts[1]

    # The next schema of a backbone

    @cached_property
    def _held_schema(self) -> Schema | None:
        """The schema that the lead of the backbone is about to put in force; None if there is none."""
        facts = self._local_facts()
        if facts is None or facts.held_until is None or facts.held_until <= time.time_ns() // 1000:
            return None
        stored = read_facts(self.connection)
        if stored is None or stored.facts.hold is None:
            return None
        document = read_schema_document(stored.facts.hold[1].encode(), TURTLE.media_type)
        return build_schema(0, document.statements, dict(document.prefixes)).schema

    def refuse_held(self, document: Document) -> None:
        """Raise `InvalidDocument` if the schema that the lead is about to put in force refuses a document. The lock is
        taken."""
        if self._held_schema is None:
            return
        try:
            validate(document, self._held_schema)
        except InvalidDocument as error:
            raise InvalidDocument(
                f"The lead of the backbone is putting another schema in force, which refuses this. {error.detail}"
                " Change the document, or try again in a minute.", error.flaws,
            ) from None  # fmt: skip

    def _queue_run(self, pipeline: Pipeline) -> Callable[[], int] | None:
        """Queue what event-condition-action rules did, to be stored with the last message. Return None, and queue
        nothing, if `_store_run` has more to do than that."""
        run = self.rule_run
        if run is None or run.failed or run.detached or not (run.fired or run.steps):
            return None
        return queue_run(pipeline, self.position, self.run_record("done"))

    def _store_run(self, position: int) -> int | None:
        """Store what event-condition-action rules did, and queue detached copies as jobs. Return the ID of the run;
        None if nothing happened."""
        run = self.rule_run
        if run is None or not (run.fired or run.steps or run.failed):
            return None
        if any(is_called(copy) for copy in run.detached):
            self._start_processes(self.scheduler.detached_calls(), run)
        if run.failed:
            self._quarantine(run)
        number = store_run(self.connection, position, self.run_record("done"))
        if run.detached:
            origin = self._parent.origin if self._parent is not None else number
            jobs = [encode_detached(copy, number, origin, self.schema.schema) for copy in run.detached]
            queue_detached(self.connection, number, jobs, PRIORITY_BACKGROUND)
        return number

    def _start_processes(self, calls: Sequence[DetachedCall], run: RuleRun) -> None:
        """Start what the calls of detached copies do as processes, with this commit."""
        quotas = self.provider.process_quotas
        live: dict[str, int] = {}
        for copy, action, inputs in calls:
            assert copy.rule is not None and copy.document is not None
            caller = f"rule {copy.rule.label}"
            if caller not in live:
                live[caller], _ = count_live(self.connection, caller, None, quotas.processes)
            if live[caller] >= quotas.processes:
                reason = f"{quotas.processes:,} processes of this rule have not ended (MDV_REAL_PROCESSES)"
                if (copy, reason) not in run.failed:
                    run.failed.append((copy, reason))
                continue
            live[caller] += 1
            new = called_process(action, inputs, caller, copy.document, copy.limits, self.position, quotas)
            start_process(self.connection, new)
            copy.processes.append(new.iri)
        self.provider.note_woken(len(calls))

    def _quarantine(self, run: RuleRun) -> None:
        """Stop rules that have failed too often, or took too long. Their failures in this transaction are counted
        next."""
        failing = {copy.rule.id for copy, _ in run.failed if copy.rule is not None}
        stopped = stop_failing_rules(self.connection, failing, 1, self.position, self.provider.slow_rules)
        if stopped:
            version = new_graph_version() | 1
            set_version(self.connection, version)
            self.state = replace(self.state, eca_version=version)

    def run_record(self, outcome: str) -> RunRecord:
        """Return what event-condition-action rules did, to be stored."""
        run = self.scheduler.run
        is_update = any(step.owner.rule is None for step in run.steps)
        changes = audit_rows(run) if outcome == "done" else []
        cause = DETACHED_RUN if self._parent is not None else UPDATE_RUN if is_update else REGISTRATION_RUN
        return RunRecord(
            cause, self._subject, outcome, len(run.fired), write_trace(run), changes, count_copies(run), self._by,
            stored_copies(run), self._parent,
        )  # fmt: skip

    # Rules

    def advance_rules(self, last_rule: int, last_atomic_rule: int, regrouped: bool) -> None:
        """Advance the position after a change of rules. `regrouped`: the groups of the rule graph have changed."""
        RuleGraph(self.connection).advance(self.step_of_rules(last_rule, last_atomic_rule, regrouped))

    def step_of_rules(self, last_rule: int, last_atomic_rule: int, regrouped: bool) -> RulesAdvance:
        """Return the step that advances the position after a change of rules. The caller writes it with the rules."""
        version = new_graph_version() if regrouped else None
        self.state = replace(
            self.state, position=self.position, last_rule=last_rule, last_atomic_rule=last_atomic_rule,
            graph_version=version or self.state.graph_version,
        )  # fmt: skip
        return RulesAdvance(self.position, last_rule, last_atomic_rule, version)

    def regroup(self, last_atomic_rule: int) -> None:
        """Record that the rule graph has changed, after the position has advanced."""
        step = self.step_of_rules(self.state.last_rule, last_atomic_rule, regrouped=True)
        RuleGraph(self.connection).execute("advance_rules", **step._asdict())

    def publish_rules(self, kind: int = 0, notices: RuleNotices | None = None) -> None:
        """Publish the selection changes that a change of rules has noted, with notices about rules."""
        pipeline = Pipeline(self.connection)
        self._publication(pipeline).publish_rules(kind, notices)
        pipeline.send()

    def revise_driving_predicates(self, group_ids: Iterable[int]) -> None:
        """Choose the driving predicates of these groups again."""
        self._revise(self.groups(), group_ids)

    def _revise(self, groups: Groups, group_ids: Iterable[int]) -> None:
        self.state = revise_driving_predicates(self.connection, self.state, groups, group_ids)

    # Schema

    def store_schema(self, schema: SchemaInForce, document: Document, by: str | None) -> None:
        """Store a new version of the schema, and advance the position. `by`: the caller."""
        self.state = replace(self.state, position=self.position, schema_version=schema.version)
        self.schema = schema
        store_schema_version(self.connection, schema.version, self.position, schema.statements, document.prefixes, by)
        if self.state.federated:
            add_to_inbox(self.connection, [(INTRODUCE, "", "null")])

    def publish_schema(self, old: SchemaInForce, notices: Mapping[int, RuleNotices]) -> None:
        """Publish the schema to every LMR, the resources that enter or leave its closure because references became
        strong or weak, and notices of rules by their kind."""
        ids = self.provider.vocabulary.ids(old.strong | self.schema.strong)
        pipeline = Pipeline(self.connection)
        self._publication(pipeline).publish_schema(
            [ids[p] for p in self.schema.strong - old.strong],
            [ids[p] for p in old.strong - self.schema.strong],
            notices,
        )
        pipeline.send()

    def _publication(self, pipeline: Pipeline) -> Publication:
        strong = strong_ids(self.schema, self.provider.vocabulary)
        return Publication(pipeline, self.position, self.state.last_offset, strong)


def new_graph_version() -> int:
    """Return a random version for the rule graph. It is never reused, so that groups cached in a transaction that is
    rolled back are not mistaken for another version."""
    return randbits(62)
