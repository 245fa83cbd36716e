"""From a change of a peer to the copies of the rules that fire: growth, events, conditions.

Changes are taken in order. One that makes schema nodes present waits for the rules that become e-relevant by it. The
evaluation is lost with the process, and begins again.
"""

from __future__ import annotations

from mdv.federation.asks import OpenQuestions
from mdv.federation.conditions import NoCollection, SiteEvaluation, without_arcs
from mdv.federation.event_match import deltas_of_kind, has_paths, plain_deltas
from mdv.federation.fragment import CommittedChange, FoundTerm, IndexChange, StepQuestion
from mdv.federation.messages import FederatedRule
from mdv.federation.routing import Router
from mdv.federation.rule_base import FederatedRules
from mdv.federation.sagas import FiredActions, Sagas
from mdv.federation.superpeer_state import QueuedChange, Reaction, SagaState, SagaTransaction, SuperpeerState
from mdv.rdf.validate import ValueTyper
from mdv.rdftl.model import Delta, DeltaValue
from mdv.rdftl.template import mentions


class Reactions:
    """The changes that a superpeer reacts to."""

    def __init__(
        self, state: SuperpeerState, router: Router, rules: FederatedRules, asks: OpenQuestions, sagas: Sagas
    ) -> None:
        self.state, self.router, self.rules, self.asks, self.sagas = state, router, rules, asks, sagas
        self._typer = ValueTyper(rules.schema)

    # Changes, in order

    def take(self, peer: str, change: CommittedChange, now: float) -> None:
        """Take a change of a peer."""
        self.queue_change(peer, change)
        self.work(now)

    def queue_change(self, peer: str, change: CommittedChange) -> None:
        """Note a change of a peer. It is processed after those before it."""
        self.state.queue.append(QueuedChange(peer, change))

    def forget_index_changes(self, peer: str) -> None:
        """Leave the index as it is when the changes of a peer are processed: it has reported everything since."""
        for one in self.state.queue:
            if one.peer == peer:
                one.change = one.change._replace(indexed=IndexChange())

    def work(self, now: float) -> None:
        """Process the changes whose rules are known."""
        queue = self.state.queue
        while queue:
            first = queue[0]
            if first.peer not in self.state.index.nodes:
                queue.pop(0)  # the peer has left
                continue
            if not first.has_grown:
                first.has_grown = True
                first.pull = self._grow(first.peer, first.change.indexed, now)
            if first.pull is not None and first.pull in self.state.pulls:
                return
            queue.pop(0)
            self._begin(first.peer, first.change, now)
            self._shrink(first.peer, first.change.indexed)

    def _grow(self, peer: str, change: IndexChange, now: float) -> str | None:
        index = self.state.index
        before = index.present()
        index.grow(peer, change)
        new = index.present() - before
        self.rules.index_changed(change.grown, frozenset(one.uri for one in change.came))
        if not new:
            return None
        self.router.announce(index.present())
        return self.rules.pull(new, now)

    def _shrink(self, peer: str, change: IndexChange) -> None:
        index = self.state.index
        before = index.present()
        index.shrink(peer, change)
        self.rules.index_changed(change.shrunk, change.gone)
        if index.present() != before:
            self.router.announce(index.present())

    def _begin(self, peer: str, change: CommittedChange, now: float) -> None:
        if not change.reacts:
            return
        transaction = self.state.transactions.get(change.transaction)
        if transaction is None:
            transaction = self.state.transactions[change.transaction] = SagaTransaction(change.transaction, peer)
        if transaction.state is not SagaState.RUNNING:
            return
        candidates = [
            rule
            for rule in self.state.rules.values()
            if peer in self.state.annotations[rule.id].event and deltas_of_kind(rule.rule.event, change)
        ]
        transaction.is_stepping = False
        if not candidates:
            self.sagas.advance(transaction, now)
            return
        reaction = Reaction(self.state.next_id(), transaction.id, peer, change, candidates)
        self.state.reactions[reaction.id] = reaction
        transaction.reacting = reaction.id
        _Evaluation(self, reaction).find_events(now)

    def resume(self, now: float) -> None:
        """Evaluate again after a start."""
        for reaction in list(self.state.reactions.values()):
            _Evaluation(self, reaction).find_events(now)
        self.work(now)


class _Evaluation:
    """The evaluation of one reaction. All conditions are evaluated before a copy runs."""

    def __init__(self, owner: Reactions, reaction: Reaction) -> None:
        self.owner, self.reaction = owner, reaction
        self.deltas: dict[str, tuple[Delta, ...]] = {}
        self.answers: dict[StepQuestion, frozenset[FoundTerm]] = {}

    def find_events(self, now: float) -> None:
        for rule in self.reaction.candidates:
            event, change = rule.rule.event, self.reaction.change
            if has_paths(event):

                def found(deltas: tuple[Delta, ...], rule: FederatedRule = rule) -> None:
                    self._found(rule, deltas, now)

                self.owner.asks.ask_event(self.reaction.peer, event, rule.rule.strict, change, now, found)
            else:
                self._found(rule, tuple(plain_deltas(event, change)), now)

    def _found(self, rule: FederatedRule, deltas: tuple[Delta, ...], now: float) -> None:
        is_set_oriented = not mentions((rule.rule.condition, rule.rule.actions), DeltaValue)
        self.deltas[rule.id] = deltas[:1] if is_set_oriented else deltas
        if len(self.deltas) == len(self.reaction.candidates):
            self._evaluate(now)

    def _evaluate(self, now: float) -> None:
        if self.reaction.id not in self.owner.state.reactions:
            return  # its transaction was aborted
        missing: set[StepQuestion] = set()
        fired: list[FiredActions] = []
        failed: list[tuple[FederatedRule, str]] = []
        for rule in self.reaction.candidates:
            is_set_oriented = not mentions((rule.rule.condition, rule.rule.actions), DeltaValue)
            for delta in self.deltas[rule.id]:
                evaluation = SiteEvaluation(self.answers, self.owner._typer, delta, rule.rule.strict)
                try:
                    holds = evaluation.holds(rule.rule.condition)
                except NoCollection as why:
                    failed.append((rule, str(why)))
                    continue
                missing |= evaluation.missing
                if holds:
                    fired.append(FiredActions(rule, None if is_set_oriented else delta))
        if missing:
            self.owner.asks.ask_steps(missing, now, everywhere=True, done=lambda found: self._answered(found, now))
            return
        self.owner.sagas.fire(self.owner.state.reactions.pop(self.reaction.id), fired, failed, now)

    def _answered(self, found: object, now: float) -> None:
        assert isinstance(found, dict)
        self.answers |= {question: without_arcs(some) for question, some in found.items()}
        self._evaluate(now)
