"""Publish (paper, end of 3.4): whom a change concerns, and what each of them is told.

    what the filter found → reasons to select a resource, by LMR → match, unmatch
    strong references     → what enters an LMR's closure, what leaves it → put
    what changed, is gone → those that hold it → put, delete

It happens in the transaction of the change itself, so that nothing is lost between the two, and the offsets of events
follow the order of commits. The closure of each LMR is kept (`lmr_resources`); it is never computed from scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass
from itertools import chain

from sqlalchemy import Connection

from mdv.db.exchange import Exchange
from mdv.db.publish import Publication, Published, References
from mdv.db.state import State
from mdv.db.store import Change
from mdv.db.vocabulary import Vocabulary
from mdv.mdp.filter import concerned_by
from mdv.mdp.schemas import SchemaInForce

MOST_NAMED = 100
"""How many LMRs are named to whoever asks what a registration would do."""


@dataclass(frozen=True)
class ToldOf:
    """What a publication did, to be asked for when the database has answered."""

    publication: Publication | None
    published: Callable[[], Published]

    def by_document(self, connection: Connection, described: Mapping[str, Collection[int]]) -> dict[str, int]:
        """How many LMRs each document's change concerned."""
        events, lmrs = self.published()
        if not events or self.publication is None:
            return dict.fromkeys(described, 0)
        if len(described) == 1:
            return dict.fromkeys(described, lmrs)
        told = self.publication.told_of()
        concerned = concerned_by(connection, told.keys(), described)
        return {uri: len({lmr for resource in mine for lmr in told[resource]}) for uri, mine in concerned.items()}

    def names(self) -> list[str]:
        """Who was told."""
        events, _ = self.published()
        return self.publication.names_told(MOST_NAMED) if events and self.publication is not None else []


NOBODY = ToldOf(None, lambda: Published(0, 0))


def publish_changes(
    exchange: Exchange, change: Change, state: State, schema: SchemaInForce, vocabulary: Vocabulary
) -> ToldOf:
    """Publish a change of documents, after the filter has run on it, when the exchange is sent."""
    strong = strong_numbers(schema, vocabulary)
    # Of what is new with this change, no LMR can hold anything yet.
    known = change.known
    changed = {key.resource for key in chain(change.gains, change.losses) if key.resource <= known}
    publication = Publication(exchange, change.position, state.last_offset, strong)
    return ToldOf(publication, publication.of_changes(changed, change.gone, _references(change, strong)))


def strong_numbers(schema: SchemaInForce, vocabulary: Vocabulary) -> frozenset[int]:
    """The properties that are strong references."""
    ids = vocabulary.ids(schema.strong)
    return frozenset(ids[iri] for iri in schema.strong)


def _references(change: Change, strong: Set[int]) -> References:
    """The strong references that came and went with a change."""
    sources, targets = [], []
    for key in change.gains:
        target = key.target
        if target is not None and key.resource <= change.known and (key.property in strong or target in change.blank):
            sources.append(key.resource)
            targets.append(target)
    lost = {
        key.target
        for key in change.losses
        if key.target is not None and (key.property in strong or key.target in change.blank)
    }
    return References(sources, targets, lost)
