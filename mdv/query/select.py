"""Compile a query to a SELECT, with the same conditions as rules.

The outer select binds all variables of the `search` part, and the resources that both the where part and the returned
paths pass. The rest of the where part becomes `exists` conditions on these. Returned paths are left joins, step by
step, so a missing value does not remove a row. Rows are distinct by the resources of all searched variables and by the
returned values. Paths in `order by` alone do not add rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    BigInteger,
    FromClause,
    Integer,
    Select,
    Table,
    Text,
    and_,
    cast,
    func,
    null,
    select,
    union,
    union_all,
)

from mdv.errors import TooCostly
from mdv.model import RDFS_RESOURCE
from mdv.query.compile import MAX_JOINED_TABLES, Condition, Conditions, Expression, StatementView, needs_existence_check
from mdv.rules.normal import Comparison, Conjunction, Sort
from mdv.rules.normalise_query import NormalQuery, PathHop, QueryPart, ReturnedPath
from mdv.rules.operators import Operator
from mdv.rules.pattern import Leaf, pattern_with_nodes

_TYPED = (Sort.NUMBER, Sort.INSTANT, Sort.TRUTH)


def select_rows(state: StatementView, vocabulary: Table, query: NormalQuery, most: int) -> Select[Any]:
    """Select the first rows of a query: for each returned path its URI, or its text, language and datatype."""
    every = union_all(*(_Part(state, query, part).select() for part in query.parts)).subquery("every")
    numbers = [every.c[f"v{n}"] for n in range(len(query.variables))]
    fields = [every.c[f"r{n}_{name}"] for n in range(len(query.returns)) for name in _FIELDS]
    keys = [
        (func.max if ordering.descending else func.min)(every.c[f"o{n}"]).label(f"o{n}")
        for n, ordering in enumerate(query.order)
    ]
    rows = select(*numbers, *fields, *keys).group_by(*numbers, *fields).subquery("answer")
    source: FromClause = rows
    shown: list[Expression] = []
    order: list[Any] = [
        (rows.c[f"o{n}"].desc() if ordering.descending else rows.c[f"o{n}"].asc()).nulls_last()
        for n, ordering in enumerate(query.order)
    ]
    for n in range(len(query.returns)):
        uri, datatype = state.resources.alias(f"u{n}"), vocabulary.alias(f"d{n}")
        source = source.outerjoin(uri, uri.c.id == rows.c[f"r{n}_target"])
        kind: Expression = datatype.c.uri
        its = datatype.c.id == rows.c[f"r{n}_datatype"]
        if state.dialect.lateral_lookups:
            source = source.outerjoin(datatype, its)
        else:
            # As joins, these would exceed the limit of tables.
            kind = select(kind).where(its).correlate(rows).scalar_subquery()
        text, lang = rows.c[f"r{n}_value"], rows.c[f"r{n}_lang"]
        shown += [uri.c.uri, text, lang, kind]
        order += [func.coalesce(uri.c.uri, text).nulls_last(), uri.c.uri.is_(None)]
        order += [lang.nulls_first(), kind.nulls_first()]
    order += [rows.c[column.name] for column in numbers]
    labelled = [column.label(f"c{n}") for n, column in enumerate(shown)]
    return select(*labelled).select_from(source).order_by(*order).limit(most)


def select_resources(state: StatementView, conjunctions: Sequence[Conjunction], after: str, most: int) -> Select[Any]:
    """Select id and URI of the resources that a rule with these conjunctions registers, ordered by URI."""
    parts = []
    for conjunction in conjunctions:
        part = QueryPart(conjunction, {})
        alone = NormalQuery((conjunction.register,), (part,), (), (), None)
        parts.append(_Part(state, alone, part).select())
    found = union(*parts) if len(parts) > 1 else parts[0].distinct()
    # MATERIALIZED makes the database find the resources first. Otherwise it might scan all URIs.
    numbers = found.cte("found").prefix_with("MATERIALIZED")
    named = state.resources.alias("named")
    return (
        select(named.c.id, named.c.uri)
        .select_from(numbers.join(named, named.c.id == numbers.c.v0))
        .where(named.c.uri > after)
        .order_by(named.c.uri)
        .limit(most)
    )


def _is_indexed(state: StatementView, leaf: Leaf) -> bool:
    """True if an index finds the values that satisfy a predicate."""
    if leaf.operator is Operator.EQ:
        return leaf.sort is not Sort.TRUTH
    return leaf.operator.orders or state.is_found_by_prefix(leaf)


_FIELDS = ("target", "value", "lang", "datatype")


@dataclass(frozen=True)
class _Value:
    """A value of a row: a bound resource, or the object of a statement if there is one."""

    target: Expression
    atom: FromClause | None = None
    reached: str | None = None
    """The known class of the value; None if it can be anything."""

    def fields(self) -> list[Expression]:
        if self.atom is None:
            return [self.target, cast(null(), Text), cast(null(), Text), cast(null(), Integer)]
        return [self.target, self.atom.c.value, self.atom.c.lang, self.atom.c.datatype_id]


class _Part:
    """Compiles one conjunction of a query."""

    def __init__(self, state: StatementView, query: NormalQuery, part: QueryPart) -> None:
        self._state, self._query, self._part = state, query, part
        first = query.variables[0]
        conjunction = replace(part.conjunction, register=_starting_variable(part.conjunction, first))
        self._pattern, constants, self._nodes = pattern_with_nodes(conjunction)
        if not state.dialect.lateral_lookups and len(self._outer()) > MAX_JOINED_TABLES:
            # Starting there needs too many joins to reach the searched variables.
            conjunction = replace(part.conjunction, register=first)
            self._pattern, constants, self._nodes = pattern_with_nodes(conjunction)
        self._constants = [
            state.dialect.constant(constant, leaf.sort)
            for constant, leaf in zip(constants, self._pattern.leaves, strict=True)
        ]
        self._conditions = Conditions(state, self._pattern, self._constants)
        self._values: dict[tuple[object, ...], _Value] = {}
        self._complete: set[tuple[object, ...]] = set()
        self._joined = 1
        self._source, self._where = self._bind()

    def select(self) -> Select[Any]:
        returns, order = self._query.returns, self._query.order
        self._complete = {self._shared_key(path) for path in returns if path.property is not None and not path.any}
        columns = [self._follow(path, f"r{n}") for n, path in enumerate(returns)]
        shown: list[Expression] = [
            cast(self._number(name), BigInteger).label(f"v{n}") for n, name in enumerate(self._query.variables)
        ]
        for n, value in enumerate(columns):
            shown += [field.label(f"r{n}_{name}") for name, field in zip(_FIELDS, value.fields(), strict=True)]
        for n, ordering in enumerate(order):
            column = ordering.column
            value = columns[column] if column is not None else self._follow(ordering.path, f"o{n}")
            shown.append(self._order_key(ordering.path, value).label(f"o{n}"))
        return select(*shown).select_from(self._source).where(*self._where)

    # The where part: bound nodes and their conditions.

    def _bind(self) -> tuple[FromClause, list[Condition]]:
        conditions, dialect = self._conditions, self._state.dialect
        driver = self._driver()
        source, where = self._start(driver)
        outer = self._outer()
        for node in outer[1:]:
            for table in conditions.step(node, self._state.look_up(where)):
                source = dialect.join(source, table)
                self._count_join()
        for node in outer:
            where += self._conditions_of(node, outer, driver)
        return source, where

    def _start(self, driver: int | None) -> tuple[FromClause, list[Condition]]:
        """Return the source and conditions of the first node.

        The source is the instances of its class with the driving predicate, or the driving predicate alone if the
        database joins in the written order.
        """
        conditions, state = self._conditions, self._state
        if driver is None:
            return conditions.extent(0)
        leaf = self._pattern.leaves[driver]
        assert leaf.property is not None
        if state.dialect.lateral_lookups:
            source, where = conditions.extent(0)
            atom = state.atoms()
            source = source.join(atom, atom.c.resource_id == conditions.at(0))
        else:
            source = atom = state.atoms()
            where = list[Condition]()
            conditions.bind(0, atom.c.resource_id)
            if leaf.sort is Sort.TEXT and leaf.property in state.names.literal_only:
                # Required for the use of the partial index on values.
                where.append(atom.c.value.is_not(None))
        return source, [*where, state.has(atom, leaf.property), state.finds(atom, leaf, self._constants[driver])]

    def _count_join(self) -> None:
        self._joined += 1
        if self._joined > MAX_JOINED_TABLES and not self._state.dialect.lateral_lookups:
            raise TooCostly(f"The query needs more than {MAX_JOINED_TABLES} joins. Return fewer or shorter paths.")

    def _outer(self) -> list[int]:
        """Return the nodes that the outer select binds, parents first."""
        names = [*self._query.variables]
        for path in (*self._query.returns, *(ordering.path for ordering in self._query.order)):
            names.append(self._anchor(path)[0])
        return sorted({node for name in names for node in self._pattern.path(self._nodes[name])})

    def _driver(self) -> int | None:
        """Return the driving predicate: the most selective predicate of the first node, which is written as a join."""
        leaves = self._pattern.leaves
        own = [n for n, leaf in enumerate(leaves) if leaf.node == 0 and leaf.property is not None]
        if not self._state.dialect.lateral_lookups and self._pattern.nodes[0] != (RDFS_RESOURCE,):
            # If the join order is fixed, start with the class unless an index supports the predicate.
            own = [n for n in own if _is_indexed(self._state, leaves[n])]
        return min(own, key=lambda n: leaves[n].operator.lookup.value, default=None)

    def _conditions_of(self, node: int, outer: Sequence[int], driver: int | None) -> list[Condition]:
        """Return the conditions of a bound node, except for the steps to other bound nodes."""
        conditions, found = self._conditions, self._pattern
        number, classes = conditions.at(node), found.nodes[node]
        if node == 0 and driver is None and not self._state.dialect.lateral_lookups:
            classes = classes[1:]
        required = self._state.of_classes(number, classes, known=not needs_existence_check(found, node))
        required += [
            conditions.leaf(leaf, self._constants[n])
            for n, leaf in enumerate(found.leaves)
            if leaf.node == node and n != driver
        ]
        required += [conditions.tie(tie) for tie in found.ties if max(tie.left, tie.right) == node]
        return required + [conditions.branch(child) for child in found.children[node] if child not in outer]

    def _number(self, variable: str) -> Expression:
        return self._conditions.at(self._nodes[variable])

    # The returned paths.

    def _anchor(self, path: ReturnedPath) -> tuple[str, int]:
        """Return the last variable of the where part that a path shares, and the number of shared steps."""
        at, taken = path.variable, 0
        for hop in (*path.hops, *([_last(path)] if path.property is not None else [])):
            if hop.any or (at, hop.property) not in self._part.shared:
                break
            at, taken = self._part.shared[at, hop.property], taken + 1
        return at, taken

    def _shared_key(self, path: ReturnedPath) -> tuple[object, ...]:
        """Return the key of a path without `?` in `_values`, as used by `_follow`."""
        at, taken = self._anchor(path)
        return at, *(hop.property for hop in (*path.hops, _last(path))[taken:])

    def _follow(self, path: ReturnedPath, own: str) -> _Value:
        """Return the value of a path. Values are shared with other paths up to the first `?`."""
        at, taken = self._anchor(path)
        value = _Value(self._number(at), None, "")
        if path.property is None:
            return value
        key: tuple[object, ...] = (at,)
        steps = (*path.hops, _last(path))
        for number, hop in enumerate(steps[taken:], taken):
            key = (*key, hop.property, own) if hop.any else (*key, hop.property)
            passed = steps[number - 1] if number > taken else None
            reach = hop.class_iri if hop is not steps[-1] else None
            if key not in self._values:
                self._values[key] = self._step(value, passed, hop.property, None if key in self._complete else reach)
            value = self._values[key]
        return value

    def _step(self, start: _Value, passed: PathHop | None, property_iri: str, reach: str | None) -> _Value:
        """Left join the values of a property; with `reach`, only resources of that class."""
        state = self._state
        atom = state.atoms()
        on = [atom.c.resource_id == start.target, state.has(atom, property_iri)]
        if passed is not None and start.reached is None:
            # The joined values include all values of the property. The path continues only from those of the class.
            on += state.of_classes(start.target, [passed.class_iri], known=True)
        if reach is not None:
            on += [atom.c.target_id.is_not(None), *state.of_classes(atom.c.target_id, [reach], known=False)]
        self._source = self._source.outerjoin(atom, and_(*on))
        self._count_join()
        return _Value(atom.c.target_id, atom, reach)

    def _order_key(self, path: ReturnedPath, value: _Value) -> Expression:
        """Return the expression by which rows are ordered."""
        if value.atom is None or path.property is None:
            return self._state.uri(value.target)
        if path.sort in _TYPED:
            return self._state.dialect.typed_column(value.atom, path.sort)
        return self._state.text(value.atom, path.property)


def _last(path: ReturnedPath) -> PathHop:
    assert path.property is not None
    return PathHop(path.property, path.any, "")


def _starting_variable(conjunction: Conjunction, first: str) -> str:
    """Return the variable to start with: the one with the most selective predicate."""
    found = [p for p in conjunction.predicates if isinstance(p, Comparison)]
    best = min(found, key=lambda p: p.operator.lookup.value, default=None)
    return best.access.variable if best is not None else first
