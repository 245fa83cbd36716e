"""Match: which resources of a batch can be what rules ask for, found in executors before the filter is asked.

A rule group asks something of the resource at each node of its pattern: predicates with constants. A resource that is
new with its transaction, and whose values satisfy no constant that any rule has at such a predicate, is part of no
match at that node: the filter need not be asked about it. What is found here are candidates, all that can match and
some more. Joins, the three passes, and whatever was known before stay with the filter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

from sqlalchemy import Connection

from mdv.db.graph import Graph, PredicateKey
from mdv.db.state import State
from mdv.db.store import TypedValue
from mdv.mdp.filter import Candidates
from mdv.mdp.register import Prepared
from mdv.model import Term
from mdv.rdf.schema import Schema
from mdv.rules.ast import Operator
from mdv.rules.normal import Sort
from mdv.rules.pattern import Pattern

MOST_CONSTANTS = 1_000_000
"""Every process of an executor holds all of them: with more, the filter does it alone."""
CROWD = 100
LONG = 10_000
"""Where more constants have the same gram, or in a text of more characters, none is tried: it is a candidate."""

Value = Decimal | str
Pair = tuple[int, str]
"""A predicate, and the URI of a resource that satisfies it for some rule."""


class Condition(Protocol):
    """Whether a value satisfies a predicate for some of its constants."""

    def holds(self, value: Value) -> bool: ...


@dataclass(frozen=True, slots=True)
class OneOf:
    constants: frozenset[Value]

    def holds(self, value: Value) -> bool:
        return value in self.constants


@dataclass(frozen=True, slots=True)
class Beyond:
    """Compared by order or by !=: the least and the greatest constant tell. They are of one type with the value."""

    operator: Operator
    least: Value
    greatest: Value

    def holds(self, value: Value) -> bool:
        low, high = self.least, self.greatest
        match self.operator:
            case Operator.LT:
                return value < high  # type: ignore[operator]
            case Operator.LE:
                return value <= high  # type: ignore[operator]
            case Operator.GT:
                return value > low  # type: ignore[operator]
            case Operator.GE:
                return value >= low  # type: ignore[operator]
        return value != low or low != high


@dataclass(frozen=True, slots=True)
class Containing:
    """Constants by the gram that the database chose for each; one that is too short for that is its own."""

    by_gram: Mapping[str, Sequence[str]]
    sizes: frozenset[int]

    def holds(self, value: Value) -> bool:
        """
        >>> some = Containing({"passau": ("uni-passau",), "de": ("de",)}, frozenset({6, 2}))
        >>> some.holds("db.uni-passau"), some.holds("passau"), some.holds("wide")
        (True, False, True)
        """
        text, by_gram = str(value), self.by_gram
        if len(text) > LONG:
            return True
        for size in self.sizes:
            for gram in {text[at : at + size] for at in range(len(text) - size + 1)} & by_gram.keys():
                found = by_gram[gram]
                if len(found) > CROWD or any(constant in text for constant in found):
                    return True
        return False


class Anything:
    """`not contains`: almost every text satisfies it for some constant."""

    def holds(self, value: Value) -> bool:
        return True


class Asked(NamedTuple):
    """A predicate of the rules. `property` None: the URI of the resource itself is compared."""

    predicate: int
    property: str | None
    sort: Sort
    condition: Condition


@dataclass(frozen=True, slots=True)
class Constants:
    """What the rules ask, at one moment."""

    last_atomic_rule: int
    schema_version: int
    asked: tuple[Asked, ...]

    def candidates(self, pairs: Iterable[Pair]) -> Candidates:
        """What executors have found, as the filter wants it."""
        found: dict[int, set[str]] = {one.predicate: set() for one in self.asked}
        for predicate, uri in pairs:
            found[predicate].add(uri)
        return Candidates(self.last_atomic_rule, self.schema_version, found)


def read_constants(connection: Connection, state: State, most: int = MOST_CONSTANTS) -> Constants | None:
    """The predicates of all groups but those that match stretches of constants; None where there are too many.

    `state` was read before: of a rule that came between, its number tells.
    """
    graph = Graph(connection)
    patterns = [Pattern.from_json(group.pattern) for group in graph.read_groups()]
    numbers = graph.read_predicates()
    keys = {PredicateKey(*leaf[1:]) for pattern in patterns if not pattern.is_range for leaf in pattern.leaves}
    asked: list[Asked] = []
    for operator in Operator:
        mine = {numbers[key]: key for key in keys if key.operator is operator}
        conditions = _conditions(graph, operator, list(mine), most)
        if conditions is None:
            return None
        asked += (
            Asked(number, mine[number].property, mine[number].sort, condition) for number, condition in conditions
        )
    return Constants(state.last_atomic_rule, state.schema_version, tuple(asked))


def _conditions(
    graph: Graph, operator: Operator, predicates: list[int], most: int
) -> list[tuple[int, Condition]] | None:
    if not predicates:
        return []
    if operator is Operator.NOT_CONTAINS:
        return [(number, Anything()) for number in predicates]
    if operator not in (Operator.EQ, Operator.CONTAINS):
        return [(number, Beyond(operator, *ends)) for number, *ends in graph.read_ends(operator, predicates)]
    rows = graph.read_constants(operator, predicates, most + 1)
    if len(rows) > most:
        return None
    found: dict[int, dict[Any, list[Any]]] = {number: defaultdict(list) for number in predicates}
    for number, constant, gram in rows:
        found[number][gram or constant].append(constant)
    if operator is Operator.EQ:
        return [(number, OneOf(frozenset(constants))) for number, constants in found.items()]
    return [(number, Containing(dict(grams), frozenset(map(len, grams)))) for number, grams in found.items()]


class Matcher:
    """The constants against documents, under the schema that these were prepared with."""

    def __init__(self, constants: Constants, schema: Schema) -> None:
        self._by_property: dict[str, list[Asked]] = defaultdict(list)
        self._of_uris = [one for one in constants.asked if one.property is None]
        for one in constants.asked:
            if one.property is not None:
                declared = schema.property_of(one.property)
                for name in declared.subproperties if declared is not None else (one.property,):
                    self._by_property[name].append(one)

    def match(self, items: Iterable[Prepared]) -> set[Pair]:
        """The candidates among all that these documents speak of, or refer to."""
        found: set[Pair] = set()
        for item in items:
            found.update(self._by_uri(item))
            assert item.document is not None  # a batch deletes nothing
            for (subject, name, term), typed in zip(item.document.statements, item.typed, strict=True):
                for predicate, _, sort, condition in self._by_property.get(name, ()):
                    pair = predicate, subject
                    if pair not in found:
                        value = compared(term, typed, sort)
                        if value is not None and condition.holds(value):
                            found.add(pair)
        return found

    def _by_uri(self, item: Prepared) -> Iterator[Pair]:
        return ((one.predicate, uri) for one in self._of_uris for uri in item.uris if one.condition.holds(uri))


def compared(term: Term, typed: TypedValue, sort: Sort) -> Value | None:
    """What constants of a sort are compared with. The text of a reference is its URI."""
    number, instant, truth = typed
    match sort:
        case Sort.TEXT:
            return term.value
        case Sort.REFERENCE:
            return term.value if term.is_uri else None
        case Sort.NUMBER:
            return number
        case Sort.INSTANT:
            return instant
        case Sort.TRUTH:
            return None if truth is None else Decimal(truth)
