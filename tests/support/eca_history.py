"""The naive meaning of coupling, abort dependencies, compensation and quarantine over several transactions.

It extends the naive execSched (`rdftl_oracle.py`): detached copies wait in one queue, and all transactions are kept, so
that any of them can be compensated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mdv.rdf.schema import Schema
from mdv.rdftl.model import AbortDependency, Action, Coupling, EcaRule
from tests.support import rdftl_oracle as oracle
from tests.support.rdftl_oracle import Execution, Registration, State, Subtransaction

MAX_FAILURES = 5
ABORTS_PARENT = (AbortDependency.CHILD_PARENT, AbortDependency.MUTUAL)
ABORTS_WITH_PARENT = (AbortDependency.PARENT_CHILD, AbortDependency.MUTUAL)


@dataclass(eq=False)
class CommittedTransaction:
    """A transaction that was not refused. `detached`: the copy that it executes, with the transaction where it fired.
    `copies[None]` stands for the transaction itself."""

    execution: Execution
    detached: tuple[CommittedTransaction, Subtransaction] | None
    origin: CommittedTransaction | None
    compensated: set[Subtransaction] = field(default_factory=set)

    @property
    def is_kept(self) -> bool:
        """True if the provider stores a run for it: rules, or actions of an update, did something."""
        run = self.execution
        updates = [step for step in run.trace if step.rule is not None or run.root.rule is not None or self.is_update]
        return bool(run.fired or updates or run.culprits)

    @property
    def is_update(self) -> bool:
        return not any(isinstance(update.action, Registration) for update, _ in self.execution.executed)


Copy = tuple[CommittedTransaction, Subtransaction]


class NaiveProvider:
    """Documents, rules, the queue of detached copies and compensations, and the history of transactions."""

    def __init__(self, schema: Schema, limits: oracle.Limits) -> None:
        self.schema, self.limits = schema, limits
        self.documents: oracle.Documents = {}
        self.rules: dict[int, EcaRule] = {}
        self.quarantined: set[int] = set()
        self.failures: dict[int, int] = {}
        self.history: list[CommittedTransaction] = []
        self.queue: deque[tuple[str, CommittedTransaction, Subtransaction]] = deque()
        self.chains: dict[CommittedTransaction, int] = {}

    @property
    def kept(self) -> list[CommittedTransaction]:
        return [one for one in self.history if one.is_kept]

    def transact(self, cause: Registration | Sequence[Action]) -> bool:
        """Run a transaction, and everything that it queues. Return False if it is refused."""
        done = self._run(cause, None)
        self.drain()
        return done

    def compensate(self, transaction: CommittedTransaction, copy: Subtransaction | None = None) -> None:
        """Compensate a copy of a transaction, or all of it, and run what is queued."""
        self._compensate((transaction, copy or transaction.execution.root))
        self.drain()

    def drain(self) -> None:
        while self.queue:
            kind, transaction, copy = self.queue.popleft()
            if kind == "compensate":
                self._compensate((transaction, copy))
            elif not (copy.parent in transaction.compensated and _abort(copy) in ABORTS_WITH_PARENT):
                done = self._run(None, (transaction, copy))
                if not done and _abort(copy) in ABORTS_PARENT and copy.parent is not None:
                    self.queue.append(("compensate", transaction, copy.parent))

    def _run(self, cause: Registration | Sequence[Action] | None, detached: Copy | None) -> bool:
        rules = {number: rule for number, rule in self.rules.items() if number not in self.quarantined}
        state = State(self.documents, self.schema)
        run = Execution(rules, state, self.limits, oracle.UPDATES_DOCUMENT, {})
        origin = (detached[0].origin or detached[0]) if detached is not None else None
        is_done = True
        try:
            if detached is not None and origin is not None:
                copy = detached[1]
                self.chains[origin] = self.chains.get(origin, 0) + 1
                if self.chains[origin] > self.limits.steps:
                    return False
                run.run_copy(Subtransaction(copy.rule, copy.number, copy.delta, None, copy.depth))
            elif cause is not None:
                run.run(cause)
        except oracle.ActionFailed:
            return False
        except (oracle.RuleFailed, oracle.RulesDoNotEnd):
            is_done = False
        self._count(run)
        if is_done:
            self.documents = run.state.documents
            done = CommittedTransaction(run, detached, origin)
            self.history.append(done)
            self.queue.extend(("detached", done, copy) for copy in run.detached)
        return is_done

    def _count(self, run: Execution) -> None:
        """Count failures in a row. A detached copy runs in a transaction of its own only."""
        ran = {copy.number for copy in run.copies if copy.rule and copy.rule.coupling is not Coupling.DETACHED}
        for number in ({run.root.number} | ran) - run.culprits - {None}:
            self.failures[number or 0] = 0
        for number in run.culprits:
            self.failures[number] = self.failures.get(number, 0) + 1
            if self.failures[number] >= MAX_FAILURES:
                self.quarantined.add(number)

    def _compensate(self, seed: Copy) -> None:
        found = {key for key in self._closure(seed) if key[1] not in key[0].compensated}
        state = State(self.documents, self.schema)
        for transaction in reversed(self.history):
            for update, changes in reversed(transaction.execution.executed):
                if (transaction, update.owner) in found:
                    state, _ = oracle.undo(changes, state)
        for transaction, copy in found:
            transaction.compensated.add(copy)
        self.documents = state.documents

    def _closure(self, seed: Copy) -> set[Copy]:
        found, todo = {seed}, [seed]
        while todo:
            more = {one for one in self._neighbours(todo.pop()) if one[1] not in one[0].execution.undone} - found
            found |= more
            todo += more
        return found

    def _neighbours(self, key: Copy) -> Iterator[Copy]:
        transaction, copy = key
        run = transaction.execution
        for child in run.copies:
            is_here = child.rule is not None and child.rule.coupling is not Coupling.DETACHED
            if is_here and child.parent is copy and _abort(child) in ABORTS_WITH_PARENT:
                yield transaction, child
        for other in self.history:
            before, fired = other.detached or (None, None)
            if before is transaction and fired is not None and fired.parent is copy:
                yield from [(other, other.execution.root)] if _abort(fired) in ABORTS_WITH_PARENT else []
        if copy.parent is not None and _abort(copy) in ABORTS_PARENT:
            yield transaction, copy.parent
        if copy is run.root and transaction.detached is not None:
            before, fired = transaction.detached
            if _abort(fired) in ABORTS_PARENT and fired.parent is not None:
                yield before, fired.parent


def _abort(copy: Subtransaction) -> AbortDependency:
    assert copy.rule is not None
    return copy.rule.abort
