"""Parse the text of a rule or query into its syntax tree, with the grammar in `grammar.lark`.

Law: for every text, the result is a tree within the limits or `InvalidRule` with the position of the error, in a short
time.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedEOF, UnexpectedInput

from mdv.errors import Flaw, InvalidRule
from mdv.rdf.values import MAX_DIGITS
from mdv.rules.ast import (
    And,
    Expression,
    Extension,
    Literal,
    LiteralKind,
    Name,
    Not,
    Operand,
    Or,
    Ordering,
    ParsedQuery,
    ParsedRule,
    Path,
    PathStep,
    Predicate,
    Span,
)
from mdv.rules.operators import SIGNS, WORDS, Operator

MAX_BYTES = 8192
MAX_SEARCH_VARIABLES = 64
"""Variables in the `search` part."""
MAX_PREDICATES = 32
MAX_PATH_STEPS = 8
MAX_NESTING = 100
MAX_COUNT_DIGITS = 9

KEYWORDS = frozenset(
    (*"search register where and or not true false return order by asc desc limit".split(), *WORDS)  # noqa: SIM905
)
"""Reserved words. They cannot be variables or classes without prefix, in any capitalisation."""


def parse(text: str) -> ParsedRule:
    """Return the syntax tree of a rule.

    >>> rule = parse("search CycleProvider c register c where c.serverInformation.memory > 64")
    >>> rule.register.text, rule.where.operator, rule.where.right.value
    ('c', <Operator.GT: '>'>, Decimal('64'))
    >>> parse("search CycleProvider register c")
    Traceback (most recent call last):
    mdv.errors.InvalidRule: The rule has an error at line 1, column 22: expected a variable, found 'register'
    ('register' is a keyword, so it cannot be a name here).
    <BLANKLINE>
        search CycleProvider register c
                             ^^^^^^^^
    """
    tree = _tree(text, "rule")
    return _Builder(text).rule(tree)


def parse_query(text: str) -> ParsedRule | ParsedQuery:
    """Return the syntax tree of a query: a rule, or a query with `return` instead of `register`.

    >>> query = parse_query("search CycleProvider c return c, c.serverHost order by c.serverHost desc limit 10")
    >>> len(query.returns), query.order[0].descending, query.limit
    (2, True, 10)
    """
    (tree,) = _tree(text, "rule_or_query").children
    assert isinstance(tree, Tree)
    builder = _Builder(text, "query")
    return builder.rule(tree) if tree.data == "rule" else builder.query(tree)


def rule_error(text: str, span: Span, message: str, hint: str | None = None, what: str = "rule") -> InvalidRule:
    """Return an error that marks `span` in the text of a rule or query.

    >>> rule_error("search Cycle c", Span(7, 12), "unknown class 'Cycle'", "did you mean Bicycle?").flaws[0].column
    8
    """
    before = text[: span.start]
    line = before.count("\n") + 1
    start = before.rfind("\n") + 1
    source = text[start:].partition("\n")[0]
    length = max(1, min(span.end, start + len(source)) - span.start)
    flaw = Flaw(message, line=line, column=span.start - start + 1, hint=hint, length=length)
    shown = _underlined(source, span.start - start, span.end - start)
    return InvalidRule(f"The {what} has an error at {flaw}.\n\n{shown}", (flaw,))


_SHOWN_CHARACTERS = 100
"""Characters of a source line that are shown in an error."""


def _underlined(source: str, start: int, end: int) -> str:
    """Return the line, truncated around the position, with carets below it."""
    left = max(0, start - _SHOWN_CHARACTERS // 2) if len(source) > _SHOWN_CHARACTERS else 0
    right = min(len(source), left + _SHOWN_CHARACTERS)
    visible = "".join(character if character.isprintable() else " " for character in source[left:right])
    start, end = start - left, max(min(end, right) - left, start - left + 1)
    before, after = ("…" if left else ""), ("…" if right < len(source) else "")
    indent = " " * (len(before) + _width(visible[:start]))
    lines = (before + visible + after, indent + "^" * max(1, _width(visible[start:end])))
    return "\n".join(f"    {line}".rstrip() for line in lines)


def _width(text: str) -> int:
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


def _check_text(text: str, what: str) -> None:
    """Refuse texts that are too long or contain invalid characters."""
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        fits = len(text[:MAX_BYTES].encode("utf-8", "replace")[:MAX_BYTES].decode("utf-8", "ignore"))
        message = f"the text is longer than {MAX_BYTES:,} bytes"
        raise rule_error(text[: fits + _SHOWN_CHARACTERS], Span(fits, fits + 1), message, what=what)
    if found := _UNSTORABLE.search(text):
        kind = "a NUL character" if found[0] == "\0" else "an unpaired surrogate, which is not a character"
        raise rule_error(text, Span(*found.span()), f"the text contains {kind}", what=what)


_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


@cache
def _grammar() -> Lark:
    grammar = (files("mdv.rules") / "grammar.lark").read_text("utf-8")
    for name, texts in (("KEYWORDS", KEYWORDS), ("WORDS", WORDS), ("SIGNS", SIGNS)):
        # Longer texts come first: `<` would match the beginning of `<=`.
        grammar = grammar.replace(f"@{name}@", "|".join(sorted(texts, key=lambda text: (-len(text), text))))
    return Lark(grammar, parser="lalr", lexer="contextual", start=["rule", "rule_or_query"], maybe_placeholders=True)


def _tree(text: str, start: str) -> Tree[Token]:
    what = "rule" if start == "rule" else "query"
    _check_text(text, what)
    parser: Any = _grammar().parse_interactive(text, start=start)
    try:
        parser.exhaust_lexer()
        tree: Tree[Token] = parser.feed_eof()
    except UnexpectedInput as error:
        ended = isinstance(error, UnexpectedEOF) or getattr(getattr(error, "token", None), "type", "") == "$END"
        position = len(text.rstrip()) if ended else error.pos_in_stream
        assert position is not None
        raise _syntax_error(text, position, _allowed(text[:position], start) or parser.accepts(), what) from None
    return tree


def _allowed(read: str, start: str) -> set[str]:
    """Return the terminals that are allowed after `read`. The failed parser cannot be asked: it has already reduced
    its stack."""
    parser: Any = _grammar().parse_interactive(read, start=start)
    try:
        parser.exhaust_lexer()
    except UnexpectedInput:
        return set()
    return {str(terminal) for terminal in parser.accepts()}


# Names of terminals in errors, in the order of output. A name for several terminals is used if all are allowed.
_EXPECTED: tuple[tuple[frozenset[str], list[str]], ...] = tuple(
    (frozenset(terminals.split()), names)
    for terminals, *names in (
        ("VARIABLE TEXT NUMBER TRUTH URI", "a path or a constant"),
        ("CLASS PREFIXED URI", "a class or the name of a rule"),
        ("PROPERTY PREFIXED URI", "a property"),
        ("VARIABLE", "a variable"),
        ("COUNT", "a whole number"),
        ("_DOT", "'.'"),
        ("ANY", "'?'"),
        ("COMPARISON", "a comparison such as ="),
        ("WORD_OPERATOR", *(f"'{word}'" for word in WORDS)),
        ("_COMMA", "','"),
        ("NOT", "'not'"),
        ("LPAR", "'('"),
        ("_RPAR", "')'"),
        ("_AND", "'and'"),
        ("_OR", "'or'"),
        ("_SEARCH", "'search'"),
        ("_REGISTER", "'register'"),
        ("_WHERE", "'where'"),
        ("_RETURN", "'return'"),
        ("DIRECTION", "'asc' or 'desc'"),
        ("_ORDER", "'order by'"),
        ("_BY", "'by'"),
        ("_LIMIT", "'limit'"),
        ("$END", "the end"),
    )
)


def _describe(terminals: Iterable[str]) -> str:
    left, names = set(terminals), []
    for group, group_names in _EXPECTED:
        if group <= left:
            names += group_names
            left -= group
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else "".join(names)


_WORD = re.compile(r"[^\W\d][\w-]*|[-+]?\.?\d[\w.:+-]*|'[^'\n]{0,30}|<[^\s<>]*>|[=!<>&|]+|\S")
_NUMBERISH = re.compile(r"[-+]?\.?\d[\w.:+-]*")
_DATEISH = re.compile(r"\d{4,}-\d\d|\d\d:\d\d")
_PREFIXED = re.compile(r"([^\W\d][\w-]*)?:[\w-]*")
_HINTS_BY_SIGN = {
    "==": "write = for equality",
    "<>": "write != for inequality",
    "&&": "write 'and'",
    "||": "write 'or'",
    "!": "write 'not'",
    '"': "write text in single quotes: 'text'",
    "+": "write numbers without +",
    ";": "a rule has no mark at its end",
}


def _syntax_error(text: str, position: int, allowed: set[str], what: str) -> InvalidRule:
    expected = _describe(allowed)
    word = _WORD.match(text, position)
    if word is None:
        end = Span(position, position + 1)
        return rule_error(text, end, f"expected {expected}, but the {what} ends here", what=what)
    span, found = Span(*word.span()), word[0]
    message, hint = f"expected {expected}, found {_quoted(found)}", None

    before = _PREFIXED.match(text, len(re.sub(r"[\w-]*\Z", "", text[:position]))) if found == ":" else None
    around = text[max(0, position - 1) : position + 2]
    if "TEXT" in allowed and found.startswith("'"):
        span = Span(position, position + 1)
        message, hint = "this text has no closing quote", "write a quote within a text twice: 'it''s'"
    elif "NUMBER" in allowed and (number := _NUMBERISH.match(text, position)):
        span, message = Span(*number.span()), f"{_quoted(number[0])} is not a number"
        hint = "write numbers as 64, -1.5 or 6e3"
        if _DATEISH.search(number[0]):
            hint = f"write dates and times as text: '{number[0]}'" if len(number[0]) < 40 else None
    elif "URI" in allowed and found.startswith("<"):
        message, hint = "this is not a complete URI", "write it as <http://…>, without spaces"
    elif before is not None and before.end() > position:
        span = Span(*before.span())
        message = f"{_quoted(before[0])} is neither a variable nor a constant"
        hint = "write a URI in full: <http://…>"
    elif found.lower() in KEYWORDS and allowed & {"VARIABLE", "CLASS"}:
        hint = f"{_quoted(found)} is a keyword, so it cannot be a name here"
    elif found.lower() == "return":
        hint = "a query has either 'register' or 'return'" if what == "query" else "only queries have 'return'"
    elif found.lower() in ("register", "where") and what == "rule":
        hint = "the order is 'search', 'register', 'where'"
    else:
        hint = next(
            (hint for sign, hint in _HINTS_BY_SIGN.items() if found.startswith(sign) or sign == around[:2]), None
        )
    return rule_error(text, span, message, hint, what)


def _quoted(found: str) -> str:
    shown = found if len(found) <= 40 else found[:39] + "…"
    shown = "".join(character if character.isprintable() else "�" for character in shown)
    return f'"{shown}"' if "'" in shown else f"'{shown}'"


class _Builder:
    """Builds the syntax tree of one text and enforces limits. Visits constants in the order of the text."""

    def __init__(self, text: str, what: str = "rule") -> None:
        self.text, self.what = text, what
        self.slots = self.predicates = 0

    def error(self, span: Span, message: str, hint: str | None = None) -> InvalidRule:
        return rule_error(self.text, span, message, hint, self.what)

    def rule(self, tree: Tree[Token]) -> ParsedRule:
        search, register, where = tree.children
        return ParsedRule(self.text, self.search(search), _name(_tokens(register)[0]), self.where(where))

    def query(self, tree: Tree[Token]) -> ParsedQuery:
        search, where, returns, order, limit = tree.children
        return ParsedQuery(
            self.text,
            self.search(search),
            self.where(where),
            tuple(self.path(path) for path in _trees(returns)),
            tuple(self.ordering(ordering) for ordering in _trees(order)),
            self.limit(_tokens(limit)[0]) if limit is not None else None,
        )

    def search(self, tree: Tree[Token] | Token) -> tuple[Extension, ...]:
        found = tuple(Extension(*map(_name, _tokens(extension))) for extension in _trees(tree))
        if len(found) > MAX_SEARCH_VARIABLES:
            span = Span(found[MAX_SEARCH_VARIABLES].name.span.start, found[MAX_SEARCH_VARIABLES].variable.span.end)
            raise self.error(span, f"the {self.what} searches more than {MAX_SEARCH_VARIABLES} variables")
        return found

    def where(self, tree: Tree[Token] | Token | None) -> Expression | None:
        return self.expression(_trees(tree)[0], 0) if tree is not None else None

    def ordering(self, tree: Tree[Token]) -> Ordering:
        path, direction = tree.children
        assert isinstance(path, Tree)
        return Ordering(self.path(path), direction is not None and str(direction).lower() == "desc")

    def limit(self, token: Token) -> int:
        if len(token) > MAX_COUNT_DIGITS:
            raise self.error(_span(token), f"a limit has at most {MAX_COUNT_DIGITS} digits")
        return int(token)

    def expression(self, tree: Tree[Token], nesting: int) -> Expression:
        if tree.data == "predicate":
            return self.predicate(tree)
        if tree.data in ("group", "negation"):
            if nesting == MAX_NESTING:
                message = f"parentheses and 'not' are nested more than {MAX_NESTING} deep"
                raise self.error(_span(_tokens(tree)[0]), message)
            inner = self.expression(_trees(tree)[0], nesting + 1)
            return Not(inner) if tree.data == "negation" else inner
        make: Callable[[tuple[Expression, ...]], Expression] = And if tree.data == "both" else Or
        return make(tuple(self.expression(part, nesting) for part in _trees(tree)))

    def predicate(self, tree: Tree[Token]) -> Predicate:
        left, token, right = tree.children
        first, operator, second = self.operand(left), Operator(str(token).lower()), self.operand(right)
        span = Span(first.span.start, second.span.end)
        self.predicates += 1
        if self.predicates > MAX_PREDICATES:
            raise self.error(span, f"the {self.what} has more than {MAX_PREDICATES} predicates")
        return Predicate(first, operator, second, span)

    def operand(self, tree: Tree[Token] | Token) -> Operand:
        return self.path(tree) if isinstance(tree, Tree) else self.literal(tree)

    def path(self, tree: Tree[Token]) -> Path:
        variable, *steps = tree.children
        assert isinstance(variable, Token)
        parsed_steps: list[PathStep] = []
        end = _span(variable).end
        for step in steps:
            name, any_ = step.children  # type: ignore[union-attr]
            assert isinstance(name, Token)
            if len(parsed_steps) == MAX_PATH_STEPS:
                raise self.error(_span(name), f"the path has more than {MAX_PATH_STEPS} steps")
            parsed_steps.append(PathStep(_name(name), any_ is not None))
            end = _span(any_ if isinstance(any_, Token) else name).end
        return Path(_name(variable), tuple(parsed_steps), Span(_span(variable).start, end))

    def literal(self, token: Token) -> Literal:
        slot, span = self.slots, _span(token)
        self.slots += 1
        match token.type:
            case "TEXT":
                return Literal(LiteralKind.TEXT, text_value(token), span, slot)
            case "NUMBER":
                value = number_value(token)
                if value is None:
                    raise self.error(span, f"a number has at most {MAX_DIGITS:,} digits, including its exponent")
                return Literal(LiteralKind.NUMBER, value, span, slot)
            case "TRUTH":
                return Literal(LiteralKind.TRUTH, token.lower() == "true", span, slot)
            case _:
                return Literal(LiteralKind.URI, token[1:-1], span, slot)


def text_value(written: str) -> str:
    """Return the text of a quoted constant.

    >>> print(text_value("'it''s'"))
    it's
    """
    return written[1:-1].replace("''", "'")


def number_value(written: str) -> Decimal | None:
    """Return the exact number; None if it has too many digits, or would have without its exponent.

    >>> number_value("-1.50"), number_value("-0"), number_value("1e1000000")
    (Decimal('-1.50'), Decimal('0'), None)
    """
    if len(written) > 16:
        mantissa, _, exponent = written.lower().partition("e")
        exponent = exponent.lstrip("+-").lstrip("0")
        if len(mantissa) > MAX_DIGITS + 2 or sum(map(str.isdigit, mantissa)) > MAX_DIGITS:
            return None
        if len(exponent) > 4 or int(exponent or 0) > MAX_DIGITS:
            return None
    elif "e" in written or "E" in written:
        exponent = written.lower().partition("e")[2]
        if abs(int(exponent)) > MAX_DIGITS:
            return None
    return Decimal(written) or _ZERO


_ZERO = Decimal(0)


def _span(token: Token) -> Span:
    assert token.start_pos is not None and token.end_pos is not None
    return Span(token.start_pos, token.end_pos)


def _name(token: Token) -> Name:
    return Name(str(token), _span(token))


def _trees(tree: Tree[Token] | Token | None) -> list[Tree[Token]]:
    return [child for child in tree.children if isinstance(child, Tree)] if isinstance(tree, Tree) else []


def _tokens(tree: Tree[Token] | Token | None) -> list[Token]:
    return [child for child in tree.children if isinstance(child, Token)] if isinstance(tree, Tree) else []
