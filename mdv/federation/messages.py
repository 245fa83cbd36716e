"""The messages of a federation. Links deliver each exactly once and in order (`link.py`).

Between superpeers that are not neighbours, messages travel in `Flooded` or `Routed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from mdv.federation.fragment import CommittedChange, FoundTerm, IndexChange, StepQuestion
from mdv.federation.privileges import Grant
from mdv.rdftl.model import AbortDependency, Action, Delta, EcaRule, Event

LIFE = 10**9
"""The numbers of a superpeer that was restored from a backup go on at the next multiple of this."""


def life_of(number: int) -> int:
    """Return the life of a superpeer in which it used a number.

    >>> life_of(17), life_of(2 * LIFE + 1)
    (0, 2)
    """
    return number // LIFE


@dataclass(frozen=True, slots=True)
class FederatedRule:
    """A global rule. Its id is `SPi.j`: superpeer and number there. `registered_at`: in seconds. `life`: the life of
    the superpeer that has it."""

    origin: str
    number: int
    rule: EcaRule
    registered_at: float = 0.0
    life: int = 0

    @property
    def id(self) -> str:
        return f"{self.origin}.{self.number}"


class GroupPresence(NamedTuple):
    """The schema nodes that a peer group has data of. `version`: later ones replace earlier ones. `nodes`: None if the
    superpeer has left."""

    superpeer: str
    version: int
    nodes: frozenset[str] | None

    @property
    def life(self) -> int:
        return life_of(self.version)


class SharedCopy(NamedTuple):
    """A copy of the actions of a rule, which each superpeer decides about. `parent`: the transaction, at `origin`.

    `nodes`, `resources`: what a peer must have data of, and know, to run it. `depth`: the number of copies that led to
    it, and itself. `awaited`: superpeers that answer even if it is not relevant there.
    """

    id: str
    origin: str
    parent: str
    rule: str
    actions: tuple[Action, ...]
    delta: Delta | None
    strict: bool
    abort: AbortDependency
    nodes: frozenset[str]
    resources: frozenset[str]
    depth: int = 1
    awaited: frozenset[str] = frozenset()


class CopyOutcome(Enum):
    """What became of a copy at a peer."""

    DONE = "done"
    FAILED = "failed"
    NOT_RELEVANT = "not relevant"
    NOT_PERMITTED = "not permitted"


class CopyResult(NamedTuple):
    """What became of a transaction that ran a copy."""

    transaction: str
    outcome: CopyOutcome
    reason: str = ""


# Between superpeers


class RuleMessage(NamedTuple):
    """`rule`: a new rule, for all superpeers."""

    rule: FederatedRule


class RuleEnded(NamedTuple):
    """`rule-ended`: a rule that has ended, for all superpeers."""

    rule: str


class PresenceMessage(NamedTuple):
    """`presence` of peer groups. A receiver passes on what is new to it."""

    entries: tuple[GroupPresence, ...]


class GrownQuery(NamedTuple):
    """`grown`: which rules may be e-relevant where these nodes have come? Each superpeer asks its other neighbours."""

    id: str
    nodes: frozenset[str]


class GrownAnswer(NamedTuple):
    """The rules that a superpeer and those behind it know."""

    id: str
    rules: tuple[FederatedRule, ...]


class LateRules(NamedTuple):
    """Rules that a neighbour sent after the answer to a query, for the superpeer that asked."""

    rules: tuple[FederatedRule, ...]


class AskSteps(NamedTuple):
    """`ask-step`: steps of a condition, evaluated on the group of a superpeer, or on the fragment of a peer."""

    id: str
    questions: tuple[StepQuestion, ...]


class StepAnswers(NamedTuple):
    """The answers to `AskSteps`, in the same order."""

    id: str
    answers: tuple[frozenset[FoundTerm], ...]


class Act(NamedTuple):
    """`act`, flooded: each superpeer decides whether its peers run the copy."""

    copy: SharedCopy


class Acted(NamedTuple):
    """`acted`: the transactions that ran a copy at a superpeer; none if it is not relevant there."""

    copy: str
    superpeer: str
    outcomes: tuple[CopyResult, ...]


class Abort(NamedTuple):
    """`abort` of a copy, or of a transaction. `id`: of this message."""

    id: str
    target: str


class AbortDone(NamedTuple):
    """`compensated`: the answer to `Abort`. `id`: of that message. A transaction that is compensating already answers
    at once."""

    id: str


# Between a superpeer and its peers


class PeerIntroduction(NamedTuple):
    """`resources` and `presence` of a peer that joins."""

    contents: IndexChange


class PeerRule(NamedTuple):
    """A rule that was registered at a peer."""

    rule: EcaRule


class Changed(NamedTuple):
    """`changed`, with `presence` and `resources`: the effective change of a commit at a peer."""

    change: CommittedChange


class AskEvent(NamedTuple):
    """`ask-event`: the instantiations of `$delta` of an event in a change of the peer."""

    id: str
    event: Event
    strict: bool
    change: CommittedChange


class EventAnswer(NamedTuple):
    """The answer to `AskEvent`."""

    id: str
    deltas: tuple[Delta, ...]


class RunAction(NamedTuple):
    """`act` on a peer: one action of a transaction. `grants`: None for an action of the own group."""

    transaction: str
    step: int
    action: Action
    delta: Delta | None
    strict: bool
    grants: tuple[Grant, ...] | None


class ActionDone(NamedTuple):
    """`acted` of a peer, with its change."""

    change: CommittedChange


class ActionFailedAt(NamedTuple):
    """`acted` of a peer: the action has changed nothing."""

    transaction: str
    step: int
    outcome: CopyOutcome
    reason: str


class Compensate(NamedTuple):
    """`abort` for a peer: undo a transaction."""

    transaction: str


class CompensationDone(NamedTuple):
    """`compensated` by a peer."""

    change: CommittedChange


class Leave(NamedTuple):
    """`leave`: a peer leaves its superpeer."""


# Envelopes


class Flooded(NamedTuple):
    """A message for all superpeers. Each passes it on once, by origin and number."""

    origin: str
    number: int
    body: RuleMessage | RuleEnded | Act


class Routed(NamedTuple):
    """A message for one superpeer, by the way on which its presence arrived. `hops`: superpeers that it passed."""

    origin: str
    destination: str
    body: SuperpeerBody
    hops: int = 0


SuperpeerBody: TypeAlias = AskSteps | StepAnswers | Acted | Abort | AbortDone | LateRules
PeerMessage: TypeAlias = (
    PeerIntroduction | PeerRule | Changed | EventAnswer | StepAnswers | ActionDone | ActionFailedAt | CompensationDone
    | Leave
)  # fmt: skip
"""From a peer."""
MessageToPeer: TypeAlias = AskEvent | AskSteps | RunAction | Compensate
SuperpeerMessage: TypeAlias = Flooded | Routed | PresenceMessage | GrownQuery | GrownAnswer
"""From a neighbouring superpeer."""
FederationMessage: TypeAlias = PeerMessage | MessageToPeer | SuperpeerMessage
Outgoing: TypeAlias = tuple[str, FederationMessage]
"""A message and the neighbour that it is for."""
