"""Find the candidates among a batch's resources in executors, before the filter runs.

At each node of its pattern, a rule group compares the resource with constants. A new resource whose values satisfy none
of the constants at such a predicate is in no match at that node, so the filter need not look at it. The candidates
found here are all resources that can match, and some more. Joins, the three passes and everything about older resources
remain with the filter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

from sqlalchemy import Connection

from mdv.db.delta import TypedValue
from mdv.db.rule_graph import PredicateKey, RuleGraph
from mdv.db.state import State
from mdv.mdp.filter import Candidates
from mdv.mdp.register import Prepared
from mdv.model import Term
from mdv.rdf.schema import Schema
from mdv.rules.normal import Sort
from mdv.rules.operators import Lookup, Operator
from mdv.rules.pattern import Pattern

MAX_CONSTANTS = 1_000_000
"""Maximum number of constants. Every executor process holds all of them; with more, the filter works without
candidates."""
MAX_CONSTANTS_PER_GRAM = 100
MAX_CONTAINS_CHARS = 10_000
"""If more constants share a gram, or a text has more characters, constants are not compared: the resource is a
candidate."""

Value = Decimal | str
CandidatePair = tuple[int, str]
"""A predicate, and the URI of a resource that satisfies it for some rule."""


class ConstantCondition(Protocol):
    """Tells whether a value satisfies a predicate for some of its constants."""

    def holds(self, value: Value) -> bool: ...


@dataclass(frozen=True, slots=True)
class EqualsAny:
    constants: frozenset[Value]

    def holds(self, value: Value) -> bool:
        return value in self.constants


@dataclass(frozen=True, slots=True)
class ComparesWithAny:
    """A comparison by order or by `!=`. If it holds for some constant, it holds for the least or the greatest one. They
    have the type of the value."""

    operator: Operator
    least: Value
    greatest: Value

    def holds(self, value: Value) -> bool:
        holds = self.operator.holds
        return holds(value, self.least) or holds(value, self.greatest)


@dataclass(frozen=True, slots=True)
class ContainsAny:
    """Constants by the gram that the database chose for each. A constant that is too short for a gram is its own
    gram."""

    by_gram: Mapping[str, Sequence[str]]
    sizes: frozenset[int]

    def holds(self, value: Value) -> bool:
        """
        >>> some = ContainsAny({"passau": ("uni-passau",), "de": ("de",)}, frozenset({6, 2}))
        >>> some.holds("db.uni-passau"), some.holds("passau"), some.holds("wide")
        (True, False, True)
        """
        text, by_gram = str(value), self.by_gram
        if len(text) > MAX_CONTAINS_CHARS:
            return True
        for size in self.sizes:
            for gram in {text[at : at + size] for at in range(len(text) - size + 1)} & by_gram.keys():
                found = by_gram[gram]
                if len(found) > MAX_CONSTANTS_PER_GRAM or any(constant in text for constant in found):
                    return True
        return False


@dataclass(frozen=True, slots=True)
class StartsOrEndsWithAny:
    """Constants of which one is the beginning or the end of a text."""

    constants: frozenset[str]
    lengths: frozenset[int]
    at_end: bool

    def holds(self, value: Value) -> bool:
        """
        >>> some = StartsOrEndsWithAny(frozenset({"uni", "de"}), frozenset({3, 2}), at_end=True)
        >>> some.holds("passau.de"), some.holds("uni-passau")
        (True, False)
        """
        text = str(value)
        ends = (text[-length:] if self.at_end else text[:length] for length in self.lengths)
        return any(end in self.constants for end in ends)


class AlwaysTrue:
    """For operators that almost every value satisfies for some constant, such as `not contains`."""

    def holds(self, value: Value) -> bool:
        return True


class ConstantPredicate(NamedTuple):
    """A predicate of the rules. If `property` is None, the URI of the resource itself is compared."""

    predicate: int
    property: str | None
    sort: Sort
    condition: ConstantCondition


@dataclass(frozen=True, slots=True)
class RuleConstants:
    """The constants of all rules at one moment."""

    last_atomic_rule: int
    schema_version: int
    predicates: tuple[ConstantPredicate, ...]

    def candidates(self, pairs: Iterable[CandidatePair]) -> Candidates:
        """Return the pairs that executors found in the form that the filter takes."""
        found: dict[int, set[str]] = {predicate.predicate: set() for predicate in self.predicates}
        for predicate, uri in pairs:
            found[predicate].add(uri)
        return Candidates(self.last_atomic_rule, self.schema_version, found)


def read_rule_constants(
    connection: Connection, state: State, max_constants: int = MAX_CONSTANTS
) -> RuleConstants | None:
    """Return the predicates of all groups except those that match ranges of constants; None if there are too many
    constants.

    `state` must be read before. Rules added later are recognized by their number.
    """
    graph = RuleGraph(connection)
    patterns = [Pattern.from_json(group.pattern) for group in graph.read_groups()]
    numbers = graph.read_predicates()
    keys = {PredicateKey(*leaf[1:]) for pattern in patterns if not pattern.is_range for leaf in pattern.leaves}
    predicates: list[ConstantPredicate] = []
    for operator in Operator:
        keys_by_number = {numbers[key]: key for key in keys if key.operator is operator}
        conditions = _conditions(graph, operator, list(keys_by_number), max_constants)
        if conditions is None:
            return None
        predicates += (
            ConstantPredicate(number, keys_by_number[number].property, keys_by_number[number].sort, condition)
            for number, condition in conditions
        )
    return RuleConstants(state.last_atomic_rule, state.schema_version, tuple(predicates))


def _conditions(
    graph: RuleGraph, operator: Operator, predicates: list[int], max_constants: int
) -> list[tuple[int, ConstantCondition]] | None:
    if not predicates:
        return []
    lookup = operator.lookup
    if lookup is Lookup.SCAN:
        return [(number, AlwaysTrue()) for number in predicates]
    if lookup in (Lookup.ORDER, Lookup.UNEQUAL):
        return [
            (number, ComparesWithAny(operator, *bounds)) for number, *bounds in graph.read_ends(operator, predicates)
        ]
    rows = graph.read_constants(operator, predicates, max_constants + 1)
    if len(rows) > max_constants:
        return None
    found: dict[int, dict[Any, list[Any]]] = {number: defaultdict(list) for number in predicates}
    for number, constant, gram in rows:
        found[number][gram or constant].append(constant)
    return [(number, _by_constants(lookup, constants)) for number, constants in found.items()]


def _by_constants(lookup: Lookup, constants: Mapping[Any, list[Any]]) -> ConstantCondition:
    """Return the condition for some constants by gram, or by themselves if they have no gram."""
    match lookup:
        case Lookup.GRAM:
            return ContainsAny(dict(constants), frozenset(map(len, constants)))
        case Lookup.PREFIX | Lookup.SUFFIX:
            lengths = frozenset(map(len, constants))
            return StartsOrEndsWithAny(frozenset(constants), lengths, at_end=lookup is Lookup.SUFFIX)
    return EqualsAny(frozenset(constants))


class CandidateMatcher:
    """Compares documents with the constants, under the schema that the documents were prepared with."""

    def __init__(self, constants: RuleConstants, schema: Schema) -> None:
        self._by_property: dict[str, list[ConstantPredicate]] = defaultdict(list)
        self._of_uris = [predicate for predicate in constants.predicates if predicate.property is None]
        for predicate in constants.predicates:
            if predicate.property is not None:
                declared = schema.property_of(predicate.property)
                for name in declared.subproperties if declared is not None else (predicate.property,):
                    self._by_property[name].append(predicate)

    def match(self, items: Iterable[Prepared]) -> set[CandidatePair]:
        """Return the candidates among all resources that these documents describe or refer to."""
        found: set[CandidatePair] = set()
        for item in items:
            found.update(self._by_uri(item))
            assert item.document is not None  # a batch deletes nothing
            for (subject, name, term), typed in zip(item.document.statements, item.typed, strict=True):
                for predicate, _, sort, condition in self._by_property.get(name, ()):
                    pair = predicate, subject
                    if pair not in found:
                        value = comparable_value(term, typed, sort)
                        if value is not None and condition.holds(value):
                            found.add(pair)
        return found

    def _by_uri(self, item: Prepared) -> Iterator[CandidatePair]:
        return (
            (predicate.predicate, uri)
            for predicate in self._of_uris
            for uri in item.uris
            if predicate.condition.holds(uri)
        )


def comparable_value(term: Term, typed: TypedValue, sort: Sort) -> Value | None:
    """Return the value that constants of a sort are compared with. The text of a reference is its URI."""
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
