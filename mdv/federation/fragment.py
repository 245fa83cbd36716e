"""What a peer needs of its store. It is memory in simulations, and the database of an MDP in production."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from mdv.federation.privileges import Grant
from mdv.model import Statement, Term
from mdv.rdf.schema import Schema
from mdv.rdftl.model import Action, Delta, Event


class ResourceClasses(NamedTuple):
    """A resource that a peer mentions, and its classes there; none if they are not stated."""

    uri: str
    classes: frozenset[str] = frozenset()


class IndexChange(NamedTuple):
    """A change of what a peer has: schema nodes that came or went, and resources that came, changed their classes, or
    went."""

    grown: frozenset[str] = frozenset()
    shrunk: frozenset[str] = frozenset()
    came: tuple[ResourceClasses, ...] = ()
    gone: frozenset[str] = frozenset()


class CommittedChange(NamedTuple):
    """The effective change of one commit at a peer, in its closure.

    `transaction`: the transaction that it belongs to; `step`: the number of the action, 0 for a change of the peer
    itself. `nodes_in`, `nodes_out`: resources that have now, or no longer, a statement about them. `reacts`: False for
    a compensation, which triggers no rules.
    """

    transaction: str
    step: int = 0
    inserted: tuple[Statement, ...] = ()
    deleted: tuple[Statement, ...] = ()
    updated: tuple[Delta, ...] = ()
    nodes_in: tuple[str, ...] = ()
    nodes_out: tuple[str, ...] = ()
    indexed: IndexChange = IndexChange()
    reacts: bool = True

    @property
    def is_empty(self) -> bool:
        return not (self.inserted or self.deleted or self.updated or self.nodes_in or self.nodes_out)


class StepQuestion(NamedTuple):
    """A step of a condition that a site is asked: where does it lead from a term, in the fragment of the site alone?

    `axis`: `target`, `source` or `element`; `node`: whether the term is there; `nodes`: all nodes.
    """

    axis: str
    term: Term | None = None
    property: str | None = None
    number: int | None = None


class FoundTerm(NamedTuple):
    """A term that a step leads to. `arc`: the arc on which it was found, for privileges; None for a node.
    `properties`: those of the statements that the arc follows from, which type a literal."""

    term: Term
    arc: Statement | None = None
    properties: frozenset[str] = frozenset()


class ActionRefused(Exception):
    """An action that cannot be carried out. It has changed nothing."""


class ActionNotPermitted(Exception):
    """An action affects a statement that is not read-write for others. It has changed nothing."""


class Fragment(Protocol):
    """The statements of one peer."""

    schema: Schema

    def contents(self) -> IndexChange:
        """Return everything that the peer has, as if it had come now."""
        ...

    def select(self, question: StepQuestion) -> Collection[FoundTerm]:
        """Return where a step leads, in the closure of the fragment."""
        ...

    def find_event(self, event: Event, strict: bool, change: CommittedChange) -> Collection[Delta]:
        """Return the instantiations of `$delta` of an event in a change. Paths of DELETE events and old targets are
        evaluated on the state before it."""
        ...

    def execute(
        self,
        transaction: str,
        step: int,
        action: Action,
        delta: Delta | None,
        strict: bool,
        grants: tuple[Grant, ...] | None,
    ) -> CommittedChange:
        """Carry out an action, and commit. `grants`: what others may do; None for an action of the own group.

        Raise `ActionRefused` or `ActionNotPermitted`.
        """
        ...

    def compensate(self, transaction: str) -> CommittedChange:
        """Undo what a transaction has changed, last change first, where what it left is still there unchanged."""
        ...


Presence = Mapping[str, frozenset[str]]
"""The schema nodes that each peer has data of."""
