"""Publish a change (paper, end of 3.4): write the events that it causes into the feeds of the affected LMRs.

    match changes of the filter    → selection counts of resources, by LMR → match, unmatch
    strong references              → resources that enter or leave an LMR's closure → put
    changed and deleted resources  → LMRs whose closure contains them → put, delete

This is part of the transaction of the change, so that no event is lost and the offsets of events follow the order of
commits. The closure of each LMR is stored (`lmr_resources`) and updated, never computed from scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass
from itertools import chain

from sqlalchemy import Connection

from mdv.db.delta import StoreChange
from mdv.db.pipeline import Pipeline
from mdv.db.publish import Publication, PublishedCounts, ReferenceChanges
from mdv.db.state import State
from mdv.db.vocabulary import Vocabulary
from mdv.mdp.filter import affected_by_document
from mdv.mdp.schemas import SchemaInForce

MAX_NAMED_LMRS = 100
"""How many affected LMRs the result of a dry run names."""


@dataclass(frozen=True)
class PublicationResult:
    """The result of a publication. It can be read after the pipeline is sent."""

    publication: Publication | None
    published: Callable[[], PublishedCounts]

    def by_document(self, connection: Connection, described: Mapping[str, Collection[int]]) -> dict[str, int]:
        """Return for each document how many LMRs its change affects."""
        events, lmrs = self.published()
        if not events or self.publication is None:
            return dict.fromkeys(described, 0)
        if len(described) == 1:
            return dict.fromkeys(described, lmrs)
        lmrs_of = self.publication.lmrs_by_resource()
        affected = affected_by_document(connection, lmrs_of.keys(), described)
        return {uri: len({lmr for one in resources for lmr in lmrs_of[one]}) for uri, resources in affected.items()}

    def names(self) -> list[str]:
        """Return the names of the LMRs that got events, up to `MAX_NAMED_LMRS`."""
        events, _ = self.published()
        return self.publication.list_notified_lmrs(MAX_NAMED_LMRS) if events and self.publication is not None else []


NOTHING_PUBLISHED = PublicationResult(None, lambda: PublishedCounts(0, 0))


def publish_changes(
    pipeline: Pipeline,
    change: StoreChange,
    state: State,
    schema: SchemaInForce,
    vocabulary: Vocabulary,
    suspended: bool = False,
) -> PublicationResult:
    """Queue the publication of a change of documents, after the filter run on it. It is executed with the pipeline.

    `suspended`: suspended rules exist. Their matches count even while no document describes the resource.
    """
    strong = strong_ids(schema, vocabulary)
    # No LMR can hold a resource that is new with this change.
    known = change.known
    changed = {key.resource for key in chain(change.gains, change.losses) if key.resource <= known}
    publication = Publication(pipeline, change.position, state.last_offset, strong)
    returned = change.returned if suspended else ()
    return PublicationResult(
        publication, publication.publish_changes(changed, change.gone, returned, _references(change, strong))
    )


def strong_ids(schema: SchemaInForce, vocabulary: Vocabulary) -> frozenset[int]:
    """Return the ids of the properties that are strong references."""
    ids = vocabulary.ids(schema.strong)
    return frozenset(ids[iri] for iri in schema.strong)


def _references(change: StoreChange, strong: Set[int]) -> ReferenceChanges:
    """Return the strong references that a change adds and removes."""
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
    return ReferenceChanges(sources, targets, lost)
