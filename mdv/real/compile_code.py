"""Compile a resolved program into the nodes that the machine steps through.

The nodes of a program are numbered, so that a checkpoint can name them. Lists become reads and writes of their cells.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from enum import IntEnum, auto
from functools import lru_cache
from typing import TypeAlias

from mdv.model import Term
from mdv.real.resolve import read_program
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
    RealVariable,
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
    replace_items,
)
from mdv.real.vocabulary import RDF_FIRST, RDF_NIL, RDF_REST
from mdv.rules.ast import Span


class Op(IntEnum):
    """What a node does."""

    AND = 0
    OR = auto()
    UNION = auto()
    NO = auto()
    FIRST = auto()
    LAST = auto()
    REPEAT = auto()
    TRUE = auto()
    FALSE = auto()
    TRANSACTION = auto()
    SANDBOX = auto()
    CONTEXT = auto()
    READ = auto()
    TAKE = auto()
    ADD = auto()
    ENSURE = auto()
    INFER = auto()
    CALL = auto()
    SPAWN = auto()
    EXPAND = auto()
    STOP = auto()
    FRESH = auto()
    WAIT = auto()
    NAME_LIST = auto()
    """Binds the hidden variables of a list that is about to be added."""
    FORGET = auto()
    """Unbinds the hidden variables of a list."""


CodeItem: TypeAlias = Term | str
"""A term, or the name of a variable. The name of `?` is empty, those of hidden variables begin with `#`."""


@dataclass(frozen=True, slots=True)
class CodeTriple:
    """A triple. `is_typed`: the object is an unannotated number or boolean."""

    property: CodeItem
    subject: CodeItem
    object: CodeItem
    is_typed: bool = False
    annotation: CodeItem | None = None


@dataclass(slots=True, eq=False)
class CodeNode:
    """A node of a program. Which fields are used depends on the operation."""

    op: Op
    span: Span
    code: Code
    number: int
    parts: tuple[CodeNode, ...] = ()
    triple: CodeTriple | None = None
    item: CodeItem | None = None
    inputs: tuple[CodeItem, ...] = ()
    outputs: tuple[CodeItem, ...] = ()
    cells: tuple[CodeTriple, ...] = ()
    at_most: Decimal | None = None
    flag: bool = False
    """CONTEXT: the only context. READ: in the top context alone. CALL: outputs are not taken."""


@dataclass(slots=True, eq=False)
class Code:
    """The nodes of a program or of an action's body.

    `key`: what a checkpoint needs to compile it again. The main program has the key `()`.
    """

    key: CodeKey
    text: str
    nodes: list[CodeNode] = field(default_factory=list)

    @property
    def root(self) -> CodeNode:
        return self.nodes[-1]


CodeKey: TypeAlias = tuple[object, ...]
"""`(text, prefixes, arguments)` of a body. Prefixes and arguments are pairs; the prefixes are those that it uses."""


def compile_program(program: Program, text: str = "") -> Code:
    """Return the code of a resolved program.

    >>> from mdv.real.resolve import read_program
    >>> [node.op.name for node in compile_program(read_program("NO rdf:type(?x, ?) AND $y")).nodes]
    ['READ', 'NO', 'FRESH', 'AND']
    """
    return _Compiler(Code((), text)).compile(program.body)


@lru_cache(maxsize=512)
def compile_body(key: CodeKey) -> Code:
    """Return the code of the body of an action or template. Raise `InvalidRule` if it has errors.

    With arguments, the input names are replaced by them, as EXPAND does.
    """
    text, prefixes, arguments = key
    assert isinstance(text, str)
    body = read_program(text, dict(prefixes)).body  # type: ignore[call-overload]
    given: dict[str, CodeItem] = dict(arguments)  # type: ignore[call-overload]
    if given:

        def substitute(item: RealItem) -> RealItem:
            if not isinstance(item, RealVariable) or item.name not in given:
                return item
            value = given[item.name]
            return RealVariable(item.span, value) if isinstance(value, str) else RealConstant(item.span, value)

        body = replace_items(body, substitute)
    return _Compiler(Code(key, text)).compile(body)


class _Compiler:
    def __init__(self, code: Code) -> None:
        self.code = code
        self.hidden = 0

    def compile(self, body: Expression) -> Code:
        self.node(body)
        return self.code

    def new(self, op: Op, span: Span, *parts: CodeNode) -> CodeNode:
        node = CodeNode(op, span, self.code, len(self.code.nodes), parts)
        self.code.nodes.append(node)
        return node

    def node(self, node: Expression) -> CodeNode:
        span = node.span
        match node:
            case AndExpr(_, parts):
                return self.new(Op.AND, span, *map(self.node, parts))
            case OrExpr(_, parts):
                return self.new(Op.OR, span, *map(self.node, parts))
            case UnionExpr(_, parts):
                return self.new(Op.UNION, span, *map(self.node, parts))
            case NoExpr(_, part):
                return self.new(Op.NO, span, self.node(part))
            case FirstExpr(_, part):
                return self.new(Op.FIRST, span, self.node(part))
            case LastExpr(_, part):
                return self.new(Op.LAST, span, self.node(part))
            case RepeatExpr(_, part, count):
                repeat = self.new(Op.REPEAT, span, self.node(part))
                repeat.item = None if count is None else _item(count)
                return repeat
            case TruthExpr(_, value):
                return self.new(Op.TRUE if value else Op.FALSE, span)
            case TransactionExpr(_, part):
                return self.new(Op.TRANSACTION, span, self.node(part))
            case SandboxExpr(_, part):
                return self.new(Op.SANDBOX, span, self.node(part))
            case ContextExpr(_, graph, part, is_only):
                context = self.new(Op.CONTEXT, span, self.node(part))
                context.item, context.flag = _item(graph), is_only
                return context
            case CallExpr(_, action, inputs, outputs):
                return self.action(Op.CALL, span, action, inputs, outputs)
            case SpawnExpr(_, action, inputs, outputs):
                return self.action(Op.SPAWN, span, action, inputs, outputs)
            case ExpandExpr(_, action, inputs):
                return self.action(Op.EXPAND, span, action, inputs, ())
            case StopExpr(_, process, message):
                return self.action(Op.STOP, span, process, () if message is None else (message,), ())
            case FreshExpr(_, variable):
                fresh = self.new(Op.FRESH, span)
                fresh.item = variable.name
                return fresh
            case WaitExpr(_, part, at_most):
                wait = self.new(Op.WAIT, span, self.node(part))
                wait.at_most = at_most
                return wait
            case InferExpr(_, engine, triple):
                infer = self.triple(Op.INFER, span, triple)
                infer.inputs = () if engine is None else (_item(engine),)
                return infer
            case ReadExpr(_, triple):
                return self.triple(Op.READ, span, triple)
            case TakeExpr(_, triple):
                return self.triple(Op.TAKE, span, triple)
            case AddExpr(_, triple):
                return self.triple(Op.ADD, span, triple)
            case EnsureExpr(_, triple):
                return self.triple(Op.ENSURE, span, triple)

    def action(
        self, op: Op, span: Span, action: RealItem, inputs: tuple[RealItem, ...], outputs: tuple[RealItem, ...]
    ) -> CodeNode:
        node = self.new(op, span)
        node.item, node.inputs, node.outputs = _item(action), tuple(map(_item, inputs)), tuple(map(_item, outputs))
        return node

    # Triples and lists

    def triple(self, op: Op, span: Span, triple: TriplePattern) -> CodeNode:
        cells: list[CodeTriple] = []
        link = self.code_triple(triple, cells)
        if not cells:
            return self.simple(op, span, link)
        hidden: tuple[CodeItem, ...] = tuple(dict.fromkeys(cell.subject for cell in cells))
        steps = [self.forget(span, hidden)]
        match op:
            case Op.ADD | Op.ENSURE:
                names = self.new(Op.NAME_LIST, span)
                names.cells, names.inputs = (link, *cells), hidden
                steps += [names, self.simple(op, span, link)]
                steps += [self.simple(Op.ENSURE, span, cell) for cell in cells]
            case Op.TAKE:
                steps += [self.simple(Op.READ, span, one, top_only=True) for one in (link, *cells)]
                steps += [self.simple(Op.TAKE, span, one) for one in (link, *cells)]
            case _:
                steps += [self.simple(op, span, one) for one in (link, *cells)]
        return self.new(Op.AND, span, *steps, self.forget(span, hidden))

    def simple(self, op: Op, span: Span, triple: CodeTriple, top_only: bool = False) -> CodeNode:
        node = self.new(op, span)
        node.triple, node.flag = triple, top_only
        return node

    def forget(self, span: Span, hidden: tuple[CodeItem, ...]) -> CodeNode:
        node = self.new(Op.FORGET, span)
        node.inputs = hidden
        return node

    def code_triple(self, triple: TriplePattern, cells: list[CodeTriple]) -> CodeTriple:
        return CodeTriple(
            _item(triple.property),
            _item(triple.subject),
            self.entry(triple.object, cells),
            isinstance(triple.object, RealConstant) and triple.object.is_typed and triple.annotation is None,
            None if triple.annotation is None else _item(triple.annotation),
        )

    def entry(self, entry: ListEntry, cells: list[CodeTriple]) -> CodeItem:
        """Return the item of an entry. A list is its first cell; its cells are appended, outer ones first."""
        if not isinstance(entry, RealList):
            return _item(entry)
        if not entry.entries:
            return Term.uri(RDF_NIL) if entry.tail is None else self.entry(entry.tail, cells)
        names: list[CodeItem] = []
        for _ in entry.entries:
            self.hidden += 1
            names.append(f"#{self.hidden}")
        inner: list[CodeTriple] = []
        end = Term.uri(RDF_NIL) if entry.tail is None else self.entry(entry.tail, inner)
        for name, rest, one in zip(names, [*names[1:], end], entry.entries, strict=True):
            typed = isinstance(one, RealConstant) and one.is_typed
            cells.append(CodeTriple(Term.uri(RDF_FIRST), name, self.entry(one, inner), typed))
            cells.append(CodeTriple(Term.uri(RDF_REST), name, rest))
        cells += inner
        return names[0]


def _item(item: RealItem) -> CodeItem:
    if isinstance(item, RealVariable):
        return item.name
    assert isinstance(item, RealConstant)
    return item.term
