"""What a program may read and write, found without running it.

A pattern has the constants of a triple. Variables, and whatever is computed, can be anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mdv.errors import InvalidRule
from mdv.model import RDF_TYPE, Term
from mdv.real.resolve import read_program
from mdv.real.store import ReadPattern
from mdv.real.syntax import (
    AddExpr,
    AndExpr,
    CallExpr,
    ContextExpr,
    EnsureExpr,
    ExpandExpr,
    Expression,
    FirstExpr,
    FreshExpr,
    InferExpr,
    LastExpr,
    ListEntry,
    NoExpr,
    OrExpr,
    Program,
    ReadExpr,
    RealConstant,
    RealItem,
    RealList,
    RepeatExpr,
    SandboxExpr,
    SpawnExpr,
    StopExpr,
    TakeExpr,
    TransactionExpr,
    TriplePattern,
    TruthExpr,
    UnionExpr,
    WaitExpr,
)
from mdv.real.vocabulary import (
    INPUT_SIGNATURE,
    LRM_BODY,
    OUTPUT_SIGNATURE,
    PRIMITIVE,
    RDF_FIRST,
    RDF_GRAPH,
    RDF_REST,
    REAL_CODE,
    REAL_VARIABLES,
)

ANYTHING = ReadPattern()
MAX_ACTIONS = 100
"""Actions that are followed from one call."""

_ACTION_PROPERTIES = (LRM_BODY, REAL_CODE, REAL_VARIABLES, INPUT_SIGNATURE, OUTPUT_SIGNATURE)

BodyReader = Callable[[str], Program | None]
"""Returns the body of an action; None if there is none, or if it is not valid."""


@dataclass(frozen=True, slots=True)
class ProgramAccess:
    """The statements that a program may read, add and remove. `calls`: the actions that it calls, expands or spawns;
    None if it may call any."""

    reads: frozenset[ReadPattern] = frozenset()
    adds: frozenset[ReadPattern] = frozenset()
    removes: frozenset[ReadPattern] = frozenset()
    calls: frozenset[str] | None = frozenset()

    def joined(self, other: ProgramAccess) -> ProgramAccess:
        calls = None if self.calls is None or other.calls is None else self.calls | other.calls
        return ProgramAccess(
            self.reads | other.reads, self.adds | other.adds, self.removes | other.removes, calls
        )  # fmt: skip


UNKNOWN = ProgramAccess(frozenset([ANYTHING]), frozenset([ANYTHING]), frozenset([ANYTHING]), None)
"""What a program may do whose text is not known."""


def program_access(program: Program) -> ProgramAccess:
    """Return what a program itself may read and write, without the actions that it calls.

    >>> found = program_access(read_program("rdf:type(?x, ?c) AND -rdfs:label(?x, 'a')"))
    >>> sorted(one.property.partition("#")[2] for one in found.reads), len(found.removes), len(found.adds)
    (['label', 'type'], 1, 0)
    """
    return _access(program.body)


def action_access(action: str, body_of: BodyReader) -> ProgramAccess:
    """Return what an action may read and write, with the actions that it calls. `UNKNOWN` if it may call any, or one
    without a body."""
    found = ProgramAccess(
        frozenset(pattern for name in _ACTION_PROPERTIES for pattern in [ReadPattern(property=name)])
    )  # fmt: skip
    waiting, seen = [action], {action}
    while waiting:
        body = body_of(waiting.pop())
        if body is None or len(seen) > MAX_ACTIONS:
            return UNKNOWN
        own = program_access(body)
        if own.calls is None:
            return UNKNOWN
        found = found.joined(own)
        waiting += own.calls - seen
        seen |= own.calls
    return found


def read_body(text: str, prefixes: dict[str, str]) -> Program | None:
    """Return the body of an action; None if it is not valid."""
    try:
        return read_program(text, prefixes)
    except InvalidRule:
        return None


def _access(node: Expression) -> ProgramAccess:
    match node:
        case AndExpr(_, parts) | OrExpr(_, parts) | UnionExpr(_, parts):
            return _all(*parts)
        case NoExpr(_, part) | FirstExpr(_, part) | LastExpr(_, part) | TransactionExpr(_, part):
            return _access(part)
        case RepeatExpr(_, part) | WaitExpr(_, part):
            return _access(part)
        case SandboxExpr(_, part):
            inner = _access(part)
            return ProgramAccess(inner.reads, calls=inner.calls)
        case ContextExpr(_, graph, part):
            inner = _access(part)
            if isinstance(graph, RealConstant):  # it must have a statement
                return inner.joined(ProgramAccess(frozenset([ANYTHING])))
            made = ReadPattern(None, RDF_TYPE, Term.uri(RDF_GRAPH))
            return inner.joined(ProgramAccess(frozenset([ANYTHING]), frozenset([made])))
        case ReadExpr(_, triple):
            return ProgramAccess(_patterns(triple))
        case TakeExpr(_, triple):
            return ProgramAccess(_patterns(triple), removes=_patterns(triple))
        case AddExpr(_, triple):
            return ProgramAccess(_patterns(triple), _patterns(triple))
        case EnsureExpr(_, triple):
            return ProgramAccess(adds=_patterns(triple))
        case InferExpr():
            return ProgramAccess(frozenset([ANYTHING]))
        case CallExpr(_, action) | ExpandExpr(_, action) | SpawnExpr(_, action):
            return ProgramAccess(calls=_called(action))
        case TruthExpr() | FreshExpr() | StopExpr():
            return ProgramAccess()


def _all(*parts: Expression) -> ProgramAccess:
    found = ProgramAccess()
    for part in parts:
        found = found.joined(_access(part))
    return found


def _called(action: RealItem) -> frozenset[str] | None:
    if not isinstance(action, RealConstant):
        return None
    iri = action.term.value
    if iri == PRIMITIVE + "service":
        return None  # its answer can add statements about any request
    return frozenset() if iri.startswith(PRIMITIVE) else frozenset([iri])


def _patterns(triple: TriplePattern) -> frozenset[ReadPattern]:
    return frozenset(_triple_patterns(triple))


def _triple_patterns(triple: TriplePattern) -> Iterator[ReadPattern]:
    """Yield the pattern of a triple, and those of the cells of its lists."""
    is_whole = triple.annotation is None
    value = _constant(triple.object) if is_whole else None
    is_typed = is_whole and isinstance(triple.object, RealConstant) and triple.object.is_typed
    subject, name = _constant(triple.subject), _constant(triple.property)
    yield ReadPattern(
        subject.value if subject is not None else None, name.value if name is not None else None, value, is_typed
    )
    if isinstance(triple.object, RealList):
        yield ReadPattern(property=RDF_FIRST)
        yield ReadPattern(property=RDF_REST)


def _constant(item: ListEntry) -> Term | None:
    return item.term if isinstance(item, RealConstant) else None
