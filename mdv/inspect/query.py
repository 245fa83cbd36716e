"""Queries: the rule language with `return`, evaluated on the current statements of all documents.

    search CycleProvider c where c.serverPort = 5874 return c, c.serverHost order by c.serverHost limit 10

A row is a choice of resources for the searched variables that satisfies `where`, with a value for each returned path.
Rows are distinct. A path with several values gives a row for each value. A path without a value gives a row with an
empty cell. Paths with a common prefix without `?`, including those of `where`, refer to the same resource there; each
`?` is an independent choice. A path continues only from instances of its property's range. `or` gives the union of its
sides.

Rows are ordered by the type of the path's range: numbers, instants, booleans, or text by code point. Missing values are
last. A path with several values is ordered by the least one, or with `desc` by the greatest one. Ties are ordered by
the returned values. A rule with `register` gives the resources that it would register, ordered by URI.
"""

from __future__ import annotations

from sqlalchemy import Connection

from mdv.db import query as db
from mdv.db.filter import compile_statement
from mdv.db.rule_graph import RuleGraph
from mdv.db.tables import vocabulary
from mdv.inspect.sql.explain_rule import ReadOnlyVocabulary
from mdv.inspect.sql.resources import read_classes, read_statements
from mdv.mdp.groups import read_names, statement_states
from mdv.mdp.rule_cache import NamedRules
from mdv.mdp.rules.planning import PROVIDER_OWNER
from mdv.mdp.schemas import SchemaCache
from mdv.query.offload import Offload, run_inline
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
from mdv.query.vocabulary_ids import pattern_of_returned_paths
from mdv.rdf.schema import Schema
from mdv.rules.ast import ParsedQuery, ParsedRule
from mdv.rules.normal import NormalRule
from mdv.rules.normalise_query import NormalQuery, normalise_query, normalise_rule_query
from mdv.rules.parse import parse_query
from mdv.rules.pattern import pattern

__all__ = ["QueryRows", "ResourcePage", "run_query"]

MAX_SECONDS = 10


def run_query(
    connection: Connection,
    text: str | ParsedRule | ParsedQuery,
    schemas: SchemaCache,
    *,
    limit: int | None = None,
    after: str | None = None,
    with_statements: bool = False,
    apart: Offload = run_inline,
) -> QueryRows | ResourcePage:
    """Run a query. It changes nothing.

    The smaller of `limit` and the query's own limit is used. `apart` runs the compilation of the statement,
    which takes long for a large query. Compiling and running share one time limit.
    """
    parsed = parse_query(text) if isinstance(text, str) else text
    with (
        refuse_deep_queries(),
        db.time_limited_read(connection, MAX_SECONDS, timeout_message(MAX_SECONDS)) as time_limit,
    ):
        schema = schemas.now(connection).schema
        named_rule = NamedRules.stored(connection, PROVIDER_OWNER).parsed
        if isinstance(parsed, ParsedQuery):
            refuse_paging(after)
            return _rows(connection, normalise_query(parsed, schema, named_rule), schema, limit, apart, time_limit)
        size = page_size(limit)
        normal = normalise_rule_query(parsed, schema, named_rule)
        return _resources(connection, normal, schema, size, after or "", with_statements, apart, time_limit)


def _rows(
    connection: Connection,
    query: NormalQuery,
    schema: Schema,
    limit: int | None,
    apart: Offload,
    time_limit: db.TimeLimit,
) -> QueryRows:
    patterns = [pattern(part.conjunction)[0] for part in query.parts]
    patterns.append(pattern_of_returned_paths(query))
    names = read_names(RuleGraph(connection), patterns, schema, ReadOnlyVocabulary(connection), None)
    max_rows = row_limit(query, limit)
    statement = apart(
        lambda: compile_statement(select_rows(statement_states(names)[0], vocabulary, query, max_rows + 1))
    )
    found = db.stream_rows(connection, statement, time_limit)
    return collect_rows(query, found, max_rows, MAX_RESULT_CHARACTERS)


def _resources(
    connection: Connection,
    rule: NormalRule,
    schema: Schema,
    limit: int,
    after: str,
    with_statements: bool,
    apart: Offload,
    time_limit: db.TimeLimit,
) -> ResourcePage:
    conjunctions = rule.conjunctions
    patterns = [pattern(conjunction)[0] for conjunction in conjunctions]
    names = read_names(RuleGraph(connection), patterns, schema, ReadOnlyVocabulary(connection), None)
    statement = apart(
        lambda: compile_statement(select_resources(statement_states(names)[0], conjunctions, after, limit + 1))
    )
    found = db.read_rows(connection, statement, time_limit)
    page = found[:limit]
    numbers = [number for number, _ in page]
    classes = read_classes(connection, numbers)
    statements = []
    if with_statements:
        time_limit.renew()
        statements = check_statement_count(read_statements(connection, numbers, MAX_STATEMENTS_PER_PAGE))
    more = page[-1][1] if len(found) > limit else None
    return ResourcePage([(uri, classes[number]) for number, uri in page], more, statements)
