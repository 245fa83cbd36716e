"""The parsed stage: a rule or query as it was written, every part with its place in the text."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import TypeAlias


class Operator(Enum):
    """How two operands are compared. `NOT_CONTAINS` cannot be written: it is what `not … contains` becomes."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    CONTAINS = "contains"
    NOT_CONTAINS = "not contains"

    @property
    def negated(self) -> Operator:
        """What `not` makes of it.

        >>> Operator.LT.negated, Operator.CONTAINS.negated
        (<Operator.GE: '>='>, <Operator.NOT_CONTAINS: 'not contains'>)
        """
        return _NEGATED[self]

    @property
    def flipped(self) -> Operator:
        """The same comparison with its operands exchanged.

        >>> Operator.LT.flipped, Operator.EQ.flipped
        (<Operator.GT: '>'>, <Operator.EQ: '='>)
        """
        return _FLIPPED.get(self, self)

    @property
    def orders(self) -> bool:
        """Whether it needs operands that have an order."""
        return self in _FLIPPED


_FLIPPED = {
    Operator.LT: Operator.GT,
    Operator.GT: Operator.LT,
    Operator.LE: Operator.GE,
    Operator.GE: Operator.LE,
}
_PAIRS = (
    (Operator.EQ, Operator.NE),
    (Operator.LT, Operator.GE),
    (Operator.GT, Operator.LE),
    (Operator.CONTAINS, Operator.NOT_CONTAINS),
)
_NEGATED = dict(_PAIRS) | {b: a for a, b in _PAIRS}


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the text, by offsets in code points."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Name:
    """A name as written: `prefix:local`, `<full-uri>` or bare; or a variable."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Step:
    """One property of a path; `any` where it is followed by `?`."""

    name: Name
    any: bool


@dataclass(frozen=True, slots=True)
class Path:
    """`variable.property.property…`; without steps, the variable itself."""

    variable: Name
    steps: tuple[Step, ...]
    span: Span


class Written(Enum):
    """How a constant was written."""

    TEXT = "text"
    NUMBER = "number"
    TRUTH = "truth"
    URI = "uri"


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. `slot` counts the constants of the text from 0: rules that differ in their constants alone have the
    same slots."""

    written: Written
    value: str | Decimal | bool
    span: Span
    slot: int


Operand: TypeAlias = Path | Literal


@dataclass(frozen=True, slots=True)
class Predicate:
    left: Operand
    operator: Operator
    right: Operand
    span: Span


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Expression


Expression: TypeAlias = Predicate | And | Or | Not


@dataclass(frozen=True, slots=True)
class Extension:
    """What a variable ranges over: a class, or the results of another rule."""

    name: Name
    variable: Name


@dataclass(frozen=True, slots=True)
class ParsedRule:
    """`search … register … where …`"""

    text: str
    search: tuple[Extension, ...]
    register: Name
    where: Expression | None


@dataclass(frozen=True, slots=True)
class Ordering:
    path: Path
    descending: bool


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """`search … where … return … order by … limit …`"""

    text: str
    search: tuple[Extension, ...]
    where: Expression | None
    returns: tuple[Path, ...]
    order: tuple[Ordering, ...]
    limit: int | None
