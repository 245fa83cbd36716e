"""Compile patterns to SQL.

    matches      the resources that a pattern with given constants registers       (queries, one rule)
    filter_group the new and lost matches of the rules of a group, after a change  (the filter)

Both use the same conditions. A node of the pattern is a resource. A predicate is an `exists` on the statements of the
resource. A branch of the tree is an `exists` on the resources that it leads to. Only the path from the root to the
driving predicate, by which the rules are found, is a join.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from itertools import count
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    CompoundSelect,
    FromClause,
    Integer,
    Numeric,
    Select,
    Table,
    Text,
    and_,
    any_,
    bindparam,
    case,
    cast,
    exists,
    false,
    func,
    intersect,
    literal,
    literal_column,
    not_,
    null,
    or_,
    select,
    true,
    union,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY

from mdv.model import RDFS_RESOURCE
from mdv.query.operator_sql import compare
from mdv.rules.normal import Constant, Sort
from mdv.rules.operators import Lookup, Operator
from mdv.rules.pattern import Leaf, Pattern, Tie

Condition = ColumnElement[bool]
Expression = ColumnElement[Any]
LookUp = Callable[..., FromClause]

MAX_JOINED_TABLES = 60
"""Tables in one join. SQLite allows 64."""


@dataclass(frozen=True)
class VocabularyIds:
    """The ids of classes and properties, including their subclasses and subproperties."""

    classes: Mapping[str, Sequence[int]]
    properties: Mapping[str, Sequence[int]]
    types: Sequence[int]
    literal_only: frozenset[str] = frozenset()
    """Properties whose values are always literals, because their range is a datatype."""


class Dialect:
    """The SQL that differs between databases. This class is the dialect of an MDP."""

    lateral_lookups = True
    """Rows are looked up by lateral subqueries (`probe`). Otherwise by plain joins, which the database executes in the
    written order."""
    flat_branches = False
    """A branch becomes one `exists` with joins instead of one nested `exists` for each step. Some databases, and the
    recursive SQL compiler, support only a few levels of nesting."""

    def constant(self, constant: Constant, sort: Sort) -> Expression:
        """Return a constant as a bound value. A boolean is compared as 1 or 0."""
        if isinstance(constant.value, str):
            return literal(constant.value, Text())
        return literal(Decimal(constant.value), Numeric())

    def typed_column(self, atom: FromClause, sort: Sort) -> Expression:
        return typed_column(atom, sort)

    def compare(self, left: Expression, operator: Operator, right: Expression) -> Condition:
        return compare(left, operator, right)

    def text_prefix(self, text: Expression) -> Expression:
        """Return the prefix of a value, as in the index on values."""
        return text_prefix(text, 64)

    def is_text(self, value: Expression, constant: Expression) -> Condition:
        return and_(self.text_prefix(value) == self.text_prefix(constant), value == constant)

    def may_start_with(self, value: Expression, constant: Expression) -> Condition:
        """Return a condition for the index on values that all values with this prefix satisfy. The index contains up to
        64 characters of a value, so that no key is greater than the prefix padded with the last code point."""
        key, padding = self.text_prefix(value), literal(64 * "\U0010ffff", Text())
        return and_(key >= self.text_prefix(constant), key <= self.text_prefix(constant + padding))

    def without_index(self, conditions: Sequence[Condition]) -> Sequence[Condition]:
        """Return conditions for which the database should not use an index: other conditions find the rows."""
        return conditions

    def join(self, source: FromClause, table: FromClause) -> FromClause:
        return source.join(table, true())


MDP = Dialect()


@dataclass
class StatementView:
    """The statements at one moment: the current ones, or those before a transaction.

    `make` returns the statements as a table expression. `numbers` counts the aliases of one SQL statement.
    """

    make: Callable[[], FromClause]
    resources: Table
    names: VocabularyIds
    numbers: count[int] = field(default_factory=count)
    dialect: Dialect = MDP

    def atoms(self) -> FromClause:
        """Return the statements under a new alias."""
        return self.make().alias(f"f{next(self.numbers)}")

    def uri(self, number: Expression) -> Expression:
        """Return the URI of a resource."""
        r = self.resources.alias(f"r{next(self.numbers)}")
        return select(r.c.uri).where(r.c.id == number).correlate_except(r).scalar_subquery()

    def number(self, uri: Expression) -> Expression:
        """Return the id of a URI; null if no statement contains it."""
        r = self.resources.alias(f"r{next(self.numbers)}")
        return select(r.c.id).where(r.c.uri == uri).correlate_except(r).scalar_subquery()

    def has(self, atom: FromClause, property_iri: str) -> Condition:
        return _among(atom.c.property_id, self.names.properties[property_iri])

    def text(self, atom: FromClause, property_iri: str) -> Expression:
        """Return the text of a value. The text of a reference is its URI."""
        if property_iri in self.names.literal_only:
            return atom.c.value
        return func.coalesce(atom.c.value, self.uri(atom.c.target_id))

    def finds(self, atom: FromClause, leaf: Leaf, constant: Expression) -> Condition:
        """Return the same condition as `holds` in a form for which the index on values can be used."""
        condition = self.holds(atom, leaf, constant)
        if self.is_found_by_prefix(leaf):
            return and_(self.dialect.may_start_with(atom.c.value, constant), condition)
        return condition

    def is_found_by_prefix(self, leaf: Leaf) -> bool:
        """True if the index on values finds the texts that start with a constant."""
        is_text = leaf.sort is Sort.TEXT and leaf.property in self.names.literal_only
        return is_text and leaf.operator.lookup is Lookup.PREFIX

    def holds(self, atom: FromClause, leaf: Leaf, constant: Expression) -> Condition:
        """Return the condition that the value of a statement satisfies a predicate with a constant."""
        assert leaf.property is not None
        if leaf.sort is Sort.TEXT:
            if leaf.operator is Operator.EQ and leaf.property in self.names.literal_only:
                return self.is_text(atom, constant)
            if leaf.operator is Operator.EQ:
                return or_(self.is_text(atom, constant), atom.c.target_id == self.number(constant))
            return self.dialect.compare(self.text(atom, leaf.property), leaf.operator, constant)
        if leaf.sort is Sort.REFERENCE:
            if leaf.operator is Operator.EQ:
                return atom.c.target_id == self.number(constant)
            uri = self.uri(atom.c.target_id)
            return and_(atom.c.target_id.is_not(None), self.dialect.compare(uri, leaf.operator, constant))
        return compare(self.dialect.typed_column(atom, leaf.sort), leaf.operator, constant)

    def is_text(self, atom: FromClause, constant: Expression) -> Condition:
        """Return the condition that a value is this literal. The index contains prefixes of texts."""
        return self.dialect.is_text(atom.c.value, constant)

    def of_classes(self, node: Expression, classes: Sequence[str], known: bool) -> list[Condition]:
        """Return the conditions that a resource is an instance of all these classes. `known`: it certainly exists."""
        conditions: list[Condition] = []
        for class_iri in classes:
            atom = self.atoms()
            if class_iri == RDFS_RESOURCE:
                if not known:
                    conditions.append(self.exists_row([atom], [atom.c.resource_id == node]))
                continue
            of_type = [
                atom.c.resource_id == node,
                _among(atom.c.property_id, self.names.types),
                _among(atom.c.target_id, self.names.classes[class_iri]),
            ]
            conditions.append(self.exists_row([atom], of_type))
        return conditions

    def exists_row(self, sources: Sequence[FromClause], conditions: Sequence[Condition]) -> Condition:
        """Return the condition that these sources have a row that satisfies the conditions."""
        if self.dialect.lateral_lookups:
            return exists_row(sources, conditions)
        one: Select[Any] = select(literal_column("1")).select_from(reduce(self.dialect.join, sources))
        return exists(one.where(*conditions).correlate_except(*sources))

    def look_up(self, where: list[Condition]) -> LookUp:
        """Return a function that looks up rows of a table. It can add conditions to `where`."""
        return probe if self.dialect.lateral_lookups else plain_join(where)


def exists_row(sources: Sequence[FromClause], conditions: Sequence[Condition]) -> Condition:
    """Return the condition that these sources have a row that satisfies the conditions. Other tables are correlated.

    OFFSET 0 prevents the planner from turning it into a join, which might start from the wrong side.
    """
    one: Select[Any] = select(literal_column("1")).select_from(*sources).where(*conditions)
    return exists(one.offset(literal_column("0")).correlate_except(*sources))


def probe(table: FromClause, *conditions: Condition) -> FromClause:
    """Return a lateral subquery for the rows of a table that satisfy the conditions, for each row to its left.

    OFFSET 0 keeps the order of the look-ups, whatever statistics the planner had when it made the plan.
    """
    rows: Select[Any] = select(*table.c).select_from(table).where(*conditions)
    return rows.offset(literal_column("0")).correlate_except(table).lateral()


def plain_join(where: list[Condition]) -> LookUp:
    """Return a look-up that is a plain join. Its conditions are added to `where`."""

    def look_up(table: FromClause, *conditions: Condition) -> FromClause:
        where.extend(conditions)
        return table

    return look_up


def typed_column(atom: FromClause, sort: Sort) -> Expression:
    """Return the column by which values of a sort are compared."""
    if sort is Sort.NUMBER:
        return atom.c.number
    if sort is Sort.INSTANT:
        return atom.c.instant
    # Boolean constants are stored as 1 or 0 in the column for numbers.
    return cast(cast(atom.c.truth, Integer), Numeric)


def _among(column: Expression, numbers: Sequence[int]) -> Condition:
    if not numbers:
        return false()
    if len(numbers) == 1:
        return column == literal_number(numbers[0])
    return column.in_([literal_number(number) for number in numbers])


def text_prefix(text: Expression, length: int) -> Expression:
    """Return the prefix of a text, in the same form as in the indexes."""
    return func.left(text, literal_column(str(length)))


def literal_number(number: int) -> Expression:
    """Return a number as part of the SQL text. It does not change while the SQL text is in use."""
    return literal_column(str(int(number)))


def needs_existence_check(pattern: Pattern, node: int) -> bool:
    """True if a node has no class and no predicate on its own statements, so its existence must be checked."""
    if pattern.nodes[node] != (RDFS_RESOURCE,):
        return False
    if any(leaf.node == node and leaf.property is not None for leaf in pattern.leaves):
        return False
    ties = [*pattern.ties, *(b.tie for b in pattern.branches if b is not None and b.tie is not None)]
    return not any(at == node and name is not None for tie in ties for at, name in tie.accesses())


class Conditions:
    """Builds the conditions of a pattern on one state. Constants are expressions by leaf."""

    def __init__(self, state: StatementView, pattern: Pattern, constants: Sequence[Expression | None]) -> None:
        self._state = state
        self._pattern = pattern
        self._constants = constants
        self._bound: dict[int, Expression] = {}

    def bind(self, node: int, number: Expression) -> None:
        self._bound[node] = number

    def at(self, node: int) -> Expression:
        return self._bound[node]

    def of_node(self, node: int, without_leaf: int | None = None, without_child: int | None = None) -> list[Condition]:
        """Return all conditions of a bound node: its classes, its predicates, join predicates with ancestors, and its
        children."""
        return self.fixed(node, without_child) + self.by_constants(node, without_leaf, without_child)

    def fixed(self, node: int, without_child: int | None = None) -> list[Condition]:
        """Return the conditions of a bound node that all rules of a group share: those without constants."""
        number, pattern = self._bound[node], self._pattern
        conditions: list[Condition] = self._state.of_classes(
            number, pattern.nodes[node], known=not needs_existence_check(pattern, node)
        )
        conditions += [self.tie(tie) for tie in pattern.ties if max(tie.left, tie.right) == node]
        children = (child for child in pattern.children[node] if child != without_child)
        return conditions + [self.branch(child) for child in children if not pattern.has_leaf(child)]

    def by_constants(
        self, node: int, without_leaf: int | None = None, without_child: int | None = None
    ) -> list[Condition]:
        """Return the conditions of a bound node that depend on the constants of a rule."""
        pattern = self._pattern
        conditions: list[Condition] = []
        for index, leaf in enumerate(pattern.leaves):
            if leaf.node == node and index != without_leaf:
                constant = self._constants[index]
                assert constant is not None
                conditions.append(self.leaf(leaf, constant))
        children = (child for child in pattern.children[node] if child != without_child)
        return conditions + [self.branch(child) for child in children if pattern.has_leaf(child)]

    def of_path(self, path: Sequence[int], without_leaf: int | None) -> list[Condition]:
        """Return all conditions of the nodes of a path from the root, except for the steps of the path."""
        return [condition for node, child in _with_next(path) for condition in self.of_node(node, without_leaf, child)]

    def leaf(self, leaf: Leaf, constant: Expression) -> Condition:
        number = self._bound[leaf.node]
        if leaf.property is None:
            if leaf.operator is Operator.EQ:
                return number == self._state.number(constant)
            return self._state.dialect.compare(self._state.uri(number), leaf.operator, constant)
        atom, mine = self._values(number, leaf.property)
        predicate = self._state.dialect.without_index([self._state.holds(atom, leaf, constant)])
        return self._state.exists_row([atom], [*mine, *predicate])

    def tie(self, tie: Tie) -> Condition:
        """Return the condition of a join predicate between two bound nodes."""
        left, right = self._bound[tie.left], self._bound[tie.right]
        if tie.left_property is None:
            return compare(left, tie.operator, right)
        if tie.right_property is None:
            state = self._state
            one, mine = self._values(left, tie.left_property)
            refers = [one.c.target_id.is_not(None), compare(one.c.target_id, tie.operator, right)]
            return state.exists_row([one], [*mine, *state.dialect.without_index(refers)])
        return self._some_pair((left, tie.left_property), (right, tie.right_property), tie)

    def _some_pair(self, some: tuple[Expression, str], others: tuple[Expression, str], tie: Tie) -> Condition:
        """Return the condition that a value of one resource and a value of another satisfy a join predicate.

        Both can have many values, so each set is read once instead of comparing all pairs: equal values are found by
        INTERSECT, other comparisons use minimum and maximum.
        """
        if tie.operator is Operator.EQ:
            both = intersect(self._compared(*some, tie.sort), self._compared(*others, tie.sort))
            return exists(select(literal_column("1")).select_from(both.subquery()))
        low, high, its_low, its_high = (
            self._compared(*values, tie.sort, end).scalar_subquery()
            for values in (some, others)
            for end in (func.min, func.max)
        )
        if tie.operator is Operator.NE:
            return or_(low != its_high, high != its_low)
        if tie.operator in (Operator.LT, Operator.LE):
            return compare(low, tie.operator, its_high)
        return compare(high, tie.operator, its_low)

    def _compared(
        self,
        node: Expression,
        property_iri: str,
        sort: Sort,
        aggregate: Callable[[Expression], Expression] | None = None,
    ) -> Select[Any]:
        """Select the values of a resource that are compared; with an aggregate, the aggregated value."""
        atom, mine = self._values(node, property_iri)
        if sort is Sort.REFERENCE:
            value: Expression = atom.c.target_id
        elif sort is Sort.TEXT:
            value = self._state.text(atom, property_iri)
        else:
            value = self._state.dialect.typed_column(atom, sort)
        shown = value if aggregate is None else aggregate(value)
        return select(shown).select_from(atom).where(*mine, value.is_not(None)).correlate_except(atom)

    def _values(self, node: Expression, property_iri: str) -> tuple[FromClause, list[Condition]]:
        """Return the statements of a resource with a property, and the remaining conditions on them. The statements are
        found by the resource, never by the value."""
        atom, left = self._state.atoms(), list[Condition]()
        look_up = self._state.look_up(left)
        return look_up(atom, atom.c.resource_id == node, self._state.has(atom, property_iri)), left

    def equal(self, one: FromClause, other: FromClause, tie: Tie) -> list[Condition]:
        """Return the conditions that the values of two statements satisfy a join predicate."""
        assert tie.left_property is not None and tie.right_property is not None
        if tie.sort is Sort.REFERENCE:
            return [one.c.target_id.is_not(None), compare(one.c.target_id, tie.operator, other.c.target_id)]
        dialect = self._state.dialect
        if tie.sort is not Sort.TEXT:
            return [compare(dialect.typed_column(one, tie.sort), tie.operator, dialect.typed_column(other, tie.sort))]
        if tie.operator is Operator.EQ and {tie.left_property, tie.right_property} <= self._state.names.literal_only:
            return [
                dialect.text_prefix(one.c.value) == dialect.text_prefix(other.c.value),
                one.c.value == other.c.value,
            ]
        return [
            compare(self._state.text(one, tie.left_property), tie.operator, self._state.text(other, tie.right_property))
        ]

    def step(self, child: int, look_up: LookUp = probe) -> list[FromClause]:
        """Bind a child of a bound parent. Return the tables to join, each of which depends on those before it."""
        branch = self._pattern.branches[child]
        assert branch is not None
        parent, tie = self._bound[branch.parent], branch.tie
        state = self._state
        if tie is not None and tie.is_reference:
            assert tie.left_property is not None
            edge = state.atoms()
            mine = state.has(edge, tie.left_property)
            if tie.left == branch.parent:
                edge = look_up(edge, edge.c.resource_id == parent, mine, edge.c.target_id.is_not(None))
                self.bind(child, edge.c.target_id)
            else:
                edge = look_up(edge, edge.c.target_id == parent, mine)
                self.bind(child, edge.c.resource_id)
            return [edge]
        if tie is not None and tie.left_property is not None and tie.right_property is not None:
            outward = tie.left == branch.parent
            near_property, far_property = (
                (tie.left_property, tie.right_property) if outward else (tie.right_property, tie.left_property)
            )
            near, far = state.atoms(), state.atoms()
            near = look_up(near, near.c.resource_id == parent, state.has(near, near_property))
            one, other = (near, far) if outward else (far, near)
            far = look_up(far, state.has(far, far_property), *self.equal(one, other, tie))
            self.bind(child, far.c.resource_id)
            return [near, far]
        table, conditions = self.extent(child)
        found = look_up(table, *conditions, *([self.tie(tie)] if tie is not None else []))
        self.bind(child, found.c.id if "id" in found.c else found.c.resource_id)
        return [found]

    def extent(self, node: int) -> tuple[FromClause, list[Condition]]:
        """Bind a node to all instances of its first class. Return the table and its conditions."""
        class_iri = self._pattern.nodes[node][0]
        if class_iri == RDFS_RESOURCE:
            everything = self._state.resources.alias(f"r{next(self._state.numbers)}")
            self.bind(node, everything.c.id)
            atom = self._state.atoms()
            return everything, [self._state.exists_row([atom], [atom.c.resource_id == everything.c.id])]
        atom = self._state.atoms()
        self.bind(node, atom.c.resource_id)
        return atom, [
            _among(atom.c.property_id, self._state.names.types),
            _among(atom.c.target_id, self._state.names.classes[class_iri]),
        ]

    def branch(self, child: int) -> Condition:
        """Return the condition that a resource for a child exists."""
        if not self._state.dialect.flat_branches:
            return exists_row(self.step(child), self.of_node(child))
        # At a node with several children, the join continues with the largest subtree.
        sources: list[FromClause] = []
        conditions: list[Condition] = []
        node: int | None = child
        while node is not None:
            sources += self.step(node, self._state.look_up(conditions))
            onward = self._pattern.children[node] if len(sources) < MAX_JOINED_TABLES else ()
            further = max(onward, key=self._size, default=None)
            conditions += self.of_node(node, without_child=further)
            node = further
        return self._state.exists_row(sources, conditions)

    def _size(self, node: int) -> int:
        return 1 + sum(map(self._size, self._pattern.children[node]))


def matches(state: StatementView, pattern: Pattern, constants: Sequence[Expression], driver: int | None) -> Select[Any]:
    """Select the ids of all resources that the pattern with these constants registers.

    The path to the driving predicate, the most selective one, is a plain join, so that the planner can start there.
    """
    conditions = Conditions(state, pattern, constants)
    table, where = conditions.extent(0)
    sources: list[FromClause] = [table]

    path: Sequence[int] = (0,)
    skipped = None
    if driver is not None and pattern.leaves[driver].property is not None:
        leaf = pattern.leaves[driver]
        path, skipped = pattern.path(leaf.node), driver
        for node in path[1:]:
            sources += conditions.step(node, plain_join(where))
        atom = state.atoms()
        sources.append(atom)
        where += [
            atom.c.resource_id == conditions.at(leaf.node),
            state.has(atom, leaf.property or ""),
            state.finds(atom, leaf, constants[driver]),
        ]
    where += conditions.of_path(path, skipped)
    return select(conditions.at(0).label("resource_id")).select_from(*sources).where(*where).distinct()


def recheck(
    now: StatementView, since: StatementView, pattern: Pattern, alternatives: Sequence[Sequence[Expression]]
) -> Select[Any]:
    """Select the resources at the root that some changes can affect, and whether each matches now.

    Parameters: `node0`, `node1` …, the changed resources at each node. `since` are the current statements and those
    deleted since. A resource matches if it matches with any of the alternative lists of constants.
    """
    roots = affected_roots(now, since, pattern)
    matches_some = []
    for constants in alternatives:
        conditions = Conditions(now, pattern, constants)
        conditions.bind(0, roots.c.id)
        matches_some.append(and_(*conditions.of_node(0)))
    return select(roots.c.id, or_(*matches_some)).select_from(roots)


@dataclass(frozen=True)
class RuleTables:
    """The tables by which the rules of a group are found."""

    end_rules: Table
    by_operator: Mapping[Operator, Table]


@dataclass(frozen=True)
class Group:
    """A rule group for evaluation."""

    group_id: int
    pattern: Pattern
    driver: int | None
    predicates: Sequence[int]
    """The predicate id of each leaf."""


def filter_group(
    now: StatementView, before: StatementView, either: StatementView, tables: RuleTables, group: Group
) -> Select[Any]:
    """Select the changed matches of the rules of a group: rule, resource, and whether it matches now or did before.

    Parameters: `node0`, `node1` …, the changed resources at each node; `known`, the last resource id before the
    transaction; `first_rule`, the first end rule to evaluate.
    """
    roots = affected_roots(now, either, group.pattern)
    after = evaluate_group(now, tables, group, roots).cte("after")
    previously = evaluate_group(before, tables, group, roots, roots.c.id <= bindparam("known", type_=BigInteger)).cte(
        "ago"
    )
    gained = except_rows(after, previously).subquery("gained")
    lost = except_rows(previously, after).subquery("lost")
    return union_all(  # type: ignore[return-value]
        select(gained.c.rule_id, gained.c.resource_id, true().label("matched")),
        select(lost.c.rule_id, lost.c.resource_id, false().label("matched")),
    )


def except_rows(some: FromClause, others: FromClause) -> CompoundSelect[Any]:
    """Select the rows of `some` that are not in `others`.

    Candidates that still match are not lost, and earlier matches are not new (3.5, second pass).
    """
    return select(some).except_(select(others))


def filter_range(
    now: StatementView, before: StatementView, either: StatementView, tables: RuleTables, group: Group
) -> Select[Any]:
    """Select the value bounds before and after, and whether a rule has new matches. For groups that match ranges.

    Only resources whose changed bounds affect at least one rule are selected. Parameters as for `filter_group`.
    """
    (leaf,) = group.pattern.leaves
    roots = affected_roots(now, either, group.pattern)
    after = value_bounds(now, group.pattern, roots).cte("after")
    previously = value_bounds(before, group.pattern, roots, roots.c.id <= bindparam("known", type_=BigInteger)).cte(
        "ago"
    )
    is_text = leaf.sort in (Sort.TEXT, Sort.REFERENCE)
    missing = cast(null(), Text if is_text else Numeric)
    # Combined by GROUP BY: a full join could scan one table for each row of the other.
    both = union_all(
        select(
            previously.c.id,
            previously.c.low.label("b"),
            previously.c.high.label("c"),
            missing.label("d"),
            missing.label("e"),
        ),
        select(after.c.id, missing, missing, after.c.low, after.c.high),
    ).subquery("both")
    changed = (
        select(both.c.id, *(func.max(both.c[name]).label(name) for name in "bcde"))
        .group_by(both.c.id)
        .subquery("changed")
    )
    first_rule = cast(bindparam("first_rule", type_=BigInteger), BigInteger)
    ends = [changed.c[name] for name in "bcde"]
    nothing = [null()] * 4
    numbers, texts = (nothing, ends) if is_text else (ends, nothing)
    rules = tables.by_operator[leaf.operator].alias("rules")
    mine = rules.c.predicate_id == literal_number(group.predicates[0])
    crossed, gains = _bounds_changes(
        leaf.operator, _constant(rules, leaf), ends, lambda how: exists_row([rules], [mine, how])
    )
    differs = ends[0].is_distinct_from(ends[2]) | ends[1].is_distinct_from(ends[3])
    return (
        select(literal_number(group.group_id), changed.c.id, first_rule, null(), gains, *numbers, *texts)
        .select_from(changed)
        .where(differs, crossed)
    )


def _bounds_changes(
    operator: Operator, constant: Expression, ends: Sequence[Expression], some: Callable[[Condition], Condition]
) -> tuple[Condition, Condition]:
    """Return the conditions that the changed bounds affect a constant, and that a rule has new matches."""
    low_before, high_before, low_after, high_after = ends
    if operator is Operator.NE:
        came_or_went = low_before.is_(None) | low_after.is_(None)
        other = (constant != func.coalesce(low_after, low_before)) | (low_after != high_after)
        freed = and_(low_before == high_before, some(constant == low_before))
        taken = and_(low_before.is_not(None), some(constant == low_after))
        crossed = or_(and_(came_or_went, some(other | (low_before != high_before))), freed, taken)
        return crossed, and_(
            low_after.is_not(None), and_(low_before.is_(None), some(other)) | func.coalesce(freed, false())
        )
    upward = operator in (Operator.GT, Operator.GE)
    was, is_now = (high_before, high_after) if upward else (low_before, low_after)
    near, far = (func.least, func.greatest) if upward else (func.greatest, func.least)
    beyond = operator.negated
    between = and_(
        # The bound is on the left and the constant on the right, as in the predicate.
        compare(far(was, is_now), operator, constant),
        or_(was.is_(None), is_now.is_(None), compare(near(was, is_now), beyond, constant)),
    )
    gains = and_(is_now.is_not(None), or_(was.is_(None), is_now > was if upward else is_now < was))
    return some(between), gains


def all_matches(now: StatementView, tables: RuleTables, group: Group) -> Select[Any]:
    """Select the rules of a group with the resources of `:roots` that they register."""
    return evaluate_group(now, tables, group, _ids_parameter("roots"), first_rule=None)


def all_value_bounds(now: StatementView, pattern: Pattern) -> Select[Any]:
    """Select for each of `:roots` the minimum and maximum of the values that are compared with the only constant."""
    return value_bounds(now, pattern, _ids_parameter("roots"))


def _ids_parameter(name: str) -> FromClause:
    """Return the ids of an array parameter as a table."""
    numbers = func.unnest(bindparam(name, type_=ARRAY(BigInteger))).table_valued("id", name=f"given_{name}")
    return numbers.render_derived()


def affected_roots(now: StatementView, either: StatementView, pattern: Pattern) -> FromClause:
    """Return the resources at the root that a change can affect.

    They are found from the changed resources (`:node0`, `:node1` …) up to the root, over the current statements. If one
    of these statements had changed too, its resource would itself be given as a change nearer to the root.
    """
    sets: dict[int, FromClause] = {}
    for node in reversed(range(len(pattern.nodes))):
        parts: list[Select[Any]] = [select(_ids_parameter(f"node{node}").c.id)]
        parts += [_upward(now, either, pattern, child, sets[child]) for child in pattern.children[node]]
        sets[node] = (union(*parts) if len(parts) > 1 else parts[0].distinct()).cte(f"at{node}")
    return sets[0]


def _upward(
    now: StatementView, either: StatementView, pattern: Pattern, child: int, at_child: FromClause
) -> Select[Any]:
    """Select the resources of the parent that the changed resources at a child can affect."""
    branch = pattern.branches[child]
    assert branch is not None
    tie = branch.tie
    if tie is not None and tie.is_reference:
        assert tie.left_property is not None
        edge = now.atoms()
        mine = now.has(edge, tie.left_property)
        if tie.left == branch.parent:
            edge = probe(edge, edge.c.target_id == at_child.c.id, mine)
            return select(edge.c.resource_id.label("id")).select_from(at_child.join(edge, true()))
        edge = probe(edge, edge.c.resource_id == at_child.c.id, mine, edge.c.target_id.is_not(None))
        return select(edge.c.target_id.label("id")).select_from(at_child.join(edge, true()))
    if tie is not None and tie.is_bounded and tie.right_property is not None and tie.left_property is not None:
        # The child's value may have changed: its old value leads to the resources that were affected.
        outward = tie.left == branch.parent
        here_property, there_property = (
            (tie.right_property, tie.left_property) if outward else (tie.left_property, tie.right_property)
        )
        here, there = either.atoms(), now.atoms()
        here = probe(here, here.c.resource_id == at_child.c.id, either.has(here, here_property))
        one, other = (there, here) if outward else (here, there)
        there = probe(there, now.has(there, there_property), *Conditions(now, pattern, ()).equal(one, other, tie))
        joined = at_child.join(here, true()).join(there, true())
        return select(there.c.resource_id.label("id")).select_from(joined)
    extent = Conditions(now, pattern, ())
    table, where = extent.extent(branch.parent)
    found = extent.at(branch.parent).label("id")
    return select(found).select_from(table).where(*where, exists_row([at_child], []))


def evaluate_group(
    state: StatementView,
    tables: RuleTables,
    group: Group,
    roots: FromClause,
    *only: Condition,
    first_rule: str | None = "first_rule",
) -> Select[Any]:
    """Select the rules of a group with the resources of `roots` that they register."""
    rule: FromClause = tables.end_rules.alias("rule")
    pattern = group.pattern
    constants: list[Expression | None] = [None] * len(pattern.leaves)
    conditions = Conditions(state, pattern, constants)
    conditions.bind(0, roots.c.id)
    mine = rule.c.group_id == literal_number(group.group_id)
    filters = [] if first_rule is None else [rule.c.rule_id >= bindparam(first_rule, type_=BigInteger)]
    if group.driver is None:
        rule = probe(rule, mine, *filters)
        return (
            select(rule.c.rule_id.label("rule_id"), roots.c.id.label("resource_id"))
            .select_from(roots.join(rule, true()))
            .where(*conditions.of_node(0), *only)
            .distinct()
        )
    leaf = pattern.leaves[group.driver]
    path = pattern.path(leaf.node)
    source, driver = find_rules(
        state, tables, group, group.driver, _join_path(path, conditions, roots), conditions.at(leaf.node)
    )
    rule = probe(rule, rule.c.driver_id == driver.c.rule_id, mine, *filters)
    where = [*only, *(c for node, child in _with_next(path) for c in conditions.fixed(node, child))]
    nodes = [conditions.at(node).label(f"node{node}") for node in path]
    if len(pattern.leaves) == 1:
        found = select(rule.c.rule_id.label("rule_id"), roots.c.id.label("resource_id"))
        return found.select_from(source.join(rule, true())).where(*where).distinct()
    # Many values can lead to one rule. The conditions of its other constants are evaluated once for each binding of
    # the path.
    bindings = select(*nodes, rule.c.rule_id, rule.c.leaves).select_from(source.join(rule, true())).where(*where)
    here: FromClause = bindings.distinct().subquery("places")
    source = here
    for index, other in enumerate(pattern.leaves):
        if index != group.driver:
            table: FromClause = tables.by_operator[other.operator].alias(f"leaf{index}")
            table = probe(table, table.c.rule_id == here.c.leaves[literal_number(index + 1)])
            source = source.join(table, true())
            constants[index] = _constant(table, other)
    return _evaluate_constants(conditions, path, group.driver, source, here, constants)


def _evaluate_constants(
    conditions: Conditions,
    path: Sequence[int],
    driver: int,
    source: FromClause,
    here: FromClause,
    constants: list[Expression | None],
) -> Select[Any]:
    """Evaluate the conditions that depend on constants, from the end of the path to the root.

    Many nodes can lead to one that is nearer to the root. Its conditions are evaluated once for each rule.
    """
    for place, (node, child) in reversed(list(enumerate(_with_next(path)))):
        for bound in path[: place + 1]:
            conditions.bind(bound, here.c[f"node{bound}"])
        where = conditions.by_constants(node, driver, child)
        if place == 0:
            break
        if where:
            nearer = [here.c[f"node{above}"] for above in path[:place]]
            kept = {index: constant for index, constant in enumerate(constants) if constant is not None}
            given = [constant.label(f"constant{index}") for index, constant in kept.items()]
            left = select(*nearer, here.c.rule_id, *given).select_from(source).where(*where).distinct()
            source = here = left.subquery(f"up_to{path[place - 1]}")
            for index in kept:
                constants[index] = here.c[f"constant{index}"]
    found = select(here.c.rule_id.label("rule_id"), here.c.node0.label("resource_id")).select_from(source)
    found = found.where(*where)
    return found if len(path) == 1 else found.distinct()


def _with_next(path: Sequence[int]) -> list[tuple[int, int | None]]:
    """Return the nodes of a path, each with the next one."""
    return list(zip(path, [*path[1:], None], strict=True))


def fan_out(
    state: StatementView, tables: RuleTables, atomic_rules: Table, group: Group, index: int, most: int
) -> Select[Any]:
    """Select the number of rules that a leaf would find for the resources of `:sample` together, up to `most`."""
    sample = _ids_parameter("sample")
    source, found = find_rules(state, tables, group, index, sample, sample.c.id)
    used = probe(atomic_rules, atomic_rules.c.rule_id == found.c.rule_id)
    uses = select(used.c.uses).select_from(source.join(used, true())).limit(literal_column(str(most))).subquery("used")
    return select(func.coalesce(func.sum(uses.c.uses), 0))


def value_bounds(state: StatementView, pattern: Pattern, roots: FromClause, *only: Condition) -> Select[Any]:
    """Select for each of `roots` the minimum and maximum of the values that are compared with the only constant."""
    (leaf,) = pattern.leaves
    conditions = Conditions(state, pattern, [None])
    conditions.bind(0, roots.c.id)
    path = pattern.path(leaf.node)
    source = _join_path(path, conditions, roots)
    node = conditions.at(leaf.node)
    if leaf.property is None:
        value = state.uri(node)
    else:
        atom = state.atoms()
        atom = probe(atom, atom.c.resource_id == node, state.has(atom, leaf.property))
        source = source.join(atom, true())
        if leaf.sort is Sort.TEXT:
            value = state.text(atom, leaf.property)
        elif leaf.sort is Sort.REFERENCE:
            value = state.uri(atom.c.target_id)
        else:
            value = typed_column(atom, leaf.sort)
    return (
        select(roots.c.id, func.min(value).label("low"), func.max(value).label("high"))
        .select_from(source)
        .where(*conditions.of_path(path, 0), *only)
        .group_by(roots.c.id)
    )


def _join_path(path: Sequence[int], conditions: Conditions, source: FromClause) -> FromClause:
    """Join the tables of a path from the root."""
    for node in path[1:]:
        for table in conditions.step(node):
            source = source.join(table, true())
    return source


def _constant(table: FromClause, leaf: Leaf) -> Expression:
    return table.c.value if leaf.sort in (Sort.TEXT, Sort.REFERENCE) else table.c.number


def find_rules(
    state: StatementView, tables: RuleTables, group: Group, index: int, source: FromClause, node: Expression
) -> tuple[FromClause, FromClause]:
    """Join a resource with the triggering rules of a leaf that one of its values satisfies.

    Return the joined source and the table of the rules.
    """
    leaf = group.pattern.leaves[index]
    rules = tables.by_operator[leaf.operator].alias("driver")
    mine = rules.c.predicate_id == literal_number(group.predicates[index])
    uri = state.resources.alias("driver_uri")
    if leaf.property is None:
        named = probe(uri, uri.c.id == node)
        found = _probe_text(state, rules, mine, leaf, named.c.uri)
        return source.join(named, true()).join(found, true()), found
    atom = state.atoms()
    atom = probe(atom, atom.c.resource_id == node, state.has(atom, leaf.property))
    source = source.join(atom, true())
    if leaf.sort not in (Sort.TEXT, Sort.REFERENCE):
        found = probe(rules, mine, compare(typed_column(atom, leaf.sort), leaf.operator, rules.c.number))
        return source.join(found, true()), found
    text: Expression = atom.c.value
    if leaf.sort is Sort.REFERENCE:
        named = probe(uri, uri.c.id == atom.c.target_id)
        source, text = source.join(named, true()), named.c.uri
    elif leaf.property not in state.names.literal_only:
        named = probe(uri, uri.c.id == atom.c.target_id)
        source, text = source.outerjoin(named, true()), func.coalesce(atom.c.value, named.c.uri)
    found = _probe_text(state, rules, mine, leaf, text)
    return source.join(found, true()), found


KEY_CHARACTERS = 200
"""The indexes of constants contain up to this many characters of a text."""
LONG_TEXT_CHARACTERS = 4000
MAX_SCANNED_CONSTANTS = 1000
"""A longer text is not split into grams if there are no more constants than this. Then every constant is searched in
it."""


def _probe_text(state: StatementView, rules: FromClause, mine: Condition, leaf: Leaf, text: Expression) -> FromClause:
    """Return the triggering rules whose predicate a text satisfies."""
    holds = compare(text, leaf.operator, rules.c.value)
    match leaf.operator.lookup:
        case Lookup.EQUAL:
            same_key = text_prefix(rules.c.value, KEY_CHARACTERS) == text_prefix(text, KEY_CHARACTERS)
            return probe(rules, mine, same_key, holds)
        case Lookup.PREFIX:
            return _probe_keys(state, rules, mine, text, func.left, holds)
        case Lookup.SUFFIX:
            return _probe_keys(state, rules, mine, text, func.right, holds)
        case Lookup.GRAM:
            return _probe_grams(rules, mine, text, holds)
    return probe(rules, mine, holds)


def _probe_keys(
    state: StatementView,
    rules: FromClause,
    mine: Condition,
    text: Expression,
    end_of: Callable[..., Expression],
    holds: Condition,
) -> FromClause:
    """Return the triggering rules whose constants begin or end a text. `end_of` is the function `left` or `right`.

    The keys of the text are looked up, one for each length of a key among the constants. The cost does not depend on
    the number of constants.
    """
    most = literal_number(KEY_CHARACTERS)
    # Long texts are decompressed once.
    end = select(end_of(text, most).label("key")).offset(literal_column("0")).correlate_except(rules).lateral()
    lengths = _key_lengths(state, rules, mine, end_of)
    keys = select(end_of(end.c.key, lengths.c.length)).where(lengths.c.length.is_not(None)).correlate(end)
    same_key = end_of(rules.c.value, most) == any_(func.array(keys.scalar_subquery()))
    found = select(*rules.c).select_from(end.join(rules, and_(mine, same_key))).where(holds)
    return found.offset(literal_column("0")).correlate_except(rules, end).lateral()


def _key_lengths(
    state: StatementView, rules: FromClause, mine: Condition, end_of: Callable[..., Expression]
) -> FromClause:
    """Return the distinct lengths of the keys of a predicate, and null. Each is found by an index look-up from the one
    before it, once for a statement."""
    length = func.length(end_of(rules.c.value, literal_number(KEY_CHARACTERS)))
    least = select(length).select_from(rules).where(mine).order_by(length).limit(literal_column("1"))
    lengths = select(least.scalar_subquery().label("length")).cte(f"lengths{next(state.numbers)}", recursive=True)
    next_length = least.where(length > lengths.c.length).correlate(lengths).scalar_subquery()
    return lengths.union_all(select(next_length).where(lengths.c.length.is_not(None)))


def _probe_grams(rules: FromClause, mine: Condition, text: Expression, contained: Condition) -> FromClause:
    """Return the triggering rules whose constants are part of a text: those whose gram is part of it, and those without
    a gram."""
    some: Select[Any] = (
        select(literal_column("1")).select_from(rules).where(mine).limit(literal_column(str(MAX_SCANNED_CONSTANTS + 1)))
    )
    few = select(func.count()).select_from(some.subquery()).scalar_subquery() <= literal_number(MAX_SCANNED_CONSTANTS)
    is_long = and_(func.length(text) > literal_number(LONG_TEXT_CHARACTERS), few)
    grams = func.mdv_grams(case((not_(is_long), text), else_=null()))
    by_gram = select(*rules.c).where(mine, rules.c.gram == func.any(grams), contained).correlate_except(rules)
    directly = select(*rules.c).where(mine, is_long, contained).correlate_except(rules)
    return union_all(by_gram, directly).offset(literal_column("0")).lateral()
