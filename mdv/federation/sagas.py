"""Transactions over several sites: copies run action by action, children are awaited, failures are compensated.

Each superpeer keeps the part of the abort graph that begins at its own transactions.
"""

from __future__ import annotations

from typing import NamedTuple

from mdv.federation.levels import levels_of
from mdv.federation.messages import (
    Abort,
    AbortDone,
    Act,
    Acted,
    ActionFailedAt,
    Compensate,
    CopyOutcome,
    FederatedRule,
    RunAction,
    SharedCopy,
)
from mdv.federation.routing import Router
from mdv.federation.rule_base import FederatedRules
from mdv.federation.superpeer_state import (
    AbortArc,
    LocalCopy,
    PlacedCopy,
    Reaction,
    SagaState,
    SagaTransaction,
    SuperpeerState,
)
from mdv.rdftl.model import AbortDependency, Coupling, Delta

CHILD_SECONDS = 30.0
"""How long a copy is awaited. Then it counts as failed, and is aborted."""

ABORTS_CHILD = (AbortDependency.PARENT_CHILD, AbortDependency.MUTUAL)
"""If the parent fails, so does the child."""
ABORTS_PARENT = (AbortDependency.CHILD_PARENT, AbortDependency.MUTUAL)
"""If the child fails, so does the parent."""


class FiredActions(NamedTuple):
    """A rule that fires. `delta`: None for a set-oriented rule."""

    rule: FederatedRule
    delta: Delta | None


class Sagas:
    """The transactions of a superpeer."""

    def __init__(self, state: SuperpeerState, router: Router, rules: FederatedRules) -> None:
        self.state, self.router, self.rules = state, router, rules

    @property
    def awaits(self) -> bool:
        """True if a copy was not answered by all. Only keys are read: a store notes which values were used."""
        return any(dict.__getitem__(self.state.copies, id_).awaiting for id_ in self.state.copies)

    # Copies that this superpeer makes

    def fire(
        self, reaction: Reaction, fired: list[FiredActions], failed: list[tuple[FederatedRule, str]], now: float
    ) -> None:
        """Place the copies of the rules that fire after a change. `failed`: rules whose condition fails."""
        transaction = self.state.transactions[reaction.transaction]
        transaction.reacting = None
        if transaction.state is not SagaState.RUNNING:
            return
        if fired and transaction.depth >= self.state.max_depth:
            names = ", ".join(sorted({one.rule.id for one in fired}))
            self.fail(
                transaction, f"rules may not end: {transaction.depth} copies caused each other, last {names}", now
            )
            return
        placed = {one: self._place(transaction, one) for one in fired}
        alone: list[str] = []
        for level in levels_of({one.rule.id: one.rule for one in fired}.values(), self.state.name, self.state.order):
            ids = {rule.id for rule in level}
            copies = [(placed[one], one.rule.rule.coupling) for one in fired if one.rule.id in ids]
            immediate, deferred, detached = (
                [copy.shared.id for copy, mode in copies if mode is coupling] for coupling in Coupling
            )
            transaction.levels += [immediate] if immediate else []
            transaction.deferred += [deferred] if deferred else []
            alone += detached
        for id_ in alone:
            self._start(self.state.copies[id_], now, is_detached=True)
        for rule, reason in failed:
            if rule.rule.abort in ABORTS_PARENT:
                self.fail(transaction, f"rule {rule.id}: {reason}", now)
        self.advance(transaction, now)

    def _place(self, transaction: SagaTransaction, fired: FiredActions) -> PlacedCopy:
        rule = fired.rule.rule
        needs = self.rules.nodes_of(fired.rule)
        shared = SharedCopy(
            self.state.next_id(), self.state.name, transaction.id, fired.rule.id, rule.actions, fired.delta,
            rule.strict, rule.abort, needs.actions, needs.action_resources, transaction.depth + 1,
        )  # fmt: skip
        placed = self.state.copies[shared.id] = PlacedCopy(shared)
        return placed

    def _start(self, placed: PlacedCopy, now: float, is_detached: bool = False) -> None:
        """Send a copy to all superpeers, and wait for those that it may be relevant to."""
        placed.is_started, placed.is_detached = True, is_detached
        placed.deadline = now + CHILD_SECONDS
        needs = placed.shared.nodes
        placed.awaiting = {name for name, nodes in self.state.superpeers().items() if needs <= nodes}
        placed.awaiting.add(self.state.name)
        shared = placed.shared = placed.shared._replace(awaited=frozenset(placed.awaiting))
        parent = self.state.transactions[shared.parent]
        if shared.abort in ABORTS_CHILD:
            parent.arcs |= {AbortArc(shared.id, superpeer) for superpeer in placed.awaiting}
        if not is_detached:
            parent.awaited.add(shared.id)
        self.router.flood(Act(shared))
        self.router.own.append(Act(shared))
        for superpeer in sorted(placed.awaiting & self.state.away):
            self._give_up(placed, superpeer, now)

    def take_result(self, acted: Acted, now: float) -> None:
        """Take what a superpeer has done with a copy."""
        placed = self.state.copies.get(acted.copy)
        if placed is None:
            return
        placed.results[acted.superpeer] = acted.outcomes
        parent = self.state.transactions[placed.shared.parent]
        ran = any(one.outcome in (CopyOutcome.DONE, CopyOutcome.FAILED) for one in acted.outcomes)
        arc = AbortArc(acted.copy, acted.superpeer)
        if ran and placed.shared.abort in ABORTS_CHILD and arc not in parent.arcs:
            parent.arcs.add(arc)  # it was not expected to be relevant there
            if parent.is_aborted:
                self._send_abort(parent, arc)
        placed.awaiting.discard(acted.superpeer)
        self._finish_if_answered(placed, now)

    def _finish_if_answered(self, placed: PlacedCopy, now: float) -> None:
        parent = self.state.transactions[placed.shared.parent]
        if not placed.awaiting and placed.shared.id in parent.awaited:
            parent.awaited.discard(placed.shared.id)
            self.advance(parent, now)

    def _give_up(self, placed: PlacedCopy, superpeer: str, now: float) -> None:
        """Treat a copy at a superpeer that does not answer as failed. The abort follows the copy on its way."""
        parent = self.state.transactions[placed.shared.parent]
        placed.awaiting.discard(superpeer)
        placed.given_up.add(superpeer)
        self._send_abort(parent, AbortArc(placed.shared.id, superpeer))
        if placed.shared.abort in ABORTS_PARENT:
            self.fail(parent, f"no answer from {superpeer} to a copy of rule {placed.shared.rule}", now)
        self._finish_if_answered(placed, now)

    def superpeer_left(self, superpeer: str, now: float) -> None:
        """Treat the children at a superpeer that has left as failed, and wait for it no longer."""
        for placed in list(self.state.copies.values()):
            if superpeer in placed.awaiting:
                placed.awaiting.discard(superpeer)
                if placed.shared.abort in ABORTS_PARENT:
                    reason = f"{superpeer} has left before it answered to a copy of rule {placed.shared.rule}"
                    self.fail(self.state.transactions[placed.shared.parent], reason, now)
                self._finish_if_answered(placed, now)
        for id_, (_, arc) in list(self.state.sent_aborts.items()):
            if arc.superpeer == superpeer:
                self.abort_done(id_)

    def expire(self, now: float) -> None:
        """Give up the copies that were not answered in time."""
        for placed in [dict.__getitem__(self.state.copies, id_) for id_ in self.state.copies]:
            if placed.is_started and placed.awaiting and placed.deadline <= now:
                placed = self.state.copies[placed.shared.id]
                for superpeer in sorted(placed.awaiting):
                    self._give_up(placed, superpeer, now)

    # Copies that this superpeer runs

    def act(self, shared: SharedCopy, now: float) -> None:
        """Decide about a copy, and run it at the peers to which all its actions are relevant."""
        state = self.state
        if shared.id in state.local_copies:
            return
        peers = [] if shared.id in state.cancelled else self._peers_for(shared)
        local = state.local_copies[shared.id] = LocalCopy(shared, [])
        for peer in peers:
            transaction = SagaTransaction(f"{shared.id}@{state.name}/{peer}", peer, shared)
            if shared.abort in ABORTS_PARENT:
                transaction.arcs.add(AbortArc(shared.parent, shared.origin))
            state.transactions[transaction.id] = transaction
            local.transactions.append(transaction.id)
        for id_ in local.transactions:
            self.advance(state.transactions[id_], now)
        self._report_if_finished(local)

    def _peers_for(self, shared: SharedCopy) -> list[str]:
        index = self.state.index
        return [
            peer
            for peer in sorted(index.peers)
            if shared.nodes <= index.nodes[peer] and all(index.knows(peer, uri) for uri in shared.resources)
        ]

    def advance(self, transaction: SagaTransaction, now: float) -> None:
        """Do what comes next: the children of the last action level by level, the next action, the deferred copies."""
        state = self.state
        while transaction.state is SagaState.RUNNING:
            if transaction.awaited or transaction.is_stepping or transaction.reacting is not None:
                return
            actions = transaction.shared.actions if transaction.shared else ()
            if transaction.levels:
                for id_ in transaction.levels.pop(0):
                    self._start(state.copies[id_], now)
            elif transaction.next_step < len(actions):
                self._run_next(transaction, now)
            elif transaction.deferred:
                transaction.levels.append(transaction.deferred.pop(0))
            else:
                transaction.state = SagaState.DONE
                self._report(transaction)

    def _run_next(self, transaction: SagaTransaction, now: float) -> None:
        shared = transaction.shared
        assert shared is not None
        step, transaction.next_step = transaction.next_step, transaction.next_step + 1
        transaction.is_stepping = True
        grants = None if shared.origin == self.state.name else self.state.grants
        if transaction.peer not in self.state.index.nodes:
            self.fail(transaction, f"peer {transaction.peer} has left", now)
            return
        run = RunAction(transaction.id, step, shared.actions[step], shared.delta, shared.strict, grants)
        self.router.send(transaction.peer, run)

    def action_failed(self, failure: ActionFailedAt, now: float) -> None:
        """Take a failure of an action. An action that is not permitted fails only if others have run before it."""
        transaction = self.state.transactions.get(failure.transaction)
        if transaction is None or transaction.state is not SagaState.RUNNING:
            return
        transaction.is_stepping = False
        if failure.outcome is CopyOutcome.NOT_PERMITTED and failure.step == 0:
            transaction.state, transaction.reason = SagaState.REFUSED, failure.reason
            self._report(transaction)
            return
        self.fail(transaction, failure.reason, now)

    def _report(self, transaction: SagaTransaction) -> None:
        if transaction.shared is not None:
            self._report_if_finished(self.state.local_copies[transaction.shared.id])

    def _report_if_finished(self, local: LocalCopy) -> None:
        """Tell the superpeer of the parent what became of a copy here, once."""
        ran = [self.state.transactions[id_] for id_ in local.transactions]
        if not local.is_reported and all(one.state is not SagaState.RUNNING for one in ran):
            local.is_reported = True
            if ran or self.state.name in local.shared.awaited:
                acted = Acted(local.shared.id, self.state.name, tuple(one.result() for one in ran))
                self.router.route(local.shared.origin, acted)

    # Failures

    def fail(self, transaction: SagaTransaction, reason: str, now: float, itself: bool = True) -> None:
        """Compensate a transaction, and abort along its arcs. `itself`: it did not fail because of another one."""
        if transaction.is_aborted or transaction.state is SagaState.REFUSED:
            return
        state = self.state
        transaction.state, transaction.reason, transaction.failed_itself = SagaState.COMPENSATING, reason, itself
        if transaction.reacting is not None:
            state.reactions.pop(transaction.reacting, None)
            transaction.reacting = None
        self._drop_waiting_copies(transaction, now)
        self._compensate_at_peer(transaction)
        for arc in sorted(transaction.arcs):
            self._send_abort(transaction, arc)
        self._report(transaction)
        self._finish_compensation(transaction)

    def _compensate_at_peer(self, transaction: SagaTransaction) -> None:
        if transaction.peer in self.state.index.nodes:
            self.router.send(transaction.peer, Compensate(transaction.id))
        else:
            transaction.is_undone = True  # what a peer that has left has changed stays there

    def _drop_waiting_copies(self, transaction: SagaTransaction, now: float) -> None:
        """Drop the copies that have not begun and depend on the transaction. The others run all the same."""
        waiting = [id_ for level in (*transaction.levels, *transaction.deferred) for id_ in level]
        transaction.levels, transaction.deferred = [], []
        for id_ in waiting:
            placed = self.state.copies[id_]
            if placed.shared.abort in ABORTS_CHILD:
                del self.state.copies[id_]
            else:
                self._start(placed, now, is_detached=True)

    def _send_abort(self, transaction: SagaTransaction, arc: AbortArc) -> None:
        if arc.superpeer != self.state.name and arc.superpeer not in self.state.superpeers():
            return  # it has left
        id_ = self.state.next_id()
        self.state.sent_aborts[id_] = transaction.id, arc
        transaction.awaited_aborts.add(id_)
        self.router.route(arc.superpeer, Abort(id_, arc.target))

    def abort(self, abort: Abort, sender: str, now: float) -> None:
        """Compensate a transaction, or all transactions that run a copy. A copy that has not arrived yet will not run.

        What is compensating already is not awaited, so that cycles end.
        """
        state = self.state
        local = state.local_copies.get(abort.target)
        if local is None and abort.target not in state.transactions:
            state.cancelled.add(abort.target)
        targets = local.transactions if local else [abort.target]
        waiting = {id_ for id_ in targets if id_ in state.transactions and not state.transactions[id_].is_aborted}
        waiting = {id_ for id_ in waiting if state.transactions[id_].state is not SagaState.REFUSED}
        state.abort_requests[sender, abort.id] = set(waiting)
        for id_ in sorted(waiting):
            self.fail(state.transactions[id_], f"aborted with another transaction, by {sender}", now, itself=False)
        self._answer_requests()

    def _answer_requests(self) -> None:
        for (superpeer, id_), waiting in list(self.state.abort_requests.items()):
            if all(self.state.transactions[one].state is SagaState.COMPENSATED for one in waiting):
                del self.state.abort_requests[superpeer, id_]
                self.router.route(superpeer, AbortDone(id_))

    def abort_done(self, id_: str) -> None:
        """Take the answer to an abort."""
        sent = self.state.sent_aborts.pop(id_, None)
        if sent is not None:
            transaction = self.state.transactions[sent[0]]
            transaction.awaited_aborts.discard(id_)
            self._finish_compensation(transaction)

    def undone(self, transaction_id: str) -> None:
        """Take the answer of the peer that has undone its changes."""
        transaction = self.state.transactions.get(transaction_id)
        if transaction is not None:
            transaction.is_undone = True
            self._finish_compensation(transaction)

    def _finish_compensation(self, transaction: SagaTransaction) -> None:
        if transaction.state is SagaState.COMPENSATING and transaction.is_undone and not transaction.awaited_aborts:
            transaction.state = SagaState.COMPENSATED
            self._answer_requests()

    def repeat_aborts(self, superpeer: str | None = None) -> None:
        """Send again the aborts that were not answered: to one superpeer that was restored, or to all."""
        for id_, (_, arc) in self.state.sent_aborts.items():
            if superpeer in (None, arc.superpeer):
                self.router.route(arc.superpeer, Abort(id_, arc.target))

    def restored(self, now: float) -> None:
        """End what was running when this superpeer was backed up: what became of it since is not known."""
        self.repeat_aborts()
        for transaction in list(self.state.transactions.values()):
            if transaction.state is SagaState.COMPENSATING and not transaction.is_undone:
                self._compensate_at_peer(transaction)
            elif transaction.state is SagaState.RUNNING:
                self.fail(transaction, f"{self.state.name} was restored from a backup", now)

    def peer_restored(self, peer: str, now: float) -> None:
        """Fail the transactions whose action may have been lost with the former life of a peer."""
        for transaction in list(self.state.transactions.values()):
            if transaction.peer != peer:
                continue
            if transaction.state is SagaState.RUNNING and transaction.is_stepping:
                self.fail(transaction, f"peer {peer} was restored from a backup", now)
            elif transaction.state is SagaState.COMPENSATING and not transaction.is_undone:
                self._compensate_at_peer(transaction)

    def peer_left(self, peer: str, now: float) -> None:
        """Treat the transactions that run at a peer that has left as failed. What it has changed stays there."""
        of_peer = [one for one in self.state.transactions.values() if one.peer == peer]
        for transaction in of_peer:
            if transaction.state is SagaState.RUNNING and transaction.is_stepping:
                self.fail(transaction, f"peer {peer} has left", now)
            elif transaction.state is SagaState.COMPENSATING:
                self.undone(transaction.id)
