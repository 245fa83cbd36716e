"""Queries at an LMR: the same language as at an MDP (`mdv.inspect.query`), over the cache and the local metadata."""

from __future__ import annotations

from sqlalchemy import Connection

from mdv.db import cache_read as db
from mdv.db.cache import is_sqlite
from mdv.db.cache_tables import resources, vocabulary
from mdv.db.query import TimeLimit
from mdv.query.cache_dialects import CACHE_IN_POSTGRES, CACHE_IN_SQLITE
from mdv.query.compile import StatementView
from mdv.query.results import (
    MAX_RESULT_CHARACTERS,
    MAX_STATEMENTS_PER_PAGE,
    QueryRows,
    ResourcePage,
    check_statement_count,
    collect_rows,
    page_size,
    refuse_deep_queries,
    refuse_paging,
    row_limit,
    timeout_message,
)
from mdv.query.select import select_resources, select_rows
from mdv.query.vocabulary_ids import pattern_of_returned_paths, read_vocabulary_ids
from mdv.rdf.schema import Schema
from mdv.rules.ast import ParsedQuery, ParsedRule
from mdv.rules.normal import NormalRule
from mdv.rules.normalise import RuleLookup, no_rules
from mdv.rules.normalise_query import NormalQuery, normalise_query, normalise_rule_query
from mdv.rules.parse import parse_query
from mdv.rules.pattern import Pattern, pattern

__all__ = ["QueryRows", "ResourcePage", "run_query"]

QUERY_TIMEOUT_SECONDS = 30


def run_query(
    connection: Connection,
    schema: Schema,
    text: str | ParsedRule | ParsedQuery,
    *,
    limit: int | None = None,
    after: str | None = None,
    with_statements: bool = False,
    named: RuleLookup = no_rules,
) -> QueryRows | ResourcePage:
    """Run a query. The smaller of `limit` and the limit in the query applies; `named` finds the rules that the query
    may search."""
    parsed = parse_query(text) if isinstance(text, str) else text
    with (
        refuse_deep_queries(),
        db.time_limited_read(connection, QUERY_TIMEOUT_SECONDS, timeout_message(QUERY_TIMEOUT_SECONDS)) as time_limit,
    ):
        if isinstance(parsed, ParsedQuery):
            refuse_paging(after)
            return _rows(connection, normalise_query(parsed, schema, named), schema, limit, time_limit)
        size = page_size(limit)
        rule = normalise_rule_query(parsed, schema, named)
        return _resources(connection, rule, schema, size, after or "", with_statements, time_limit)


def _rows(
    connection: Connection, query: NormalQuery, schema: Schema, limit: int | None, time_limit: TimeLimit
) -> QueryRows:
    patterns = [pattern(part.conjunction)[0] for part in query.parts]
    state = _state(connection, [*patterns, pattern_of_returned_paths(query)], schema)
    most = row_limit(query, limit)
    found = db.stream_rows(connection, select_rows(state, vocabulary, query, most + 1), time_limit)
    return collect_rows(query, found, most, MAX_RESULT_CHARACTERS)


def _resources(
    connection: Connection,
    rule: NormalRule,
    schema: Schema,
    limit: int,
    after: str,
    with_statements: bool,
    time_limit: TimeLimit,
) -> ResourcePage:
    conjunctions = rule.conjunctions
    state = _state(connection, [pattern(conjunction)[0] for conjunction in conjunctions], schema)
    found = db.read_rows(connection, select_resources(state, conjunctions, after, limit + 1), time_limit)
    page = found[:limit]
    numbers = [number for number, _ in page]
    classes = db.read_classes(connection, numbers)
    statements = []
    if with_statements:
        time_limit.renew()
        statements = check_statement_count(db.read_statements(connection, numbers, MAX_STATEMENTS_PER_PAGE))
    more = page[-1][1] if len(found) > limit else None
    return ResourcePage([(uri, classes[number]) for number, uri in page], more, statements)


def _state(connection: Connection, patterns: list[Pattern], schema: Schema) -> StatementView:
    """Return the state for a query: all statements of the cache, global and local."""
    names = read_vocabulary_ids(
        patterns,
        schema,
        lambda uris: db.find_resource_ids(connection, uris),
        lambda uris: db.find_vocabulary_ids(connection, uris),
    )
    dialect = CACHE_IN_SQLITE if is_sqlite(connection) else CACHE_IN_POSTGRES
    return StatementView(lambda: db.ALL_STATEMENTS, resources, names, dialect=dialect)
