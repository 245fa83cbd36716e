"""Parsed query to its normal form: the conjunctions of its where part as for a rule, and the paths that it returns.

Laws: a returned path, or one that orders, means the resource that the where part and the other returned paths mean
where they share a beginning without `?`; each `?` is its own choice. What a path does not find is missing, and loses no
row.
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
    Rules,
    _check_circles,
    _check_count,
    _check_size,
    _Library,
    _predicates,
    _put_in,
    _resolve_search,
    _route,
    _Scope,
    _split_or,
    _split_paths,
    _typed,
    no_rules,
    normalise,
)
from mdv.rules.parse import flawed

MAX_RETURNS = 32
MAX_ORDERINGS = 8
MAX_LIMIT = 10_000
MAX_PARTS = 1000
"""Variables, predicates and returned steps of all conjunctions: what a query costs before it finds anything."""


@dataclass(frozen=True, slots=True)
class Hop:
    """A step that is followed by another: the property, whether `?` follows it, the class of what it reaches."""

    property: str
    any: bool
    class_iri: str


@dataclass(frozen=True, slots=True)
class Returned:
    """A path by its properties; `property` is None where it is a variable alone. `any`: the last step has a `?`."""

    shown: str
    variable: str
    hops: tuple[Hop, ...]
    property: str | None
    any: bool
    sort: Sort

    def place(self) -> tuple[object, ...]:
        """What two paths have in common that are the same."""
        return self.variable, self.hops, self.property


@dataclass(frozen=True, slots=True)
class Ordering:
    """By which path; `column` is the returned path that it is, None where it is none of them."""

    path: Returned
    column: int | None
    descending: bool


@dataclass(frozen=True, slots=True)
class QueryPart:
    """One conjunction, and its variables that paths without `?` lead to: by variable and property."""

    conjunction: Conjunction
    shared: Mapping[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class NormalQuery:
    """What the query means. `variables` are those that it searches."""

    variables: tuple[str, ...]
    parts: tuple[QueryPart, ...]
    returns: tuple[Returned, ...]
    order: tuple[Ordering, ...]
    limit: int | None


def normalise_query(query: ParsedQuery, schema: Schema, rules: Rules = no_rules) -> NormalQuery:
    """What the query means under this schema; `rules` finds a rule by its name.

    >>> from mdv.rdf.schema import EMPTY
    >>> from mdv.rules.parse import parse_query
    >>> query = parse_query("search rdfs:Resource r where r.rdfs:seeAlso.label = 'a' return r.rdfs:seeAlso.comment, r")
    >>> normal = normalise_query(query, EMPTY)
    >>> [path.shown for path in normal.returns], list(normal.parts[0].shared.values())
    (['r.rdfs:seeAlso.comment', 'r'], ['r2'])
    """
    try:
        return _normalise(query, schema, rules)
    except InvalidRule as error:
        raise _of_query(error) from None


def _normalise(query: ParsedQuery, schema: Schema, rules: Rules) -> NormalQuery:
    rule = ParsedRule(query.text, query.search, query.search[0].variable, query.where)
    _check_circles(rule, schema, rules)
    scope = _resolve_search(rule, schema, _Library(rules))
    typed = {predicate.span: _typed(predicate, scope) for predicate in _predicates(rule.where)}
    _check_count(rule, scope)
    parts = [_split_paths(part, rule.register.text, scope) for part in _split_or(rule.where, typed)]
    _check_size(parts, scope)
    _check_limits(query)
    returns = tuple(_returned(path, scope) for path in query.returns)
    places = [path.place() for path in returns]
    order = []
    for ordering in query.order:
        path = _returned(ordering.path, scope)
        column = places.index(path.place()) if path.place() in places else None
        order.append(Ordering(path, column, ordering.descending))
    steps = sum(len(path.hops) + (path.property is not None) for path in returns)
    steps += sum(len(o.path.hops) + (o.path.property is not None) for o in order if o.column is None)
    _refuse_large(query.text, scope.span, parts, steps)
    return NormalQuery(
        tuple(scope.classes),
        tuple(
            QueryPart(whole, _shared(part, scope))
            for part in parts
            for whole in _put_in([part], scope.inner)
        ),
        returns,
        tuple(order),
        query.limit,
    )  # fmt: skip


def normalise_asked(rule: ParsedRule, schema: Schema, rules: Rules = no_rules) -> NormalRule:
    """What a rule means that is asked as a query."""
    try:
        normal = normalise(rule, schema, rules)
        span = Span(rule.search[0].name.span.start, rule.search[-1].variable.span.end)
        _refuse_large(rule.text, span, normal.conjunctions, 0)
        return normal
    except InvalidRule as error:
        raise _of_query(error) from None


def _of_query(error: InvalidRule) -> InvalidRule:
    said = error.detail.replace("The rule has a flaw", "The query has a flaw", 1)
    return InvalidRule(said, error.flaws)


def _refuse_large(text: str, span: Span, parts: Sequence[Conjunction], steps: int) -> None:
    size = sum(len(part.variables) + len(part.predicates) + steps for part in parts)
    if size > MAX_PARTS:
        what = f"variables, predicates and steps in its {len(parts)} conjunctions"
        message = f"the query has {size:,} {what}; it may have {MAX_PARTS:,}"
        raise flawed(text, span, message, "'or' takes the whole query once more for each of its sides")


def _check_limits(query: ParsedQuery) -> None:
    for paths, most, what in (
        ([path.span for path in query.returns], MAX_RETURNS, "returns"),
        ([ordering.path.span for ordering in query.order], MAX_ORDERINGS, "is ordered by"),
    ):
        if len(paths) > most:
            raise flawed(query.text, paths[most], f"the query {what} more than {most} paths")
    if query.limit is not None and not 1 <= query.limit <= MAX_LIMIT:
        # The limit is what a query ends with.
        number = re.search(r"\d+(?=\s*\Z)", query.text)
        assert number is not None
        hint = "leave it out to get the first 1,000" if query.limit else "ask for 1 row at least"
        raise flawed(query.text, Span(*number.span()), f"a limit is a number from 1 to {MAX_LIMIT:,}", hint)


def _returned(path: Path, scope: _Scope) -> Returned:
    route = _route(path, scope)
    shown = "".join(scope.text[path.span.start : path.span.end].split())
    hops = tuple(Hop(hop.property, hop.any, hop.class_iri) for hop in route.hops)
    name, any_ = (route.last.iri, route.last.set_valued) if route.last is not None else (None, False)
    return Returned(shown, path.variable.text, hops, name, any_, route.sort)


def _shared(part: Conjunction, scope: _Scope) -> dict[tuple[str, str], str]:
    """The resources that paths of the where part pass, as far as other paths mean the same."""
    shared: dict[tuple[str, str], str] = {}
    for predicate in part.predicates:
        match predicate:
            case Link(Access(at, str(name)), _, Access(reached, None), _) if reached not in scope.classes:
                declared = scope.schema.property_of(name)
                if declared is not None and not declared.set_valued:
                    shared[at, name] = reached
    return shared
