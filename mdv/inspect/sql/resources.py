"""Read resources: pages of instances, their classes, their statements, and the documents that describe them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, literal, literal_column, select, union_all

from mdv.db.tables import documents, filter_data, resources, vocabulary
from mdv.inspect.sql.encoded_statements import decode_statements, encoded_columns
from mdv.model import RDF_TYPE, RDFS_RESOURCE, Statement


def list_resource_documents(connection: Connection, uri: str) -> list[str]:
    """Return the documents that describe a resource."""
    resource = select(resources.c.id).where(resources.c.uri == uri).scalar_subquery()
    # OFFSET 0 keeps the planner from scanning all statements of each document, which may be very many.
    rows = select(filter_data.c.document_id).where(filter_data.c.resource_id == resource).offset(literal_column("0"))
    described = select(rows.subquery().c.document_id)
    return list(connection.scalars(select(documents.c.uri).where(documents.c.id.in_(described)).order_by("uri")))


def list_resources(
    connection: Connection, classes: Sequence[str] | None, after: int, limit: int
) -> list[tuple[int, str, list[str]]]:
    """Return a page of (ID, URI, direct classes) of the instances of any of `classes`, or of all described resources.

    Every resource is an instance of rdfs:Resource.
    """
    f, r = filter_data.c, resources.c
    if classes is None or RDFS_RESOURCE in classes:
        described = select(literal(1)).where(f.resource_id == r.id).exists()
        page = select(r.id).where(r.id > after, described).order_by(r.id).limit(limit)
    else:
        page = _instances(classes, after, limit)
    ids = list(connection.scalars(page))
    typed = read_direct_classes(connection, ids)
    names = connection.execute(select(r.id, r.uri).where(r.id.in_(ids)).order_by(r.id))
    return [(number, uri, typed.get(number, [RDFS_RESOURCE])) for number, uri in names]


def _instances(classes: Sequence[str], after: int, limit: int) -> Select[Any]:
    f, r = filter_data.c, resources.c
    type_id = select(vocabulary.c.id).where(vocabulary.c.uri == RDF_TYPE).scalar_subquery()
    of_class = [
        select(f.resource_id)
        .where(f.target_id == select(r.id).where(r.uri == c).scalar_subquery())
        .where(f.property_id == type_id, f.resource_id > after)
        .distinct()
        .order_by(f.resource_id)
        .limit(limit)
        .subquery()
        for c in classes
    ]
    every = union_all(*(select(part.c.resource_id) for part in of_class)).subquery()
    return select(every.c.resource_id).distinct().order_by(every.c.resource_id).limit(limit)


def read_direct_classes(connection: Connection, ids: Sequence[int]) -> dict[int, list[str]]:
    f = filter_data.c
    query = (
        select(f.resource_id, resources.c.uri)
        .join_from(filter_data, resources, resources.c.id == f.target_id)
        .where(f.resource_id.in_(ids))
        .where(f.property_id == select(vocabulary.c.id).where(vocabulary.c.uri == RDF_TYPE).scalar_subquery())
        .distinct()
        .order_by(f.resource_id, resources.c.uri)
    )
    found: dict[int, list[str]] = {}
    for number, uri in connection.execute(query):
        found.setdefault(number, []).append(uri)
    return found


def read_classes(connection: Connection, numbers: Sequence[int]) -> dict[int, list[str]]:
    """Return the direct classes of these resources."""
    found = read_direct_classes(connection, numbers)
    return {number: found.get(number, [RDFS_RESOURCE]) for number in numbers}


def read_statements(connection: Connection, numbers: Sequence[int], most: int) -> list[Statement] | None:
    """Return the statements of all documents about these resources; None if there are more than `most`."""
    rows = select(*encoded_columns(filter_data.c)).where(filter_data.c.resource_id.in_(numbers)).limit(most + 1)
    found = decode_statements(connection, rows.subquery())
    return list(dict.fromkeys(found)) if len(found) <= most else None
