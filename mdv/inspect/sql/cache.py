"""Browse the cache of an LMR, in SQLite or Postgres: lists of resources, one resource, and counts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    and_,
    case,
    distinct,
    func,
    literal,
    literal_column,
    select,
    tuple_,
    union_all,
)

from mdv.db.cache_read import (
    decode_statement,
    find_resource_ids,
    find_vocabulary_ids,
    read_classes,
    select_encoded,
    select_named,
    select_type_id,
)
from mdv.db.cache_tables import local_documents, resources, statements, suspended_rules, vocabulary
from mdv.inspect.listed_values import MAX_LITERAL_CHARACTERS, BoundedCount, ListedLiteral
from mdv.model import RDF_TYPE, RDFS_RESOURCE, Statement
from mdv.rdf.labels import MAX_LABEL_CHARACTERS, LabelValue, choose_labels

MAX_LABEL_VALUES = 20_000
"""Values of label properties that are read for one page."""


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """Numbers of resources in a cache: all from the MDP, those that rules select (`roots`), those that are only
    strongly referenced, and those that local metadata describes."""

    resources: int
    roots: int
    strong: int
    local: int


@dataclass(frozen=True, slots=True)
class CachedSuspendedRule:
    """A suspended rule of the LMR, and the reason."""

    rule: int
    reason: str


@dataclass(frozen=True, slots=True)
class CachedSuspendedRules:
    """The number of suspended rules, and the first of them."""

    count: int
    first: tuple[CachedSuspendedRule, ...]


@dataclass(frozen=True, slots=True)
class CachedResource:
    """A resource in the cache. `present`: it came from the MDP. `local`: local metadata describes it. With neither, it
    is only mentioned in statements. `referrers`: the number of strong references to it. `classes`: its direct
    classes."""

    number: int
    present: bool
    selected: bool
    referrers: int
    local: bool
    classes: list[str]


@dataclass(frozen=True, slots=True)
class CachedLiteral:
    """A literal, and whether only local metadata contains it."""

    literal: ListedLiteral
    local: bool


@dataclass(frozen=True, slots=True)
class CachedLink:
    """The other end of a reference. `here`: the cache has statements about it. `after`: the key of the next page."""

    property: str
    uri: str
    here: bool
    strong: bool
    local: bool
    after: tuple[int, int]


class CachedStatements:
    """The global and local statements about a resource."""

    def __init__(self, uri: str) -> None:
        number = select(resources.c.id).where(resources.c.uri == uri).scalar_subquery()
        self._rows = select_encoded(statements.c.resource_id == number)

    def few(self, connection: Connection, most: int) -> list[Statement] | None:
        """Return all statements; None if there are more than `most` rows."""
        counted = select(func.count()).select_from(self._rows.limit(most + 1).subquery("said"))
        if connection.execute(counted).scalar_one() > most:
            return None
        rows = connection.execute(select_named(self._rows.subquery("said")))
        return list(dict.fromkeys(map(decode_statement, rows)))

    def chunks(self, connection: Connection, size: int) -> Iterator[list[Statement]]:
        """Yield the statements in the order of serialization, in lists of `size`."""
        query = select_named(self._rows.distinct().subquery("said"))
        _, name, target, value, lang, datatype = query.selected_columns
        order = (name != RDF_TYPE, name, target.is_not(None), target, value, lang.nulls_first(), datatype.nulls_first())
        options = {"stream_results": True, "yield_per": size}
        with connection.execute(query.order_by(*order), execution_options=options) as rows:
            for part in rows.partitions():
                yield [decode_statement(row) for row in part]

    def properties(self, connection: Connection) -> list[str]:
        """Return the properties of the statements."""
        used = select(self._rows.subquery("said").c.property_id).distinct()
        return list(connection.scalars(select(vocabulary.c.uri).where(vocabulary.c.id.in_(used)).order_by("uri")))

    def find_value(self, connection: Connection, pattern: str) -> str | None:
        """Return the subject of a statement whose value matches a regular expression; None if there is none."""
        rows = self._rows.subquery("said").c
        found = select(rows.resource_id).where(rows.value.regexp_match(pattern)).limit(1)
        return connection.scalar(select(resources.c.uri).where(resources.c.id == found.scalar_subquery()))


def list_resources(
    connection: Connection, classes: Sequence[str] | None, after: int, limit: int
) -> list[tuple[int, str, list[str]]]:
    """Return a page of (ID, URI, direct classes) of the instances of any of `classes`, or of all described resources.

    Every resource is an instance of rdfs:Resource.
    """
    s, r = statements.c, resources.c
    if classes is None or RDFS_RESOURCE in classes:
        described = select(literal_column("1")).where(s.resource_id == r.id).exists()
        page = select(r.id).where(r.id > after, described).order_by(r.id).limit(limit)
    else:
        page = _instances(connection, classes, after, limit)
    ids = list(connection.scalars(page))
    typed = read_classes(connection, ids)
    names = connection.execute(select(r.id, r.uri).where(r.id.in_(ids)).order_by(r.id))
    return [(number, uri, typed[number]) for number, uri in names]


def read_suspended_rules(connection: Connection, most: int) -> CachedSuspendedRules:
    """Return the suspended rules, as of the applied position of the feed."""
    c = suspended_rules.c
    count = connection.execute(select(func.count()).select_from(suspended_rules)).scalar_one()
    rows = connection.execute(select(c.rule_id, c.reason).order_by(c.rule_id).limit(most)).all() if count else []
    return CachedSuspendedRules(count, tuple(CachedSuspendedRule(*row) for row in rows))


def count_cache(connection: Connection) -> CacheCounts:
    """Return the numbers of resources in the cache."""
    r, s = resources.c, statements.c
    # Written like the condition of the partial index, so that it is used.
    present = select(func.count(), func.count().filter(r.selected)).where(literal_column("present"))
    whole, roots = connection.execute(present.select_from(resources)).one()
    local = connection.scalar(select(func.count(distinct(s.resource_id))).where(s.document_id != literal_column("0")))
    return CacheCounts(whole, roots, whole - roots, local or 0)


def count_instances(connection: Connection, classes: Collection[str], most: int) -> BoundedCount:
    """Count the instances of some classes, looking at up to `most` statements."""
    s = statements.c
    numbers = list(find_resource_ids(connection, classes).values())
    if not numbers:
        return BoundedCount(0, False)
    some = (
        select(s.resource_id).where(s.target_id.in_(numbers), s.property_id == select_type_id()).limit(most).subquery()
    )
    looked, found = connection.execute(select(func.count(), func.count(distinct(some.c.resource_id)))).one()
    return BoundedCount(found, looked >= most)


def list_uris_with_prefix(connection: Connection, beginning: str, after: str, limit: int) -> list[tuple[int, str]]:
    """Return a page of the (ID, URI) that start with `beginning`."""
    r = resources.c
    page = select(r.id, r.uri).where(r.uri >= beginning, r.uri < beginning + "\U0010ffff", r.uri > after)
    return [(number, uri) for number, uri in connection.execute(page.order_by(r.uri).limit(limit))]


def read_labels(
    connection: Connection, uris: Collection[str], properties: Sequence[str], languages: Sequence[str]
) -> dict[str, str]:
    """Return the labels of those of these resources that have one, by URI, with one query."""
    if not uris or not properties:
        return {}
    s, name = statements.c, vocabulary.alias("name")
    rows = (
        select(resources.c.uri, name.c.uri, func.substr(s.value, 1, MAX_LABEL_CHARACTERS), s.lang)
        .join_from(resources, statements, s.resource_id == resources.c.id)
        .join(name, name.c.id == s.property_id)
        .where(resources.c.uri.in_(uris), name.c.uri.in_(properties), s.value.is_not(None))
        .limit(MAX_LABEL_VALUES)
    )
    values = ((uri, LabelValue(*value)) for uri, *value in connection.execute(rows))
    return choose_labels(values, properties, languages)


def read_cached_resources(connection: Connection, numbers: Sequence[int]) -> dict[int, CachedResource]:
    """Return the state of a few resources in the cache, by ID."""
    classes = read_classes(connection, numbers)
    r, s = resources.c, statements.c
    local = select(literal_column("1")).where(s.resource_id == r.id, s.document_id != literal_column("0")).exists()
    rows = connection.execute(select(r.id, r.present, r.selected, r.referrers, local).where(r.id.in_(numbers)))
    return {
        number: CachedResource(number, present, selected, referrers, is_local, classes[number])
        for number, present, selected, referrers, is_local in rows
    }


def find_cached_resource(connection: Connection, uri: str) -> CachedResource | None:
    """Return the state of a resource in the cache; None if no statement mentions it."""
    number = find_resource_ids(connection, [uri]).get(uri)
    return None if number is None else read_cached_resources(connection, [number])[number]


def list_literals(
    connection: Connection, resource: int, after: tuple[int, int], limit: int
) -> list[tuple[int, CachedLiteral]]:
    """Return a page of the literals of a resource, long ones shortened, each with the ID of its property. The key of a
    page is the ID of the property and the hash."""
    s = statements.c
    key = (s.property_id, s.hash)
    page = (
        select(*key, func.min(s.document_id).label("document_id"))
        .where(s.resource_id == resource, s.value.is_not(None), tuple_(*key) > tuple_(*_constants(after)))
        .group_by(*key)
        .order_by(*key)
        .limit(limit)
        .subquery()
    )
    its = statements.alias("its")
    name, datatype = vocabulary.alias("name"), vocabulary.alias("datatype")
    same = [its.c.resource_id == resource, *(its.c[part.name] == part for part in page.c)]
    rows = (
        select(name.c.uri, its.c.hash, func.substr(its.c.value, 1, MAX_LITERAL_CHARACTERS), func.length(its.c.value),
               its.c.lang, datatype.c.uri, its.c.document_id, its.c.property_id)
        .join_from(page, its, and_(*same))
        .join(name, name.c.id == its.c.property_id)
        .outerjoin(datatype, datatype.c.id == its.c.datatype_id)
        .order_by(its.c.property_id, its.c.hash)
    )  # fmt: skip
    return [
        (
            number,
            CachedLiteral(
                ListedLiteral(iri, hash_, text, length, length <= MAX_LITERAL_CHARACTERS, lang, kind), document != 0
            ),
        )
        for iri, hash_, text, length, lang, kind, document, number in connection.execute(rows)
    ]


def read_literal(connection: Connection, uri: str, property_iri: str, hash_: int) -> str | None:
    """Return a literal of a resource in full; None if it does not exist."""
    resource = find_resource_ids(connection, [uri]).get(uri)
    if resource is None:
        return None
    s = statements.c
    number = select(vocabulary.c.id).where(vocabulary.c.uri == property_iri).scalar_subquery()
    which = (s.resource_id == resource, s.property_id == number, s.hash == hash_, s.value.is_not(None))
    return connection.scalar(select(s.value).where(*which).limit(1))


def list_references(connection: Connection, resource: int, after: tuple[int, int], limit: int) -> list[CachedLink]:
    """Return a page of the references of a resource, except its classes."""
    s = statements.c
    which = [s.resource_id == resource, s.target_id.is_not(None), s.property_id.is_distinct_from(select_type_id())]
    return _linked(connection, which, s.target_id, after, limit)


def list_referrers(connection: Connection, resource: int, after: tuple[int, int], limit: int) -> list[CachedLink]:
    """Return a page of the references to a resource."""
    return _linked(connection, [statements.c.target_id == resource], statements.c.resource_id, after, limit)


def list_strong_referrers(
    connection: Connection, resource: int, properties: Collection[str] | None, limit: int
) -> list[tuple[str, str]]:
    """Return some strong references to a resource, as (URI, property), with one of these properties (None: any)."""
    s = statements.c
    page = select(s.resource_id, s.property_id).where(s.target_id == resource, s.strong)
    if properties is not None:
        page = page.where(s.property_id.in_(list(find_vocabulary_ids(connection, properties).values())))
    some = page.distinct().limit(limit).subquery()
    rows = (
        select(resources.c.uri, vocabulary.c.uri)
        .join_from(some, resources, resources.c.id == some.c.resource_id)
        .join(vocabulary, vocabulary.c.id == some.c.property_id)
        .order_by(resources.c.uri, vocabulary.c.uri)
    )
    return [(uri, name) for uri, name in connection.execute(rows)]


def list_describing_documents(connection: Connection, resource: int, limit: int) -> list[str]:
    """Return some of the local documents that describe a resource."""
    s = statements.c
    ids = select(s.document_id).where(s.resource_id == resource, s.document_id != literal_column("0"))
    page = select(local_documents.c.uri).where(local_documents.c.id.in_(ids)).order_by(local_documents.c.uri)
    return list(connection.scalars(page.limit(limit)))


def _linked(
    connection: Connection, which: Sequence[ColumnElement[bool]], other: Any, after: tuple[int, int], limit: int
) -> list[CachedLink]:
    s = statements.c
    key = (s.property_id, other)
    strength = func.max(case((s.strong, 1), else_=0)).label("strong")
    page = (
        select(s.property_id, other.label("other"), strength, func.min(s.document_id).label("document"))
        .where(*which, tuple_(*key) > tuple_(*_constants(after)))
        .group_by(*key)
        .order_by(*key)
        .limit(limit)
        .subquery()
    )
    its = statements.alias("its")
    here = select(literal_column("1")).where(its.c.resource_id == resources.c.id).exists()
    rows = (
        select(page, vocabulary.c.uri, resources.c.uri, here)
        .join_from(page, vocabulary, vocabulary.c.id == page.c.property_id)
        .join(resources, resources.c.id == page.c.other)
        .order_by(page.c.property_id, page.c.other)
    )
    return [
        CachedLink(name, uri, found, bool(strong), document != 0, (number, other_number))
        for number, other_number, strong, document, name, uri, found in connection.execute(rows)
    ]


def _constants(numbers: Sequence[int]) -> list[ColumnElement[int]]:
    return [literal(number, BigInteger) for number in numbers]


def _instances(connection: Connection, classes: Sequence[str], after: int, limit: int) -> Select[Any]:
    """Select the first instances of each class, and the first of these, in the order of the index."""
    s = statements.c
    of_class = [
        select(s.resource_id)
        .where(s.target_id == number, s.property_id == select_type_id(), s.resource_id > after)
        .distinct()
        .order_by(s.resource_id)
        .limit(limit)
        .subquery()
        for number in find_resource_ids(connection, classes).values()
    ]
    if not of_class:
        return select(s.resource_id).where(literal_column("1") == literal_column("0"))
    every = union_all(*(select(part.c.resource_id) for part in of_class)).subquery()
    return select(every.c.resource_id).distinct().order_by(every.c.resource_id).limit(limit)
