"""Write a program as canonical text. Law: if the text of a parsed program is parsed, the result is equal to it."""

from __future__ import annotations

from mdv.model import Term
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
    RealLiteral,
    RealName,
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
)


def write_program(program: Program) -> str:
    """Return the canonical text of a program, with one prefix per line.

    >>> from mdv.real.parse import parse_program
    >>> write_program(parse_program("FRESH(?x) AND (+a:b(?x 'it''s', en) OR TRUE)".replace("?x '", "?x, '")))
    '$x AND (+a:b(?x, "it\\'s"@en) OR TRUE)'
    """
    lines = [f"PREFIX {prefix}: <{iri}>" for prefix, iri in program.prefixes]
    return "\n".join([*lines, write_expression(program.body)])


def write_expression(node: Expression) -> str:
    """Return the canonical text of an expression."""
    match node:
        case UnionExpr(_, parts):
            return " UNION ".join(_grouped(part, UnionExpr) for part in parts)
        case OrExpr(_, parts):
            return " OR ".join(_grouped(part, UnionExpr | OrExpr) for part in parts)
        case AndExpr(_, parts):
            return " AND ".join(map(_unary, parts))
        case NoExpr(_, part):
            return f"NO {_unary(part)}"
        case FirstExpr(_, part):
            return f"FIRST {_unary(part)}"
        case LastExpr(_, part):
            return f"LAST {_unary(part)}"
        case RepeatExpr(_, part, count):
            return f"REPEAT {_unary(part)}" if count is None else f"REPEAT {write_item(count)} {_unary(part)}"
        case TruthExpr(_, value):
            return "TRUE" if value else "FALSE"
        case TransactionExpr(_, part):
            return f"[{write_expression(part)}]"
        case SandboxExpr(_, part):
            return f"{{{write_expression(part)}}}"
        case ContextExpr(_, graph, part, is_only):
            return f"{'IN' if is_only else 'ON'} {write_item(graph)} {{{write_expression(part)}}}"
        case CallExpr(_, action, inputs, outputs):
            return f"CALL {_callee(action, inputs, outputs)}"
        case SpawnExpr(_, action, inputs, outputs):
            return f"SPAWN {_callee(action, inputs, outputs)}"
        case ExpandExpr(_, action, inputs):
            return f"EXPAND {_callee(action, inputs, ())}"
        case StopExpr(_, process, message):
            return f"STOP {write_item(process)}" + ("" if message is None else f"({write_item(message)})")
        case FreshExpr(_, variable):
            return f"${variable.name}"
        case WaitExpr(_, part, at_most):
            return f"WAIT {write_expression(part)}" + ("" if at_most is None else f" AT MOST {at_most:f} seconds")
        case InferExpr(_, engine, triple):
            return ("" if engine is None else write_item(engine) + " ") + "!" + write_triple(triple)
        case ReadExpr(_, triple):
            return write_triple(triple)
        case TakeExpr(_, triple):
            return "-" + write_triple(triple)
        case AddExpr(_, triple):
            return "+" + write_triple(triple)
        case EnsureExpr(_, triple):
            return "++" + write_triple(triple)


def write_triple(triple: TriplePattern) -> str:
    """Return the canonical text of a triple."""
    annotation = ""
    if triple.annotation is not None:
        annotation = f" | {_annotation(triple.annotation)}"
    return f"{write_item(triple.property)}({write_item(triple.subject)}, {write_item(triple.object)}{annotation})"


def write_item(item: ListEntry) -> str:
    """Return the canonical text of an item."""
    match item:
        case RealVariable(_, name):
            return "?" + name
        case RealName(_, text):
            return text
        case RealLiteral(_, form, text, lang, datatype):
            if form != "text":
                return text
            return _quoted(text) + (f"@{lang}" if lang else "") + (f"^^{datatype.text}" if datatype else "")
        case RealConstant(_, term, is_typed):
            return term.value if is_typed else _term(term)
        case RealList(_, entries, None):
            return f"[{', '.join(map(write_item, entries))}]"
        case RealList(_, entries, tail):
            assert tail is not None
            return "{" + ", ".join(map(write_item, entries)) + f" | {write_item(tail)}}}"


def _term(term: Term) -> str:
    if term.is_uri:
        return f"<{term.value}>"
    return (
        _quoted(term.value) + (f"@{term.lang}" if term.lang else "") + (f"^^<{term.datatype}>" if term.datatype else "")
    )


def _annotation(item: RealItem) -> str:
    if isinstance(item, RealConstant) and not item.term.is_uri:
        return item.term.value
    return write_item(item)


def _callee(action: RealItem, inputs: tuple[RealItem, ...], outputs: tuple[RealItem, ...]) -> str:
    written = ", ".join(map(write_item, inputs))
    if outputs:
        written += (" " if written else "") + ">> " + ", ".join(map(write_item, outputs))
    return f"{write_item(action)}({written})"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _unary(part: Expression) -> str:
    return _grouped(part, UnionExpr | OrExpr | AndExpr)


def _grouped(part: Expression, kinds: object) -> str:
    text = write_expression(part)
    return f"({text})" if isinstance(part, kinds) else text  # type: ignore[arg-type]
