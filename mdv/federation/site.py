"""A site of a federation: a superpeer or a peer behind its links. `receive` is the whole protocol of one site."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from mdv.federation.fragment import CommittedChange
from mdv.federation.link import FederationLink, LinkExchange
from mdv.federation.messages import FederationMessage, Outgoing
from mdv.federation.peer import FederationPeer
from mdv.federation.superpeer import Superpeer
from mdv.rdftl.model import EcaRule


class FederationSite(Protocol):
    """One side of its links."""

    name: str
    links: dict[str, FederationLink]

    def receive(self, exchange: LinkExchange, now: float) -> None:
        """Handle the new messages of an exchange, and put what they cause into the links. Raise `LinkGap` or
        `OtherEpoch`."""
        ...

    def committed(self, change: CommittedChange, now: float) -> None:
        """React to a change of the own store."""
        ...

    def add_rule(self, rule: EcaRule, now: float) -> None:
        """Register a global rule."""
        ...

    def tick(self, now: float) -> None:
        """Do what time brings."""
        ...

    def start(self, now: float) -> None:
        """Continue after a start."""
        ...


class SuperpeerSite:
    """A superpeer with its links to neighbouring superpeers and to peers."""

    def __init__(self, superpeer: Superpeer, links: dict[str, FederationLink], epoch: str) -> None:
        self.superpeer, self.links, self.epoch = superpeer, links, epoch
        self.name = superpeer.state.name

    def connect(self, name: str, now: float, is_superpeer: bool) -> None:
        """Add a link to a neighbouring superpeer, or for a peer that joins."""
        self.links[name] = FederationLink(self.name, self.epoch, last_exchange=now)
        if is_superpeer:
            self._send(self.superpeer.connect(name, now))

    def receive(self, exchange: LinkExchange, now: float) -> None:
        for message in self.links[exchange.sender].accept(exchange, now):
            self._send(self.superpeer.receive(exchange.sender, message, now))

    def committed(self, change: CommittedChange, now: float) -> None:
        self._send(self.superpeer.committed(change, now))

    def add_rule(self, rule: EcaRule, now: float) -> None:
        self._send(self.superpeer.add_rule(rule, now))

    def end_rule(self, rule_id: str, now: float) -> None:
        self._send(self.superpeer.end_rule(rule_id, now))

    def tick(self, now: float) -> None:
        heard = {name: link.last_exchange for name, link in self.links.items()}
        self._send(self.superpeer.tick(now, heard))

    def start(self, now: float) -> None:
        self._send(self.superpeer.start(now))

    def _send(self, messages: Iterable[Outgoing]) -> None:
        for neighbour, message in messages:
            if neighbour in self.links:  # else it has left
                self.links[neighbour].send(message)


class PeerSite:
    """A peer with its link to its superpeer."""

    def __init__(self, name: str, superpeer: str, peer: FederationPeer, link: FederationLink) -> None:
        self.name, self.superpeer, self.peer = name, superpeer, peer
        self.links = {superpeer: link}

    def join(self) -> None:
        self._send([self.peer.introduce()])

    def leave(self) -> None:
        self._send([self.peer.leave()])

    def receive(self, exchange: LinkExchange, now: float) -> None:
        for message in self.links[exchange.sender].accept(exchange, now):
            self._send(self.peer.receive(message))

    def committed(self, change: CommittedChange, now: float) -> None:
        self._send(self.peer.committed(change))

    def add_rule(self, rule: EcaRule, now: float) -> None:
        self._send([self.peer.add_rule(rule)])

    def tick(self, now: float) -> None:
        """A peer waits for nothing."""

    def start(self, now: float) -> None:
        """A peer has nothing to resume."""

    def _send(self, messages: Iterable[FederationMessage]) -> None:
        for message in messages:
            self.links[self.superpeer].send(message)
