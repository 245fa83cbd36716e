"""Browse: the classes of the schema as a tree, and pages of a class's instances, filtered and in some order.

A filter is a rule: `search C x register x where x.property operator constant`. It is read and evaluated as any rule, so
that it finds what a subscription would get. An order is given by an index where there is one; otherwise what was found
is sorted by a query, which is refused for more than 10,000.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, select, union

from mdv.db import browse as db
from mdv.db import query
from mdv.db.explain import KnownNames
from mdv.db.filter import compiled
from mdv.db.graph import Graph
from mdv.db.read import list_resources
from mdv.errors import BadRequest, TooCostly
from mdv.mdp.groups import read_names, states
from mdv.mdp.propose import OPERATORS, Writer, chosen_predicate, matching
from mdv.mdp.query import run_query
from mdv.mdp.schemas import Schemas
from mdv.mdp.teller import access_text
from mdv.model import MDV, RDF, RDF_TYPE, RDFS, RDFS_RESOURCE, XSD, Term
from mdv.query.answers import Rows
from mdv.rdf.schema import Schema, SchemaProperty
from mdv.rdf.values import Kind
from mdv.rules.normal import Access
from mdv.rules.normalise import normalise
from mdv.rules.parse import parse
from mdv.rules.pattern import pattern

__all__ = ["BY_URI", "OPERATORS", "Branch", "Found", "Wish", "choices", "class_tree", "filter_rule", "find_instances"]

ON_A_PAGE = 50
MOST_COLUMNS = 5
MOST_SORTED = 10_000
SLICE = 2_000
"""Instances among which a page is looked for, before it is looked for among all."""
SECONDS = 10
MOST_DIGITS = 16_000
BY_URI = "uri"
_TELLING = ("label", "name", "title")
_BUILT_IN = (RDF, RDFS, XSD, MDV)
_TOO_COSTLY = f"To look for these took longer than {SECONDS} s, and was given up. Narrow the filter, or do not sort."


# Classes


@dataclass(frozen=True, slots=True)
class Branch:
    """A class in the tree of classes: how deep it is, and directly below which others."""

    iri: str
    depth: int
    above: tuple[str, ...]


def class_tree(schema: Schema) -> list[Branch]:
    """The schema's own classes, each below the nearest of its superclasses, in the order of their names; found once.

    >>> from mdv.model import Statement
    >>> from mdv.rdf.schema import read_schema
    >>> pairs = [("u:c", "u:b"), ("u:b", "u:a"), ("u:d", "u:a")]
    >>> said = [Statement(one, RDFS + "subClassOf", Term.uri(other)) for one, other in pairs]
    >>> [(branch.iri, branch.depth) for branch in class_tree(read_schema(said, {}))]
    [('u:a', 0), ('u:b', 1), ('u:c', 2), ('u:d', 1)]
    """
    if schema not in _trees:
        _trees[schema] = _tree(schema)
    return list(_trees[schema])


_trees: WeakKeyDictionary[Schema, list[Branch]] = WeakKeyDictionary()


def _tree(schema: Schema) -> list[Branch]:
    own = sorted((iri for iri in schema.classes if not iri.startswith(_BUILT_IN)), key=lambda iri: (_local(iri), iri))
    all_above = {iri: frozenset(schema.classes[iri].superclasses) for iri in schema.classes}
    above = {iri: _directly_above(iri, schema, all_above) for iri in own}
    below: dict[str, list[str]] = {}
    for iri in own:
        for parent in above[iri][:1]:
            below.setdefault(parent, []).append(iri)
    seen: dict[str, Branch] = {}

    def visit(first: str) -> None:
        waiting = [(first, 0)]
        while waiting:
            iri, depth = waiting.pop()
            if iri not in seen:
                seen[iri] = Branch(iri, depth, above[iri])
                waiting += [(child, depth + 1) for child in reversed(below.get(iri, []))]

    for iri in own:
        if not above[iri]:
            visit(iri)
    for iri in own:  # of classes that are below each other, the first by name is on top
        visit(iri)
    return list(seen.values())


def _directly_above(iri: str, schema: Schema, above: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    others = [up for up in schema.classes[iri].superclasses if up != iri and not up.startswith(_BUILT_IN)]
    return tuple(
        up
        for up in others
        if not any(up in above[between] and between not in above[up] for between in others if between != up)
    )


def _local(iri: str) -> str:
    return iri.rstrip("/#").replace("#", "/").rpartition("/")[2].casefold()


# Properties


def choices(schema: Schema, class_iri: str, used: Iterable[str] = ()) -> list[SchemaProperty]:
    """The properties that instances of a class may have, the most telling first: those that the schema gives to it or
    to a class above it, and those that are used."""
    class_ = schema.classes.get(class_iri)
    above = frozenset(class_.superclasses if class_ is not None else ())
    declared = [
        property_
        for property_ in schema.properties.values()
        if not property_.iri.startswith(_BUILT_IN) and any(domain in above for domain in property_.domains)
    ]
    others = [found for iri in used if iri != RDF_TYPE and (found := schema.property_of(iri)) is not None]
    by_iri = {property_.iri: property_ for property_ in (*others, *declared)}
    return sorted(by_iri.values(), key=lambda one: (_rank(one, schema), _local(one.iri), one.iri))


def _rank(property_: SchemaProperty, schema: Schema) -> int:
    refers = property_.range is not None and property_.range in schema.classes
    telling = 0 if _local(property_.iri) in _TELLING else 1
    return telling + 2 * property_.set_valued + 4 * refers


# Instances


@dataclass(frozen=True, slots=True)
class Wish:
    """Which instances of a class are wanted: those that satisfy a rule, in the order of a property or of URIs, behind
    what an earlier page told."""

    class_iri: str
    rule: str | None = None
    order: str | None = None
    descending: bool = False
    after: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A page of instances by number and URI, what each has of some properties, and after what the next page begins."""

    instances: list[tuple[int, str]]
    columns: list[SchemaProperty] = field(default_factory=list)
    cells: Mapping[tuple[int, str], list[Term]] = field(default_factory=dict)
    properties: list[SchemaProperty] = field(default_factory=list)
    next: str | None = None
    only_with: str | None = None
    """The property that all of these have: what has none of it is left out, since the order is by it."""


def filter_rule(schema: Schema, class_iri: str, property_iri: str, operator: str, value: str) -> str:
    """The rule that selects the instances of a class whose property compares so."""
    if schema.property_of(property_iri) is None:
        raise BadRequest(f"The schema has no property {property_iri}: nothing can be filtered by it.")
    writer = Writer(schema, class_iri)
    return writer.rule((chosen_predicate(writer, schema.shorten(property_iri), {"op": operator, "value": value}),))


def find_instances(connection: Connection, schemas: Schemas, wish: Wish) -> Found:
    """A page of what is wished for."""
    with query.reading(connection, SECONDS, _TOO_COSTLY):
        schema = schemas.now(connection).schema
        if wish.order is None:
            numbers, more = _by_number(connection, schema, wish)
            return _shown(connection, schema, wish, db.named(connection, numbers), more)
        if wish.rule is None and (found := _walked(connection, schema, wish)) is not None:
            return found
    return _sorted(connection, schemas, wish)


def _by_number(connection: Connection, schema: Schema, wish: Wish) -> tuple[list[int], str | None]:
    after = _number(wish.after or "0")
    if wish.rule is None:
        classes = None if wish.class_iri == RDFS_RESOURCE else _below(schema, wish.class_iri)
        found = [number for number, _, _ in list_resources(connection, classes, after, ON_A_PAGE + 1)]
    else:
        found = _matching(connection, schema, wish.class_iri, wish.rule, after)
    page = found[:ON_A_PAGE]
    return page, str(page[-1]) if len(found) > ON_A_PAGE else None


def _matching(connection: Connection, schema: Schema, class_iri: str, rule: str, after: int) -> list[int]:
    """The next instances that a rule selects. Where nearly all do, they are among the next instances of the class, and
    looking at all would be a waste."""
    if class_iri != RDFS_RESOURCE:
        classes = db.numbers_of(connection, _below(schema, class_iri))
        bound = db.bound_of_slice(connection, classes, after, SLICE)
        if bound is None:
            return []
        near = _selected(connection, schema, rule, after, ON_A_PAGE + 1, bound)
        if len(near) > ON_A_PAGE:
            return near
    return _selected(connection, schema, rule, after, ON_A_PAGE + 1)


def _selected(
    connection: Connection, schema: Schema, rule: str, after: int, most: int, bound: int | None = None
) -> list[int]:
    normal = normalise(parse(rule), schema)
    patterns = [pattern(part) for part in normal.conjunctions]
    names = read_names(Graph(connection), [one for one, _ in patterns], schema, KnownNames(connection), None)
    now, _, _ = states(names)
    parts = [matching(now, *each) for each in patterns]
    found = (union(*parts) if len(parts) > 1 else parts[0]).subquery("found")
    number = found.c.resource_id
    wanted = select(number).where(number > after).order_by(number).limit(most)
    statement = compiled(wanted if bound is None else wanted.where(number <= bound))
    return [row[0] for row in query.read_rows(connection, statement)]


def _walked(connection: Connection, schema: Schema, wish: Wish) -> Found | None:
    """A page in the order of a property, along an index; None where there is none, or where sorting is as fast."""
    property_ = schema.property_of(wish.order or "")
    if property_ is None or property_.set_valued or len(property_.subproperties) > 1:
        return None
    if property_.kind not in (Kind.NUMBER, Kind.TEXT) or property_.range is None or property_.range in schema.classes:
        return None
    below = _below(schema, wish.class_iri)
    if wish.class_iri != RDFS_RESOURCE:
        (count,) = db.count_instances(connection, [below])
        if not count.more:
            return None
    classes = None if wish.class_iri == RDFS_RESOURCE else db.numbers_of(connection, below)
    after = _place(wish.after, property_.kind) if wish.after else None
    rows = db.walk(connection, property_.iri, property_.kind, classes, wish.descending, after, ON_A_PAGE + 1)
    page = rows[:ON_A_PAGE]
    instances = db.named(connection, list(dict.fromkeys(number for number, _ in page)))
    return _shown(
        connection, schema, wish, instances, page[-1][1] if len(rows) > ON_A_PAGE else None, only_with=property_.iri
    )


def _sorted(connection: Connection, schemas: Schemas, wish: Wish) -> Found:
    """A page in some order, of what is few enough to be sorted; `after` counts what was told before."""
    skipped = _number(wish.after or "0")
    schema = schemas.now(connection).schema
    rule = wish.rule or Writer(schema, wish.class_iri).rule(())
    _refuse_many(connection, schema, rule)
    variable = parse(rule).register.text
    by = variable
    if wish.order != BY_URI:
        if schema.property_of(wish.order or "") is None:
            raise BadRequest(f"The schema has no property {wish.order}: nothing can be sorted by it.")
        by = access_text(Access(variable, wish.order), wish.class_iri, schema)
    searched, _, where = rule.partition("\nwhere ")
    asked = searched.splitlines()[0] + (f"\nwhere {where}" if where else "")
    asked += f"\nreturn {variable} order by {by}{' desc' if wish.descending else ''}"
    rows = run_query(connection, asked, schemas, limit=min(MOST_SORTED, skipped + ON_A_PAGE + 1))
    assert isinstance(rows, Rows)
    uris = [row[0].value for row in rows.rows[skipped:] if row[0] is not None]
    more = str(skipped + ON_A_PAGE) if len(uris) > ON_A_PAGE else None
    return _shown(connection, schema, wish, db.numbered(connection, uris[:ON_A_PAGE]), more)


def _refuse_many(connection: Connection, schema: Schema, rule: str) -> None:
    if len(_selected(connection, schema, rule, 0, MOST_SORTED + 1)) > MOST_SORTED:
        raise TooCostly(
            f"These are more than {MOST_SORTED:,}, too many to be sorted so. Filter them first, or sort by one of the"
            " texts or numbers that each of them has once, without a filter."
        )


def _shown(
    connection: Connection,
    schema: Schema,
    wish: Wish,
    instances: list[tuple[int, str]],
    more: str | None,
    only_with: str | None = None,
) -> Found:
    numbers = [number for number, _ in instances]
    used = db.used_properties(connection, numbers[:20]) if numbers else []
    offered = choices(schema, wish.class_iri, used)
    columns = _columns(offered, used, wish)
    wanted = {iri: one.iri for one in columns for iri in one.subproperties}
    found: dict[tuple[int, str], list[Term]] = {}
    for (number, iri), terms in db.cells(connection, numbers, wanted).items() if numbers else ():
        found.setdefault((number, wanted[iri]), []).extend(terms)
    return Found(instances, columns, found, offered, more, only_with)


def _columns(offered: Sequence[SchemaProperty], used: Sequence[str], wish: Wish) -> list[SchemaProperty]:
    """What these have before what they might have; what they are sorted by among them."""
    ranked = sorted(offered, key=lambda one: not any(iri in used for iri in one.subproperties))
    kept = ranked[:MOST_COLUMNS]
    by = [one for one in ranked if one.iri == wish.order and one not in kept]
    return [*kept[: MOST_COLUMNS - len(by)], *by]


def _below(schema: Schema, class_iri: str) -> Sequence[str]:
    """A class with those below it; one that the schema does not know stands alone."""
    class_ = schema.classes.get(class_iri)
    return class_.subclasses if class_ is not None else (class_iri,)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise BadRequest("`after` takes the `next` of the page before.")
    return int(text)


def _place(after: str, kind: Kind) -> tuple[str, int]:
    """Where a walk goes on: behind a value of a resource."""
    number, _, value = after.partition(":")
    if kind is Kind.NUMBER and not _is_decimal(value):
        raise BadRequest("`after` takes the `next` of the page before.")
    return value, _number(number)


def _is_decimal(text: str) -> bool:
    """Whether a text is a number that the database can hold."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return False
    return number.is_finite() and abs(number.adjusted()) < MOST_DIGITS
