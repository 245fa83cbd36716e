"""A link between two neighbours: each message exactly once and in order, over any number of lost and repeated calls.

Both sides number their messages. An exchange has the sender's messages that are not acknowledged, and the number of the
last one that it has of the other. An epoch names the life of a database: with another one, numbers start at 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mdv.federation.messages import FederationMessage


class LinkExchange(NamedTuple):
    """One call, or its answer. `first`: the number of the first message. `have`: the last number of the other side
    that the sender has stored. `peer_epoch`: what the sender knows as the epoch of the other; None before the first
    answer."""

    sender: str
    epoch: str
    peer_epoch: str | None
    first: int
    messages: tuple[FederationMessage, ...]
    have: int


class LinkGap(Exception):
    """The messages begin after the one that is expected (HTTP 409)."""

    def __init__(self, expected: int) -> None:
        super().__init__(f"expected message {expected}")
        self.expected = expected


class OtherEpoch(Exception):
    """One side was restored: the link starts again (HTTP 410). `epoch`: that of this side."""

    def __init__(self, epoch: str) -> None:
        super().__init__(f"the epoch of this site is {epoch}")
        self.epoch = epoch


@dataclass
class FederationLink:
    """One side of a link, as it is stored. `outbox`: what the other side has not acknowledged. `received`: the last
    number that was stored."""

    own: str
    epoch: str
    peer_epoch: str | None = None
    acknowledged: int = 0
    outbox: list[FederationMessage] = field(default_factory=list)
    received: int = 0
    last_exchange: float = 0.0

    def send(self, message: FederationMessage) -> None:
        self.outbox.append(message)

    def exchange(self, limit: int = 100) -> LinkExchange:
        """Return the next call, or the answer to one. It can be sent any number of times."""
        some = tuple(self.outbox[:limit])
        return LinkExchange(self.own, self.epoch, self.peer_epoch, self.acknowledged + 1, some, self.received)

    def is_restored(self, exchange: LinkExchange) -> bool:
        """True if the other side was restored since the last exchange. A call that was made before must not arrive
        after it."""
        return self.peer_epoch not in (None, exchange.epoch) and exchange.peer_epoch in (None, self.epoch)

    def accept(self, exchange: LinkExchange, now: float) -> Sequence[FederationMessage]:
        """Return the messages that are new, to be stored in this transaction. Raise `LinkGap` or `OtherEpoch`."""
        if exchange.peer_epoch not in (None, self.epoch):
            raise OtherEpoch(self.epoch)
        if self.peer_epoch not in (None, exchange.epoch):
            raise OtherEpoch(self.epoch)
        if exchange.first > self.received + 1:
            raise LinkGap(self.received + 1)
        self.peer_epoch = exchange.epoch
        self.last_exchange = now
        if exchange.have > self.acknowledged:
            del self.outbox[: exchange.have - self.acknowledged]
            self.acknowledged = exchange.have
        new = exchange.messages[self.received + 1 - exchange.first :]
        self.received += len(new)
        return new

    def restart(self, peer_epoch: str | None) -> None:
        """Start again with another life of the other side. It gets the messages that were not acknowledged."""
        self.peer_epoch = peer_epoch
        self.acknowledged = self.received = 0

    def restore(self, epoch: str) -> None:
        """Start again in another life of this side. Its outbox is old: the other side may have had the messages."""
        self.epoch = epoch
        self.restart(None)
        self.outbox.clear()
