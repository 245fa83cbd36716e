"""Normalise a parsed query: the conjunctions of its where part, as for a rule, and the returned paths.

Laws: paths in `where`, `return` and `order by` refer to the same resource as far as they share a prefix without `?`.
Each `?` ranges over the values independently. A path without a value gives a missing value and does not remove the row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mdv.errors import InvalidRule
from mdv.rdf.schema import Schema
from mdv.rules.ast import ParsedQuery, ParsedRule, Path, Span
from mdv.rules.normal import Access, Conjunction, Link, NormalRule, Sort
from mdv.rules.normalise import (
    RuleLookup,
    _check_count,
    _check_cycles,
    _check_size,
    _inline_rules,
    _Library,
    _predicates,
    _resolve_search,
    _route,
    _Scope,
    _split_or,
    _split_paths,
    _typed,
    no_rules,
)
from mdv.rules.normalise import (
    _normalise as _normalise_rule,
)
from mdv.rules.text_errors import rule_error

MAX_RETURNED_PATHS = 32
MAX_ORDERINGS = 8
MAX_ROW_LIMIT = 10_000
MAX_QUERY_SIZE = 1000
"""Variables, predicates and returned steps of all conjunctions. They determine the cost of compiling a query."""
MAX_JOINS = 300
"""Variables and returned steps of one conjunction. Each can become a join, and the SQL compiler is recursive: at about
450 joins it exceeds Python's recursion limit."""


@dataclass(frozen=True, slots=True)
class PathHop:
    """A step that is not the last: the property, whether `?` follows it, and the class of its target."""

    property: str
    any: bool
    class_iri: str


@dataclass(frozen=True, slots=True)
class ReturnedPath:
    """A path with resolved properties. `property` is None if it is only a variable. `any`: the last step has a `?`."""

    shown: str
    variable: str
    hops: tuple[PathHop, ...]
    property: str | None
    any: bool
    sort: Sort

    def identity(self) -> tuple[object, ...]:
        """Return a value that is equal for equal paths."""
        return self.variable, self.hops, self.property


@dataclass(frozen=True, slots=True)
class QueryOrdering:
    """An `order by` path. `column` is the index of the same returned path; None if the path is not returned."""

    path: ReturnedPath
    column: int | None
    descending: bool


@dataclass(frozen=True, slots=True)
class QueryPart:
    """One conjunction, and the variables that paths without `?` lead to, by start variable and property."""

    conjunction: Conjunction
    shared: Mapping[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class NormalQuery:
    """A query in normal form. `variables` are those of the `search` part."""

    variables: tuple[str, ...]
    parts: tuple[QueryPart, ...]
    returns: tuple[ReturnedPath, ...]
    order: tuple[QueryOrdering, ...]
    limit: int | None


def normalise_query(query: ParsedQuery, schema: Schema, rules: RuleLookup = no_rules) -> NormalQuery:
    """Return the normal form of a query under a schema. `rules` looks up rules by name.

    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> from mdv.rules.parse import parse_query
    >>> query = parse_query("search rdfs:Resource r where r.rdfs:seeAlso.label = 'a' return r.rdfs:seeAlso.comment, r")
    >>> normal = normalise_query(query, EMPTY_SCHEMA)
    >>> [path.shown for path in normal.returns], list(normal.parts[0].shared.values())
    (['r.rdfs:seeAlso.comment', 'r'], ['r2'])
    """
    try:
        return _normalise(query, schema, rules)
    except InvalidRule as error:
        raise _query_error(error) from None


def _normalise(query: ParsedQuery, schema: Schema, rules: RuleLookup) -> NormalQuery:
    rule = ParsedRule(query.text, query.search, query.search[0].variable, query.where)
    _check_cycles(rule, schema, rules)
    scope = _resolve_search(rule, schema, _Library(rules))
    typed = {predicate.span: _typed(predicate, scope) for predicate in _predicates(rule.where)}
    _check_count(rule, scope)
    parts = [_split_paths(part, rule.register.text, scope) for part in _split_or(rule.where, typed)]
    _check_size(parts, scope)
    _check_limits(query)
    returns = tuple(_returned(path, scope) for path in query.returns)
    identities = [path.identity() for path in returns]
    order = []
    for ordering in query.order:
        path = _returned(ordering.path, scope)
        column = identities.index(path.identity()) if path.identity() in identities else None
        order.append(QueryOrdering(path, column, ordering.descending))
    steps = sum(len(path.hops) + (path.property is not None) for path in returns)
    steps += sum(len(o.path.hops) + (o.path.property is not None) for o in order if o.column is None)
    joins = max(len(part.variables) for part in parts) + steps
    if joins > MAX_JOINS:
        message = f"the query has {joins:,} variables and returned steps, including paths; the limit is {MAX_JOINS}"
        scope.refuse(scope.span, message, "return fewer paths, or shorten them")
    _refuse_large(query.text, scope.span, parts, steps)
    return NormalQuery(
        tuple(scope.classes),
        tuple(
            QueryPart(whole, _shared(part, scope))
            for part in parts
            for whole in _inline_rules([part], scope.inner)
        ),
        returns,
        tuple(order),
        query.limit,
    )  # fmt: skip


def normalise_rule_query(rule: ParsedRule, schema: Schema, rules: RuleLookup = no_rules) -> NormalRule:
    """Return the normal form of a rule that is run as a query. Its chains of joins can be longer than in a registered
    rule."""
    try:
        _check_cycles(rule, schema, rules)
        normal = _normalise_rule(rule, schema, _Library(rules))
        span = Span(rule.search[0].name.span.start, rule.search[-1].variable.span.end)
        _refuse_large(rule.text, span, normal.conjunctions, 0)
        return normal
    except InvalidRule as error:
        raise _query_error(error) from None


def _query_error(error: InvalidRule) -> InvalidRule:
    detail = error.detail.replace("The rule has an error", "The query has an error", 1)
    return InvalidRule(detail, error.flaws)


def _refuse_large(text: str, span: Span, parts: Sequence[Conjunction], steps: int) -> None:
    size = sum(len(part.variables) + len(part.predicates) + steps for part in parts)
    if size > MAX_QUERY_SIZE:
        what = f"variables, predicates and steps in its {len(parts)} conjunctions"
        message = f"the query has {size:,} {what}; the limit is {MAX_QUERY_SIZE:,}"
        raise rule_error(text, span, message, "use fewer 'or': each side of an 'or' repeats the whole query")


def _check_limits(query: ParsedQuery) -> None:
    for paths, limit, what in (
        ([path.span for path in query.returns], MAX_RETURNED_PATHS, "returns"),
        ([ordering.path.span for ordering in query.order], MAX_ORDERINGS, "is ordered by"),
    ):
        if len(paths) > limit:
            raise rule_error(query.text, paths[limit], f"the query {what} more than {limit} paths")
    if query.limit is not None and not 1 <= query.limit <= MAX_ROW_LIMIT:
        # The limit is the last part of a query.
        number = re.search(r"\d+(?=\s*\Z)", query.text)
        assert number is not None
        hint = "omit it to get the first 1,000 rows" if query.limit else "request at least 1 row"
        raise rule_error(query.text, Span(*number.span()), f"a limit must be from 1 to {MAX_ROW_LIMIT:,}", hint)


def _returned(path: Path, scope: _Scope) -> ReturnedPath:
    route = _route(path, scope)
    shown = "".join(scope.text[path.span.start : path.span.end].split())
    hops = tuple(PathHop(hop.property, hop.any, hop.class_iri) for hop in route.hops)
    name, any_ = (route.last.iri, route.last.set_valued) if route.last is not None else (None, False)
    return ReturnedPath(shown, path.variable.text, hops, name, any_, route.sort)


def _shared(part: Conjunction, scope: _Scope) -> dict[tuple[str, str], str]:
    """Return the variables of the where part that other paths can share, by start variable and property."""
    shared: dict[tuple[str, str], str] = {}
    for predicate in part.predicates:
        match predicate:
            case Link(Access(at, str(name)), _, Access(reached, None), _) if reached not in scope.classes:
                declared = scope.schema.property_of(name)
                if declared is not None and not declared.set_valued:
                    shared[at, name] = reached
    return shared
