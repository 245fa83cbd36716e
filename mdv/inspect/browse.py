"""Browse the instances of a class: pages of instances, optionally filtered and sorted.

A filter is a rule: `search C x register x where x.property operator constant`. It is evaluated like any other rule, so
that it finds what a subscription would get. Sorting uses an index if there is one. Otherwise the instances are sorted
by a query, which is refused for more than 10,000.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from sqlalchemy import Connection, select, union

from mdv.db import query as db_query
from mdv.db.filter import compile_statement
from mdv.db.rule_graph import RuleGraph
from mdv.errors import BadRequest, TooCostly
from mdv.inspect.propose import OPERATORS, RuleWriter, chosen_predicate, select_matching
from mdv.inspect.query import run_query
from mdv.inspect.sql import browse as db
from mdv.inspect.sql.explain_rule import ReadOnlyVocabulary
from mdv.inspect.sql.resources import list_resources
from mdv.mdp.groups import read_names, statement_states
from mdv.mdp.schemas import SchemaCache
from mdv.model import RDFS_RESOURCE, Term
from mdv.query.results import QueryRows
from mdv.rdf.browsable_properties import browsable_properties
from mdv.rdf.schema import Schema, SchemaProperty
from mdv.rdf.values import ValueKind
from mdv.rules.normal import Access
from mdv.rules.normalise import normalise
from mdv.rules.parse import parse
from mdv.rules.pattern import pattern
from mdv.rules.show import path_text

__all__ = [
    "BY_URI",
    "OPERATORS",
    "InstancePage",
    "InstanceQuery",
    "filter_rule",
    "find_instances",
]

INSTANCES_PER_PAGE = 50
MAX_COLUMNS = 5
MAX_SORTED_INSTANCES = 10_000
SLICE_INSTANCES = 2_000
"""A filtered page is first searched among this many instances, and only then among all."""
MAX_SECONDS = 10
MAX_DECIMAL_EXPONENT = 16_000
BY_URI = "uri"
_TOO_COSTLY = f"Searching timed out after {MAX_SECONDS} s. Use a narrower filter, or do not sort."


# Instances


@dataclass(frozen=True, slots=True)
class InstanceQuery:
    """A query for instances of a class: filtered by a rule, ordered by a property or by URI, after an earlier page."""

    class_iri: str
    rule: str | None = None
    order: str | None = None
    descending: bool = False
    after: str = ""


@dataclass(frozen=True, slots=True)
class InstancePage:
    """A page of instances, with ids and URIs, the values of some properties, and the cursor of the next page."""

    instances: list[tuple[int, str]]
    columns: list[SchemaProperty] = field(default_factory=list)
    cells: Mapping[tuple[int, str], list[Term]] = field(default_factory=dict)
    properties: list[SchemaProperty] = field(default_factory=list)
    next: str | None = None
    only_with: str | None = None
    """Set if the page is ordered by a property and contains only instances that have a value of it."""


def filter_rule(schema: Schema, class_iri: str, property_iri: str, operator: str, value: str) -> str:
    """Return the rule that selects the instances of a class by a comparison of a property."""
    if schema.property_of(property_iri) is None:
        raise BadRequest(f"The schema has no property {property_iri}. Filter by a property of the schema.")
    writer = RuleWriter(schema, class_iri)
    return writer.rule((chosen_predicate(writer, schema.shorten(property_iri), {"op": operator, "value": value}),))


def find_instances(connection: Connection, schemas: SchemaCache, query: InstanceQuery) -> InstancePage:
    """Return a page of instances."""
    with db_query.time_limited_read(connection, MAX_SECONDS, _TOO_COSTLY):
        schema = schemas.now(connection).schema
        if query.order is None:
            numbers, more = _by_number(connection, schema, query)
            return _page(connection, schema, query, db.with_uris(connection, numbers), more)
        if query.rule is None and (found := _index_page(connection, schema, query)) is not None:
            return found
    return _sorted_page(connection, schemas, query)


def _by_number(connection: Connection, schema: Schema, query: InstanceQuery) -> tuple[list[int], str | None]:
    after = _number(query.after or "0")
    if query.rule is None:
        classes = None if query.class_iri == RDFS_RESOURCE else _below(schema, query.class_iri)
        found = [number for number, _, _ in list_resources(connection, classes, after, INSTANCES_PER_PAGE + 1)]
    else:
        found = _next_matching(connection, schema, query.class_iri, query.rule, after)
    page = found[:INSTANCES_PER_PAGE]
    return page, str(page[-1]) if len(found) > INSTANCES_PER_PAGE else None


def _next_matching(connection: Connection, schema: Schema, class_iri: str, rule: str, after: int) -> list[int]:
    """Return the next instances that a rule selects.

    If it selects nearly all instances, they are among the next instances of the class, so these are searched first.
    """
    if class_iri != RDFS_RESOURCE:
        classes = db.find_resource_ids(connection, _below(schema, class_iri))
        bound = db.find_slice_end(connection, classes, after, SLICE_INSTANCES)
        if bound is None:
            return []
        near = _selected(connection, schema, rule, after, INSTANCES_PER_PAGE + 1, bound)
        if len(near) > INSTANCES_PER_PAGE:
            return near
    return _selected(connection, schema, rule, after, INSTANCES_PER_PAGE + 1)


def _selected(
    connection: Connection, schema: Schema, rule: str, after: int, most: int, bound: int | None = None
) -> list[int]:
    normal = normalise(parse(rule), schema)
    patterns = [pattern(part) for part in normal.conjunctions]
    names = read_names(
        RuleGraph(connection), [one for one, _ in patterns], schema, ReadOnlyVocabulary(connection), None
    )
    now, _, _ = statement_states(names)
    parts = [select_matching(now, *each) for each in patterns]
    found = (union(*parts) if len(parts) > 1 else parts[0]).subquery("found")
    number = found.c.resource_id
    wanted = select(number).where(number > after).order_by(number).limit(most)
    statement = compile_statement(wanted if bound is None else wanted.where(number <= bound))
    return [row[0] for row in db_query.read_rows(connection, statement)]


def _index_page(connection: Connection, schema: Schema, query: InstanceQuery) -> InstancePage | None:
    """Return a page ordered by a property, using an index; None if there is no index, or if sorting is as fast."""
    property_ = schema.property_of(query.order or "")
    if property_ is None or property_.set_valued or len(property_.subproperties) > 1:
        return None
    if (
        property_.kind not in (ValueKind.NUMBER, ValueKind.TEXT)
        or property_.range is None
        or property_.range in schema.classes
    ):
        return None
    below = _below(schema, query.class_iri)
    if query.class_iri != RDFS_RESOURCE:
        (count,) = db.count_instances(connection, [below])
        if not count.more:
            return None
    classes = None if query.class_iri == RDFS_RESOURCE else db.find_resource_ids(connection, below)
    after = _scan_start(query.after, property_.kind) if query.after else None
    rows = db.list_by_property(
        connection, property_.iri, property_.kind, classes, query.descending, after, INSTANCES_PER_PAGE + 1
    )
    page = rows[:INSTANCES_PER_PAGE]
    instances = db.with_uris(connection, list(dict.fromkeys(number for number, _ in page)))
    return _page(
        connection,
        schema,
        query,
        instances,
        page[-1][1] if len(rows) > INSTANCES_PER_PAGE else None,
        only_with=property_.iri,
    )


def _sorted_page(connection: Connection, schemas: SchemaCache, query: InstanceQuery) -> InstancePage:
    """Return a page of sorted instances. `after` is the number of instances on earlier pages."""
    skipped = _number(query.after or "0")
    schema = schemas.now(connection).schema
    rule = query.rule or RuleWriter(schema, query.class_iri).rule(())
    _refuse_many(connection, schema, rule)
    variable = parse(rule).register.text
    by = variable
    if query.order != BY_URI:
        if schema.property_of(query.order or "") is None:
            raise BadRequest(f"The schema has no property {query.order}. Sort by a property of the schema.")
        by = path_text(Access(variable, query.order), query.class_iri, schema)
    searched, _, where = rule.partition("\nwhere ")
    query_text = searched.splitlines()[0] + (f"\nwhere {where}" if where else "")
    query_text += f"\nreturn {variable} order by {by}{' desc' if query.descending else ''}"
    rows = run_query(connection, query_text, schemas, limit=min(MAX_SORTED_INSTANCES, skipped + INSTANCES_PER_PAGE + 1))
    assert isinstance(rows, QueryRows)
    uris = [row[0].value for row in rows.rows[skipped:] if row[0] is not None]
    more = str(skipped + INSTANCES_PER_PAGE) if len(uris) > INSTANCES_PER_PAGE else None
    return _page(connection, schema, query, db.with_ids(connection, uris[:INSTANCES_PER_PAGE]), more)


def _refuse_many(connection: Connection, schema: Schema, rule: str) -> None:
    if len(_selected(connection, schema, rule, 0, MAX_SORTED_INSTANCES + 1)) > MAX_SORTED_INSTANCES:
        raise TooCostly(
            f"There are more than {MAX_SORTED_INSTANCES:,} instances, which is too many to sort in this way. Use a "
            "filter, or sort by a single-valued text or number without a filter."
        )


def _page(
    connection: Connection,
    schema: Schema,
    query: InstanceQuery,
    instances: list[tuple[int, str]],
    more: str | None,
    only_with: str | None = None,
) -> InstancePage:
    numbers = [number for number, _ in instances]
    used = db.list_used_properties(connection, numbers[:20]) if numbers else []
    offered = browsable_properties(schema, query.class_iri, used)
    columns = _columns(offered, used, query)
    wanted = {iri: one.iri for one in columns for iri in one.subproperties}
    found: dict[tuple[int, str], list[Term]] = {}
    for (number, iri), terms in db.read_cells(connection, numbers, wanted).items() if numbers else ():
        found.setdefault((number, wanted[iri]), []).extend(terms)
    return InstancePage(instances, columns, found, offered, more, only_with)


def _columns(offered: Sequence[SchemaProperty], used: Sequence[str], query: InstanceQuery) -> list[SchemaProperty]:
    """Choose the columns: used properties first. The property by which the page is sorted is always included."""
    ranked = sorted(offered, key=lambda one: not any(iri in used for iri in one.subproperties))
    kept = ranked[:MAX_COLUMNS]
    by = [one for one in ranked if one.iri == query.order and one not in kept]
    return [*kept[: MAX_COLUMNS - len(by)], *by]


def _below(schema: Schema, class_iri: str) -> Sequence[str]:
    """Return a class with its subclasses. An undeclared class has none."""
    class_ = schema.classes.get(class_iri)
    return class_.subclasses if class_ is not None else (class_iri,)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise BadRequest("`after` must be the `next` of the previous page.")
    return int(text)


def _scan_start(after: str, kind: ValueKind) -> tuple[str, int]:
    """Return where an index scan continues: after a value and the id of a resource."""
    number, _, value = after.partition(":")
    if kind is ValueKind.NUMBER and not _is_decimal(value):
        raise BadRequest("`after` must be the `next` of the previous page.")
    return value, _number(number)


def _is_decimal(text: str) -> bool:
    """True if a text is a number that the database can store."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return False
    return number.is_finite() and abs(number.adjusted()) < MAX_DECIMAL_EXPONENT
