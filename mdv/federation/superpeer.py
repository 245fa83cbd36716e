"""A superpeer: it coordinates the rules and transactions of its peer group. No I/O: messages in, messages out."""

from __future__ import annotations

from collections.abc import Sequence

from mdv.federation.asks import OpenQuestions
from mdv.federation.fragment import CommittedChange, FoundTerm
from mdv.federation.messages import (
    LIFE,
    Abort,
    AbortDone,
    Act,
    Acted,
    ActionDone,
    ActionFailedAt,
    AskSteps,
    Changed,
    CompensationDone,
    EventAnswer,
    FederationMessage,
    Flooded,
    GroupPresence,
    GrownAnswer,
    GrownQuery,
    LateRules,
    Leave,
    Outgoing,
    PeerIntroduction,
    PeerRule,
    PresenceMessage,
    Routed,
    RuleEnded,
    RuleMessage,
    StepAnswers,
    SuperpeerBody,
)
from mdv.federation.peer import FederationPeer
from mdv.federation.reactions import Reactions
from mdv.federation.routing import Router
from mdv.federation.rule_base import FederatedRules
from mdv.federation.sagas import Sagas
from mdv.federation.superpeer_state import OWN_STORE, SuperpeerState
from mdv.rdf.schema import Schema
from mdv.rdftl.model import EcaRule

AWAY_SECONDS = 300.0
"""A neighbour without an exchange for this time is away: its messages wait, and copies there count as failed."""


class Superpeer:
    """A superpeer with its stored state. `own`: the peer that is its own store.

    Each method returns the messages that it causes, for neighbours. The caller commits the state and the messages
    together.
    """

    def __init__(self, state: SuperpeerState, schema: Schema, own: FederationPeer) -> None:
        self.state, self.schema, self.own = state, schema, own
        self.router = Router(state)
        self.rules = FederatedRules(state, self.router, schema)
        self.asks = OpenQuestions(state, self.router, schema)
        self.sagas = Sagas(state, self.router, self.rules)
        self.reactions = Reactions(state, self.router, self.rules, self.asks, self.sagas)

    # Life

    def found(self, now: float) -> list[Outgoing]:
        """Begin, with what the own store has."""
        self._add_peer(OWN_STORE, self.own.introduce(), now)
        return self._finish(now)

    def start(self, now: float) -> list[Outgoing]:
        """Continue after a start: evaluate again what was being evaluated."""
        self.reactions.resume(now)
        return self._finish(now)

    def connect(self, superpeer: str, now: float) -> list[Outgoing]:
        """Add a neighbouring superpeer, or start again with one that was restored."""
        self.state.neighbours.add(superpeer)
        self.router.send(superpeer, PresenceMessage(tuple(self.state.presence.values())))
        self.rules.pull(self.state.index.present(), now)
        return self._finish(now)

    def restored(self, now: float) -> list[Outgoing]:
        """Continue after a restore from a backup, in a new life: others have gone on since."""
        state = self.state
        state.counter = state.flooded = state.rule_count = (state.life + 1) * LIFE
        self._add_peer(OWN_STORE, self.own.introduce(), now)
        self.router.announce(state.index.present())
        self.rules.restored()
        for neighbour in sorted(state.neighbours):
            self.router.send(neighbour, PresenceMessage(tuple(state.presence.values())))
        self.rules.pull(state.index.present(), now)
        self.sagas.restored(now)
        return self._finish(now)

    def other_restored(self, neighbour: str, now: float) -> list[Outgoing]:
        """Begin again with a neighbour that was restored: it may lack what it had acknowledged."""
        if neighbour in self.state.neighbours:
            self.router.send(neighbour, PresenceMessage(tuple(self.state.presence.values())))
        else:
            self.sagas.peer_restored(neighbour, now)
        return self._finish(now)

    def leave(self, now: float) -> list[Outgoing]:
        """Leave the federation, and inform all superpeers."""
        self.router.announce(None)
        return self._finish(now)

    def tick(self, now: float, last_exchange: dict[str, float]) -> list[Outgoing]:
        """Do what time brings. `last_exchange`: when each neighbour was heard of last."""
        neighbours = self.state.neighbours
        self.state.away = {name for name in neighbours if now - last_exchange.get(name, now) >= AWAY_SECONDS}
        self.rules.expire(now)
        self.asks.expire(now)
        self.sagas.expire(now)
        return self._finish(now)

    # Rules and changes of the superpeer itself

    def add_rule(self, rule: EcaRule, now: float) -> list[Outgoing]:
        """Register a global rule."""
        self.rules.register(rule, now)
        return self._finish(now)

    def end_rule(self, rule_id: str, now: float) -> list[Outgoing]:
        """End a rule of this superpeer."""
        self.rules.end(rule_id)
        return self._finish(now)

    def committed(self, change: CommittedChange, now: float) -> list[Outgoing]:
        """React to a change of the own store."""
        for message in self.own.committed(change):
            self._from_peer(OWN_STORE, message, now)
        return self._finish(now)

    def committed_in_order(self, changes: Sequence[CommittedChange], now: float) -> list[Outgoing]:
        """React to several changes of the own store that were committed before any of their rules runs."""
        for change in changes:
            self.reactions.queue_change(OWN_STORE, change)
        return self._finish(now)

    @property
    def waits(self) -> bool:
        """True if time may bring something: a question or a copy that was not answered in time."""
        return self.asks.has_open or bool(self.state.pulls) or self.sagas.awaits

    # Messages

    def receive(self, sender: str, message: FederationMessage, now: float) -> list[Outgoing]:
        """Handle a message of a neighbour. Return the messages that it causes."""
        if sender in self.state.neighbours:
            self._from_superpeer(sender, message, now)
        else:
            self._from_peer(sender, message, now)
        return self._finish(now)

    def _finish(self, now: float) -> list[Outgoing]:
        """Handle the messages for this superpeer and its own store, until only those for neighbours are left."""
        while True:
            self.reactions.work(now)
            if self.router.own:
                body = self.router.own.popleft()
                if isinstance(body, Act):
                    self.sagas.act(body.copy, now)
                else:
                    self._from_anywhere(self.state.name, body, now)
                continue
            found = next((one for one in self.router.outbox if one[0] == OWN_STORE), None)
            if found is None:
                break
            self.router.outbox.remove(found)
            for answer in self.own.receive(found[1]):
                self._from_peer(OWN_STORE, answer, now)
        outgoing, self.router.outbox = self.router.outbox, []
        return outgoing

    def _from_peer(self, peer: str, message: FederationMessage, now: float) -> None:
        match message:
            case PeerIntroduction():
                self._add_peer(peer, message, now)
            case PeerRule(rule):
                self.rules.register(rule, now)
            case Changed(change) | ActionDone(change):
                self.reactions.take(peer, change, now)
            case CompensationDone(change):
                self.reactions.take(peer, change, now)
                self.sagas.undone(change.transaction)
            case ActionFailedAt():
                self.sagas.action_failed(message, now)
            case EventAnswer(id_, deltas):
                self.asks.answered(id_, deltas)
            case StepAnswers(id_, answers):
                self.asks.answered(id_, answers)
            case Leave():
                self._remove_peer(peer, now)

    def _from_superpeer(self, sender: str, message: FederationMessage, now: float) -> None:
        match message:
            case Routed():
                body = self.router.pass_on(message, sender)
                if body is not None:
                    self._from_anywhere(message.origin, body, now)
            case Flooded():
                if self.router.is_new(message, sender):
                    self._flooded(message, now)
            case PresenceMessage(entries):
                self._learn(entries, sender, now)
            case GrownQuery():
                self.rules.answer_query(message, sender, now)
            case GrownAnswer():
                self.rules.take_answer(message, sender)

    def _flooded(self, message: Flooded, now: float) -> None:
        match message.body:
            case RuleMessage(rule):
                self.rules.offer([rule])
            case RuleEnded(rule_id):
                self.rules.forget(rule_id)
            case Act(copy):
                self.sagas.act(copy, now)

    def _from_anywhere(self, origin: str, body: SuperpeerBody, now: float) -> None:
        match body:
            case AskSteps(id_):

                def answer(found: tuple[frozenset[FoundTerm], ...]) -> None:
                    self.router.route(origin, StepAnswers(id_, found))

                self.asks.answer(body, now, answer)
            case StepAnswers(id_, answers):
                self.asks.answered(id_, answers)
            case Acted():
                self.sagas.take_result(body, now)
            case Abort():
                self.sagas.abort(body, origin, now)
            case AbortDone(id_):
                self.sagas.abort_done(id_)
            case LateRules(rules):
                self.rules.offer(rules)

    # Members

    def _add_peer(self, peer: str, introduction: PeerIntroduction, now: float) -> None:
        before = self.state.index.present()
        self.reactions.forget_index_changes(peer)
        self.state.index.add_peer(peer, introduction.contents)
        self._index_renewed(before, now)

    def _remove_peer(self, peer: str, now: float) -> None:
        before = self.state.index.present()
        self.state.index.remove_peer(peer)
        self._index_renewed(before, now)
        self.asks.without_site(peer)
        self.sagas.peer_left(peer, now)

    def _index_renewed(self, before: frozenset[str], now: float) -> None:
        """Renew all annotations, and tell the other superpeers what has changed."""
        present = self.state.index.present()
        self.rules.renew()
        if present != before or self.state.name not in self.state.presence:
            self.router.announce(present)
        self.rules.pull(present - before, now)

    def _learn(self, entries: tuple[GroupPresence, ...], sender: str, now: float) -> None:
        known = set(self.state.superpeers())
        lives = {name: entry.life for name, entry in self.state.presence.items()}
        for entry in self.router.learn(entries, sender):
            if entry.nodes is None:
                self._superpeer_left(entry.superpeer, now)
            elif entry.life > lives.get(entry.superpeer, entry.life):
                self.rules.origin_restored(entry.superpeer)
                self.sagas.repeat_aborts(entry.superpeer)
        if set(self.state.superpeers()) - known:
            self.rules.pull(self.state.index.present(), now)

    def _superpeer_left(self, superpeer: str, now: float) -> None:
        state = self.state
        state.neighbours.discard(superpeer)
        state.hops = {name: hop for name, hop in state.hops.items() if superpeer not in (name, hop)}
        self.rules.forget_origin(superpeer)
        self.rules.without_neighbour(superpeer)
        self.asks.without_site(superpeer)
        self.sagas.superpeer_left(superpeer, now)
