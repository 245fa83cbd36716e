"""What a superpeer stores. All changes of one received message are committed together."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from mdv.federation.fragment import CommittedChange
from mdv.federation.indexes import Annotation, GroupIndex
from mdv.federation.levels import ForeignOrder
from mdv.federation.messages import LIFE, CopyOutcome, CopyResult, FederatedRule, GroupPresence, SharedCopy, life_of
from mdv.federation.privileges import Grant

OWN_STORE = "0"
"""The peer that is the store of the superpeer itself."""


class SagaState(Enum):
    """The state of a transaction at its superpeer."""

    RUNNING = "running"
    DONE = "done"
    REFUSED = "refused"
    """Its first action is not permitted: it has changed nothing."""
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"


class AbortArc(NamedTuple):
    """An arc of the local abort graph: what must be compensated, too. `target`: a copy or a transaction there."""

    target: str
    superpeer: str


@dataclass
class SagaTransaction:
    """A transaction at a peer of the group: a change of the peer itself, or a copy that it runs action by action.

    `parent`: the transaction that caused it, and its superpeer. `awaited`: copies that have not finished. `levels`:
    copies that run next, level by level; `deferred`: at the end. `awaited_aborts`: aborts that were not answered.
    """

    id: str
    peer: str
    shared: SharedCopy | None = None
    state: SagaState = SagaState.RUNNING
    next_step: int = 0
    is_stepping: bool = False
    reacting: str | None = None
    awaited: set[str] = field(default_factory=set)
    levels: list[list[str]] = field(default_factory=list)
    deferred: list[list[str]] = field(default_factory=list)
    arcs: set[AbortArc] = field(default_factory=set)
    failed_itself: bool = False
    reason: str = ""
    is_undone: bool = False
    awaited_aborts: set[str] = field(default_factory=set)

    @property
    def parent(self) -> AbortArc | None:
        return AbortArc(self.shared.parent, self.shared.origin) if self.shared else None

    @property
    def depth(self) -> int:
        return self.shared.depth if self.shared else 0

    @property
    def is_aborted(self) -> bool:
        return self.state in (SagaState.COMPENSATING, SagaState.COMPENSATED)

    def result(self) -> CopyResult:
        if self.state is SagaState.REFUSED:
            return CopyResult(self.id, CopyOutcome.NOT_PERMITTED, self.reason)
        outcome = CopyOutcome.FAILED if self.is_aborted else CopyOutcome.DONE
        return CopyResult(self.id, outcome, self.reason)


@dataclass
class PlacedCopy:
    """A copy that this superpeer has made of the actions of a rule that fired here.

    `awaiting`: superpeers that have not answered. `results`: the answers. `given_up`: superpeers without an answer.
    """

    shared: SharedCopy
    is_started: bool = False
    is_detached: bool = False
    awaiting: set[str] = field(default_factory=set)
    deadline: float = 0.0
    results: dict[str, tuple[CopyResult, ...]] = field(default_factory=dict)
    given_up: set[str] = field(default_factory=set)


@dataclass
class LocalCopy:
    """A copy that this superpeer was sent, also by itself: the transactions of its peers that run it."""

    shared: SharedCopy
    transactions: list[str]
    is_reported: bool = False


@dataclass
class RulePull:
    """A query for rules after growth. `parent`: the neighbour that asked; None at its origin."""

    parent: str | None
    waiting: set[str]
    deadline: float
    rules: dict[str, FederatedRule] = field(default_factory=dict)


@dataclass
class QueuedChange:
    """A change of a peer that waits for the rules that its growth makes relevant. `pull`: None before its turn."""

    peer: str
    change: CommittedChange
    has_grown: bool = False
    pull: str | None = None


@dataclass
class Reaction:
    """A change whose rules are being evaluated."""

    id: str
    transaction: str
    peer: str
    change: CommittedChange
    candidates: list[FederatedRule]


@dataclass
class SeenNumbers:
    """The numbers of the flooded messages of one origin that have arrived: all up to `floor`, and `beyond`."""

    floor: int = 0
    beyond: set[int] = field(default_factory=set)

    def add(self, number: int) -> bool:
        """Add a number. Return False if it was there, or if it is of a former life."""
        if life_of(number) > life_of(self.floor):
            self.floor, self.beyond = life_of(number) * LIFE, set()
        if number <= self.floor or number in self.beyond:
            return False
        self.beyond.add(number)
        while self.floor + 1 in self.beyond:
            self.floor += 1
            self.beyond.remove(self.floor)
        return True


@dataclass
class SuperpeerState:
    """Everything that a superpeer stores, besides its links and the fragment of its own store."""

    name: str
    counter: int = 0
    flooded: int = 0
    rule_count: int = 0
    neighbours: set[str] = field(default_factory=set)
    presence: dict[str, GroupPresence] = field(default_factory=dict)
    hops: dict[str, str] = field(default_factory=dict)
    seen: dict[str, SeenNumbers] = field(default_factory=dict)
    index: GroupIndex = field(default_factory=GroupIndex)
    rules: dict[str, FederatedRule] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    annotations: dict[str, Annotation] = field(default_factory=dict)
    pulls: dict[str, RulePull] = field(default_factory=dict)
    seen_queries: set[str] = field(default_factory=set)
    queue: list[QueuedChange] = field(default_factory=list)
    reactions: dict[str, Reaction] = field(default_factory=dict)
    transactions: dict[str, SagaTransaction] = field(default_factory=dict)
    copies: dict[str, PlacedCopy] = field(default_factory=dict)
    local_copies: dict[str, LocalCopy] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    sent_aborts: dict[str, tuple[str, AbortArc]] = field(default_factory=dict)
    """Aborts that were not answered: the transaction that waits, and the arc."""
    abort_requests: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """Aborts that were received and not answered, by superpeer and id: the transactions that they wait for."""
    grants: tuple[Grant, ...] = ()
    order: ForeignOrder = ForeignOrder.ORIGIN
    max_depth: int = 100
    """Copies that may cause each other. A transaction that goes deeper fails: its rules may not end."""
    away: set[str] = field(default_factory=set)
    """Neighbours without an exchange for 300 seconds."""

    @property
    def life(self) -> int:
        """How often the superpeer was restored from a backup."""
        return life_of(self.counter)

    def life_of(self, superpeer: str) -> int:
        """Return the life of another superpeer, as far as it is known."""
        known = self.presence.get(superpeer)
        return known.life if known is not None else 0

    def next_id(self) -> str:
        self.counter += 1
        return f"{self.name}:{self.counter}"

    def superpeers(self) -> dict[str, frozenset[str]]:
        """Return the other superpeers that take part, with the schema nodes of their groups."""
        return {
            name: entry.nodes
            for name, entry in self.presence.items()
            if name != self.name and entry.nodes is not None
        }  # fmt: skip
