"""Select: a query as SQL, out of the same pieces as the rules.

Every variable that is searched is bound in the outer select, and so is what the where part and the returned paths both
pass; the rest of the where part stays a question asked of these. Returned paths are joined from the left, step by step,
so that what is missing loses no row. Rows are told apart by the resources of all searched variables and by what is
returned; what is only ordered by makes no rows.
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
from mdv.query.compile import MAX_JOINED, Condition, Conditions, Expression, State, needs_proof
from mdv.rules.ast import Operator
from mdv.rules.normal import Comparison, Conjunction, Sort
from mdv.rules.pattern import Leaf, pattern_with_nodes
from mdv.rules.returns import Hop, NormalQuery, QueryPart, Returned

_TYPED = (Sort.NUMBER, Sort.INSTANT, Sort.TRUTH)
_SELECTIVE = (Operator.EQ, Operator.CONTAINS, Operator.LT, Operator.LE, Operator.GT, Operator.GE)


def select_rows(state: State, vocabulary: Table, query: NormalQuery, most: int) -> Select[Any]:
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
        if state.dialect.pinned:
            source = source.outerjoin(datatype, its)
        else:
            # As joins, these would be too many.
            kind = select(kind).where(its).correlate(rows).scalar_subquery()
        text, lang = rows.c[f"r{n}_value"], rows.c[f"r{n}_lang"]
        shown += [uri.c.uri, text, lang, kind]
        order += [func.coalesce(uri.c.uri, text).nulls_last(), uri.c.uri.is_(None)]
        order += [lang.nulls_first(), kind.nulls_first()]
    order += [rows.c[column.name] for column in numbers]
    labelled = [column.label(f"c{n}") for n, column in enumerate(shown)]
    return select(*labelled).select_from(source).order_by(*order).limit(most)


def select_resources(state: State, conjunctions: Sequence[Conjunction], after: str, most: int) -> Select[Any]:
    """Select number and URI of the resources that a rule of these conjunctions registers, in the order of URIs."""
    parts = []
    for conjunction in conjunctions:
        part = QueryPart(conjunction, {})
        alone = NormalQuery((conjunction.register,), (part,), (), (), None)
        parts.append(_Part(state, alone, part).select())
    found = union(*parts) if len(parts) > 1 else parts[0].distinct()
    # First what is found, then its names: the other way round, every name there is would be looked for in it.
    numbers = found.cte("found").prefix_with("MATERIALIZED")
    named = state.resources.alias("named")
    return (
        select(named.c.id, named.c.uri)
        .select_from(numbers.join(named, named.c.id == numbers.c.v0))
        .where(named.c.uri > after)
        .order_by(named.c.uri)
        .limit(most)
    )


def _is_found(leaf: Leaf) -> bool:
    """Whether an index leads to the values that satisfy a predicate."""
    if leaf.operator is Operator.EQ:
        return leaf.sort is not Sort.TRUTH
    return leaf.operator.orders and leaf.sort in (Sort.NUMBER, Sort.INSTANT)


def _rank(operator: Operator) -> int:
    """How few values a comparison leaves, by its operator."""
    return _SELECTIVE.index(operator) if operator in _SELECTIVE else len(_SELECTIVE)


_FIELDS = ("target", "value", "lang", "datatype")


@dataclass(frozen=True)
class _Value:
    """What stands at a place of a row: a resource that is bound, or the object of a statement, if there is one."""

    target: Expression
    atom: FromClause | None = None
    reached: str | None = None
    """The class that it is known to be of; None where it may be anything."""

    def fields(self) -> list[Expression]:
        if self.atom is None:
            return [self.target, cast(null(), Text), cast(null(), Text), cast(null(), Integer)]
        return [self.target, self.atom.c.value, self.atom.c.lang, self.atom.c.datatype_id]


class _Part:
    """One conjunction of a query on its way to SQL."""

    def __init__(self, state: State, query: NormalQuery, part: QueryPart) -> None:
        self._state, self._query, self._part = state, query, part
        first = query.variables[0]
        conjunction = replace(part.conjunction, register=_beginning(part.conjunction, first))
        self._pattern, constants, self._nodes = pattern_with_nodes(conjunction)
        if not state.dialect.pinned and len(self._outer()) > MAX_JOINED:
            # From there it is too far to what is asked for.
            conjunction = replace(part.conjunction, register=first)
            self._pattern, constants, self._nodes = pattern_with_nodes(conjunction)
        self._constants = [
            state.dialect.constant(constant, leaf.sort)
            for constant, leaf in zip(constants, self._pattern.leaves, strict=True)
        ]
        self._conditions = Conditions(state, self._pattern, self._constants)
        self._values: dict[tuple[object, ...], _Value] = {}
        self._whole: set[tuple[object, ...]] = set()
        self._joined = 1
        self._source, self._where = self._bind()

    def select(self) -> Select[Any]:
        returns, order = self._query.returns, self._query.order
        self._whole = {self._key(path) for path in returns if path.property is not None and not path.any}
        columns = [self._follow(path, f"r{n}") for n, path in enumerate(returns)]
        shown: list[Expression] = [
            cast(self._number(name), BigInteger).label(f"v{n}") for n, name in enumerate(self._query.variables)
        ]
        for n, value in enumerate(columns):
            shown += [field.label(f"r{n}_{name}") for name, field in zip(_FIELDS, value.fields(), strict=True)]
        for n, ordering in enumerate(order):
            column = ordering.column
            value = columns[column] if column is not None else self._follow(ordering.path, f"o{n}")
            shown.append(self._key_of(ordering.path, value).label(f"o{n}"))
        return select(*shown).select_from(self._source).where(*self._where)

    # The where part: what is bound, and what is asked of it.

    def _bind(self) -> tuple[FromClause, list[Condition]]:
        conditions, dialect = self._conditions, self._state.dialect
        driver = self._driver()
        source, where = self._begin(driver)
        outer = self._outer()
        for node in outer[1:]:
            for table in conditions.step(node, self._state.look_up(where)):
                source = dialect.join(source, table)
                self._count()
        for node in outer:
            where += self._asked(node, outer, driver)
        return source, where

    def _begin(self, driver: int | None) -> tuple[FromClause, list[Condition]]:
        """The first node: its instances and the driver; where joins are made as they are written, the driver alone."""
        conditions, state = self._conditions, self._state
        if driver is None:
            return conditions.extent(0)
        leaf = self._pattern.leaves[driver]
        assert leaf.property is not None
        if state.dialect.pinned:
            source, where = conditions.extent(0)
            atom = state.atoms()
            source = source.join(atom, atom.c.resource_id == conditions.at(0))
        else:
            source = atom = state.atoms()
            where = list[Condition]()
            conditions.bind(0, atom.c.resource_id)
            if leaf.sort is Sort.TEXT and leaf.property in state.names.literal_only:
                # So that the index of values is known to have it.
                where.append(atom.c.value.is_not(None))
        return source, [*where, state.has(atom, leaf.property), state.holds(atom, leaf, self._constants[driver])]

    def _count(self) -> None:
        self._joined += 1
        if self._joined > MAX_JOINED and not self._state.dialect.pinned:
            raise TooCostly(f"The query takes more than {MAX_JOINED} steps at once. Return fewer or shorter paths.")

    def _outer(self) -> list[int]:
        """The nodes that are bound, parents first."""
        names = [*self._query.variables]
        for path in (*self._query.returns, *(ordering.path for ordering in self._query.order)):
            names.append(self._anchor(path)[0])
        return sorted({node for name in names for node in self._pattern.path(self._nodes[name])})

    def _driver(self) -> int | None:
        """The predicate of the first node that should leave the fewest resources: as a join, one can begin there."""
        leaves = self._pattern.leaves
        own = [n for n, leaf in enumerate(leaves) if leaf.node == 0 and leaf.property is not None]
        if not self._state.dialect.pinned and self._pattern.nodes[0] != (RDFS_RESOURCE,):
            # Where the order is fixed, one begins with the class, unless an index finds what the predicate leaves.
            own = [n for n in own if _is_found(leaves[n])]
        return min(own, key=lambda n: _rank(leaves[n].operator), default=None)

    def _asked(self, node: int, outer: Sequence[int], driver: int | None) -> list[Condition]:
        """What is asked of a bound node, but for the steps to other bound nodes."""
        conditions, found = self._conditions, self._pattern
        number, classes = conditions.at(node), found.nodes[node]
        if node == 0 and driver is None and not self._state.dialect.pinned:
            classes = classes[1:]
        asked = self._state.of_classes(number, classes, known=not needs_proof(found, node))
        asked += [
            conditions.leaf(leaf, self._constants[n])
            for n, leaf in enumerate(found.leaves)
            if leaf.node == node and n != driver
        ]
        asked += [conditions.tie(tie) for tie in found.ties if max(tie.left, tie.right) == node]
        return asked + [conditions.branch(child) for child in found.children[node] if child not in outer]

    def _number(self, variable: str) -> Expression:
        return self._conditions.at(self._nodes[variable])

    # The returned paths.

    def _anchor(self, path: Returned) -> tuple[str, int]:
        """How far the where part goes the same way: to which variable, by how many steps, the last one included."""
        at, taken = path.variable, 0
        for hop in (*path.hops, *([_last(path)] if path.property is not None else [])):
            if hop.any or (at, hop.property) not in self._part.shared:
                break
            at, taken = self._part.shared[at, hop.property], taken + 1
        return at, taken

    def _key(self, path: Returned) -> tuple[object, ...]:
        """The place that a path without `?` leads to, as `_follow` names it."""
        at, taken = self._anchor(path)
        return at, *(hop.property for hop in (*path.hops, _last(path))[taken:])

    def _follow(self, path: Returned, own: str) -> _Value:
        """The value of a path. Places are shared with other paths up to the first `?`."""
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
                self._values[key] = self._step(value, passed, hop.property, None if key in self._whole else reach)
            value = self._values[key]
        return value

    def _step(self, start: _Value, passed: Hop | None, property_iri: str, reach: str | None) -> _Value:
        """Join the values of a property, from the left; with `reach`, only resources of that class."""
        state = self._state
        atom = state.atoms()
        on = [atom.c.resource_id == start.target, state.has(atom, property_iri)]
        if passed is not None and start.reached is None:
            # All values are shown there; from those alone that the path can pass does it go on.
            on += state.of_classes(start.target, [passed.class_iri], known=True)
        if reach is not None:
            on += [atom.c.target_id.is_not(None), *state.of_classes(atom.c.target_id, [reach], known=False)]
        self._source = self._source.outerjoin(atom, and_(*on))
        self._count()
        return _Value(atom.c.target_id, atom, reach)

    def _key_of(self, path: Returned, value: _Value) -> Expression:
        """What a row is ordered by."""
        if value.atom is None or path.property is None:
            return self._state.uri(value.target)
        if path.sort in _TYPED:
            return self._state.dialect.typed(value.atom, path.sort)
        return self._state.text(value.atom, path.property)


def _last(path: Returned) -> Hop:
    assert path.property is not None
    return Hop(path.property, path.any, "")


def _beginning(conjunction: Conjunction, first: str) -> str:
    """The variable to begin with: that of the predicate which should leave the fewest resources."""
    found = [p for p in conjunction.predicates if isinstance(p, Comparison)]
    best = min(found, key=lambda p: _rank(p.operator), default=None)
    return best.access.variable if best is not None else first
