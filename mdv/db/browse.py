"""What the pages for browsing read. Nothing here reads more than a page and what its bounds say, however large the
store is: a class is counted up to a bound, a list is paged by a key of an index."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, Connection, Numeric, Text, and_, cast, func, literal, select, tuple_
from sqlalchemy.dialects.postgresql import BIGINT

from mdv.db.statements import statements
from mdv.db.tables import filter_data, resources, vocabulary
from mdv.model import RDF_TYPE, Term
from mdv.rdf.values import Kind

MOST_LOOKED_AT = 10_000
"""Statements up to which instances and references are counted;"""
MOST_IN_ALL = 100_000
"""and of all classes of a page together."""
LEAST_LOOKED_AT = 1_000
CHARACTERS = 400
"""Of a literal in a list."""
CELL_CHARACTERS = 120
CELL_ROWS = 20
BEGINNING = 64
"""Characters of a text that the index of values has."""
_LAST_CHARACTER = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Bounded:
    """How many there are; with `more`, at least so many."""

    count: int
    more: bool


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal of a resource, or its beginning; `hash` and its property name it among those of its resource."""

    property: str
    hash: int
    text: str
    bytes: int
    whole: bool
    lang: str | None
    datatype: str | None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The other end of a reference: `uri` refers, or is referred to, with the property. `after` is where its page goes
    on behind it."""

    property: str
    uri: str
    described: bool
    after: tuple[str, int] | tuple[int, int]


@dataclass(frozen=True, slots=True)
class Holder:
    """An LMR that holds a resource: some rule selects it, or else a strong reference reaches it."""

    id: int
    name: str
    selected: bool


# Classes and their instances


def count_instances(connection: Connection, groups: Sequence[Collection[str]]) -> list[Bounded]:
    """How many instances each of these groups of classes has: a class with those below it, say."""
    most = max(LEAST_LOOKED_AT, min(MOST_LOOKED_AT, MOST_IN_ALL // max(1, len(groups))))
    flat = [(place, uri) for place, group in enumerate(groups) for uri in group]
    values = {"places": [place for place, _ in flat], "classes": [uri for _, uri in flat], "most": most}
    found = {
        place: Bounded(instances, looked >= most)
        for place, instances, looked in _rows(connection, "count_instances", type=_type(connection), **values)
    }
    return [found.get(place, Bounded(0, False)) for place in range(len(groups))]


def find_resources(connection: Connection, beginning: str, after: str, limit: int) -> list[tuple[str, bool]]:
    """A page of the URIs that begin so, and whether anybody describes them."""
    values = {"beginning": beginning, "beyond": beginning + _LAST_CHARACTER, "after": after, "most": limit}
    return [(uri, described) for uri, described in _rows(connection, "find_resources", **values)]


def numbers_of(connection: Connection, uris: Collection[str]) -> list[int]:
    """The numbers of those of these URIs that are spoken of."""
    return list(connection.scalars(select(resources.c.id).where(resources.c.uri.in_(uris))))


def numbered(connection: Connection, uris: Sequence[str]) -> list[tuple[int, str]]:
    """These URIs with their numbers, in their order."""
    known = {row.uri: row.id for row in connection.execute(select(resources).where(resources.c.uri.in_(uris)))}
    return [(known[uri], uri) for uri in uris if uri in known]


def named(connection: Connection, numbers: Sequence[int]) -> list[tuple[int, str]]:
    """These resources with their URIs, in their order."""
    known = {row.id: row.uri for row in connection.execute(select(resources).where(resources.c.id.in_(numbers)))}
    return [(number, known[number]) for number in numbers]


def bound_of_slice(connection: Connection, classes: Sequence[int], after: int, most: int) -> int | None:
    """The number up to which the next so many instances reach; None where there are none."""
    values = {"type": _type(connection), "classes": list(classes), "after": after, "most": most}
    ((bound,),) = _rows(connection, "bound_of_slice", **values)
    return None if bound is None else int(bound)


def walk(
    connection: Connection,
    property_iri: str,
    kind: Kind,
    classes: Sequence[int] | None,
    descending: bool,
    after: tuple[str, int] | None,
    limit: int,
) -> list[tuple[int, str]]:
    """The numbers of instances of some classes (None: of any) in the order of a property's numbers or texts, with what
    the next page begins after: an index has them in this order. What has several values comes several times."""
    f = filter_data.alias("f")
    key: ColumnElement[Any] = f.c.number if kind is Kind.NUMBER else func.left(f.c.value, BEGINNING)
    its_type = filter_data.alias("its_type")
    property_id = select(vocabulary.c.id).where(vocabulary.c.uri == property_iri).scalar_subquery()
    where = [f.c.property_id == property_id, f.c.number.is_not(None) if kind is Kind.NUMBER else f.c.value.is_not(None)]
    if classes is not None:
        said = select(literal(1)).where(
            its_type.c.resource_id == f.c.resource_id,
            its_type.c.property_id == _type(connection),
            its_type.c.target_id.in_(classes),
        )
        # Without the offset, the planner may begin with all instances.
        where.append(said.offset(0).exists())
    if after is not None:
        given = cast(Decimal(after[0]), Numeric) if kind is Kind.NUMBER else cast(after[0], Text)
        here, there = tuple_(key, f.c.resource_id), tuple_(given, cast(after[1], BIGINT))
        where.append(and_(key <= given, here < there) if descending else and_(key >= given, here > there))
    order = [key.desc(), f.c.resource_id.desc()] if descending else [key, f.c.resource_id]
    page = select(key.label("key"), f.c.resource_id).where(*where).distinct().order_by(*order).limit(limit)
    return [(number, f"{number}:{value}") for value, number in connection.execute(page)]


def used_properties(connection: Connection, some: Sequence[int]) -> list[str]:
    """The properties with which anything is said of these resources."""
    return sorted(uri for (uri,) in _rows(connection, "used_properties", resources=list(some)))


def cells(
    connection: Connection, some: Sequence[int], properties: Collection[str]
) -> dict[tuple[int, str], list[Term]]:
    """A few values of some properties for each of some resources, long ones cut."""
    values = {"resources": list(some), "properties": list(properties), "characters": CELL_CHARACTERS, "each": CELL_ROWS}
    found: dict[tuple[int, str], dict[int, Term]] = {}
    for number, property_iri, digest, uri, text in _rows(connection, "cells", **values):
        term = Term.uri(uri) if uri is not None else Term.literal(text)
        found.setdefault((number, property_iri), {})[digest] = term
    return {place: sorted(terms.values()) for place, terms in found.items()}


# One resource


def literals(connection: Connection, resource: int, after: tuple[str, int], limit: int) -> list[Literal]:
    """A page of the literals of a resource."""
    rows = _page(connection, "literals", resource, after, limit, characters=CHARACTERS)
    return [Literal(*row) for row in rows]


def whole_value(connection: Connection, resource: int, property_iri: str, hash_: int) -> str | None:
    """A literal in full."""
    rows = _rows(connection, "whole_value", resource=resource, property=property_iri, hash=hash_)
    return rows[0][0] if rows else None


def references(connection: Connection, resource: int, after: tuple[str, int], limit: int) -> list[Neighbour]:
    """A page of what a resource refers to, by property; its classes aside."""
    rows = _page(connection, "references", resource, after, limit, type=_type(connection))
    return [Neighbour(name, uri, described, (name, target)) for name, target, uri, described in rows]


def referrers(connection: Connection, resource: int, after: tuple[int, int], limit: int) -> list[Neighbour]:
    """A page of what refers to a resource."""
    rows = _page(connection, "referrers", resource, after, limit)
    return [Neighbour(name, uri, True, (number, subject)) for number, name, subject, uri in rows]


def count_references(connection: Connection, resource: int) -> Bounded:
    """How many references a resource has, its classes aside."""
    return _counted(connection, "count_references", resource, type=_type(connection))


def count_referrers(connection: Connection, resource: int) -> Bounded:
    """How many references to a resource there are."""
    return _counted(connection, "count_referrers", resource)


def holders(connection: Connection, resource: int, after: int, limit: int) -> list[Holder]:
    """A page of the LMRs that hold a resource."""
    return [Holder(*row) for row in _rows(connection, "holders", resource=resource, after=after, most=limit)]


def is_described(connection: Connection, resource: int) -> bool:
    """Whether any document says anything of a resource."""
    ((found,),) = _rows(connection, "is_described", resource=resource)
    return bool(found)


def describing(connection: Connection, resource: int, after: int, limit: int) -> list[tuple[int, str]]:
    """A page of (number, URI) of the documents that describe a resource."""
    rows = _rows(connection, "describing", resource=resource, after=after, most=limit)
    return [(number, uri) for number, uri in rows]


def changed_at(connection: Connection, resource: int) -> datetime | None:
    """When something last came to be said of a resource, or ceased to be."""
    rows = _rows(connection, "changed_at", resource=resource)
    return rows[0][0] if rows else None


def _counted(connection: Connection, name: str, resource: int, **values: Any) -> Bounded:
    ((count, looked),) = _rows(connection, name, resource=resource, most=MOST_LOOKED_AT, **values)
    return Bounded(count, looked >= MOST_LOOKED_AT)


def _page(
    connection: Connection, name: str, resource: int, after: tuple[str, int] | tuple[int, int], limit: int, **more: Any
) -> list[Any]:
    values = {"resource": resource, "after_property": after[0], "after": after[1], "most": limit}
    return _rows(connection, name, **values, **more)


def _type(connection: Connection) -> int:
    """The number of rdf:type; 0, which no property has, where nothing has a class yet."""
    return connection.scalar(select(vocabulary.c.id).where(vocabulary.c.uri == RDF_TYPE)) or 0


def _rows(connection: Connection, name: str, **values: Any) -> list[Any]:
    return list(connection.exec_driver_sql(statements("browse")[name], values).all())
