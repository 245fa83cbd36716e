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

from sqlalchemy import Connection

from mdv.db import query as db
from mdv.db.explain import KnownNames
from mdv.db.filter import compiled
from mdv.db.graph import Graph
from mdv.db.tables import vocabulary
from mdv.mdp.groups import read_names, states
from mdv.mdp.rules import OWN, Library
from mdv.mdp.schemas import Schemas
from mdv.query.answers import (
    MAX_CHARACTERS,
    Resources,
    Rows,
    gather_rows,
    most_rows,
    page_size,
    refuse_pages,
    too_costly,
)
from mdv.query.apart import Apart, here
from mdv.query.names import named_in_paths
from mdv.query.select import select_resources, select_rows
from mdv.rdf.schema import Schema
from mdv.rules.ast import ParsedQuery, ParsedRule
from mdv.rules.normal import NormalRule
from mdv.rules.parse import parse_query
from mdv.rules.pattern import pattern
from mdv.rules.returns import NormalQuery, normalise_asked, normalise_query

__all__ = ["Resources", "Rows", "run_query"]

MAX_SECONDS = 10


def run_query(
    connection: Connection,
    text: str | ParsedRule | ParsedQuery,
    schemas: Schemas,
    *,
    limit: int | None = None,
    after: str | None = None,
    with_statements: bool = False,
    apart: Apart = here,
) -> Rows | Resources:
    """Answer a query, changing nothing. Of `limit` and the query's own limit the smaller counts. The statement is
    written `apart`: of a large query that takes a while."""
    parsed = parse_query(text) if isinstance(text, str) else text
    with db.reading(connection, MAX_SECONDS, too_costly(MAX_SECONDS)):
        schema = schemas.now(connection).schema
        named = Library(Graph(connection), OWN, {}).parsed
        if isinstance(parsed, ParsedQuery):
            refuse_pages(after)
            return _rows(connection, normalise_query(parsed, schema, named), schema, limit, apart)
        size = page_size(limit)
        normal = normalise_asked(parsed, schema, named)
        return _resources(connection, normal, schema, size, after or "", with_statements, apart)


def _rows(connection: Connection, query: NormalQuery, schema: Schema, limit: int | None, apart: Apart) -> Rows:
    patterns = [pattern(part.conjunction)[0] for part in query.parts]
    names = read_names(
        Graph(connection), [*patterns, named_in_paths(query)], schema, KnownNames(connection), None
    )  # fmt: skip
    most = most_rows(query, limit)
    statement = apart(lambda: compiled(select_rows(states(names)[0], vocabulary, query, most + 1)))
    found = db.read_one_by_one(connection, statement)
    return gather_rows(query, found, most, MAX_CHARACTERS)


def _resources(
    connection: Connection,
    rule: NormalRule,
    schema: Schema,
    limit: int,
    after: str,
    with_statements: bool,
    apart: Apart,
) -> Resources:
    conjunctions = rule.conjunctions
    patterns = [pattern(conjunction)[0] for conjunction in conjunctions]
    names = read_names(Graph(connection), patterns, schema, KnownNames(connection), None)
    statement = apart(lambda: compiled(select_resources(states(names)[0], conjunctions, after, limit + 1)))
    found = db.read_rows(connection, statement)
    page = found[:limit]
    numbers = [number for number, _ in page]
    classes = db.classes_of(connection, numbers)
    statements = db.statements_of(connection, numbers) if with_statements else []
    more = page[-1][1] if len(found) > limit else None
    return Resources([(uri, classes[number]) for number, uri in page], more, statements)
