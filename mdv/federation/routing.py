"""Messages to neighbours, to one superpeer, and to all."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from mdv.federation.messages import (
    LIFE,
    Act,
    FederationMessage,
    Flooded,
    GroupPresence,
    Outgoing,
    PresenceMessage,
    Routed,
    RuleEnded,
    RuleMessage,
    SuperpeerBody,
)
from mdv.federation.superpeer_state import SeenNumbers, SuperpeerState

MAX_HOPS = 32
"""A message for a superpeer whose way is not known is sent in all directions, no further than this."""


class Router:
    """Sends the messages of a superpeer. `outbox`: for neighbours. `own`: for itself, handled in the same
    transaction."""

    def __init__(self, state: SuperpeerState) -> None:
        self.state = state
        self.outbox: list[Outgoing] = []
        self.own: deque[SuperpeerBody | Act] = deque()

    def send(self, neighbour: str, message: FederationMessage) -> None:
        """Send a message to a neighbour: a peer or a superpeer."""
        self.outbox.append((neighbour, message))

    def route(self, superpeer: str, body: SuperpeerBody) -> None:
        """Send a message to any superpeer, also to this one."""
        if superpeer == self.state.name:
            self.own.append(body)
        else:
            self._forward(Routed(self.state.name, superpeer, body), None)

    def pass_on(self, message: Routed, sender: str) -> SuperpeerBody | None:
        """Pass on a message for another superpeer. Return one for this superpeer."""
        if message.destination == self.state.name:
            return message.body
        if message.hops < MAX_HOPS:
            self._forward(message._replace(hops=message.hops + 1), sender)
        return None

    def _forward(self, message: Routed, sender: str | None) -> None:
        hop = self.state.hops.get(message.destination)
        ways = [hop] if hop in self.state.neighbours else sorted(self.state.neighbours - {sender})
        for neighbour in ways:
            if neighbour is not None:
                self.send(neighbour, message)

    def flood(self, body: RuleMessage | RuleEnded | Act) -> None:
        """Send a message to all other superpeers."""
        self.state.flooded += 1
        self._flood(Flooded(self.state.name, self.state.flooded, body), None)

    def is_new(self, message: Flooded, sender: str) -> bool:
        """True if a flooded message arrives for the first time. Then it is passed on."""
        seen = self.state.seen.setdefault(message.origin, SeenNumbers())
        if message.origin == self.state.name or not seen.add(message.number):
            return False
        self._flood(message, sender)
        return True

    def _flood(self, message: Flooded | PresenceMessage, sender: str | None) -> None:
        for neighbour in sorted(self.state.neighbours - {sender}):
            self.send(neighbour, message)

    # Presence

    def announce(self, nodes: frozenset[str] | None) -> None:
        """Tell all superpeers what the group has data of; None if it leaves."""
        known = self.state.presence.get(self.state.name)
        version = max(known.version if known else 0, self.state.life * LIFE) + 1
        entry = GroupPresence(self.state.name, version, nodes)
        self.state.presence[self.state.name] = entry
        self._flood(PresenceMessage((entry,)), None)

    def learn(self, entries: Iterable[GroupPresence], sender: str) -> list[GroupPresence]:
        """Store the entries that are new, and pass them on. Return them."""
        new = []
        for entry in entries:
            known = self.state.presence.get(entry.superpeer)
            if entry.superpeer != self.state.name and (known is None or known.version < entry.version):
                self.state.presence[entry.superpeer] = entry
                self.state.hops.setdefault(entry.superpeer, sender)
                new.append(entry)
        if new:
            self._flood(PresenceMessage(tuple(new)), sender)
        return new
