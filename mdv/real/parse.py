"""Parse the text of a program into its syntax tree, with the grammar in `grammar.lark`.

Law: for every text, the result is a program within the limits or `InvalidRule` with the position of the error.
"""

from __future__ import annotations

import re
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from lark import Lark, Token, Tree

from mdv.errors import InvalidRule
from mdv.rdf.values import parse_number
from mdv.real.syntax import (
    AddExpr,
    AndExpr,
    BasicExpr,
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
from mdv.rules.ast import Span
from mdv.rules.text_errors import (
    ExpectedNames,
    Mark,
    UnexpectedText,
    check_text,
    describe_expected,
    parse_tree,
    quoted,
    rule_error,
    rule_errors,
    token_span,
)

MAX_BYTES = 65_536
MAX_NESTING = 100
MAX_NODES = 10_000
"""Expressions, triples and items of a program, before EXPAND."""
MAX_WAIT_SECONDS = 100 * 366 * 86_400

KEYWORDS = tuple(
    "PREFIX UNION OR AND NO FIRST LAST REPEAT ON IN DO CALL SPAWN EXPAND STOP FRESH WAIT AT MOST TRUE FALSE".split()  # noqa: SIM905
)


def parse_program(text: str) -> Program:
    """Return the program of a text. Raise `InvalidRule` if the grammar does not accept it.

    >>> parse_program("FIRST rdf:type(?x, ex:Book)").body.part.triple.subject.name
    'x'
    >>> parse_program("rdf:type(?x, ex:Book) AN ex:title(?x, ?t)")
    Traceback (most recent call last):
    mdv.errors.InvalidRule: The program has an error at line 1, column 23: expected AND, OR, UNION or the end of the
    text, found 'AN' (did you mean AND?).
    <BLANKLINE>
        rdf:type(?x, ex:Book) AN ex:title(?x, ?t)
                              ^^
    """
    check_text(text, "program", MAX_BYTES)
    try:
        tree = parse_tree(_grammar(), text, "program")
    except UnexpectedText as error:
        raise _syntax_error(text, error.position, error.allowed) from None
    builder = _Builder(text)
    program = builder.program(tree)
    if builder.flaws:
        raise rule_errors(text, builder.flaws, "program")
    return program


def is_unfinished(text: str) -> bool:
    """True if the text is the beginning of a program: more text could make it valid.

    >>> is_unfinished("TRUE AND"), is_unfinished("[ TRUE"), is_unfinished("TRUE"), is_unfinished("TRUE )")
    (True, True, False, False)
    >>> is_unfinished("rdfs:label(?x, 'a"), is_unfinished("")
    (True, True)
    """
    try:
        parse_tree(_grammar(), text, "program")
    except UnexpectedText as error:
        rest = text[error.position :].strip()
        return not rest or (rest[0] in _OPENING_QUOTES and rest.count(_OPENING_QUOTES[rest[0]]) < 1 + (rest[0] != "“"))
    return False


_OPENING_QUOTES = {'"': '"', "'": "'", "“": "”"}


@cache
def _grammar() -> Lark:
    grammar = (files("mdv.real") / "grammar.lark").read_text("utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", start=["program"], propagate_positions=True)


# --- errors of the grammar ---

_UNARY = (
    "_NO _FIRST _LAST _REPEAT _ON _IN _LSQUARE _LBRACE _LPAR TRUTH _CALL _SPAWN _EXPAND _STOP _BANG FRESH_NAME _FRESH "
    "_WAIT _PLUS _PLUS_PLUS _MINUS NAME IRIREF VAR"
)
_EXPECTED: ExpectedNames = tuple(
    (frozenset(terminals.split()), names)
    for terminals, *names in (
        (f"_PREFIX {_UNARY}", "PREFIX", "an expression"),
        (_UNARY, "an expression"),
        ("_PLUS _PLUS_PLUS _MINUS NAME IRIREF VAR", "a triple", "'+'", "'++'", "'-'"),
        ("NAME IRIREF VAR TEXT NUMBER SYMBOL", "a name, a variable or a literal"),
        ("NAME IRIREF VAR SYMBOL", "a language, a datatype or a variable"),
        ("NAME IRIREF VAR", "a name or a variable"),
        ("NAME IRIREF", "a name"),
        ("VAR", "a variable such as ?x"),
        ("NUMBER", "a number"),
        ("UNIT", "a unit such as seconds"),
        ("NAMESPACE", "a prefix such as ex:"),
        ("IRIREF", "an IRI such as <http://…>"),
        ("_AND", "AND"),
        ("_OR", "OR"),
        ("_UNION", "UNION"),
        ("_DO", "DO"),
        ("_AT", "AT MOST"),
        ("_MOST", "MOST"),
        ("_LPAR", "'('"),
        ("_LSQUARE", "'['"),
        ("_LBRACE", "'{'"),
        ("_COMMA", "','"),
        ("_BAR", "'|'"),
        ("_SHIFT", "'>>'"),
        ("_HATS", "'^^'"),
        ("LANGTAG", "a language such as @en"),
        ("_BANG", "'!'"),
        ("_RPAR", "')'"),
        ("_RSQUARE", "']'"),
        ("_RBRACE", "'}'"),
        ("$END", "the end of the text"),
    )
)
_FOUND = re.compile(
    r"[?$]?[^\W\d][\w:-]*|[-+]?\.?\d[\w.:+-]*|'[^'\n]{0,30}|\"[^\"\n]{0,30}|“[^”\n]{0,30}|<[^\s<>]*>|[=!<>&|^]+|\S"
)
_HINTS = {
    "INC": "write CALL primitive:inc(?a >> ?b)",
    "EQ": "write CALL primitive:equal(?a, ?b)",
    "!=": "write NO CALL primitive:equal(?a, ?b)",
    "=": "write CALL primitive:equal(?a, ?b)",
    "<": "write CALL primitive:less(?a, ?b)",
    "S-UNION": "write UNION",
    "P-UNION": "write UNION",
    "&&": "write AND",
    "||": "write OR",
    "#": "a comment begins with //",
    ";": "write AND",
}


def _syntax_error(text: str, position: int, allowed: set[str]) -> InvalidRule:
    expected = describe_expected(allowed, _EXPECTED)
    word = _FOUND.match(text, position)
    if word is None:
        span = Span(position, position + 1)
        return rule_error(text, span, f"expected {expected}, but the program ends here", what="program")
    found, span = word[0], Span(*word.span())
    message, hint = f"expected {expected}, found {quoted(found)}", _HINTS.get(found)
    if found[0] in "'\"“" and "TEXT" in allowed:
        span = Span(position, position + 1)
        message, hint = "this text has no closing quote", 'write a quote within a text twice: "a ""b"""'
    elif found[0] in "'\"“" or found[0].isdigit():
        hint = hint or "a literal can only be the object of a triple, an argument or an entry of a list"
    elif hint is None and found[0].isalpha():
        near = [one for one in get_close_matches(found[:20].upper(), KEYWORDS, 1) if one != found]
        hint = f"did you mean {near[0]}?" if near else None
        if hint is None and "NAME" in allowed and found not in KEYWORDS:
            hint = f"write a name with its prefix: ex:{found[:40]}"
    return rule_error(text, span, message, hint, "program")


# --- the syntax tree ---

_SECONDS = {"millisecond": Decimal("0.001"), "second": Decimal(1), "minute": Decimal(60), "hour": Decimal(3600)}
_SECONDS["day"] = Decimal(86_400)


class _Builder:
    """Builds the syntax tree. Enforces limits and collects flaws."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.flaws: list[Mark] = []
        self.nodes = 0

    def count(self, span: Span, nesting: int = 0) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise rule_error(self.text, span, f"the program has more than {MAX_NODES:,} nodes", what="program")
        if nesting > MAX_NESTING:
            message = f"expressions are nested more than {MAX_NESTING} deep"
            raise rule_error(self.text, Span(span.start, span.start + 1), message, what="program")

    def program(self, tree: Tree[Token]) -> Program:
        *declared, body = _trees(tree)
        prefixes: dict[str, str] = {}
        for one in declared:
            name, iri = _tokens(one)
            self.count(_span(one))
            if name[:-1] in prefixes:
                self.flaws.append(Mark(token_span(name), f"the prefix {quoted(name)} is declared twice"))
            prefixes[name[:-1]] = iri[1:-1]
        return Program(_span(tree), tuple(prefixes.items()), self.expression(body, 0))

    def expression(self, tree: Tree[Token], nesting: int) -> Expression:
        span = _span(tree)
        self.count(span, nesting)
        match tree.data:
            case "group":
                return self.expression(_trees(tree)[0], nesting + 1)
            case "both":
                return AndExpr(span, self.parts(tree, nesting))
            case "either":
                return OrExpr(span, self.parts(tree, nesting))
            case "union":
                return UnionExpr(span, self.parts(tree, nesting))
            case "no":
                return NoExpr(span, self.parts(tree, nesting)[0])
            case "first":
                return FirstExpr(span, self.parts(tree, nesting)[0])
            case "last":
                return LastExpr(span, self.parts(tree, nesting)[0])
            case "transaction":
                return TransactionExpr(span, self.parts(tree, nesting)[0])
            case "sandbox":
                return SandboxExpr(span, self.parts(tree, nesting)[0])
            case "repeat":
                counts = _tokens(tree)
                return RepeatExpr(span, self.parts(tree, nesting)[0], self.item(counts[0]) if counts else None)
            case "on" | "in":
                graph = self.item(_tokens(tree)[0])
                return ContextExpr(span, graph, self.parts(tree, nesting)[0], tree.data == "in")
            case "truth":
                return TruthExpr(span, _tokens(tree)[0].lower() == "true")
            case "fresh":
                (name,) = _tokens(tree)
                if name == "?":
                    self.flaws.append(Mark(token_span(name), "FRESH needs a variable with a name"))
                return FreshExpr(span, RealVariable(token_span(name), name[1:]))
            case "wait":
                return WaitExpr(span, self.basic(_trees(tree)[0], nesting + 1), self.seconds(_tokens(tree)))
            case "infer":
                engines = [self.item(one) for one in _tokens(tree)]
                return InferExpr(span, engines[0] if engines else None, self.triple(_trees(tree)[0], nesting))
            case "call" | "spawn" | "expand" | "stop":
                return self.action(tree)
        return self.basic(tree, nesting)

    def parts(self, tree: Tree[Token], nesting: int) -> tuple[Expression, ...]:
        return tuple(self.expression(one, nesting + 1) for one in _trees(tree))

    def basic(self, tree: Tree[Token], nesting: int) -> BasicExpr:
        span = _span(tree)
        if tree.data == "triple":
            return ReadExpr(span, self.triple(tree, nesting))
        triple = self.triple(_trees(tree)[0], nesting)
        if tree.data == "add":
            return AddExpr(span, triple)
        return EnsureExpr(span, triple) if tree.data == "ensure" else TakeExpr(span, triple)

    def action(self, tree: Tree[Token]) -> Expression:
        span, data = _span(tree), tree.data
        name, *rest = [child for child in tree.children if not (isinstance(child, Tree) and child.data == "outputs")]
        action = self.item(name)
        if data == "stop":
            return StopExpr(span, action, self.item(rest[0]) if rest else None)
        inputs = self.items(tree, "inputs")
        outputs = self.items(tree, "outputs")
        if data == "call":
            return CallExpr(span, action, inputs, outputs)
        if data == "spawn":
            if len(outputs) > 1:
                self.flaws.append(Mark(outputs[1].span, "SPAWN has one output: the process"))
            return SpawnExpr(span, action, inputs, outputs)
        if outputs:
            self.flaws.append(Mark(outputs[0].span, "EXPAND has no outputs", "the variables of the body are shared"))
        return ExpandExpr(span, action, inputs)

    def items(self, tree: Tree[Token], data: str) -> tuple[RealItem, ...]:
        return tuple(self.item(one) for found in _trees(tree) if found.data == data for one in found.children)

    def seconds(self, tokens: list[Token]) -> Decimal | None:
        if not tokens:
            return None
        number, unit = tokens
        value = parse_number(number)
        seconds = None if value is None else value * _SECONDS[unit.lower().removesuffix("s")]
        if seconds is None or not 0 <= seconds <= MAX_WAIT_SECONDS:
            self.flaws.append(Mark(token_span(number), "the longest time to wait is from 0 seconds to 100 years"))
            return None
        return seconds.normalize() if seconds else Decimal(0)

    # Triples and items

    def triple(self, tree: Tree[Token], nesting: int) -> TriplePattern:
        self.count(_span(tree), nesting)
        name, subject, value, *rest = tree.children
        object_ = self.entry(value, nesting)
        annotation = None
        if rest:
            assert isinstance(rest[0], Tree)
            object_, annotation = self.annotate(object_, _tokens(rest[0])[0])
        return TriplePattern(_span(tree), self.item(name), self.item(subject), object_, annotation)

    def annotate(self, value: ListEntry, token: Token) -> tuple[ListEntry, RealItem | None]:
        """Return the object and its annotation. The annotation of a written literal becomes a part of it."""
        span = token_span(token)
        if isinstance(value, RealName):
            self.flaws.append(Mark(span, "an IRI has no language and no datatype", "annotate a text or a number"))
            return value, None
        if isinstance(value, RealLiteral) and (value.lang is not None or value.datatype is not None):
            self.flaws.append(Mark(span, "this literal has a language or datatype already"))
            return value, None
        if token.type == "SYMBOL":
            if not _LANGUAGE.fullmatch(token):
                self.flaws.append(Mark(span, f"{quoted(token)} is not a language tag", "write a tag such as en-GB"))
            if isinstance(value, RealLiteral):
                return RealLiteral(value.span, "text", value.text, lang=token.lower()), None
            return value, RealLiteral(span, "symbol", token.lower())
        annotation = self.item(token)
        if isinstance(value, RealLiteral) and isinstance(annotation, RealName):
            return RealLiteral(value.span, "text", value.text, datatype=annotation), None
        if isinstance(value, RealLiteral):
            value = RealLiteral(value.span, "text", value.text)
        return value, annotation

    def entry(self, child: Token | Tree[Token], nesting: int) -> ListEntry:
        if isinstance(child, Tree) and child.data in ("list", "tailed"):
            self.count(_span(child), nesting)
            tail = [one for one in _trees(child) if one.data == "tail"]
            entries = [one for one in child.children if one not in tail]
            return RealList(
                _span(child),
                tuple(self.entry(one, nesting + 1) for one in entries),
                self.entry(tail[0].children[0], nesting + 1) if tail else None,
            )
        return self.item(child)

    def item(self, child: Token | Tree[Token]) -> RealItem:
        if isinstance(child, Tree):
            return self.literal(child)
        span = token_span(child)
        self.count(span)
        match child.type:
            case "VAR":
                return RealVariable(span, child[1:])
            case "NUMBER":
                return RealLiteral(span, "number", str(child))
        return RealName(span, str(child))

    def literal(self, tree: Tree[Token]) -> RealLiteral:
        span = _span(tree)
        self.count(span)
        token, *rest = _tokens(tree)
        if token.type == "TEXT":
            text = token[1:-1].replace(token[-1] * 2, token[-1])
            if not rest:
                return RealLiteral(span, "text", text)
            if rest[0].type == "LANGTAG":
                return RealLiteral(span, "text", text, lang=rest[0][1:].lower())
            return RealLiteral(span, "text", text, datatype=RealName(token_span(rest[0]), str(rest[0])))
        return RealLiteral(span, "number" if token.type == "NUMBER" else "symbol", str(token))


_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*")


def _trees(tree: Tree[Token]) -> list[Tree[Token]]:
    return [child for child in tree.children if isinstance(child, Tree)]


def _tokens(tree: Tree[Token]) -> list[Token]:
    return [child for child in tree.children if isinstance(child, Token)]


def _span(tree: Tree[Token]) -> Span:
    return Span(tree.meta.start_pos, tree.meta.end_pos) if not tree.meta.empty else Span(0, 0)
