"""A peer: it reports what it commits, answers questions about its fragment, and runs actions for its superpeer."""

from __future__ import annotations

from mdv.federation.fragment import ActionNotPermitted, ActionRefused, CommittedChange, Fragment
from mdv.federation.messages import (
    ActionDone,
    ActionFailedAt,
    AskEvent,
    AskSteps,
    Changed,
    Compensate,
    CompensationDone,
    CopyOutcome,
    EventAnswer,
    FederationMessage,
    Leave,
    PeerIntroduction,
    PeerRule,
    RunAction,
    StepAnswers,
)
from mdv.rdftl.model import EcaRule


class FederationPeer:
    """One peer of a group. It keeps no state of its own besides its fragment and its link."""

    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment

    def introduce(self) -> PeerIntroduction:
        """Return the first message to a superpeer, and the first after either was restored."""
        return PeerIntroduction(self.fragment.contents())

    def committed(self, change: CommittedChange) -> list[FederationMessage]:
        """Return the messages after a change of the peer itself: a registration, deletion or update."""
        return [] if change.is_empty else [Changed(change)]

    def add_rule(self, rule: EcaRule) -> PeerRule:
        return PeerRule(rule)

    def leave(self) -> Leave:
        return Leave()

    def receive(self, message: FederationMessage) -> list[FederationMessage]:
        """Return the answers to a message of the superpeer."""
        match message:
            case AskSteps(id_, questions):
                return [StepAnswers(id_, tuple(frozenset(self.fragment.select(one)) for one in questions))]
            case AskEvent(id_, event, strict, change):
                return [EventAnswer(id_, tuple(sorted(self.fragment.find_event(event, strict, change))))]
            case RunAction():
                return [self._run(message)]
            case Compensate(transaction):
                return [CompensationDone(self.fragment.compensate(transaction)._replace(reacts=False))]
        raise ValueError(f"{type(message).__name__} is no message for a peer")

    def _run(self, run: RunAction) -> ActionDone | ActionFailedAt:
        try:
            change = self.fragment.execute(
                run.transaction, run.step, run.action, run.delta, run.strict, run.grants
            )  # fmt: skip
        except ActionRefused as refused:
            return ActionFailedAt(run.transaction, run.step, CopyOutcome.FAILED, str(refused))
        except ActionNotPermitted as refused:
            return ActionFailedAt(run.transaction, run.step, CopyOutcome.NOT_PERMITTED, str(refused))
        return ActionDone(change)
