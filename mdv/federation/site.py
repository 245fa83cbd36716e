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
        """Handle the new messages of an exchange, and put what they cause into the links. Raise `LinkGap`; or
        `OtherEpoch` if the sender does not know that this site was restored."""
        ...

    def other_restored(self, neighbour: str, epoch: str, now: float) -> None:
        """Start a link again after `OtherEpoch` of its other side."""
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

    def leave(self, now: float) -> None:
        """Leave the federation. The links are needed until their messages are acknowledged."""
        self._send(self.superpeer.leave(now))

    def restore(self, epoch: str, now: float) -> None:
        """Continue after a restore from a backup. `epoch`: the name of the new life."""
        self.epoch = epoch
        for link in self.links.values():
            link.restore(epoch)
        self._send(self.superpeer.restored(now))

    def other_restored(self, neighbour: str, epoch: str, now: float) -> None:
        if self.links[neighbour].peer_epoch != epoch:
            self.links[neighbour].restart(epoch)
            self._send(self.superpeer.other_restored(neighbour, now))

    def receive(self, exchange: LinkExchange, now: float) -> None:
        if self.links[exchange.sender].is_restored(exchange):
            self.other_restored(exchange.sender, exchange.epoch, now)
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
        self.is_leaving = False

    def join(self) -> None:
        """Introduce the peer to its superpeer, or repeat that it leaves."""
        self._send([self.peer.leave() if self.is_leaving else self.peer.introduce()])

    def leave(self) -> None:
        self.is_leaving = True
        self.join()

    def restore(self, epoch: str, now: float) -> None:
        """Continue after a restore from a backup. `epoch`: the name of the new life."""
        for link in self.links.values():
            link.restore(epoch)
        self.join()

    def other_restored(self, neighbour: str, epoch: str, now: float) -> None:
        if self.links[neighbour].peer_epoch != epoch:
            self.links[neighbour].restart(epoch)
            self.join()

    def receive(self, exchange: LinkExchange, now: float) -> None:
        if self.links[exchange.sender].is_restored(exchange):
            self.other_restored(exchange.sender, exchange.epoch, now)
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
