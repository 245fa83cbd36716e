"""The indexes of a superpeer: what its peers have data of, which resources they mention, and where rules are
relevant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from mdv.federation.fragment import IndexChange
from mdv.federation.relevance import RuleNodes


class Annotation(NamedTuple):
    """The peers that are relevant to the parts of a rule."""

    event: frozenset[str] = frozenset()
    condition: frozenset[str] = frozenset()
    actions: frozenset[str] = frozenset()


@dataclass
class GroupIndex:
    """The annotated schema and the resource index of a peer group."""

    nodes: dict[str, set[str]] = field(default_factory=dict)
    """The schema nodes that each peer has data of."""
    resources: dict[str, dict[str, frozenset[str]]] = field(default_factory=dict)
    """The resources that each peer mentions, with their classes there."""

    @property
    def peers(self) -> Iterable[str]:
        return self.nodes.keys()

    def present(self) -> frozenset[str]:
        """Return the schema nodes that some peer has data of."""
        return frozenset().union(*self.nodes.values())

    def add_peer(self, peer: str, contents: IndexChange) -> None:
        """Set everything that a peer has."""
        self.nodes[peer], self.resources[peer] = set(), {}
        self.grow(peer, contents)

    def remove_peer(self, peer: str) -> None:
        self.nodes.pop(peer, None)
        self.resources.pop(peer, None)

    def grow(self, peer: str, change: IndexChange) -> None:
        self.nodes[peer] |= change.grown
        self.resources[peer].update(change.came)

    def shrink(self, peer: str, change: IndexChange) -> None:
        self.nodes[peer] -= change.shrunk
        for uri in change.gone:
            self.resources[peer].pop(uri, None)

    def knows(self, peer: str, uri: str) -> bool:
        return uri in self.resources[peer]

    def classes_of(self, uri: str) -> frozenset[str]:
        """Return the classes of a resource anywhere in the group."""
        return frozenset().union(*(known.get(uri, frozenset()) for known in self.resources.values()))

    def peers_with(self, node: str | None) -> list[str]:
        """Return the peers with data of a schema node; of any, if it is None."""
        return sorted(peer for peer, nodes in self.nodes.items() if (node in nodes if node is not None else nodes))

    def annotate(self, rule: RuleNodes) -> Annotation:
        """Return the peers to which the event, the condition and the actions of a rule are relevant."""
        event, condition, actions = set(), set(), set()
        for peer, nodes in self.nodes.items():
            known = self.resources[peer]
            if rule.is_e_relevant(nodes) and all(uri in known for uri in rule.event_resources):
                event.add(peer)
            if rule.is_c_relevant(nodes):
                condition.add(peer)
            if rule.is_a_relevant(nodes) and all(uri in known for uri in rule.action_resources):
                actions.add(peer)
        return Annotation(frozenset(event), frozenset(condition), frozenset(actions))
