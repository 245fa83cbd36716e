"""The normalised stage (paper, section 3.3): every class named, no paths, no `or`, no `not`.

A rule is a list of conjunctions; it registers what any of them registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import TypeAlias

from mdv.rules.ast import Operator


class Sort(Enum):
    """What is compared: numbers, instants, truths, the text of any value, or the URI of a reference.

    TEXT looks at every value, a reference's text being its URI. REFERENCE looks at references alone.
    """

    NUMBER = "number"
    INSTANT = "instant"
    TRUTH = "truth"
    TEXT = "text"
    REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class Variable:
    """A name, and the class that its resources are instances of."""

    name: str
    class_iri: str


@dataclass(frozen=True, slots=True)
class Access:
    """`variable.property`, or (property None) the variable itself, which stands for its URI reference."""

    variable: str
    property: str | None = None


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant as what it is compared as: an exact number (an instant in seconds since 1970, too), a truth, a text.

    `shown` is how the rule writes it; `slot` its place among the constants of the rule's text, None where it came from
    another rule that this one searches.
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
    """A predicate between two variables. With `right.property` None it is the reference `left.property = right`.

    Never is `left.property` None while `right.property` is not.
    """

    left: Access
    operator: Operator
    right: Access
    sort: Sort


NormalPredicate: TypeAlias = Comparison | Link


@dataclass(frozen=True, slots=True)
class Conjunction:
    """`search` variables `register` one of them `where` all predicates hold."""

    variables: tuple[Variable, ...]
    register: str
    predicates: tuple[NormalPredicate, ...]


@dataclass(frozen=True, slots=True)
class NormalRule:
    """What the rule means, and the names of the other rules that were put in."""

    conjunctions: tuple[Conjunction, ...]
    searches: frozenset[str] = frozenset()
