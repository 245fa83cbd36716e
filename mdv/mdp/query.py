"""Queries: the rule language with `return`, answered from what all documents say now.

    search CycleProvider c where c.serverPort = 5874 return c, c.serverHost order by c.serverHost limit 10

A row stands for a choice of resources for the searched variables under which `where` holds, with a value for each
returned path. Rows are distinct by these. A path that has several values gives a row for each, one that has none a row
without. Paths that share a beginning without `?`, those of `where` included, mean the same resource there; each `?` is
its own choice. A path goes on only from instances of its property's range. `or` puts together what its sides give.
Rows are ordered by numbers, instants, truths or text by code point, whichever the path's range says, what is missing
last; a path with several values counts by its least one, or with `desc` by its greatest. Where that leaves rows
together, they follow the order of what is returned. A rule with `register` gives the resources that it would register,
in the order of their URIs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from mdv.db import query as db
from mdv.db.explain import KnownNames
from mdv.db.graph import Graph
from mdv.db.tables import vocabulary
from mdv.errors import BadRequest
from mdv.mdp.groups import read_names, states
from mdv.mdp.rules import OWN, Library
from mdv.mdp.schemas import Schemas
from mdv.model import RDFS_RESOURCE, Statement, Term
from mdv.query.select import select_resources, select_rows
from mdv.rdf.schema import Schema
from mdv.rules.ast import Operator, ParsedQuery, ParsedRule
from mdv.rules.normal import NormalRule, Sort
from mdv.rules.parse import parse_query
from mdv.rules.pattern import Leaf, Pattern, pattern
from mdv.rules.returns import NormalQuery, Returned, normalise_asked, normalise_query

MAX_SECONDS = 10
DEFAULT_ROWS = 1000
MAX_CHARACTERS = 32 * 1024 * 1024
"""Of all rows of an answer together."""
DEFAULT_RESOURCES, MAX_RESOURCES = 100, 1000

_TOO_COSTLY = (
    f"The query took longer than {MAX_SECONDS} s, and was given up. Compare something with a constant, join the"
    " variables by =, or search a smaller class."
)


@dataclass(frozen=True, slots=True)
class Rows:
    """The answer to a query with `return`; `truncated`: there are more rows than these."""

    columns: tuple[str, ...]
    rows: list[tuple[Term | None, ...]]
    truncated: bool


@dataclass(frozen=True, slots=True)
class Resources:
    """The answer to a rule: a page of URIs with their direct classes, and after which one the next page begins."""

    items: list[tuple[str, list[str]]]
    next: str | None
    statements: list[Statement]
    """What is said of them, where that was asked for."""


def run_query(
    connection: Connection,
    text: str | ParsedRule | ParsedQuery,
    schemas: Schemas,
    *,
    limit: int | None = None,
    after: str | None = None,
    with_statements: bool = False,
) -> Rows | Resources:
    """Answer a query, changing nothing. Of `limit` and the query's own limit the smaller counts."""
    parsed = parse_query(text) if isinstance(text, str) else text
    with db.reading(connection, MAX_SECONDS, _TOO_COSTLY):
        schema = schemas.now(connection).schema
        named = Library(Graph(connection), OWN, {}).parsed
        if isinstance(parsed, ParsedQuery):
            if after is not None:
                raise BadRequest("`after` pages through resources; rows have `order by` and `limit` in the query.")
            return _rows(connection, normalise_query(parsed, schema, named), schema, limit)
        if limit is not None and limit > MAX_RESOURCES:
            raise BadRequest(f"A page has at most {MAX_RESOURCES:,} resources; `after` takes the `next` of the page.")
        normal = normalise_asked(parsed, schema, named)
        return _resources(connection, normal, schema, limit or DEFAULT_RESOURCES, after or "", with_statements)


def _rows(connection: Connection, query: NormalQuery, schema: Schema, limit: int | None) -> Rows:
    patterns = [pattern(part.conjunction)[0] for part in query.parts]
    paths = [*query.returns, *(ordering.path for ordering in query.order)]
    names = read_names(Graph(connection), [*patterns, _named(paths)], schema, KnownNames(connection), None)
    columns = tuple(path.shown for path in query.returns)
    most = min(limit or query.limit or DEFAULT_ROWS, query.limit or limit or DEFAULT_ROWS)
    rows: list[tuple[Term | None, ...]] = []
    room = MAX_CHARACTERS
    for row in db.read_one_by_one(connection, select_rows(states(names)[0], vocabulary, query, most + 1)):
        room -= sum(len(text) for text in row if text is not None)
        if len(rows) == most or (room < 0 and rows):
            return Rows(columns, rows, True)
        rows.append(tuple(_terms(row)))
    return Rows(columns, rows, False)


def _resources(
    connection: Connection, rule: NormalRule, schema: Schema, limit: int, after: str, with_statements: bool
) -> Resources:
    conjunctions = rule.conjunctions
    patterns = [pattern(conjunction)[0] for conjunction in conjunctions]
    names = read_names(Graph(connection), patterns, schema, KnownNames(connection), None)
    found = db.read_rows(connection, select_resources(states(names)[0], conjunctions, after, limit + 1))
    page = found[:limit]
    numbers = [number for number, _ in page]
    classes = db.classes_of(connection, numbers)
    statements = db.statements_of(connection, numbers) if with_statements else []
    more = page[-1][1] if len(found) > limit else None
    return Resources([(uri, classes[number]) for number, uri in page], more, statements)


def _named(paths: list[Returned]) -> Pattern:
    """The classes and properties of some paths, as a pattern has them."""
    classes = {hop.class_iri for path in paths for hop in path.hops}
    properties = {hop.property for path in paths for hop in path.hops} | {path.property for path in paths}
    leaves = tuple(Leaf(0, RDFS_RESOURCE, name, Operator.EQ, Sort.TEXT) for name in properties if name is not None)
    return Pattern((tuple(classes),), (None,), leaves, ())


def _terms(row: Any) -> list[Term | None]:
    """The values of a row, which come as URI, text, language and datatype."""
    return [_term(*row[at : at + 4]) for at in range(0, len(row), 4)]


def _term(uri: str | None, value: str | None, lang: str | None, datatype: str | None) -> Term | None:
    if uri is not None:
        return Term.uri(uri)
    return None if value is None else Term.literal(value, lang, datatype)
