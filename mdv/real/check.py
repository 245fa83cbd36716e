"""Warnings about a program that can be given before it runs. None of them stops it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mdv.model import RDF_TYPE
from mdv.rdf.schema import Schema
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
    NoExpr,
    OrExpr,
    Program,
    ReadExpr,
    RealConstant,
    RealItem,
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
    walk,
)
from mdv.real.vocabulary import LRM, PRIMITIVE, PRIMITIVES, RDF_GRAPH, REAL
from mdv.rules.ast import Span
from mdv.rules.text_errors import Mark, quoted


class Signature(NamedTuple):
    """The names of the inputs and outputs of an action."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


def check_program(
    program: Program,
    schema: Schema | None = None,
    actions: Mapping[str, Signature] | None = None,
    inputs: frozenset[str] = frozenset(),
) -> tuple[Mark, ...]:
    """Return the warnings of a resolved program, in the order of its text.

    `actions`: the signatures that are known. `inputs`: the variables that are bound before it runs. Without a schema,
    names are not checked.

    >>> from mdv.real.resolve import read_program
    >>> for mark in check_program(read_program("NO rdf:type(?x, ?) AND +rdfs:label(?x, ?y)")):
    ...     print(mark.message)
    ?x is bound only inside NO or REPEAT
    ?y is never bound before '+'
    """
    check = _Check(schema, actions or {})
    check.bind(program.body, inputs, None)
    if schema is not None:
        for node in walk(program.body):
            if isinstance(node, TriplePattern):
                check.names(node, schema)
    return tuple(sorted(dict.fromkeys(check.marks), key=lambda mark: (mark.span.start, mark.span.end)))


def solution_variables(program: Program, inputs: frozenset[str] = frozenset()) -> list[str]:
    """Return the variables that solutions may bind, in the order of the text. EXPAND may bind others, too.

    >>> from mdv.real.resolve import read_program
    >>> solution_variables(read_program("rdfs:label(?x, ?t) AND NO rdf:type(?x, ?c) AND $new"))
    ['x', 't', 'new']
    """
    bound = _Check(None, {}).bind(program.body, inputs, None)
    places: dict[str, int] = {}
    for node in walk(program.body):
        if isinstance(node, RealVariable) and node.name in bound:
            places.setdefault(node.name, node.span.start)
    return sorted(bound, key=lambda name: (places.get(name, -1), name))


class _Check:
    def __init__(self, schema: Schema | None, actions: Mapping[str, Signature]) -> None:
        self.actions = actions
        self.marks: list[Mark] = []
        self.hidden: set[str] = set()
        """Variables that were bound inside NO or REPEAT."""
        self.is_expanded = False
        """True after an EXPAND: its body may have bound any variable."""

    def warn(self, span: Span, message: str, hint: str | None = None) -> None:
        self.marks.append(Mark(span, message, hint))

    def bind(self, node: Expression, bound: frozenset[str], block: str | None) -> frozenset[str]:
        """Return the variables that may be bound after an expression. `block`: the innermost `[ ]` or `{ }`."""
        match node:
            case AndExpr(_, parts):
                for part in parts:
                    bound = self.bind(part, bound, block)
                return bound
            case OrExpr(_, parts) | UnionExpr(_, parts):
                return frozenset().union(*(self.bind(part, bound, block) for part in parts))
            case FirstExpr(_, part) | LastExpr(_, part):
                return self.bind(part, bound, block)
            case WaitExpr(_, waiting, _):
                return self.bind(waiting, bound, block)
            case TransactionExpr(_, part):
                return self.bind(part, bound, "[ ]")
            case SandboxExpr(_, part):
                return self.bind(part, bound, "{ }")
            case ContextExpr(_, graph, part, _):
                return self.bind(part, bound | _names(graph), block)
            case NoExpr(_, part):
                self.hidden |= self.bind(part, bound, block) - bound
                return bound
            case RepeatExpr(_, part, count):
                self.hidden |= self.bind(part, bound, block) - bound
                return bound | (_names(count) if count is not None else frozenset())
            case FreshExpr(_, variable):
                return bound | {variable.name}
            case ReadExpr(_, triple) | TakeExpr(_, triple) | InferExpr(_, _, triple):
                return bound | _triple_names(triple)
            case AddExpr(span, triple) | EnsureExpr(span, triple):
                sign = "'+'" if isinstance(node, AddExpr) else "'++'"
                for found in walk(triple):
                    if isinstance(found, RealVariable):
                        self.needed(found, bound, sign)
                return bound
            case CallExpr(span, action, inputs, outputs) | SpawnExpr(span, action, inputs, outputs):
                keyword = "CALL" if isinstance(node, CallExpr) else "SPAWN"
                for item in (action, *inputs):
                    if isinstance(item, RealVariable):
                        self.needed(item, bound, keyword)
                self.arity(span, action, len(inputs), len(outputs) if keyword == "CALL" else None, block)
                return bound.union(*map(_names, outputs))
            case ExpandExpr(span, action, inputs):
                self.is_expanded = True
                self.arity(span, action, len(inputs), None, block)
                return bound.union(*map(_names, inputs))
            case StopExpr(_, process, message):
                for named in (process, message):
                    if isinstance(named, RealVariable):
                        self.needed(named, bound, "STOP")
                return bound
            case TruthExpr():
                return bound

    def needed(self, variable: RealVariable, bound: frozenset[str], what: str) -> None:
        name = variable.name
        if name in bound or self.is_expanded:
            return
        if not name:
            self.warn(variable.span, f"'?' is never bound, so {what} is an error")
        elif name in self.hidden:
            self.warn(variable.span, f"?{name} is bound only inside NO or REPEAT", "they pass on no binding")
        else:
            self.warn(variable.span, f"?{name} is never bound before {what}")

    def arity(self, span: Span, action: RealItem, inputs: int, outputs: int | None, block: str | None) -> None:
        if not isinstance(action, RealConstant):
            return
        iri = action.term.value
        if iri.startswith(PRIMITIVE):
            name = iri.removeprefix(PRIMITIVE)
            if name not in PRIMITIVES:
                self.warn(action.span, f"there is no primitive {quoted(name)}", f"there are {', '.join(PRIMITIVES)}")
                return
            wanted = PRIMITIVES[name]
            if name == "service" and block is not None:
                self.warn(span, f"a service cannot be called inside {block}", "call it before or after")
        elif iri in self.actions:
            signature = self.actions[iri]
            wanted = len(signature.inputs), len(signature.outputs)
        else:
            return
        for word, given, right in (("input", inputs, wanted[0]), ("output", outputs, wanted[1])):
            if given is not None and given != right:
                self.warn(span, f"the action has {_count(right, word)}, but {given} given")

    def names(self, triple: TriplePattern, schema: Schema) -> None:
        if isinstance(triple.property, RealConstant):
            iri = triple.property.term.value
            if schema.property_of(iri) is None:
                near = schema.nearest_properties(iri)
                hint = f"did you mean {' or '.join(near)}?" if near else None
                self.warn(triple.property.span, f"the schema declares no property {schema.shorten(iri)}", hint)
            value = triple.object
            if iri == RDF_TYPE and isinstance(value, RealConstant) and value.term.is_uri:
                name = value.term.value
                if name not in schema.classes and not schema.is_datatype(name) and not _is_built_in_class(name):
                    near = schema.nearest_classes(name)
                    hint = f"did you mean {' or '.join(near)}?" if near else None
                    self.warn(value.span, f"the schema declares no class {schema.shorten(name)}", hint)


def _names(item: RealItem) -> frozenset[str]:
    return frozenset([item.name]) if isinstance(item, RealVariable) and item.name else frozenset()


def _triple_names(triple: TriplePattern) -> frozenset[str]:
    return frozenset(one.name for one in walk(triple) if isinstance(one, RealVariable) and one.name)


def _count(number: int, word: str) -> str:
    return f"{number or 'no'} {word}{'' if number == 1 else 's'}"


def _is_built_in_class(iri: str) -> bool:
    """True for classes that programs use without declaring them.

    >>> _is_built_in_class(RDF_GRAPH), _is_built_in_class("http://a/Graph")
    (True, False)
    """
    return iri == RDF_GRAPH or iri.startswith((LRM, REAL))
