"""Compile: a pattern as SQL.

    matches      all that a pattern with given constants registers                       (queries, one rule)
    filter_rules which rules of a group came to match, or ceased to, around some changes (the filter)

Both are made of the same conditions. A node of the pattern is a resource; a predicate is an `exists` on its
statements; a branch of the tree is an `exists` on what it leads to. Only the path from the root to the leaf that finds
the rules (the driver) is a plain join.
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
    bindparam,
    case,
    cast,
    exists,
    false,
    func,
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
from mdv.rules.ast import Operator
from mdv.rules.normal import Constant, Sort
from mdv.rules.pattern import Leaf, Pattern, Tie

Condition = ColumnElement[bool]
Expression = ColumnElement[Any]
LookUp = Callable[..., FromClause]

MAX_JOINED = 60
"""SQLite joins 64 tables at most."""


@dataclass(frozen=True)
class Names:
    """The numbers of classes and properties, with all that is below them."""

    classes: Mapping[str, Sequence[int]]
    properties: Mapping[str, Sequence[int]]
    types: Sequence[int]
    literal_only: frozenset[str] = frozenset()
    """Properties whose values are literals: their range is a datatype."""


class Dialect:
    """What databases are told in different ways. This one speaks to an MDP."""

    pinned = True
    """Look-ups are `probe`s. Otherwise they are plain joins, which the database makes in the order in which they are
    written."""
    flat = False
    """A branch is asked for in one question as far as it goes, instead of in a question within a question for each
    step: some databases, and Python, take few of these."""

    def constant(self, constant: Constant, sort: Sort) -> Expression:
        """A constant as a value of the statement. A truth is compared as 1 or 0."""
        if isinstance(constant.value, str):
            return literal(constant.value, Text())
        return literal(Decimal(constant.value), Numeric())

    def typed(self, atom: FromClause, sort: Sort) -> Expression:
        return typed(atom, sort)

    def compare(self, left: Expression, operator: Operator, right: Expression) -> Condition:
        return compare(left, operator, right)

    def beginning(self, text: Expression) -> Expression:
        """How a value begins, as the index of values has it."""
        return beginning(text, 64)

    def is_text(self, value: Expression, constant: Expression) -> Condition:
        return and_(self.beginning(value) == self.beginning(constant), value == constant)

    def only_asked(self, conditions: Sequence[Condition]) -> Sequence[Condition]:
        """Conditions on rows that are found by other conditions: no index is to be used for them."""
        return conditions

    def join(self, source: FromClause, table: FromClause) -> FromClause:
        return source.join(table, true())


MDP = Dialect()


@dataclass
class State:
    """The statements at one moment: the present ones, or those before a transaction."""

    make: Callable[[], FromClause]
    resources: Table
    names: Names
    numbers: count[int] = field(default_factory=count)
    dialect: Dialect = MDP

    def atoms(self) -> FromClause:
        """The statements, once more."""
        return self.make().alias(f"f{next(self.numbers)}")

    def uri(self, number: Expression) -> Expression:
        """The URI of a resource."""
        r = self.resources.alias(f"r{next(self.numbers)}")
        return select(r.c.uri).where(r.c.id == number).correlate_except(r).scalar_subquery()

    def number(self, uri: Expression) -> Expression:
        """The number of a URI; null where nobody speaks of it."""
        r = self.resources.alias(f"r{next(self.numbers)}")
        return select(r.c.id).where(r.c.uri == uri).correlate_except(r).scalar_subquery()

    def has(self, atom: FromClause, property_iri: str) -> Condition:
        return _among(atom.c.property_id, self.names.properties[property_iri])

    def text(self, atom: FromClause, property_iri: str) -> Expression:
        """The text of a value, a reference's being its URI."""
        if property_iri in self.names.literal_only:
            return atom.c.value
        return func.coalesce(atom.c.value, self.uri(atom.c.target_id))

    def holds(self, atom: FromClause, leaf: Leaf, constant: Expression) -> Condition:
        """Whether the value of a statement compares with a constant as the predicate asks."""
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
        return compare(self.dialect.typed(atom, leaf.sort), leaf.operator, constant)

    def is_text(self, atom: FromClause, constant: Expression) -> Condition:
        """Whether a value is that literal; the index knows how texts begin."""
        return self.dialect.is_text(atom.c.value, constant)

    def of_classes(self, node: Expression, classes: Sequence[str], known: bool) -> list[Condition]:
        """That a resource is an instance of all these classes; `known`: something else says that it exists."""
        conditions: list[Condition] = []
        for class_iri in classes:
            atom = self.atoms()
            if class_iri == RDFS_RESOURCE:
                if not known:
                    conditions.append(self.there_is([atom], [atom.c.resource_id == node]))
                continue
            of_type = [
                atom.c.resource_id == node,
                _among(atom.c.property_id, self.names.types),
                _among(atom.c.target_id, self.names.classes[class_iri]),
            ]
            conditions.append(self.there_is([atom], of_type))
        return conditions

    def there_is(self, sources: Sequence[FromClause], conditions: Sequence[Condition]) -> Condition:
        """That these sources have a row for which the conditions hold."""
        if self.dialect.pinned:
            return there_is(sources, conditions)
        one: Select[Any] = select(literal_column("1")).select_from(reduce(self.dialect.join, sources))
        return exists(one.where(*conditions).correlate_except(*sources))

    def look_up(self, where: list[Condition]) -> LookUp:
        """How the rows of a table are looked up: what that leaves to be asked goes to `where`."""
        return probe if self.dialect.pinned else freely(where)


def there_is(sources: Sequence[FromClause], conditions: Sequence[Condition]) -> Condition:
    """That these sources have a row for which the conditions hold; all else in them comes from outside.

    The offset keeps it a question that is asked row by row: as a join, it might be begun from the wrong end.
    """
    one: Select[Any] = select(literal_column("1")).select_from(*sources).where(*conditions)
    return exists(one.offset(literal_column("0")).correlate_except(*sources))


def probe(table: FromClause, *conditions: Condition) -> FromClause:
    """The rows of a table for which the conditions hold, looked up for each row of what stands before it.

    Again the offset keeps it that way, whatever the planner knew of the tables when it made its plan.
    """
    rows: Select[Any] = select(*table.c).select_from(table).where(*conditions)
    return rows.offset(literal_column("0")).correlate_except(table).lateral()


def freely(where: list[Condition]) -> LookUp:
    """A look-up as a plain join: its conditions go to `where`."""

    def look_up(table: FromClause, *conditions: Condition) -> FromClause:
        where.extend(conditions)
        return table

    return look_up


def typed(atom: FromClause, sort: Sort) -> Expression:
    """The column that values of a sort are compared by."""
    if sort is Sort.NUMBER:
        return atom.c.number
    if sort is Sort.INSTANT:
        return atom.c.instant
    # A truth is kept as 1 or 0 beside numbers, so that constants need one column only.
    return cast(cast(atom.c.truth, Integer), Numeric)


def compare(left: Expression, operator: Operator, right: Expression) -> Condition:
    match operator:
        case Operator.EQ:
            return left == right
        case Operator.NE:
            return left != right
        case Operator.LT:
            return left < right
        case Operator.LE:
            return left <= right
        case Operator.GT:
            return left > right
        case Operator.GE:
            return left >= right
        case Operator.CONTAINS:
            return func.strpos(left, right) > 0
        case Operator.NOT_CONTAINS:
            return func.strpos(left, right) == 0


def _among(column: Expression, numbers: Sequence[int]) -> Condition:
    if not numbers:
        return false()
    if len(numbers) == 1:
        return column == literal_number(numbers[0])
    return column.in_([literal_number(number) for number in numbers])


def beginning(text: Expression, length: int) -> Expression:
    """How a text begins, written as the indexes have it."""
    return func.left(text, literal_column(str(length)))


def literal_number(number: int) -> Expression:
    """A number that stands in the statement itself: these never change while the statement lives."""
    return literal_column(str(int(number)))


def needs_proof(pattern: Pattern, node: int) -> bool:
    """Whether nothing but its existence is asked of a node: no class, and no predicate on a statement of its own."""
    if pattern.nodes[node] != (RDFS_RESOURCE,):
        return False
    if any(leaf.node == node and leaf.property is not None for leaf in pattern.leaves):
        return False
    ties = [*pattern.ties, *(b.tie for b in pattern.branches if b is not None and b.tie is not None)]
    return not any(at == node and name is not None for tie in ties for at, name in tie.accesses())


class Conditions:
    """The conditions of a pattern on one state, with the constants given as expressions by leaf."""

    def __init__(self, state: State, pattern: Pattern, constants: Sequence[Expression | None]) -> None:
        self._state = state
        self._pattern = pattern
        self._constants = constants
        self._bound: dict[int, Expression] = {}

    def bind(self, node: int, number: Expression) -> None:
        self._bound[node] = number

    def at(self, node: int) -> Expression:
        return self._bound[node]

    def of_node(self, node: int, without_leaf: int | None = None, without_child: int | None = None) -> list[Condition]:
        """Everything that is asked of a bound node: its classes, predicates, ties to ancestors, and what hangs on
        it."""
        number, pattern = self._bound[node], self._pattern
        conditions: list[Condition] = self._state.of_classes(
            number, pattern.nodes[node], known=not needs_proof(pattern, node)
        )
        for index, leaf in enumerate(pattern.leaves):
            if leaf.node == node and index != without_leaf:
                constant = self._constants[index]
                assert constant is not None
                conditions.append(self.leaf(leaf, constant))
        conditions += [self.tie(tie) for tie in pattern.ties if max(tie.left, tie.right) == node]
        conditions += [self.branch(child) for child in pattern.children[node] if child != without_child]
        return conditions

    def of_path(self, path: Sequence[int], without_leaf: int | None) -> list[Condition]:
        """Everything that is asked of the nodes of a path from the root, the steps along it aside."""
        following = [*path[1:], None]
        return [
            condition
            for node, child in zip(path, following, strict=True)
            for condition in self.of_node(node, without_leaf, child)
        ]

    def leaf(self, leaf: Leaf, constant: Expression) -> Condition:
        number = self._bound[leaf.node]
        if leaf.property is None:
            if leaf.operator is Operator.EQ:
                return number == self._state.number(constant)
            return self._state.dialect.compare(self._state.uri(number), leaf.operator, constant)
        atom, mine = self._values(number, leaf.property)
        asked = self._state.dialect.only_asked([self._state.holds(atom, leaf, constant)])
        return self._state.there_is([atom], [*mine, *asked])

    def tie(self, tie: Tie) -> Condition:
        """A predicate between two bound nodes."""
        left, right = self._bound[tie.left], self._bound[tie.right]
        if tie.left_property is None:
            return compare(left, tie.operator, right)
        state = self._state
        one, mine = self._values(left, tie.left_property)
        if tie.right_property is None:
            refers = [one.c.target_id.is_not(None), compare(one.c.target_id, tie.operator, right)]
            return state.there_is([one], [*mine, *state.dialect.only_asked(refers)])
        other, its = self._values(right, tie.right_property)
        equal = state.dialect.only_asked(self.equal(one, other, tie))
        return state.there_is([one], [*mine, state.there_is([other], [*its, *equal])])

    def _values(self, node: Expression, property_iri: str) -> tuple[FromClause, list[Condition]]:
        """The statements of a resource with a property, found by the resource, never by the value; and what is left to
        be asked of them."""
        atom, left = self._state.atoms(), list[Condition]()
        look_up = self._state.look_up(left)
        return look_up(atom, atom.c.resource_id == node, self._state.has(atom, property_iri)), left

    def equal(self, one: FromClause, other: FromClause, tie: Tie) -> list[Condition]:
        """How the values of two statements compare."""
        assert tie.left_property is not None and tie.right_property is not None
        if tie.sort is Sort.REFERENCE:
            return [one.c.target_id.is_not(None), compare(one.c.target_id, tie.operator, other.c.target_id)]
        dialect = self._state.dialect
        if tie.sort is not Sort.TEXT:
            return [compare(dialect.typed(one, tie.sort), tie.operator, dialect.typed(other, tie.sort))]
        if tie.operator is Operator.EQ and {tie.left_property, tie.right_property} <= self._state.names.literal_only:
            return [
                dialect.beginning(one.c.value) == dialect.beginning(other.c.value),
                one.c.value == other.c.value,
            ]
        return [
            compare(self._state.text(one, tie.left_property), tie.operator, self._state.text(other, tie.right_property))
        ]

    def step(self, child: int, look_up: LookUp = probe) -> list[FromClause]:
        """From a bound parent to a child, which is bound by it: what to join, each looked up for what is before it."""
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
        """Every instance of a node's first class: the node is bound to one after the other."""
        class_iri = self._pattern.nodes[node][0]
        if class_iri == RDFS_RESOURCE:
            everything = self._state.resources.alias(f"r{next(self._state.numbers)}")
            self.bind(node, everything.c.id)
            atom = self._state.atoms()
            return everything, [self._state.there_is([atom], [atom.c.resource_id == everything.c.id])]
        atom = self._state.atoms()
        self.bind(node, atom.c.resource_id)
        return atom, [
            _among(atom.c.property_id, self._state.names.types),
            _among(atom.c.target_id, self._state.names.classes[class_iri]),
        ]

    def branch(self, child: int) -> Condition:
        """That there is something that can stand for a child."""
        if not self._state.dialect.flat:
            return there_is(self.step(child), self.of_node(child))
        # Where it divides, on with the larger part.
        sources: list[FromClause] = []
        asked: list[Condition] = []
        node: int | None = child
        while node is not None:
            sources += self.step(node, self._state.look_up(asked))
            onward = self._pattern.children[node] if len(sources) < MAX_JOINED else ()
            further = max(onward, key=self._size, default=None)
            asked += self.of_node(node, without_child=further)
            node = further
        return self._state.there_is(sources, asked)

    def _size(self, node: int) -> int:
        return 1 + sum(map(self._size, self._pattern.children[node]))


def matches(state: State, pattern: Pattern, constants: Sequence[Expression], driver: int | None) -> Select[Any]:
    """Select the numbers of all resources that the pattern with these constants registers.

    The path to the driver, the most selective predicate, is a plain join, so that the planner may begin there.
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
            sources += conditions.step(node, freely(where))
        atom = state.atoms()
        sources.append(atom)
        where += [
            atom.c.resource_id == conditions.at(leaf.node),
            state.has(atom, leaf.property or ""),
            state.holds(atom, leaf, constants[driver]),
        ]
    where += conditions.of_path(path, skipped)
    return select(conditions.at(0).label("resource_id")).select_from(*sources).where(*where).distinct()


@dataclass(frozen=True)
class RuleTables:
    """The tables that rules of a group are found by."""

    end_rules: Table
    by_operator: Mapping[Operator, Table]


@dataclass(frozen=True)
class Group:
    """A whole group, as it is evaluated."""

    group_id: int
    pattern: Pattern
    driver: int | None
    predicates: Sequence[int]
    """The predicate of each leaf, by number."""


def filter_group(now: State, before: State, either: State, tables: RuleTables, group: Group) -> Select[Any]:
    """Select what changed for the rules of a group: rule, resource, and whether it matches now or did before.

    Parameters: `node0`, `node1` …, the resources that changed at each node; `known`, the last number that was given
    out before; `first_rule`, the first of the end rules that are asked.
    """
    roots = affected(now, either, group.pattern)
    after = evaluated(now, tables, group, roots).cte("after")
    ago = evaluated(before, tables, group, roots, roots.c.id <= bindparam("known", type_=BigInteger)).cte("ago")
    gained = without(after, ago).subquery("gained")
    lost = without(ago, after).subquery("lost")
    return union_all(  # type: ignore[return-value]
        select(gained.c.rule_id, gained.c.resource_id, true().label("matched")),
        select(lost.c.rule_id, lost.c.resource_id, false().label("matched")),
    )


def without(some: FromClause, others: FromClause) -> CompoundSelect[Any]:
    """Candidates that still match are not lost, and matches that were there are not new (3.5, second pass)."""
    return select(some).except_(select(others))


def filter_range(now: State, before: State, either: State, tables: RuleTables, group: Group) -> Select[Any]:
    """Select, for a group whose rules match stretches of constants, how far the values reached and reach, where that
    made a difference to some rule; and whether some rule came to match.

    Parameters as for `filter_group`.
    """
    (leaf,) = group.pattern.leaves
    roots = affected(now, either, group.pattern)
    after = reached(now, group.pattern, roots).cte("after")
    ago = reached(before, group.pattern, roots, roots.c.id <= bindparam("known", type_=BigInteger)).cte("ago")
    is_text = leaf.sort in (Sort.TEXT, Sort.REFERENCE)
    missing = cast(null(), Text if is_text else Numeric)
    # Put together by grouping: a join would look through one for each row of the other.
    both = union_all(
        select(ago.c.id, ago.c.low.label("b"), ago.c.high.label("c"), missing.label("d"), missing.label("e")),
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
    crossed, gains = _crossed(leaf.operator, _constant(rules, leaf), ends, lambda how: there_is([rules], [mine, how]))
    differs = ends[0].is_distinct_from(ends[2]) | ends[1].is_distinct_from(ends[3])
    return (
        select(literal_number(group.group_id), changed.c.id, first_rule, null(), gains, *numbers, *texts)
        .select_from(changed)
        .where(differs, crossed)
    )


def _crossed(
    operator: Operator, constant: Expression, ends: Sequence[Expression], some: Callable[[Condition], Condition]
) -> tuple[Condition, Condition]:
    """Whether some constant lies where it made a difference that the values reach otherwise, and whether some rule came
    to match by that."""
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
        # The constant is compared with the value from the other side.
        compare(far(was, is_now), operator, constant),
        or_(was.is_(None), is_now.is_(None), compare(near(was, is_now), beyond, constant)),
    )
    gains = and_(is_now.is_not(None), or_(was.is_(None), is_now > was if upward else is_now < was))
    return some(between), gains


def all_matches(now: State, tables: RuleTables, group: Group) -> Select[Any]:
    """Select the rules of a group with what they register, among the resources of `:roots`."""
    return evaluated(now, tables, group, _given("roots"), first_rule=None)


def all_reached(now: State, pattern: Pattern) -> Select[Any]:
    """Select the least and the greatest value that the one constant is compared with, for each of `:roots`."""
    return reached(now, pattern, _given("roots"))


def _given(name: str) -> FromClause:
    """The numbers that are handed over as an array."""
    numbers = func.unnest(bindparam(name, type_=ARRAY(BigInteger))).table_valued("id", name=f"given_{name}")
    return numbers.render_derived()


def affected(now: State, either: State, pattern: Pattern) -> FromClause:
    """The resources at the root that some change may concern: where it happened (`:node0`, `:node1` …), and from
    there up to the root over the statements as they are now. (Had one of those changed too, it would itself have been
    given as a change nearer to the root.)"""
    sets: dict[int, FromClause] = {}
    for node in reversed(range(len(pattern.nodes))):
        parts: list[Select[Any]] = [select(_given(f"node{node}").c.id)]
        parts += [_upward(now, either, pattern, child, sets[child]) for child in pattern.children[node]]
        sets[node] = (union(*parts) if len(parts) > 1 else parts[0].distinct()).cte(f"at{node}")
    return sets[0]


def _upward(now: State, either: State, pattern: Pattern, child: int, at_child: FromClause) -> Select[Any]:
    """From the changed resources at a child to those of its parent that they may concern."""
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
        # The child's value may have changed: what it was leads to those that it concerned.
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
    return select(found).select_from(table).where(*where, there_is([at_child], []))


def evaluated(
    state: State,
    tables: RuleTables,
    group: Group,
    roots: FromClause,
    *only: Condition,
    first_rule: str | None = "first_rule",
) -> Select[Any]:
    """Select the rules of a group with the resources that they register, among `roots`."""
    rule: FromClause = tables.end_rules.alias("rule")
    pattern = group.pattern
    constants: list[Expression | None] = [None] * len(pattern.leaves)
    conditions = Conditions(state, pattern, constants)
    conditions.bind(0, roots.c.id)
    mine = rule.c.group_id == literal_number(group.group_id)
    if group.driver is None:
        path: Sequence[int] = (0,)
        rule = probe(rule, mine)
        source: FromClause = roots.join(rule, true())
    else:
        leaf = pattern.leaves[group.driver]
        path = pattern.path(leaf.node)
        source = _along(path, conditions, roots)
        source, driver = find_rules(state, tables, group, group.driver, source, conditions.at(leaf.node))
        rule = probe(rule, rule.c.driver_id == driver.c.rule_id, mine)
        source = source.join(rule, true())
        constants[group.driver] = _constant(driver, leaf)
        for index, other in enumerate(pattern.leaves):
            if index != group.driver:
                table: FromClause = tables.by_operator[other.operator].alias(f"leaf{index}")
                table = probe(table, table.c.rule_id == rule.c.leaves[literal_number(index + 1)])
                source = source.join(table, true())
                constants[index] = _constant(table, other)
    where = conditions.of_path(path, group.driver)
    if first_rule is not None:
        where.append(rule.c.rule_id >= bindparam(first_rule, type_=BigInteger))
    return (
        select(rule.c.rule_id.label("rule_id"), roots.c.id.label("resource_id"))
        .select_from(source)
        .where(*where, *only)
        .distinct()
    )


def fan_out(state: State, tables: RuleTables, atomic_rules: Table, group: Group, index: int, most: int) -> Select[Any]:
    """Select how many rules a leaf would lead to, for the resources of `:sample` together, counting up to `most`."""
    sample = _given("sample")
    source, found = find_rules(state, tables, group, index, sample, sample.c.id)
    used = probe(atomic_rules, atomic_rules.c.rule_id == found.c.rule_id)
    uses = select(used.c.uses).select_from(source.join(used, true())).limit(literal_column(str(most))).subquery("used")
    return select(func.coalesce(func.sum(uses.c.uses), 0))


def reached(state: State, pattern: Pattern, roots: FromClause, *only: Condition) -> Select[Any]:
    """Select for each of `roots` the least and the greatest value that the one constant is compared with."""
    (leaf,) = pattern.leaves
    conditions = Conditions(state, pattern, [None])
    conditions.bind(0, roots.c.id)
    path = pattern.path(leaf.node)
    source = _along(path, conditions, roots)
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
            value = typed(atom, leaf.sort)
    return (
        select(roots.c.id, func.min(value).label("low"), func.max(value).label("high"))
        .select_from(source)
        .where(*conditions.of_path(path, 0), *only)
        .group_by(roots.c.id)
    )


def _along(path: Sequence[int], conditions: Conditions, source: FromClause) -> FromClause:
    """Join what lies on a path from the root."""
    for node in path[1:]:
        for table in conditions.step(node):
            source = source.join(table, true())
    return source


def _constant(table: FromClause, leaf: Leaf) -> Expression:
    return table.c.value if leaf.sort in (Sort.TEXT, Sort.REFERENCE) else table.c.number


def find_rules(
    state: State, tables: RuleTables, group: Group, index: int, source: FromClause, node: Expression
) -> tuple[FromClause, FromClause]:
    """From a resource to the triggering rules of a leaf that one of its values satisfies."""
    leaf = group.pattern.leaves[index]
    rules = tables.by_operator[leaf.operator].alias("driver")
    mine = rules.c.predicate_id == literal_number(group.predicates[index])
    uri = state.resources.alias("driver_uri")
    if leaf.property is None:
        named = probe(uri, uri.c.id == node)
        found = _probe_text(rules, mine, leaf, named.c.uri)
        return source.join(named, true()).join(found, true()), found
    atom = state.atoms()
    atom = probe(atom, atom.c.resource_id == node, state.has(atom, leaf.property))
    source = source.join(atom, true())
    if leaf.sort not in (Sort.TEXT, Sort.REFERENCE):
        found = probe(rules, mine, compare(typed(atom, leaf.sort), leaf.operator, rules.c.number))
        return source.join(found, true()), found
    text: Expression = atom.c.value
    if leaf.sort is Sort.REFERENCE:
        named = probe(uri, uri.c.id == atom.c.target_id)
        source, text = source.join(named, true()), named.c.uri
    elif leaf.property not in state.names.literal_only:
        named = probe(uri, uri.c.id == atom.c.target_id)
        source, text = source.outerjoin(named, true()), func.coalesce(atom.c.value, named.c.uri)
    found = _probe_text(rules, mine, leaf, text)
    return source.join(found, true()), found


LONG = 4000
FEW_CONSTANTS = 1000
"""Texts longer than this are not taken apart into grams where there are so few constants: each is looked for in it."""


def _probe_text(rules: FromClause, mine: Condition, leaf: Leaf, text: Expression) -> FromClause:
    """The triggering rules whose constant a text satisfies."""
    if leaf.operator is Operator.EQ:
        return probe(rules, mine, beginning(rules.c.value, 200) == beginning(text, 200), rules.c.value == text)
    if leaf.operator is not Operator.CONTAINS:
        return probe(rules, mine, compare(text, leaf.operator, rules.c.value))
    # A constant is tried where its gram is a part of the text, or where it has none.
    some: Select[Any] = (
        select(literal_column("1")).select_from(rules).where(mine).limit(literal_column(str(FEW_CONSTANTS + 1)))
    )
    few = select(func.count()).select_from(some.subquery()).scalar_subquery() <= literal_number(FEW_CONSTANTS)
    is_long = and_(func.length(text) > literal_number(LONG), few)
    grams = func.mdv_grams(case((not_(is_long), text), else_=null()))
    contained = func.strpos(text, rules.c.value) > literal_number(0)
    by_gram = select(*rules.c).where(mine, rules.c.gram == func.any(grams), contained).correlate_except(rules)
    directly = select(*rules.c).where(mine, is_long, contained).correlate_except(rules)
    return union_all(by_gram, directly).offset(literal_column("0")).lateral()
