"""execSched: runs event-condition-action rules in the transaction of a change.

    update → apply → what became visible and invisible → events → conditions, all on one state → copies first → next

An update is a registration, or one action. A copy of a rule's actions that run immediately is placed before the rest of
the schedule. A deferred one runs after it. The effects of an update are edits of documents, like any other change.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice, takewhile
from typing import Any, NamedTuple, Protocol

from psycopg.errors import QueryCanceled
from sqlalchemy import Connection

from mdv.cause import RULE, UPDATE, Cause, CauseKind
from mdv.db.delta import EffectiveEdits, EncodedStatement
from mdv.db.eca.lookups import decode_statements, find_held
from mdv.db.eca.runs import RuleCount
from mdv.db.pipeline import Pipeline
from mdv.db.vocabulary import Vocabulary
from mdv.errors import Forbidden, InvalidDocument, RuleFailed, RulesDoNotEnd
from mdv.mdp.eca.actions import ActionEdits, ActionFailed, ActionReader
from mdv.mdp.eca.call_action import CalledAction, call_action, input_lists
from mdv.mdp.eca.changes import EffectiveChange, pair_changes
from mdv.mdp.eca.comparisons import FiredCondition, read_comparisons
from mdv.mdp.eca.evaluation import Evaluation, FiredRule, Firing, RuleFailure
from mdv.mdp.eca.rule_set import RuleSet
from mdv.mdp.eca.slow_rules import RuleTimedOut, SlowPart, SlowRules
from mdv.mdp.eca.undo import undo_changes
from mdv.mdp.edit import Edit
from mdv.mdp.schemas import SchemaInForce
from mdv.mdp.write_limits import UNLIMITED, WriteLimits
from mdv.model import Statement, Term
from mdv.rdf.digest import statement_hash
from mdv.rdftl.events import Deltas, UpdateChange, WatchedChange, superproperties
from mdv.rdftl.model import AbortDependency, Action, ArcAction, CallAction, Coupling, Delta, EcaRule

RULES_DOCUMENT = "urn:mdv:eca:"
"""The document of a rule set, without its name."""
SHADOW = "shadow"
MAX_TOGETHER = 1_000
"""Updates that are executed together."""
MAX_COMPARED = 100
"""Rules that fire in a run, up to which their comparisons are read for the trace."""
MAX_REPEATED_RULES = 500
"""The length of a repeating sequence of rules up to which it is found."""
TRANSACTION = -1
"""The number of the transaction itself, among the numbers of copies."""


class RunLimits(NamedTuple):
    """Limits of one run: updates, causal depth, and seconds. `query_seconds`: of one query of a rule. `actions`:
    prefixes of the documents whose actions of ReAL may be called; None: any."""

    steps: int = 10_000
    depth: int = 1_000
    seconds: float = 10.0
    query_seconds: float = 2.0
    actions: tuple[str, ...] | None = None


DEFAULT_RUN_LIMITS = RunLimits()


class ReplacedStatements(Protocol):
    """The statement store after documents were replaced."""

    @property
    def visible_removals(self) -> Collection[EncodedStatement]: ...

    def write_replaced(self, pipeline: Pipeline) -> None: ...

    def visible_additions(self, is_wanted: Callable[[str], bool]) -> list[Statement]: ...

    @property
    def changed_properties(self) -> Collection[int]: ...

    @property
    def share_resources(self) -> bool: ...


class EditedTransaction(Protocol):
    """The transaction that rules run in."""

    connection: Connection
    schema: SchemaInForce
    position: int

    @property
    def vocabulary(self) -> Vocabulary: ...

    def apply_edits(
        self, cause: Cause, additions: Sequence[Edit], deletions: Sequence[Edit], document: str | None,
        limits: WriteLimits, is_checked: bool, is_restored: bool = False,
    ) -> EffectiveEdits: ...  # fmt: skip

    def has_changed(self, document: str) -> bool: ...

    def is_in(self, document: str, statement: Statement) -> bool: ...

    @property
    def new_documents(self) -> Mapping[str, int]: ...

    @property
    def new_prefixes(self) -> Mapping[str, Mapping[str, str]]: ...

    def name_document(self, number: int) -> str: ...

    def flush(self) -> None: ...


class CopyState:
    """What became of a copy in its run."""

    DONE = "done"
    UNDONE = "undone"
    SHADOW = "shadow"
    DETACHED = "detached"


@dataclass(eq=False, slots=True)
class RuleCopy:
    """A copy of the actions of a rule. Without a parent, it is the transaction itself, which has no rule unless it is a
    detached copy."""

    actions: tuple[Action, ...] = ()
    constants: tuple[str, ...] = ()
    rule: FiredRule | None = None
    abort: AbortDependency = AbortDependency.MUTUAL
    delta: Delta | None = None
    parent: RuleCopy | None = None
    depth: int = 0
    cause: int | None = None
    """The number of the step that triggered it."""
    document: str | None = None
    """Where its insertions go."""
    limits: WriteLimits = UNLIMITED
    by: str | None = None
    comparisons: list[dict[str, Any]] = field(default_factory=list)
    """The comparisons of its condition with their values, for the trace."""
    agent: str | None = None
    """What makes the changes of the transaction itself, if it is not the caller alone."""
    kind: CauseKind = UPDATE
    """The kind of the cause of the changes of the transaction itself."""
    number: int = TRANSACTION
    """Its place among the copies that fired in the run."""
    coupling: Coupling = Coupling.IMMEDIATE
    template: EcaRule | None = None
    """The rule with slots instead of constants."""
    processes: list[str] = field(default_factory=list)
    """The processes that a detached copy has started, by CALL."""

    @property
    def aborts_parent(self) -> bool:
        return self.rule is not None and self.abort in (AbortDependency.CHILD_PARENT, AbortDependency.MUTUAL)

    @property
    def aborts_with_parent(self) -> bool:
        return self.rule is not None and self.abort in (AbortDependency.PARENT_CHILD, AbortDependency.MUTUAL)


class ScheduledUpdate(NamedTuple):
    """An action of a copy."""

    owner: RuleCopy
    action: int


class RunStep(NamedTuple):
    """An update that was executed, or undone. `called`: the action that CALL has run."""

    owner: RuleCopy
    action: int
    changes: tuple[EffectiveChange, ...]
    is_undone: bool = False
    note: str | None = None
    called: CalledAction | None = None


@dataclass(slots=True)
class RuleRun:
    """What the rules of a transaction did."""

    steps: list[RunStep] = field(default_factory=list)
    fired: list[RuleCopy] = field(default_factory=list)
    failed: list[tuple[RuleCopy, str]] = field(default_factory=list)
    detached: list[RuleCopy] = field(default_factory=list)
    undone: set[RuleCopy] = field(default_factory=set)
    root: RuleCopy | None = None

    def state_of(self, copy: RuleCopy) -> str:
        """Return what became of a copy."""
        if copy in self.undone:
            return CopyState.UNDONE
        if copy.rule is not None and copy.rule.state == SHADOW:
            return CopyState.SHADOW
        return CopyState.DETACHED if copy.coupling is Coupling.DETACHED else CopyState.DONE


class AppliedAction(NamedTuple):
    """What an action did: the change for rules to react to, and its parts for the trace."""

    change: UpdateChange
    changes: tuple[EffectiveChange, ...]
    note: str | None
    called: CalledAction | None


class DetachedCall(NamedTuple):
    """A process that a detached copy starts: the action with its inputs."""

    copy: RuleCopy
    action: str
    inputs: tuple[Term, ...]


def is_called(copy: RuleCopy) -> bool:
    """True if the actions of a copy are calls. A detached copy of this kind starts processes."""
    return bool(copy.actions) and all(isinstance(action, CallAction) for action in copy.actions)


class Scheduler:
    """Runs rules on the changes of one transaction. `reacts`: False if no rules are run, only a schedule of actions."""

    def __init__(
        self, tx: EditedTransaction, rules: RuleSet, limits: RunLimits, slow: SlowRules, reacts: bool = True
    ) -> None:
        self._tx, self._rules, self._limits, self._reacts, self._slow = tx, rules, limits, reacts, slow
        self._schedule: deque[ScheduledUpdate] = deque()
        self._deferred: deque[RuleCopy] = deque()
        self._executed: list[tuple[RuleCopy, int, tuple[EffectiveChange, ...]]] = []
        self._count = 0
        """Updates so far. A registration or an edit is one."""
        self._alone = 0
        """Updates that are executed one by one, because they failed together."""
        self._deadline = time.monotonic() + limits.seconds
        self.run = RuleRun()

    def react_to_replacement(self, store: ReplacedStatements, root: RuleCopy) -> None:
        """Run the rules that replaced documents trigger. Write their rows first."""
        self.run.root = root
        self._count = 1
        pipeline = Pipeline(self._tx.connection)
        store.write_replaced(pipeline)
        self._react(root, self._replacement(store), pipeline)
        pipeline.send()
        self._work()

    def is_quiet(self, store: ReplacedStatements) -> bool:
        """Write the rows of several documents. Return True if no rule fires for them, together or one by one."""
        pipeline = Pipeline(self._tx.connection)
        store.write_replaced(pipeline)
        if store.share_resources:
            return False
        names = self._tx.vocabulary.names(store.changed_properties).values()
        changed = {above for name in names for above in superproperties(name, self._tx.schema.schema)}
        deltas = self._find_deltas(self._replacement(store), pipeline)
        for key in deltas:
            for template in self._rules.by_key[key]:
                if template.shared_reads is None or template.shared_reads & changed:
                    return False
        if deltas and self._find_firing(deltas, pipeline) != ([], []):
            return False
        pipeline.send()
        return True

    def _replacement(self, store: ReplacedStatements) -> UpdateChange:
        """Return the watched changes of replaced documents."""
        wants, vocabulary = self._rules.wants, self._tx.vocabulary
        names = vocabulary.names({key.property for key in store.visible_removals})
        wanted = {number for number, name in names.items() if wants(name)}
        lost = [key for key in store.visible_removals if key.property in wanted]
        return UpdateChange(
            frozenset(store.visible_additions(wants)), frozenset(decode_statements(self._tx.connection, lost)), None
        )

    def react_to_edit(self, effective: EffectiveEdits, root: RuleCopy) -> None:
        """Run the rules that an edit triggers. It is not flushed yet."""
        self.run.root = root
        self._count = 1
        self._react(root, UpdateChange(frozenset(effective.gained), frozenset(effective.lost), None))
        self._work()

    def execute(self, root: RuleCopy) -> None:
        """Run a schedule of actions with the rules that it triggers. Raise `ActionFailed` if one of them fails, or
        `RuleFailed` if the schedule is a detached copy."""
        self.run.root = root
        self._schedule.extend(ScheduledUpdate(root, number) for number in range(len(root.actions)))
        self._work()

    def _work(self) -> None:
        while self._schedule or self._deferred:
            if not self._schedule:
                self._extend(self._deferred.popleft())
            self._execute_first()

    def _extend(self, copy: RuleCopy) -> None:
        self._schedule.extend(ScheduledUpdate(copy, number) for number in range(len(copy.actions)))

    def _execute_first(self) -> None:
        """Execute the first update of the schedule, or several that do not affect each other."""
        if self._execute_inserts():
            return
        owner, index = self._schedule.popleft()
        self._count += 1
        self._check_limits(owner)
        try:
            applied = self._apply(owner, index)
        except ActionFailed as failure:
            if owner.rule is None:
                raise
            self._abort(owner, owner, index, str(failure))
            return
        self._note(owner, index, applied.changes, applied.note, applied.called)
        changes, change = applied.changes, applied.change
        if changes and self._reacts:
            self._react(owner, change)

    def _execute_inserts(self) -> bool:
        """Execute the first updates of the schedule together. They only insert, read nothing, and no rule watches what
        they insert, so the result is that of one by one. Return False if nothing was done."""
        group = self._take_inserts()
        if len(group) < 2:
            return False
        self._check_deadline()
        first, tx = group[0].owner, self._tx
        wanted: dict[Statement, int] = {}
        for number, (owner, index) in enumerate(group):
            action = owner.actions[index]
            assert isinstance(action, ArcAction)
            for edit in self._reader(owner).edits_of(action).additions:
                wanted.setdefault(edit.statement, number)
        try:
            effective = tx.apply_edits(
                owner_cause(first), [Edit(one) for one in wanted], (), first.document, first.limits, is_checked=True
            )
        except (InvalidDocument, Forbidden):
            self._alone = len(group)
            return False
        changes: list[list[EffectiveChange]] = [[] for _ in group]
        for uri, statement in effective.added:
            changes[wanted[statement]].append(EffectiveChange(uri, None, statement))
        self._count += len(group)
        for (owner, index), made in zip(group, changes, strict=True):
            self._schedule.popleft()
            self._note(owner, index, tuple(sorted(made, key=EffectiveChange.sort_key)))
        return True

    def _take_inserts(self) -> list[ScheduledUpdate]:
        """Return the first updates of the schedule that can be executed together. The first change of a document is
        made alone: it gives the version its cause."""
        if self._alone:
            self._alone -= 1
            return []
        first = self._schedule[0].owner
        if first.document is None or not self._tx.has_changed(first.document):
            return []
        most = min(MAX_TOGETHER, self._limits.steps - self._count)
        return list(takewhile(
            lambda update: update.owner.rule is not None and update.owner.depth <= self._limits.depth
            and (update.owner.document, update.owner.limits) == (first.document, first.limits)
            and self._rules.is_unwatched_insert(update.owner.actions[update.action]),
            islice(self._schedule, max(0, most)),
        ))  # fmt: skip

    def _note(
        self, owner: RuleCopy, index: int, changes: tuple[EffectiveChange, ...], note: str | None = None,
        called: CalledAction | None = None,
    ) -> None:  # fmt: skip
        self.run.steps.append(RunStep(owner, index, changes, note=note, called=called))
        self._executed.append((owner, index, changes))

    def _reader(self, owner: RuleCopy, seconds: float | None = None) -> ActionReader:
        tx = self._tx
        is_strict = owner.template is not None and owner.template.strict
        return ActionReader(
            tx.connection, self._rules.actions, tx.schema, owner.delta, owner.constants, tx.name_document, is_strict,
            seconds,
        )  # fmt: skip

    def _apply(self, owner: RuleCopy, index: int) -> AppliedAction:
        tx, action = self._tx, owner.actions[index]
        if not self._rules.inserts_without_reading(action):
            tx.flush()
        slow = self._slow.part(owner.rule.id, index) if owner.rule is not None else None
        if slow is not None:
            raise ActionFailed(slow.reason)
        reader = self._reader(owner, self._query_seconds() if self._rules.is_unbounded(action) else None)
        called: CalledAction | None = None
        try:
            if isinstance(action, CallAction):
                edits, called = self._call(owner, action, reader)
            else:
                edits = reader.edits_of(action)
        except QueryCanceled:
            self._check_deadline()
            part = SlowPart(self._limits.query_seconds, index)
            if owner.rule is None:
                raise ActionFailed(part.reason) from None
            raise RuleTimedOut(0, owner.rule.id, part) from None
        cause = owner_cause(owner)
        try:
            effective = tx.apply_edits(
                cause, edits.additions, edits.deletions, owner.document, owner.limits, is_checked=True,
                is_restored=called is not None,
            )  # fmt: skip
        except (InvalidDocument, Forbidden) as error:
            raise ActionFailed(error.detail.removesuffix(".")) from None
        # The updates of a program are found as those of a registration.
        updates = None if called is not None else frozenset(edits.updates)
        change = UpdateChange(frozenset(effective.gained), frozenset(effective.lost), updates)
        return AppliedAction(change, pair_changes(effective, edits.updates), edits.note, called)

    def _call(self, owner: RuleCopy, action: CallAction, reader: ActionReader) -> tuple[ActionEdits, CalledAction]:
        assert owner.document is not None
        inputs = input_lists(action.action, reader.arguments_of(action))
        try:
            return call_action(
                self._tx, action.action, inputs, owner.document, owner.limits, self._limits.actions,
                self._query_seconds(), lambda: self._deadline,
            )  # fmt: skip
        except ActionFailed:
            self._check_deadline()
            raise

    def detached_calls(self) -> list[DetachedCall]:
        """Return what the calls of detached copies start as processes, on the state at the end of the transaction. A
        copy whose arguments cannot be evaluated fails alone."""
        found: list[DetachedCall] = []
        for copy in [one for one in self.run.detached if is_called(one)]:
            self.run.detached.remove(copy)
            try:
                found += [one for number in range(len(copy.actions)) for one in self._detached_call(copy, number)]
            except ActionFailed as failure:
                found = [one for one in found if one.copy is not copy]
                self.run.failed.append((copy, str(failure)))
        return found

    def _detached_call(self, copy: RuleCopy, index: int) -> list[DetachedCall]:
        action = copy.actions[index]
        assert isinstance(action, CallAction) and copy.rule is not None
        if (slow := self._slow.part(copy.rule.id, index)) is not None:
            raise ActionFailed(slow.reason)
        try:
            reader = self._reader(copy, self._limits.query_seconds if self._rules.is_unbounded(action) else None)
            inputs = input_lists(action.action, reader.arguments_of(action))
        except QueryCanceled:
            raise RuleTimedOut(0, copy.rule.id, SlowPart(self._limits.query_seconds, index)) from None
        return [DetachedCall(copy, action.action, one) for one in inputs]

    # Events and conditions

    def _react(self, owner: RuleCopy, change: UpdateChange, written: Pipeline | None = None) -> None:
        """Place the copies of the rules that fire. All conditions are evaluated on one state.

        `written`: the rows of the change, to be sent before the first query; None if the change is not flushed yet.
        """
        deltas = self._find_deltas(change, written)
        found, failing = self._find_firing(deltas, written) if deltas else ([], [])
        immediate: list[ScheduledUpdate] = []
        number = len(self.run.steps) - 1 if self.run.steps else None
        compared = self._compare(found)
        for index, (template, rule, delta) in enumerate(found):
            copy = RuleCopy(
                template.rule.actions, rule.constants, rule, template.rule.abort, delta, owner, owner.depth + 1, number,
                RULES_DOCUMENT + rule.rule_set, rule.limits, owner.by,
                compared.get(index, []), number=len(self.run.fired), coupling=template.rule.coupling,
                template=template.rule,
            )  # fmt: skip
            self.run.fired.append(copy)
            if rule.state == SHADOW:
                continue
            match copy.coupling:
                case Coupling.IMMEDIATE:
                    immediate += [ScheduledUpdate(copy, action) for action in range(len(copy.actions))]
                case Coupling.DEFERRED:
                    self._deferred.append(copy)
                case Coupling.DETACHED:
                    self.run.detached.append(copy)
        self._schedule.extendleft(reversed(immediate))
        self._fail(owner, failing)

    def _fail(self, owner: RuleCopy, failing: Sequence[RuleFailure]) -> None:
        """Handle rules whose event or condition failed. Of those that abort the copy that triggered them, the first one
        is the reason."""
        culprit: tuple[RuleCopy, str] | None = None
        for template, rule, reason in failing:
            is_shadow = rule.state == SHADOW
            if is_shadow and self._slow.part(rule.id) is None:
                continue
            copy = RuleCopy(
                (), rule.constants, rule, template.rule.abort, None, owner, by=owner.by, template=template.rule
            )  # fmt: skip
            if copy.aborts_parent and culprit is None and not is_shadow:
                culprit = copy, reason
            else:
                self.run.failed.append((copy, reason))
        if culprit is not None:
            self._abort(owner, culprit[0], None, culprit[1])

    def _find_deltas(self, change: UpdateChange, written: Pipeline | None) -> Deltas:
        """Return the instantiations of `$delta` for the events of a change."""
        tx = self._tx
        watched = WatchedChange(change, self._rules.watched, tx.schema.schema)
        if not watched.is_watched:
            return {}
        held: set[Statement] = set()
        described: set[str] = set()
        if watched.others or watched.subjects:
            if written is not None:
                written.send()
            touched = change.gained | change.lost
            listed = [*watched.others, *touched]
            names = tx.vocabulary.ids({n for s in listed for n in (s.property, s.object.datatype) if n is not None})
            held, described = find_held(
                tx.connection, watched.others, watched.subjects, touched, names, statement_hash
            )  # fmt: skip
        return watched.deltas(held, described)

    def _find_firing(self, deltas: Deltas, written: Pipeline | None) -> tuple[list[Firing], list[RuleFailure]]:
        """Return the rules that fire with their instantiations of `$delta`, in the order of execution, and those whose
        event or condition fails."""
        tx, seconds = self._tx, self._query_seconds()
        try:
            evaluation = Evaluation(tx, self._rules, deltas, self._slow, seconds, self._check_deadline)
            evaluation.look_before(written)
            if written is None:
                tx.flush()
            found = evaluation.evaluate(written)
        except RuleTimedOut:
            self._check_deadline()
            raise
        failing = sorted(evaluation.failing.values(), key=lambda one: one.rule.rank)
        return sorted(found, key=lambda one: (one[1].rank, one[2] or ())), failing

    def _query_seconds(self) -> float:
        """Return the time limit of the next query of a rule."""
        return min(self._limits.query_seconds, max(0.01, self._deadline - time.monotonic()))

    def _compare(self, found: Sequence[Firing]) -> dict[int, list[dict[str, Any]]]:
        """Return the comparisons of the first rules that fire in this run, by their index."""
        shown = found[: max(0, MAX_COMPARED - len(self.run.fired))]
        fired = [FiredCondition(template, rule.id, rule.constants, delta) for template, rule, delta in shown]
        return read_comparisons(self._tx.connection, self._tx.schema, fired, self._query_seconds())

    # Failures

    def _check_limits(self, owner: RuleCopy) -> None:
        limits = self._limits
        if self._count > limits.steps:
            raise self._endless(f"more than {limits.steps:,} updates")
        if owner.depth > limits.depth:
            raise self._endless(f"a chain of more than {limits.depth:,} rules")
        self._check_deadline()

    def _check_deadline(self) -> None:
        if time.monotonic() > self._deadline:
            raise self._endless(f"more than {self._limits.seconds:g} seconds")

    def _endless(self, exceeded: str) -> RulesDoNotEnd:
        """Return the error of rules that exceed a limit: which rules ran at the end, how often, and what they did."""
        owners = [step.owner for step in self.run.steps if step.owner.rule is not None and not step.is_undone]
        names = [one.rule.label for one, _ in groupby(owners) if one.rule is not None]
        sequence, times = repeating_end(names)
        last = next((step.changes for step in reversed(self.run.steps) if step.changes), ())
        shown = f" The sequence {' → '.join(sequence)} ran {times:,} times at the end." if sequence else ""
        return RulesDoNotEnd(
            f"The rules of this change took {exceeded}, so it was refused.{shown}{_last_change(last)} Change one of the"
            " rules, or disable it.",
            rules=sequence, times=times, limit=exceeded,
        )  # fmt: skip

    def _abort(self, failed: RuleCopy, culprit: RuleCopy, index: int | None, reason: str) -> None:
        """Undo a copy with those that depend on it. If the transaction itself does, refuse it."""
        aborted = {failed}
        while True:
            more = {one.parent for one in aborted if one.aborts_parent and one.parent is not None}
            more |= {copy for copy in self.run.fired if copy.parent in aborted and copy.aborts_with_parent}
            if more <= aborted:
                break
            aborted |= more
        self.run.failed.append((culprit, reason))
        if any(one.parent is None for one in aborted):
            raise rule_failure(culprit, index, reason)
        self.run.undone |= aborted
        self._schedule = deque(update for update in self._schedule if update.owner not in aborted)
        self._deferred = deque(copy for copy in self._deferred if copy not in aborted)
        self.run.detached = [copy for copy in self.run.detached if copy not in aborted]
        done = [entry for entry in self._executed if entry[0] in aborted]
        self._executed = [entry for entry in self._executed if entry[0] not in aborted]
        for owner, number, changes in reversed(done):
            if changes:
                inverse = undo_changes(self._tx, changes, owner_cause(owner))
                self.run.steps.append(RunStep(owner, number, inverse, is_undone=True))


def owner_cause(owner: RuleCopy) -> Cause:
    """Return the cause of the changes of a copy."""
    if owner.rule is None:
        return Cause(owner.kind, owner.agent, owner.by)
    return Cause(RULE, owner.rule.label, owner.by)


def rule_failure(copy: RuleCopy, index: int | None, reason: str) -> RuleFailed:
    """Return the error of a change that a failing rule refuses."""
    assert copy.rule is not None
    part = "its event or condition" if index is None else f"action {index + 1}"
    about = f" for {copy.delta.source}" if copy.delta is not None else ""
    return RuleFailed(
        f"The rule {copy.rule.name or copy.rule.id} failed{about}, so this change was refused: {part}: {reason}."
        " Change the rule, disable it, or let it fail alone with ABORT ParentChild or Independent.",
        rule=copy.rule.id, name=copy.rule.name, delta=delta_json(copy.delta), action=index, reason=reason,
    )  # fmt: skip


def delta_json(delta: Delta | None) -> dict[str, Any] | None:
    """Return an instantiation of `$delta` as JSON."""
    if delta is None:
        return None
    found: dict[str, Any] = {"source": delta.source}
    if delta.arc_name:
        found["arc_name"] = delta.arc_name
    for name, term in (("target", delta.target), ("new_target", delta.new_target)):
        if term is not None:
            found[name] = term.as_dict()
    return found


def repeating_end(names: Sequence[str]) -> tuple[list[str], int]:
    """Return the sequence that repeats at the end of a list and covers most of it, the shortest of several, and how
    often it does.

    >>> repeating_end(["a", "b", "c", "b", "c", "b", "c"])
    (['b', 'c'], 3)
    >>> repeating_end(["a", "b", "b", "a", "b", "b"])
    (['a', 'b', 'b'], 2)
    >>> repeating_end(["a", "b"])
    (['b'], 1)
    """
    best, most = 1, min(1, len(names))
    for length in range(1, min(MAX_REPEATED_RULES, len(names) // 2) + 1):
        times = _repeats(names, length)
        if times > 1 and times * length > best * most:
            best, most = length, times
    return list(names[len(names) - best :]) if names else [], most


def _repeats(names: Sequence[str], length: int) -> int:
    """Return how often the last `length` names repeat at the end."""
    times, end, last = 1, len(names) - length, names[len(names) - length :]
    while end >= length and names[end - length : end] == last:
        times, end = times + 1, end - length
    return times


def _last_change(changes: Sequence[EffectiveChange]) -> str:
    for document, removed, added in changes[-1:]:
        statement = added or removed
        assert statement is not None
        verb = "added to" if added is not None else "removed from"
        return f" The last change: {_text(statement)} was {verb} {document}."
    return ""


def _text(statement: Statement) -> str:
    subject, name, term = statement
    return f"<{subject}> <{name}> {_term_text(term)}"


def _term_text(term: Term) -> str:
    return f"<{term.value}>" if term.is_uri else repr(term.value[:60])


def count_copies(run: RuleRun) -> dict[int, RuleCount]:
    """Return how often each rule fired and failed in a run."""
    fired = Counter(copy.rule.id for copy in run.fired if copy.rule is not None)
    failed = Counter(copy.rule.id for copy, _ in run.failed if copy.rule is not None)
    ran = {copy.rule.id for copy in (*run.fired, run.root) if copy is not None and copy.rule is not None and _ran(copy)}
    return {
        rule: RuleCount(fired[rule], failed[rule], rule in ran) for rule in fired.keys() | failed.keys() | ran
    }  # fmt: skip


def _ran(copy: RuleCopy) -> bool:
    """True if the actions of a copy ran in this transaction."""
    return copy.parent is None or copy.coupling is not Coupling.DETACHED
