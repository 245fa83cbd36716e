"""The syntax tree of a program. Every node has its span; spans do not count in comparisons.

The parser returns names and literals as written. `resolve` replaces them by constants: the tree has the same shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from typing import Any, TypeAlias, TypeVar

from mdv.model import Term
from mdv.rules.ast import Span


@dataclass(frozen=True, slots=True)
class _Node:
    span: Span = field(compare=False)


N = TypeVar("N", bound=_Node)


# --- items ---


@dataclass(frozen=True, slots=True)
class RealVariable(_Node):
    """`?name`. The name is empty for `?`, which binds nothing."""

    name: str


@dataclass(frozen=True, slots=True)
class RealName(_Node):
    """`prefix:local` or `<iri>`, as written."""

    text: str


@dataclass(frozen=True, slots=True)
class RealLiteral(_Node):
    """A literal as written. `form`: `text`, `number` or `symbol`."""

    form: str
    text: str
    lang: str | None = None
    datatype: RealName | None = None


@dataclass(frozen=True, slots=True)
class RealConstant(_Node):
    """A term. `is_typed`: an unannotated number or boolean, which also matches literals of equal value."""

    term: Term
    is_typed: bool = False


@dataclass(frozen=True, slots=True)
class RealList(_Node):
    """A list. It ends in rdf:nil, or in `tail`."""

    entries: tuple[ListEntry, ...]
    tail: ListEntry | None = None


RealItem: TypeAlias = RealVariable | RealName | RealLiteral | RealConstant
ListEntry: TypeAlias = RealItem | RealList


# --- expressions ---


@dataclass(frozen=True, slots=True)
class TriplePattern(_Node):
    """`property(subject, object)`. `annotation`: the language or datatype of the object, if it or the object is a
    variable."""

    property: RealItem
    subject: RealItem
    object: ListEntry
    annotation: RealItem | None = None


@dataclass(frozen=True, slots=True)
class ReadExpr(_Node):
    """`t`."""

    triple: TriplePattern


@dataclass(frozen=True, slots=True)
class TakeExpr(_Node):
    """`-t`."""

    triple: TriplePattern


@dataclass(frozen=True, slots=True)
class AddExpr(_Node):
    """`+t`."""

    triple: TriplePattern


@dataclass(frozen=True, slots=True)
class EnsureExpr(_Node):
    """`++t`."""

    triple: TriplePattern


@dataclass(frozen=True, slots=True)
class InferExpr(_Node):
    """`!t`, or `engine!t`."""

    engine: RealItem | None
    triple: TriplePattern


BasicExpr: TypeAlias = ReadExpr | TakeExpr | AddExpr | EnsureExpr


@dataclass(frozen=True, slots=True)
class AndExpr(_Node):
    """`a AND b …`."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class OrExpr(_Node):
    """`a OR b …`."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class UnionExpr(_Node):
    """`a UNION b …`."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class NoExpr(_Node):
    """`NO a`."""

    part: Expression


@dataclass(frozen=True, slots=True)
class FirstExpr(_Node):
    """`FIRST a`."""

    part: Expression


@dataclass(frozen=True, slots=True)
class LastExpr(_Node):
    """`LAST a`."""

    part: Expression


@dataclass(frozen=True, slots=True)
class RepeatExpr(_Node):
    """`REPEAT a`, `REPEAT 3 a` or `REPEAT ?count a`."""

    part: Expression
    count: RealItem | None = None


@dataclass(frozen=True, slots=True)
class TruthExpr(_Node):
    """`TRUE` or `FALSE`."""

    value: bool


@dataclass(frozen=True, slots=True)
class TransactionExpr(_Node):
    """`[a]`."""

    part: Expression


@dataclass(frozen=True, slots=True)
class SandboxExpr(_Node):
    """`{a}`."""

    part: Expression


@dataclass(frozen=True, slots=True)
class ContextExpr(_Node):
    """`ON graph {a}`, or `IN graph {a}` if `is_only`."""

    graph: RealItem
    part: Expression
    is_only: bool


@dataclass(frozen=True, slots=True)
class CallExpr(_Node):
    """`CALL action(inputs >> outputs)`."""

    action: RealItem
    inputs: tuple[RealItem, ...] = ()
    outputs: tuple[RealItem, ...] = ()


@dataclass(frozen=True, slots=True)
class SpawnExpr(_Node):
    """`SPAWN action(inputs >> process)`."""

    action: RealItem
    inputs: tuple[RealItem, ...] = ()
    outputs: tuple[RealItem, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpandExpr(_Node):
    """`EXPAND action(inputs)`."""

    action: RealItem
    inputs: tuple[RealItem, ...] = ()


@dataclass(frozen=True, slots=True)
class StopExpr(_Node):
    """`STOP process` or `STOP process(message)`."""

    process: RealItem
    message: RealItem | None = None


@dataclass(frozen=True, slots=True)
class FreshExpr(_Node):
    """`$name`."""

    variable: RealVariable


@dataclass(frozen=True, slots=True)
class WaitExpr(_Node):
    """`WAIT a`, or `WAIT a AT MOST n seconds`."""

    part: BasicExpr
    at_most: Decimal | None = None


Expression: TypeAlias = (
    BasicExpr
    | InferExpr
    | AndExpr
    | OrExpr
    | UnionExpr
    | NoExpr
    | FirstExpr
    | LastExpr
    | RepeatExpr
    | TruthExpr
    | TransactionExpr
    | SandboxExpr
    | ContextExpr
    | CallExpr
    | SpawnExpr
    | ExpandExpr
    | StopExpr
    | FreshExpr
    | WaitExpr
)


@dataclass(frozen=True, slots=True)
class Program(_Node):
    """A program, with the prefixes that it declares."""

    prefixes: tuple[tuple[str, str], ...]
    body: Expression


AnyNode: TypeAlias = Program | Expression | TriplePattern | RealItem | RealList


def children(node: AnyNode) -> Iterator[AnyNode]:
    """Yield the nodes directly below a node, in the order of the text."""
    found = []
    for one in fields(node):
        value = getattr(node, one.name)
        found += [part for part in (value if isinstance(value, tuple) else (value,)) if isinstance(part, _Node)]
    yield from sorted(found, key=lambda part: part.span.start)  # type: ignore[misc]


def walk(node: AnyNode) -> Iterator[AnyNode]:
    """Yield a node and all nodes below it, in the order of the text."""
    yield node
    for child in children(node):
        yield from walk(child)


def replace_items(node: N, change: Callable[[RealItem], RealItem]) -> N:
    """Return a tree with every item replaced by `change(item)`."""
    changed: dict[str, Any] = {}
    for one in fields(node):
        value = getattr(node, one.name)
        if isinstance(value, RealVariable | RealName | RealLiteral | RealConstant):
            changed[one.name] = change(value)
        elif isinstance(value, _Node):
            changed[one.name] = replace_items(value, change)
        elif isinstance(value, tuple) and value and isinstance(value[0], _Node):
            changed[one.name] = tuple(
                change(part) if isinstance(part, RealVariable | RealName | RealLiteral | RealConstant)
                else replace_items(part, change)
                for part in value
            )  # fmt: skip
    return replace(node, **changed) if changed else node
