"""The messages between members. Each may be lost, repeated and reordered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from mdv.backbone.document_state import ReplicatedDocument
from mdv.backbone.membership import MemberTable
from mdv.backbone.operation import LogRow
from mdv.backbone.registers import Register
from mdv.backbone.replicated_set import ElementState
from mdv.backbone.vector import Life, Vector
from mdv.model import Statement

Reports = Mapping[Life, Vector]


class LogPoll(NamedTuple):
    """Ask a peer for operations: its own, or those `of` another life. `vector`: what the sender has
    applied. `have`: what it has received. `promised`: lives that it has promised to the lead, and that are not closed
    yet."""

    sender: str
    life: Life
    vector: Vector
    reports: Reports
    have: Vector
    of: Life | None = None
    promised: frozenset[Life] = frozenset()


class LogPage(NamedTuple):
    """The answer: operations in order. `offered`: what the peer could send. `yours`: the last operation that the peer
    has of the asking life, and its chain. `is_ended`: the asking life has ended."""

    sender: str
    life: Life
    vector: Vector
    reports: Reports
    offered: Vector
    rows: tuple[LogRow, ...]
    of: Life | None
    asked_by: Life
    yours: tuple[int, bytes]
    is_ended: bool


class StateNeeded(NamedTuple):
    """The answer to a poll for operations that are no longer kept, or by a life that was closed."""

    sender: str
    closed: Mapping[Life, int]


class StateRequest(NamedTuple):
    """Ask a peer for the documents that differ. `sums`: those of the sender's documents, by bucket."""

    sender: str
    life: Life
    vector: Vector
    reports: Reports
    sums: Mapping[int, int]


class TransferredDocument(NamedTuple):
    """A document with the states of all its statements, also of invisible ones."""

    uri: str
    document: ReplicatedDocument
    states: Mapping[Statement, ElementState]


class StateAnswer(NamedTuple):
    """All documents of the buckets that differ, at one vector. `chains`: the chain of each life there."""

    sender: str
    life: Life
    vector: Vector
    reports: Reports
    chains: Mapping[Life, bytes]
    table: MemberTable
    stable: Vector
    promised: Mapping[Life, int]
    buckets: frozenset[int]
    documents: tuple[TransferredDocument, ...]
    asked_by: Life
    registers: Mapping[str, Register] = {}
    lmrs: Mapping[str, Register] = {}


class LifeSeen(NamedTuple):
    """The answer to a state request: the peer, in its life `by`, knows this life, and had this vector then."""

    sender: str
    by: Life
    life: Life
    vector: Vector


class ClosePromise(NamedTuple):
    """The lead asks an active member to accept no more operations of these lives."""

    sender: str
    lives: frozenset[Life]


class ClosePromised(NamedTuple):
    """The answer: how many operations of each life the member has. `active`: the members that it knows as
    active."""

    sender: str
    active: frozenset[str]
    counts: Mapping[Life, int]


class JoinRequest(NamedTuple):
    """A new member asks for membership, with the code of an invitation. `url`, `key`: where the others reach it, and
    its public key."""

    sender: str
    life: Life
    code: str
    url: str = ""
    key: str = ""


BackboneMessage = (
    LogPoll | LogPage | StateNeeded | StateRequest | StateAnswer | LifeSeen | ClosePromise | ClosePromised | JoinRequest
)

Envelope = tuple[str, BackboneMessage]
"""A message and the name of the member that it is for."""


def describe(message: BackboneMessage) -> dict[str, Any]:
    """Return a message in short, for logs and failing simulations."""
    body: dict[str, Any] = {"message": type(message).__name__, "from": message.sender}
    if isinstance(message, LogPage):
        body["rows"] = [f"{row.life}:{row.seq}" for row in message.rows]
    return body
