"""The normalised stage (paper, section 3.3): all classes are explicit, and there are no paths, no `or` and no `not`.

A rule is a list of conjunctions. It registers every resource that at least one of them registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import TypeAlias

from mdv.rules.operators import Operator


class Sort(Enum):
    """The sort of values that a predicate compares: numbers, instants, booleans, texts or references.

    TEXT applies to all values, and the text of a reference is its URI. REFERENCE applies to references only.
    """

    NUMBER = "number"
    INSTANT = "instant"
    TRUTH = "truth"
    TEXT = "text"
    REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable with its class."""

    name: str
    class_iri: str


@dataclass(frozen=True, slots=True)
class Access:
    """`variable.property`. If the property is None, the variable itself, which stands for its URI reference."""

    variable: str
    property: str | None = None


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant with its typed value: an exact number, an instant in seconds since 1970, a boolean or a text.

    `shown` is the constant as written in the rule. `slot` is its number among the constants of the rule's text. It is
    None if the constant belongs to another rule that this rule searches.
    """

    value: Decimal | str | bool
    shown: str
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A predicate with a constant."""

    access: Access
    operator: Operator
    sort: Sort
    constant: Constant


@dataclass(frozen=True, slots=True)
class Link:
    """A predicate between two variables. If `right.property` is None, it is the reference `left.property = right`.

    If `left.property` is None, so is `right.property`.
    """

    left: Access
    operator: Operator
    right: Access
    sort: Sort


NormalPredicate: TypeAlias = Comparison | Link


@dataclass(frozen=True, slots=True)
class Conjunction:
    """`search` the variables `register` one of them `where` all predicates are true."""

    variables: tuple[Variable, ...]
    register: str
    predicates: tuple[NormalPredicate, ...]


@dataclass(frozen=True, slots=True)
class NormalRule:
    """A rule in normal form, and the names of the rules that it searches. Their conjunctions are inlined."""

    conjunctions: tuple[Conjunction, ...]
    searches: frozenset[str] = frozenset()
