"""The parsed stage of RDFTL: rules and updates as they are written, with the position of every part."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from mdv.rdftl.model import AbortDependency, Axis, ChangeKind, Coupling
from mdv.rules.ast import Span
from mdv.rules.operators import Operator
from mdv.rules.text_errors import Mark


class NameForm(Enum):
    """How a name is written."""

    BARE = "bare"
    """`word`, `prefix:local`, a number, or a URI without brackets in `resource( )`."""
    IRI = "iri"
    """`<http://…>`."""
    QUOTED = "quoted"
    """`'…'`."""


@dataclass(frozen=True, slots=True)
class WrittenName:
    """A name of a class, property, resource or namespace, without its quotes or brackets."""

    text: str
    form: NameForm
    span: Span


@dataclass(frozen=True, slots=True)
class WrittenConstant:
    """A quoted text, a number or a boolean."""

    text: str
    span: Span
    lang: str | None = None
    datatype: WrittenName | None = None
    quoted: bool = True


@dataclass(frozen=True, slots=True)
class WrittenVariable:
    """`$name` or `$name.field`, without `$` and dot."""

    name: str
    span: Span
    field: str | None = None
    field_span: Span | None = None


@dataclass(frozen=True, slots=True)
class WrittenResource:
    """`resource(…)`. `name`: None for `resource()`."""

    name: WrittenName | None
    span: Span


@dataclass(frozen=True, slots=True)
class WrittenArc:
    """The arc of a triple or step. `name`: None for `_` and `seq++`."""

    name: WrittenName | None
    span: Span
    is_sequence: bool = False
    namespace: WrittenName | None = None


@dataclass(frozen=True, slots=True)
class WrittenStep:
    """A step of a path. `arc`: None for `element( )`."""

    axis: Axis
    span: Span
    arc: WrittenArc | None = None
    index: int | None = None
    qualifiers: tuple[WrittenCondition, ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenPath:
    """A path. `head`: None if it begins at the node that a qualifier tests."""

    head: WrittenResource | WrittenVariable | None
    qualifiers: tuple[WrittenCondition, ...]
    steps: tuple[WrittenStep, ...]
    span: Span


WrittenOperand: TypeAlias = WrittenPath | WrittenConstant


@dataclass(frozen=True, slots=True)
class WrittenAlways:
    """`TRUE`."""


@dataclass(frozen=True, slots=True)
class WrittenTest:
    """An operand in the place of a condition."""

    operand: WrittenOperand


@dataclass(frozen=True, slots=True)
class WrittenComparison:
    """Two operands with an operator."""

    left: WrittenOperand
    operator: Operator
    right: WrittenOperand
    operator_span: Span


@dataclass(frozen=True, slots=True)
class WrittenNot:
    """`not`."""

    part: WrittenCondition


@dataclass(frozen=True, slots=True)
class WrittenGroup:
    """`and`, or `or` if `either`."""

    parts: tuple[WrittenCondition, ...]
    either: bool


WrittenCondition: TypeAlias = WrittenAlways | WrittenTest | WrittenComparison | WrittenNot | WrittenGroup


@dataclass(frozen=True, slots=True)
class WrittenNode:
    """A node of a triple. `value`: None for `_`."""

    value: WrittenOperand | WrittenName | None
    span: Span
    class_name: WrittenName | None = None
    namespace: WrittenName | None = None


@dataclass(frozen=True, slots=True)
class WrittenTriple:
    """A triple. `new_target`: only in an UPDATE."""

    source: WrittenNode
    arc: WrittenArc
    target: WrittenNode
    new_target: WrittenNode | None = None


@dataclass(frozen=True, slots=True)
class WrittenNodeChange:
    """INSERT or DELETE of a node, as event or action."""

    kind: ChangeKind
    path: WrittenPath
    span: Span
    class_name: WrittenName | None = None
    namespace: WrittenName | None = None


@dataclass(frozen=True, slots=True)
class WrittenArcChange:
    """INSERT, DELETE or UPDATE of arcs, as event (with one triple) or action."""

    kind: ChangeKind
    triples: tuple[WrittenTriple, ...]
    span: Span


WrittenChange: TypeAlias = WrittenNodeChange | WrittenArcChange


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """CALL of an action of ReAL."""

    action: WrittenName
    arguments: tuple[WrittenOperand | WrittenName, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class WrittenLet:
    """One definition of LET."""

    variable: WrittenVariable
    path: WrittenPath


@dataclass(frozen=True, slots=True)
class WrittenPreamble:
    """Names that a rule or update declares: namespaces by prefix, and BASE."""

    namespaces: tuple[tuple[WrittenName, WrittenName], ...] = ()
    base: WrittenName | None = None


WrittenActions: TypeAlias = tuple[WrittenChange | WrittenCall | tuple[WrittenLet, ...], ...]
"""Actions, and the LETs between them, each of which applies to all actions after it."""


@dataclass(frozen=True, slots=True)
class WrittenRule:
    """A rule with its headers. `text`: its part of the whole text. `flaws`: errors other than those of the grammar.
    `states_abort`: the rule has the header ABORT."""

    preamble: WrittenPreamble
    lets: tuple[WrittenLet, ...]
    event_lets: tuple[WrittenLet, ...]
    event: WrittenChange
    condition: WrittenCondition
    actions: WrittenActions
    name: WrittenName | None
    coupling: Coupling
    abort: AbortDependency
    precedes: tuple[WrittenName, ...]
    follows: tuple[WrittenName, ...]
    local: bool
    strict: bool
    text: str
    flaws: tuple[Mark, ...]
    warnings: tuple[Mark, ...]
    states_abort: bool = False


@dataclass(frozen=True, slots=True)
class WrittenUpdate:
    """An update. `flaws`: errors other than those of the grammar."""

    preamble: WrittenPreamble
    actions: WrittenActions
    flaws: tuple[Mark, ...]
    warnings: tuple[Mark, ...]
