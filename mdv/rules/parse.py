"""Parse the text of a rule or query into its syntax tree, with the grammar in `grammar.lark`.

Law: for every text, the result is a tree within the limits or `InvalidRule` with the position of the error, in a short
time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from importlib.resources import files

from lark import Lark, Token, Tree

from mdv.errors import InvalidRule
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
from mdv.rules.text_errors import (
    ExpectedNames,
    UnexpectedText,
    check_text,
    describe_expected,
    parse_tree,
    quoted,
    rule_error,
    token_span,
)

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


@cache
def _grammar() -> Lark:
    grammar = (files("mdv.rules") / "grammar.lark").read_text("utf-8")
    for name, texts in (("KEYWORDS", KEYWORDS), ("WORDS", WORDS), ("SIGNS", SIGNS)):
        # Longer texts come first: `<` would match the beginning of `<=`.
        grammar = grammar.replace(f"@{name}@", "|".join(sorted(texts, key=lambda text: (-len(text), text))))
    return Lark(grammar, parser="lalr", lexer="contextual", start=["rule", "rule_or_query"], maybe_placeholders=True)


def _tree(text: str, start: str) -> Tree[Token]:
    what = "rule" if start == "rule" else "query"
    check_text(text, what, MAX_BYTES)
    try:
        return parse_tree(_grammar(), text, start)
    except UnexpectedText as error:
        raise _syntax_error(text, error.position, error.allowed, what) from None


_EXPECTED: ExpectedNames = tuple(
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
    expected = describe_expected(allowed, _EXPECTED)
    word = _WORD.match(text, position)
    if word is None:
        end = Span(position, position + 1)
        return rule_error(text, end, f"expected {expected}, but the {what} ends here", what=what)
    span, found = Span(*word.span()), word[0]
    message, hint = f"expected {expected}, found {quoted(found)}", None

    before = _PREFIXED.match(text, len(re.sub(r"[\w-]*\Z", "", text[:position]))) if found == ":" else None
    around = text[max(0, position - 1) : position + 2]
    if "TEXT" in allowed and found.startswith("'"):
        span = Span(position, position + 1)
        message, hint = "this text has no closing quote", "write a quote within a text twice: 'it''s'"
    elif "NUMBER" in allowed and (number := _NUMBERISH.match(text, position)):
        span, message = Span(*number.span()), f"{quoted(number[0])} is not a number"
        hint = "write numbers as 64, -1.5 or 6e3"
        if _DATEISH.search(number[0]):
            hint = f"write dates and times as text: '{number[0]}'" if len(number[0]) < 40 else None
    elif "URI" in allowed and found.startswith("<"):
        message, hint = "this is not a complete URI", "write it as <http://…>, without spaces"
    elif before is not None and before.end() > position:
        span = Span(*before.span())
        message = f"{quoted(before[0])} is neither a variable nor a constant"
        hint = "write a URI in full: <http://…>"
    elif found.lower() in KEYWORDS and allowed & {"VARIABLE", "CLASS"}:
        hint = f"{quoted(found)} is a keyword, so it cannot be a name here"
    elif found.lower() == "return":
        hint = "a query has either 'register' or 'return'" if what == "query" else "only queries have 'return'"
    elif found.lower() in ("register", "where") and what == "rule":
        hint = "the order is 'search', 'register', 'where'"
    else:
        hint = next(
            (hint for sign, hint in _HINTS_BY_SIGN.items() if found.startswith(sign) or sign == around[:2]), None
        )
    return rule_error(text, span, message, hint, what)


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
            raise self.error(token_span(token), f"a limit has at most {MAX_COUNT_DIGITS} digits")
        return int(token)

    def expression(self, tree: Tree[Token], nesting: int) -> Expression:
        if tree.data == "predicate":
            return self.predicate(tree)
        if tree.data in ("group", "negation"):
            if nesting == MAX_NESTING:
                message = f"parentheses and 'not' are nested more than {MAX_NESTING} deep"
                raise self.error(token_span(_tokens(tree)[0]), message)
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
        end = token_span(variable).end
        for step in steps:
            name, any_ = step.children  # type: ignore[union-attr]
            assert isinstance(name, Token)
            if len(parsed_steps) == MAX_PATH_STEPS:
                raise self.error(token_span(name), f"the path has more than {MAX_PATH_STEPS} steps")
            parsed_steps.append(PathStep(_name(name), any_ is not None))
            end = token_span(any_ if isinstance(any_, Token) else name).end
        return Path(_name(variable), tuple(parsed_steps), Span(token_span(variable).start, end))

    def literal(self, token: Token) -> Literal:
        slot, span = self.slots, token_span(token)
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


def _name(token: Token) -> Name:
    return Name(str(token), token_span(token))


def _trees(tree: Tree[Token] | Token | None) -> list[Tree[Token]]:
    return [child for child in tree.children if isinstance(child, Tree)] if isinstance(tree, Tree) else []


def _tokens(tree: Tree[Token] | Token | None) -> list[Token]:
    return [child for child in tree.children if isinstance(child, Token)] if isinstance(tree, Tree) else []
