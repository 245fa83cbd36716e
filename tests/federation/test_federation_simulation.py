"""Simulated schedules of a federation in memory, and faults that they must find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mdv.federation import superpeer
from mdv.federation.asks import OpenQuestions
from mdv.federation.link import FederationLink
from mdv.federation.messages import Act, GrownAnswer
from mdv.federation.reactions import Reactions
from mdv.federation.routing import Router
from mdv.federation.rule_base import FederatedRules
from mdv.federation.sagas import Sagas
from mdv.federation.site import PeerSite
from mdv.federation.superpeer_state import SagaState
from tests.support.federation_simulation import MODES, SimulationFailed, run_schedules

QUICK, FULL, STEP = 100, 2_000, 500
KINDS_OF_STEPS = {"line", "ring", "star", "rule", "change", "delivered", "lost", "repeated", "cut", "restart", "crash"}
WILD_STEPS = {"long cut", "leave", "superpeer left", "rule ended", "restore", "compensated"}


@pytest.mark.parametrize("mode", MODES)
def test_federations_keep_their_invariants(mode: str) -> None:
    counts = run_schedules(mode, range(QUICK))
    assert counts.keys() >= KINDS_OF_STEPS | (WILD_STEPS if mode == "failing" else set())
    assert counts["transactions"] > 4 * QUICK


@pytest.mark.full
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("first", range(0, FULL // 2, STEP))
def test_federations_keep_their_invariants_in_thousands_of_schedules(mode: str, first: int) -> None:
    """Both modes together run 2,000 schedules, in parts of 500."""
    counts = run_schedules(mode, range(QUICK + first, QUICK + first + STEP))
    assert counts.keys() >= KINDS_OF_STEPS


Patch = Callable[[pytest.MonkeyPatch], None]


def sent_messages_count_as_acknowledged(patch: pytest.MonkeyPatch) -> None:
    original = FederationLink.exchange

    def exchange(self: FederationLink, limit: int = 100) -> Any:
        call = original(self, limit)
        del self.outbox[:limit]
        self.acknowledged += len(call.messages)
        return call

    patch.setattr(FederationLink, "exchange", exchange)


def repeated_messages_are_handled_again(patch: pytest.MonkeyPatch) -> None:
    original = FederationLink.accept

    def accept(self: FederationLink, exchange: Any, now: float) -> Any:
        original(self, exchange, now)
        return exchange.messages

    patch.setattr(FederationLink, "accept", accept)


def changes_do_not_wait_for_rules(patch: pytest.MonkeyPatch) -> None:
    original = Reactions._grow

    def grow(self: Reactions, *given: Any) -> None:
        original(self, *given)

    patch.setattr(Reactions, "_grow", grow)


def queries_are_not_passed_on(patch: pytest.MonkeyPatch) -> None:
    def answer(self: FederatedRules, query: Any, sender: str, now: float) -> None:
        rules = tuple(rule for rule in self.state.rules.values() if self._may_matter(rule, query.nodes))
        self.router.send(sender, GrownAnswer(query.id, rules))

    patch.setattr(FederatedRules, "answer_query", answer)


def annotations_are_not_renewed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FederatedRules, "index_changed", lambda self, nodes, resources: None)


def ended_rules_come_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FederatedRules, "forget", lambda self, rule_id: self._remove(rule_id))


def presence_is_told_to_neighbours_alone(patch: pytest.MonkeyPatch) -> None:
    original = Router.learn

    def learn(self: Router, entries: Any, sender: str) -> Any:
        waiting = list(self.outbox)
        new = original(self, entries, sender)
        self.outbox[:] = waiting
        return new

    patch.setattr(Router, "learn", learn)


def indexes_shrink_before_events_are_found(patch: pytest.MonkeyPatch) -> None:
    original = Reactions._begin

    def begin(self: Reactions, peer: str, change: Any, now: float) -> None:
        self._shrink(peer, change.indexed)
        original(self, peer, change, now)

    patch.setattr(Reactions, "_begin", begin)


def conditions_ask_the_own_group_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OpenQuestions, "superpeers_for", lambda self, question: [])


def restarts_forget_what_was_evaluated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reactions, "resume", lambda self, now: None)


def questions_are_not_repeated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OpenQuestions, "expire", lambda self, now: None)


def copies_are_not_told_to_other_superpeers(patch: pytest.MonkeyPatch) -> None:
    original = Router.flood

    def flood(self: Router, body: Any) -> None:
        if not isinstance(body, Act):
            original(self, body)

    patch.setattr(Router, "flood", flood)


def aborts_stop_at_the_first_transaction(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sagas, "_send_abort", lambda self, transaction, arc: None)


def transactions_are_compensated_without_their_changes(patch: pytest.MonkeyPatch) -> None:
    def fail(self: Sagas, transaction: Any, reason: str, now: float, itself: bool = True) -> None:
        if not transaction.is_aborted and transaction.state is not SagaState.REFUSED:
            transaction.is_undone = True
        original(self, transaction, reason, now, itself)

    original = Sagas.fail
    patch.setattr(Sagas, "fail", fail)
    patch.setattr(Sagas, "_compensate_at_peer", lambda self, transaction: None)


def restored_superpeers_keep_their_life(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(superpeer, "LIFE", 0)


def restored_peers_do_not_introduce_themselves(patch: pytest.MonkeyPatch) -> None:
    original = PeerSite.restore

    def restore(self: PeerSite, epoch: str, now: float) -> None:
        original(self, epoch, now)
        self.links[self.superpeer].outbox.clear()

    patch.setattr(PeerSite, "restore", restore)


@pytest.mark.parametrize(
    ("fault", "mode", "first"),
    [
        (sent_messages_count_as_acknowledged, "commuting", 0),
        (repeated_messages_are_handled_again, "failing", 0),
        (changes_do_not_wait_for_rules, "commuting", 0),
        (queries_are_not_passed_on, "commuting", 0),
        (annotations_are_not_renewed, "failing", 0),
        (ended_rules_come_back, "failing", 320),
        (presence_is_told_to_neighbours_alone, "commuting", 0),
        (indexes_shrink_before_events_are_found, "commuting", 0),
        (conditions_ask_the_own_group_alone, "commuting", 0),
        (restarts_forget_what_was_evaluated, "commuting", 0),
        (questions_are_not_repeated, "commuting", 525),
        (copies_are_not_told_to_other_superpeers, "commuting", 0),
        (aborts_stop_at_the_first_transaction, "failing", 0),
        (transactions_are_compensated_without_their_changes, "failing", 0),
        (restored_superpeers_keep_their_life, "failing", 305),
        (restored_peers_do_not_introduce_themselves, "failing", 170),
    ],
)
def test_a_planted_fault_is_found(fault: Patch, mode: str, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`first`: shortly before a schedule that finds the fault, which saves time."""
    fault(monkeypatch)
    with pytest.raises(SimulationFailed, match=f"Replay with: .* --mode {mode} --seed [0-9]+"):
        run_schedules(mode, range(first, first + 1_000))
