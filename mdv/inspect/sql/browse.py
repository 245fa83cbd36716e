"""Queries of the pages for browsing. Each reads at most a page, or up to a limit, regardless of the size of the store:
instances are counted up to a limit, and lists are paged by the key of an index."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, Connection, Numeric, Text, and_, cast, func, literal, select, tuple_
from sqlalchemy.dialects.postgresql import BIGINT

from mdv.db.load_sql import load_sql
from mdv.db.tables import filter_data, resources, vocabulary
from mdv.inspect.listed_values import MAX_LITERAL_CHARACTERS, BoundedCount, ListedLiteral
from mdv.model import RDF_TYPE, Term
from mdv.rdf.values import ValueKind

MAX_ROWS_COUNTED = 10_000
"""Limit of statements that are read to count instances or references."""
MAX_ROWS_COUNTED_PER_PAGE = 100_000
"""The same limit for all classes of a page together."""
MIN_ROWS_COUNTED = 1_000
MAX_CELL_CHARACTERS = 120
MAX_VALUES_PER_CELL = 20
INDEXED_PREFIX_LENGTH = 64
"""The index of values contains this many characters of a text."""
_LAST_CHARACTER = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class LinkedResource:
    """The other end of a reference: `uri` is the source or the target of the property. `after`: the key of the next
    page."""

    property: str
    uri: str
    described: bool
    after: tuple[str, int] | tuple[int, int]


@dataclass(frozen=True, slots=True)
class HoldingLmr:
    """An LMR that holds a resource: a rule selects it, or else a strong reference reaches it."""

    id: int
    name: str
    selected: bool


# Classes and their instances


def count_instances(connection: Connection, groups: Sequence[Collection[str]]) -> list[BoundedCount]:
    """Count the instances of each of these groups of classes, for example of a class with its subclasses."""
    most = max(MIN_ROWS_COUNTED, min(MAX_ROWS_COUNTED, MAX_ROWS_COUNTED_PER_PAGE // max(1, len(groups))))
    flat = [(place, uri) for place, group in enumerate(groups) for uri in group]
    values = {"places": [place for place, _ in flat], "classes": [uri for _, uri in flat], "most": most}
    found = {
        place: BoundedCount(instances, looked >= most)
        for place, instances, looked in _rows(connection, "count_instances", type=_type(connection), **values)
    }
    return [found.get(place, BoundedCount(0, False)) for place in range(len(groups))]


def list_uris_with_prefix(connection: Connection, beginning: str, after: str, limit: int) -> list[tuple[str, bool]]:
    """Return a page of the URIs that start with `beginning`, and whether a document describes them."""
    values = {"beginning": beginning, "beyond": beginning + _LAST_CHARACTER, "after": after, "most": limit}
    return [(uri, described) for uri, described in _rows(connection, "find_resources", **values)]


def find_resource_ids(connection: Connection, uris: Collection[str]) -> list[int]:
    """Return the IDs of those of these URIs that exist in the store."""
    return list(connection.scalars(select(resources.c.id).where(resources.c.uri.in_(uris))))


def with_ids(connection: Connection, uris: Sequence[str]) -> list[tuple[int, str]]:
    """Return these URIs with their IDs, in the same order."""
    known = {row.uri: row.id for row in connection.execute(select(resources).where(resources.c.uri.in_(uris)))}
    return [(known[uri], uri) for uri in uris if uri in known]


def with_uris(connection: Connection, numbers: Sequence[int]) -> list[tuple[int, str]]:
    """Return these resources with their URIs, in the same order."""
    known = {row.id: row.uri for row in connection.execute(select(resources).where(resources.c.id.in_(numbers)))}
    return [(number, known[number]) for number in numbers]


def find_slice_end(connection: Connection, classes: Sequence[int], after: int, most: int) -> int | None:
    """Return the greatest ID of the next `most` instances; None if there are none."""
    values = {"type": _type(connection), "classes": list(classes), "after": after, "most": most}
    ((bound,),) = _rows(connection, "bound_of_slice", **values)
    return None if bound is None else int(bound)


def list_by_property(
    connection: Connection,
    property_iri: str,
    kind: ValueKind,
    classes: Sequence[int] | None,
    descending: bool,
    after: tuple[str, int] | None,
    limit: int,
) -> list[tuple[int, str]]:
    """Return the IDs of instances of some classes (None: any), in the order of a property's numbers or texts, each with
    the key of the next page. This is the order of an index. A resource with several values occurs several times."""
    f = filter_data.alias("f")
    key: ColumnElement[Any] = f.c.number if kind is ValueKind.NUMBER else func.left(f.c.value, INDEXED_PREFIX_LENGTH)
    its_type = filter_data.alias("its_type")
    property_id = select(vocabulary.c.id).where(vocabulary.c.uri == property_iri).scalar_subquery()
    where = [
        f.c.property_id == property_id,
        f.c.number.is_not(None) if kind is ValueKind.NUMBER else f.c.value.is_not(None),
    ]
    if classes is not None:
        typed = select(literal(1)).where(
            its_type.c.resource_id == f.c.resource_id,
            its_type.c.property_id == _type(connection),
            its_type.c.target_id.in_(classes),
        )
        # Without the offset, the planner may start with all instances.
        where.append(typed.offset(0).exists())
    if after is not None:
        given = cast(Decimal(after[0]), Numeric) if kind is ValueKind.NUMBER else cast(after[0], Text)
        here, there = tuple_(key, f.c.resource_id), tuple_(given, cast(after[1], BIGINT))
        where.append(and_(key <= given, here < there) if descending else and_(key >= given, here > there))
    order = [key.desc(), f.c.resource_id.desc()] if descending else [key, f.c.resource_id]
    page = select(key.label("key"), f.c.resource_id).where(*where).distinct().order_by(*order).limit(limit)
    return [(number, f"{number}:{value}") for value, number in connection.execute(page)]


def list_used_properties(connection: Connection, some: Sequence[int]) -> list[str]:
    """Return the properties of these resources."""
    return sorted(uri for (uri,) in _rows(connection, "used_properties", resources=list(some)))


def read_cells(
    connection: Connection, some: Sequence[int], properties: Collection[str]
) -> dict[tuple[int, str], list[Term]]:
    """Return a few values of some properties for each of some resources, long ones shortened."""
    values = {
        "resources": list(some),
        "properties": list(properties),
        "characters": MAX_CELL_CHARACTERS,
        "each": MAX_VALUES_PER_CELL,
    }
    found: dict[tuple[int, str], dict[int, Term]] = {}
    for number, property_iri, digest, uri, text in _rows(connection, "cells", **values):
        term = Term.uri(uri) if uri is not None else Term.literal(text)
        found.setdefault((number, property_iri), {})[digest] = term
    return {place: sorted(terms.values()) for place, terms in found.items()}


# One resource


def list_literals(connection: Connection, resource: int, after: tuple[str, int], limit: int) -> list[ListedLiteral]:
    """Return a page of the literals of a resource."""
    rows = _page(connection, "literals", resource, after, limit, characters=MAX_LITERAL_CHARACTERS)
    return [ListedLiteral(*row) for row in rows]


def read_literal(connection: Connection, resource: int, property_iri: str, hash_: int) -> str | None:
    """Return a literal in full; None if it does not exist."""
    rows = _rows(connection, "whole_value", resource=resource, property=property_iri, hash=hash_)
    return rows[0][0] if rows else None


def list_references(connection: Connection, resource: int, after: tuple[str, int], limit: int) -> list[LinkedResource]:
    """Return a page of the references of a resource, ordered by property, except its classes."""
    rows = _page(connection, "references", resource, after, limit, type=_type(connection))
    return [LinkedResource(name, uri, described, (name, target)) for name, target, uri, described in rows]


def list_referrers(connection: Connection, resource: int, after: tuple[int, int], limit: int) -> list[LinkedResource]:
    """Return a page of the references to a resource."""
    rows = _page(connection, "referrers", resource, after, limit)
    return [LinkedResource(name, uri, True, (number, subject)) for number, name, subject, uri in rows]


def count_references(connection: Connection, resource: int) -> BoundedCount:
    """Count the references of a resource, except its classes."""
    return _counted(connection, "count_references", resource, type=_type(connection))


def count_referrers(connection: Connection, resource: int) -> BoundedCount:
    """Count the references to a resource."""
    return _counted(connection, "count_referrers", resource)


def list_holders(connection: Connection, resource: int, after: int, limit: int) -> list[HoldingLmr]:
    """Return a page of the LMRs that hold a resource."""
    return [HoldingLmr(*row) for row in _rows(connection, "holders", resource=resource, after=after, most=limit)]


def is_described(connection: Connection, resource: int) -> bool:
    """True if a document describes a resource."""
    ((found,),) = _rows(connection, "is_described", resource=resource)
    return bool(found)


def list_describing_documents(connection: Connection, resource: int, after: int, limit: int) -> list[tuple[int, str]]:
    """Return a page of (ID, URI) of the documents that describe a resource."""
    rows = _rows(connection, "describing", resource=resource, after=after, most=limit)
    return [(number, uri) for number, uri in rows]


def read_last_change(connection: Connection, resource: int) -> datetime | None:
    """Return when the statements about a resource last changed; None if it has none."""
    rows = _rows(connection, "changed_at", resource=resource)
    return rows[0][0] if rows else None


def _counted(connection: Connection, name: str, resource: int, **values: Any) -> BoundedCount:
    ((count, looked),) = _rows(connection, name, resource=resource, most=MAX_ROWS_COUNTED, **values)
    return BoundedCount(count, looked >= MAX_ROWS_COUNTED)


def _page(
    connection: Connection, name: str, resource: int, after: tuple[str, int] | tuple[int, int], limit: int, **more: Any
) -> list[Any]:
    values = {"resource": resource, "after_property": after[0], "after": after[1], "most": limit}
    return _rows(connection, name, **values, **more)


def _type(connection: Connection) -> int:
    """Return the ID of rdf:type; 0, which is no valid ID, if it is not used yet."""
    return connection.scalar(select(vocabulary.c.id).where(vocabulary.c.uri == RDF_TYPE)) or 0


def _rows(connection: Connection, name: str, **values: Any) -> list[Any]:
    return list(connection.exec_driver_sql(load_sql("browse", __package__)[name], values).all())
