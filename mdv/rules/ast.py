"""The parsed stage: the syntax tree of a rule or query. Every part has its position in the text."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import TypeAlias

from mdv.rules.operators import Operator


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
