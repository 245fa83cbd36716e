"""The parsed stage: the syntax tree of a rule or query. Every part has its position in the text."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import TypeAlias


class Operator(Enum):
    """A comparison operator. `NOT_CONTAINS` has no syntax of its own: `not … contains` is normalised to it."""

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
        """The operator after `not` is applied.

        >>> Operator.LT.negated, Operator.CONTAINS.negated
        (<Operator.GE: '>='>, <Operator.NOT_CONTAINS: 'not contains'>)
        """
        return _NEGATED[self]

    @property
    def flipped(self) -> Operator:
        """The operator of the same comparison with exchanged operands.

        >>> Operator.LT.flipped, Operator.EQ.flipped
        (<Operator.GT: '>'>, <Operator.EQ: '='>)
        """
        return _FLIPPED.get(self, self)

    @property
    def orders(self) -> bool:
        """True if the operands must be ordered values."""
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
    """A range of the text, as offsets in code points."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Name:
    """A name as written: `prefix:local`, `<full-uri>`, without prefix, or a variable."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class PathStep:
    """One property of a path. `any` is true if `?` follows it."""

    name: Name
    any: bool


@dataclass(frozen=True, slots=True)
class Path:
    """`variable.property.property…`. Without steps it is the variable itself."""

    variable: Name
    steps: tuple[PathStep, ...]
    span: Span


class LiteralKind(Enum):
    """The syntax of a constant."""

    TEXT = "text"
    NUMBER = "number"
    TRUTH = "truth"
    URI = "uri"


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. `slot` is its number among the constants of the text, from 0. Rules that differ only in their
    constants have the same slots."""

    written: LiteralKind
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
    """The values of a variable: the instances of a class, or the results of another rule."""

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
