"""Queries at an LMR: as at an MDP (`mdv.mdp.query`), answered from the cache alone, local metadata included."""

from __future__ import annotations

from sqlalchemy import Connection

from mdv.db import cache_read as db
from mdv.db.cache import is_sqlite
from mdv.db.cache_tables import resources, vocabulary
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
from mdv.query.cache import IN_POSTGRES, IN_SQLITE
from mdv.query.compile import State
from mdv.query.names import named_in_paths, read_names
from mdv.query.select import select_resources, select_rows
from mdv.rdf.schema import Schema
from mdv.rules.ast import ParsedQuery, ParsedRule
from mdv.rules.normal import NormalRule
from mdv.rules.normalise import Rules, no_rules
from mdv.rules.parse import parse_query
from mdv.rules.pattern import Pattern, pattern
from mdv.rules.returns import NormalQuery, normalise_asked, normalise_query

__all__ = ["Resources", "Rows", "run_query"]

MAX_SECONDS = 30


def run_query(
    connection: Connection,
    schema: Schema,
    text: str | ParsedRule | ParsedQuery,
    *,
    limit: int | None = None,
    after: str | None = None,
    with_statements: bool = False,
    named: Rules = no_rules,
) -> Rows | Resources:
    """Answer a query, changing nothing. Of `limit` and the query's own limit the smaller counts; `named` finds the
    rules that the query may search."""
    parsed = parse_query(text) if isinstance(text, str) else text
    with db.reading(connection, MAX_SECONDS, too_costly(MAX_SECONDS)):
        if isinstance(parsed, ParsedQuery):
            refuse_pages(after)
            return _rows(connection, normalise_query(parsed, schema, named), schema, limit)
        size = page_size(limit)
        rule = normalise_asked(parsed, schema, named)
        return _resources(connection, rule, schema, size, after or "", with_statements)


def _rows(connection: Connection, query: NormalQuery, schema: Schema, limit: int | None) -> Rows:
    patterns = [pattern(part.conjunction)[0] for part in query.parts]
    state = _state(connection, [*patterns, named_in_paths(query)], schema)
    most = most_rows(query, limit)
    found = db.read_one_by_one(connection, select_rows(state, vocabulary, query, most + 1))
    return gather_rows(query, found, most, MAX_CHARACTERS)


def _resources(
    connection: Connection, rule: NormalRule, schema: Schema, limit: int, after: str, with_statements: bool
) -> Resources:
    conjunctions = rule.conjunctions
    state = _state(connection, [pattern(conjunction)[0] for conjunction in conjunctions], schema)
    found = db.read_rows(connection, select_resources(state, conjunctions, after, limit + 1))
    page = found[:limit]
    numbers = [number for number, _ in page]
    classes = db.classes_of(connection, numbers)
    said = db.statements_of(connection, numbers) if with_statements else []
    more = page[-1][1] if len(found) > limit else None
    return Resources([(uri, classes[number]) for number, uri in page], more, said)


def _state(connection: Connection, patterns: list[Pattern], schema: Schema) -> State:
    """All statements of the cache, whether they came from the MDP or are local."""
    names = read_names(
        patterns,
        schema,
        lambda uris: db.resource_numbers(connection, uris),
        lambda uris: db.vocabulary_numbers(connection, uris),
    )
    dialect = IN_SQLITE if is_sqlite(connection) else IN_POSTGRES
    return State(lambda: db.ALL_STATEMENTS, resources, names, dialect=dialect)
