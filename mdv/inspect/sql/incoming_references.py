"""References of other documents to resources that only one document describes. They dangle if it is deleted."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, select

from mdv.db.tables import documents, filter_data, resources, vocabulary
from mdv.model import RDF_TYPE

MAX_REFERENCES_LISTED = 100


class IncomingReference(NamedTuple):
    """A statement of `document`: `resource` refers to `target` by `property`."""

    document: str
    resource: str
    property: str
    target: str


def list_incoming_references(connection: Connection, document_id: int, limit: int) -> list[IncomingReference]:
    """Return the first references of other documents to resources that only this document describes."""
    own, other, reference = filter_data.alias("own"), filter_data.alias("other"), filter_data.alias("reference")
    source, target = resources.alias("source"), resources.alias("target")
    described = select(own.c.resource_id).where(own.c.document_id == document_id).distinct().subquery()
    elsewhere = (
        select(other.c.resource_id)
        .where(other.c.resource_id == described.c.resource_id, other.c.document_id != document_id)
        .exists()
    )
    query = (
        select(documents.c.uri, source.c.uri, vocabulary.c.uri, target.c.uri)
        .select_from(described)
        .join(reference, reference.c.target_id == described.c.resource_id)
        .join(documents, documents.c.id == reference.c.document_id)
        .join(source, source.c.id == reference.c.resource_id)
        .join(vocabulary, vocabulary.c.id == reference.c.property_id)
        .join(target, target.c.id == reference.c.target_id)
        .where(reference.c.document_id != document_id, vocabulary.c.uri != RDF_TYPE, ~elsewhere)
        .limit(limit)
    )
    return sorted(IncomingReference(*row) for row in connection.execute(query))
