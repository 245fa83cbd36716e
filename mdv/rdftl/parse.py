"""Parse the text of RDFTL rules and updates into the parsed stage.

An error of the grammar is reported alone. Other flaws and the warnings are collected in the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import TypeVar

from lark import Lark, Token, Tree

from mdv.errors import InvalidRule
from mdv.rdftl.model import AbortDependency, Axis, ChangeKind, Coupling
from mdv.rdftl.syntax import (
    NameForm,
    WrittenActions,
    WrittenAlways,
    WrittenArc,
    WrittenArcChange,
    WrittenCall,
    WrittenChange,
    WrittenComparison,
    WrittenCondition,
    WrittenConstant,
    WrittenGroup,
    WrittenLet,
    WrittenName,
    WrittenNode,
    WrittenNodeChange,
    WrittenNot,
    WrittenOperand,
    WrittenPath,
    WrittenPreamble,
    WrittenResource,
    WrittenRule,
    WrittenStep,
    WrittenTest,
    WrittenTriple,
    WrittenUpdate,
    WrittenVariable,
)
from mdv.rules.ast import Span
from mdv.rules.operators import Operator
from mdv.rules.text_errors import (
    ExpectedNames,
    Mark,
    UnexpectedText,
    check_text,
    describe_expected,
    parse_tree,
    quoted,
    rule_error,
    token_span,
)

MAX_BYTES = 16_384
MAX_STEPS = 64
"""Steps of a path. The resolver enforces it after LETs are expanded."""
MAX_ACTIONS = 32
MAX_NESTING = 32
"""Depth of parentheses, `not` and qualifiers."""
MAX_INDEX = 999_999_999
"""The greatest i of `element(i)`."""

MAX_NAME_CHARACTERS = 200

Word = TypeVar("Word", bound=Enum)


def parse_rules(text: str) -> tuple[WrittenRule, ...]:
    """Return the rules of a text. Raise `InvalidRule` if the grammar does not accept it.

    >>> rule, = parse_rules("ON INSERT resource() IF TRUE DO DELETE $delta;;")
    >>> rule.event.kind, rule.coupling.value
    (<ChangeKind.INSERT: 'INSERT'>, 'Immediate')
    """
    tree = _tree(text, "rules")
    return tuple(_Builder(text, "rule").rule(body) for body in _trees(tree))


def parse_update(text: str) -> WrittenUpdate:
    """Return the update of a text. Raise `InvalidRule` if the grammar does not accept it.

    >>> len(parse_update("DELETE resource(x); DELETE resource(y)").actions)
    2
    """
    tree = _tree(text, "update")
    builder = _Builder(text, "update")
    preamble = builder.preamble(tree)
    actions = builder.actions(
        [one for one in tree.children if isinstance(one, Token) or one.data not in ("namespace", "base")]
    )
    return WrittenUpdate(preamble, actions, tuple(builder.flaws), tuple(builder.warnings))


@cache
def _grammar() -> Lark:
    grammar = (files("mdv.rdftl") / "grammar.lark").read_text("utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", start=["rules", "update"], propagate_positions=True)


def _tree(text: str, start: str) -> Tree[Token]:
    what = "rule" if start == "rules" else "update"
    check_text(text, what, MAX_BYTES)
    try:
        return parse_tree(_grammar(), text, start)
    except UnexpectedText as error:
        raise _syntax_error(text, error.position, error.allowed, what) from None


# --- errors of the grammar ---

_EXPECTED: ExpectedNames = tuple(
    (frozenset(terminals.split()), names)
    for terminals, *names in (
        ("RULE COUPLING ABORT _PRECEDES _FOLLOWS BASE LOCAL STRICT", "a header such as RULE or COUPLING"),
        ("RESOURCE VARIABLE TARGET SOURCE ELEMENT STRING NUMBER TRUE FALSE NOT LPAR", "a condition"),
        ("RESOURCE VARIABLE TARGET SOURCE ELEMENT STRING NUMBER TRUE FALSE", "a path or a constant"),
        ("RESOURCE VARIABLE STRING NUMBER ANY WORD PREFIXED IRI", "a path, a name, a constant or '_'"),
        ("RESOURCE VARIABLE STRING NUMBER WORD PREFIXED IRI", "an argument"),
        ("SEQUENCE ANY WORD PREFIXED IRI STRING", "a property, 'seq++' or '_'"),
        ("WORD PREFIXED IRI STRING", "a class"),
        ("RESOURCE VARIABLE LPAR", "'resource(…)', a variable or a triple"),
        ("RESOURCE VARIABLE", "'resource(…)' or a variable"),
        ("RESOURCE", "'resource(…)'"),
        ("TARGET SOURCE ELEMENT", "'target(…)', 'source(…)' or 'element(…)'"),
        ("IRI STRING BARE_URI", "a URI"),
        ("IRI STRING BARE", "a URI"),
        ("WORD IRI STRING", "the name of a namespace"),
        ("WORD PREFIXED IRI", "the name of an action"),
        ("PREFIXED IRI", "a datatype"),
        ("NAME STRING", "the name of a rule"),
        ("EQUAL OPERATOR", "a comparison operator"),
        ("ASSIGN EQUAL", "':='"),
        ("INSERT DELETE UPDATE _CALL", "INSERT", "DELETE", "UPDATE", "CALL"),
        ("INSERT DELETE UPDATE", "INSERT", "DELETE", "UPDATE"),
        ("INSERT DELETE", "INSERT", "DELETE"),
        ("TRUE", "TRUE"),
        ("FALSE",),
        ("DOTS",),
        ("DASH",),
        ("LANGUAGE",),
        ("_HATS",),
        ("FIELD",),
        ("VARIABLE", "a variable such as $x"),
        ("WORD", "a word"),
        ("INDEX", "a number"),
        ("LPAR", "'('"),
        ("NOT", "not"),
        ("_USING", "USING NAMESPACE"),
        ("_NAMESPACE", "NAMESPACE"),
        ("_AS", "AS INSTANCE OF"),
        ("_INSTANCE", "INSTANCE OF"),
        ("_OF", "OF"),
        ("_LET", "LET"),
        ("_IN", "IN"),
        ("_ON", "ON"),
        ("_IF", "IF"),
        ("_DO", "DO"),
        ("_AND", "and"),
        ("_OR", "or"),
        ("ARROW", "'->'"),
        ("LSQUARE", "'['"),
        ("_RSQUARE", "']'"),
        ("_SLASH", "'/'"),
        ("_COMMA", "','"),
        ("RPAR", "')'"),
        ("_SEMICOLON", "';'"),
        ("_END", "';;'"),
        ("$END", "the end of the text"),
    )
)

_FOUND = re.compile(r"\$?[^\W\d][\w:-]*|[-+]?\.?\d[\w.:+-]*|'[^'\n]{0,30}|\"[^\"\n]{0,30}|<[^\s<>]*>|[=!<>&|-]+|;+|\S")
_URI_START = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_DATE = re.compile(r"\d{4,}-\d\d")
_HINTS = {
    "==": "write =",
    "&&": "write and",
    "&": "write and",
    "||": "write or",
    "|": "write or",
    "!": "write not",
    "{": "a triple is written in parentheses",
    "?": "a variable begins with $",
}


def _syntax_error(text: str, position: int, allowed: set[str], what: str) -> InvalidRule:
    expected = describe_expected(allowed, _EXPECTED)
    word = _FOUND.match(text, position)
    if word is None:
        return rule_error(
            text, Span(position, position + 1), f"expected {expected}, but the {what} ends here", what=what
        )
    found, span = word[0], Span(*word.span())
    message, hint = f"expected {expected}, found {quoted(found)}", _HINTS.get(found)
    start = len(re.sub(r"[\w+.-]*\Z", "", text[:position]))
    if found[0] in "'\"" and "STRING" in allowed:
        span = Span(position, position + 1)
        message, hint = "this text has no closing quote", "write a quote within a text twice: 'it''s'"
    elif uri := _URI_START.match(text, start if found == ":" else position):
        span = Span(*uri.span())
        hint = "write a URI as <http://…> or resource(http://…)"
    elif _DATE.match(found) and "STRING" in allowed:
        hint = f"write dates and times as text: '{found[:40]}'"
    elif "EQUAL" not in allowed and "STRING" in allowed and found[0].isalpha() and "WORD" not in allowed:
        hint = f"write a text in quotes, a resource as resource({found[:40]}), a property as target({found[:40]})"
    elif found.lower() in ("on", "if", "do") and what == "update":
        hint = "an update consists of actions only"
    return rule_error(text, span, message, hint, what)


# --- the syntax tree ---

_OPERATORS = {"≠": "!=", "<>": "!=", "≤": "<=", "≥": ">="}
_AXES = {"TARGET": Axis.TARGET, "SOURCE": Axis.SOURCE, "ELEMENT": Axis.ELEMENT}
_NAME_TOKENS = ("WORD", "PREFIXED", "IRI", "STRING", "BARE", "BARE_URI", "NAME")


class _Builder:
    """Builds the syntax tree of one rule or update. Enforces limits and collects flaws and warnings."""

    def __init__(self, text: str, what: str) -> None:
        self.text, self.what = text, what
        self.flaws: list[Mark] = []
        self.warnings: list[Mark] = []

    def flaw(self, span: Span, message: str, hint: str | None = None) -> None:
        self.flaws.append(Mark(span, message, hint))

    def warn(self, span: Span, message: str, hint: str | None = None) -> None:
        self.warnings.append(Mark(span, message, hint))

    def limit(self, span: Span, message: str) -> InvalidRule:
        return rule_error(self.text, span, message, what=self.what)

    # Rules

    def rule(self, tree: Tree[Token]) -> WrittenRule:
        span = _span(tree)
        coupling = self.header_word(tree, "coupling", Coupling)
        abort = self.header_word(tree, "abort", AbortDependency)
        if coupling is Coupling.DETACHED and not _find(tree, "abort"):
            modes = ", ".join(one.value for one in AbortDependency)
            self.flaw(
                _span(_find(tree, "coupling")[0]), "a Detached rule needs ABORT", f"write ABORT and one of {modes}"
            )
        (event,) = _find(tree, "node_change", "arc_change")
        (condition,) = _find(tree, "condition")
        (actions,) = _find(tree, "actions")
        lets = [let for bindings in _find(tree, "bindings") for let in _trees(bindings)]
        event_lets = [let for bindings in _find(tree, "event_bindings") for let in _trees(bindings)]
        rule_name = self.once(_find(tree, "rule_name"), "RULE")
        return WrittenRule(
            preamble=self.preamble(tree),
            lets=tuple(map(self.let, lets)),
            event_lets=tuple(map(self.let, event_lets)),
            event=self.change(event),
            condition=self.condition(_trees(condition)[0], 0),
            actions=self.actions(actions.children),
            name=self.rule_name(rule_name) if rule_name else None,
            coupling=coupling or Coupling.IMMEDIATE,
            abort=abort or AbortDependency.MUTUAL,
            precedes=tuple(name for one in _find(tree, "precedes") for name in _names(one)),
            follows=tuple(name for one in _find(tree, "follows") for name in _names(one)),
            local="LOCAL" in _token_types(tree),
            strict="STRICT" in _token_types(tree),
            text=self.text[span.start : span.end],
            flaws=tuple(self.flaws),
            warnings=tuple(self.warnings),
            states_abort=abort is not None,
        )

    def rule_name(self, tree: Tree[Token]) -> WrittenName:
        (name,) = _names(tree)
        if not name.text or len(name.text) > MAX_NAME_CHARACTERS or not name.text.isprintable():
            self.flaw(name.span, f"the name of a rule has 1 to {MAX_NAME_CHARACTERS} characters, all printable")
        return name

    def once(self, trees: list[Tree[Token]], keyword: str) -> Tree[Token] | None:
        for tree in trees[1:]:
            self.flaw(_span(tree), f"{keyword} is given twice")
        return trees[0] if trees else None

    def header_word(self, tree: Tree[Token], header: str, words: type[Word]) -> Word | None:
        found = self.once(_find(tree, header), header.upper())
        if found is None:
            return None
        token = _tokens(found)[1]
        for word in words:
            if word.value.lower() == token.lower():
                return word
        known = [word.value for word in words]
        near = get_close_matches(str(token)[:80], known, 1)
        hint = f"did you mean {near[0]}?" if near else f"the modes are {', '.join(known)}"
        self.flaw(token_span(token), f"unknown {header} mode {quoted(token)}", hint)
        return None

    def preamble(self, tree: Tree[Token]) -> WrittenPreamble:
        pairs = [_names(one) for one in _find(tree, "namespace")]
        base = self.once(_find(tree, "base"), "BASE")
        return WrittenPreamble(tuple((prefix, uri) for prefix, uri in pairs), _names(base)[0] if base else None)

    def let(self, tree: Tree[Token]) -> WrittenLet:
        variable, sign = _tokens(tree)
        if sign.type == "EQUAL":
            self.warn(token_span(sign), "'=' is read as ':='")
        return WrittenLet(WrittenVariable(variable[1:], token_span(variable)), self.path(_trees(tree)[0], 0))

    # Events and actions

    def actions(self, children: list[Tree[Token] | Token]) -> WrittenActions:
        found: list[WrittenChange | WrittenCall | tuple[WrittenLet, ...]] = []
        count = 0
        for child in children:
            if isinstance(child, Token):
                message = f"{quoted(child)} stands for more actions: this is a scheme, not a rule"
                self.flaw(token_span(child), message, "write all actions")
            elif child.data == "action_bindings":
                found.append(tuple(map(self.let, _trees(child))))
            else:
                count += 1
                if count > MAX_ACTIONS:
                    raise self.limit(_span(child), f"there are more than {MAX_ACTIONS} actions")
                found.append(self.call(child) if child.data == "action_call" else self.change(child))
        return tuple(found)

    def call(self, tree: Tree[Token]) -> WrittenCall:
        name, *rest = [one for one in tree.children if not isinstance(one, Token) or one.type not in ("LPAR", "RPAR")]
        assert isinstance(name, Token)
        return WrittenCall(_name(name), tuple(map(self.argument, rest)), _span(tree))

    def argument(self, child: Tree[Token] | Token) -> WrittenOperand | WrittenName:
        if isinstance(child, Tree):
            return self.operand(child, 0)
        if child.type == "WORD" and child.lower() in ("true", "false"):
            return WrittenConstant(child.lower(), token_span(child), quoted=False)
        return _name(child)

    def change(self, tree: Tree[Token]) -> WrittenChange:
        kind = ChangeKind[_tokens(tree)[0].type]
        if tree.data == "arc_change":
            return WrittenArcChange(kind, tuple(map(self.triple, _trees(tree))), _span(tree))
        class_name, namespace = self.instance(tree)
        return WrittenNodeChange(kind, self.path(_trees(tree)[0], 0), _span(tree), class_name, namespace)

    def instance(self, tree: Tree[Token]) -> tuple[WrittenName | None, WrittenName | None]:
        classes, namespaces = [], []
        for instance in _find(tree, "instance"):
            classes = _find(instance, "class_name")
            namespaces = _find(instance, "namespace_name")
        return (_names(classes[0])[0] if classes else None), (_names(namespaces[0])[0] if namespaces else None)

    def triple(self, tree: Tree[Token]) -> WrittenTriple:
        if tree.data == "triple":
            source, arc, target = _trees(tree)
            return WrittenTriple(self.node(source), self.arc(arc), self.node(target))
        _, source, arc, old, arrow, new, _ = tree.children  # type: ignore[assignment]
        assert isinstance(arrow, Token) and isinstance(source, Tree) and isinstance(arc, Tree)
        if arrow.endswith(","):
            comma = token_span(arrow).end - 1
            self.warn(Span(comma, comma + 1), "this comma is ignored")
        return WrittenTriple(
            self.node(source), self.arc(arc), self.update_node(old, arrow), self.update_node(new, arrow)
        )

    def update_node(self, child: Tree[Token] | Token | None, arrow: Token) -> WrittenNode:
        if isinstance(child, Tree):
            return self.node(child)
        span = token_span(arrow) if child is None else token_span(child)
        self.warn(span, "a missing node is read as '_'" if child is None else f"{quoted(child)} is read as '_'")
        return WrittenNode(None, span)

    def node(self, tree: Tree[Token]) -> WrittenNode:
        class_name, namespace = self.instance(tree)
        value = tree.children[0]
        written: WrittenOperand | WrittenName | None
        if isinstance(value, Tree):
            written = self.operand(value, 0)
        elif value.type == "ANY":
            written = None
        else:
            written = _name(value)
        return WrittenNode(written, _span(tree), class_name, namespace)

    def arc(self, tree: Tree[Token]) -> WrittenArc:
        token = _tokens(tree)[0]
        namespaces = _find(tree, "namespace_name")
        name = None if token.type in ("ANY", "SEQUENCE") else _name(token)
        return WrittenArc(
            name, token_span(token), token.type == "SEQUENCE", _names(namespaces[0])[0] if namespaces else None
        )

    # Paths and conditions

    def path(self, tree: Tree[Token], nesting: int) -> WrittenPath:
        if tree.data == "relative":
            return WrittenPath(None, (), self.steps(tree, nesting), _span(tree))
        return WrittenPath(
            self.head(_trees(tree)[0]), self.qualifiers(tree, nesting), self.steps(tree, nesting), _span(tree)
        )

    def head(self, tree: Tree[Token]) -> WrittenResource | WrittenVariable:
        if tree.data == "resource":
            # The empty text stands for all resources.
            names = [name for name in _names(tree) if name.text]
            return WrittenResource(names[0] if names else None, _span(tree))
        variable, *fields = _tokens(tree)
        if not fields:
            return WrittenVariable(variable[1:], token_span(variable))
        return WrittenVariable(variable[1:], token_span(variable), fields[0][1:], token_span(fields[0]))

    def steps(self, tree: Tree[Token], nesting: int) -> tuple[WrittenStep, ...]:
        found = _find(tree, "step")
        if len(found) > MAX_STEPS:
            raise self.limit(_span(found[MAX_STEPS]), f"the path has more than {MAX_STEPS} steps")
        return tuple(self.step(step, nesting) for step in found)

    def step(self, tree: Tree[Token], nesting: int) -> WrittenStep:
        qualifiers = self.qualifiers(tree, nesting)
        tokens = _tokens(tree)
        axis, span = _AXES[tokens[0].type], _span(tree)
        if axis is not Axis.ELEMENT:
            return WrittenStep(axis, span, self.arc(_find(tree, "arc")[0]), qualifiers=qualifiers)
        indexes = [token for token in tokens if token.type == "INDEX"]
        return WrittenStep(axis, span, None, self.index(indexes[0]) if indexes else None, qualifiers)

    def index(self, token: Token) -> int:
        digits = token.lstrip("0")
        if not digits or len(digits) > len(str(MAX_INDEX)):
            self.flaw(token_span(token), "an element has a number from 1 to 999,999,999")
            return 1
        return int(digits)

    def qualifiers(self, tree: Tree[Token], nesting: int) -> tuple[WrittenCondition, ...]:
        found = _find(tree, "qualifier")
        return tuple(self.condition(_trees(one)[0], self.deeper(one, nesting)) for one in found)

    def deeper(self, tree: Tree[Token], nesting: int) -> int:
        if nesting == MAX_NESTING:
            message = f"parentheses, qualifiers and 'not' are nested more than {MAX_NESTING} deep"
            raise self.limit(token_span(_tokens(tree)[0]), message)
        return nesting + 1

    def condition(self, tree: Tree[Token], nesting: int) -> WrittenCondition:
        match tree.data:
            case "always":
                return WrittenAlways()
            case "test":
                return WrittenTest(self.operand(tree.children[0], nesting))
            case "comparison":
                left, operator, right = tree.children
                assert isinstance(operator, Token)
                symbol = _OPERATORS.get(operator, str(operator))
                operands = self.operand(left, nesting), self.operand(right, nesting)
                return WrittenComparison(operands[0], Operator(symbol), operands[1], token_span(operator))
            case "negation":
                return WrittenNot(self.condition(_trees(tree)[0], self.deeper(tree, nesting)))
            case "group":
                return self.condition(_trees(tree)[0], self.deeper(tree, nesting))
        parts = tuple(self.condition(part, nesting) for part in _trees(tree))
        return WrittenGroup(parts, tree.data == "either")

    def operand(self, tree: Tree[Token] | Token, nesting: int) -> WrittenOperand:
        if isinstance(tree, Token):  # TRUE or FALSE
            return WrittenConstant(tree.lower(), token_span(tree), quoted=False)
        if tree.data != "constant":
            return self.path(tree, nesting)
        token, *rest = _tokens(tree)
        if token.type == "NUMBER":
            return WrittenConstant(str(token), token_span(token), quoted=False)
        text, span = _unquoted(token), _span(tree)
        if rest and rest[0].type == "LANGUAGE":
            return WrittenConstant(text, span, lang=rest[0][1:])
        return WrittenConstant(text, span, datatype=_name(rest[0]) if rest else None)


def _unquoted(token: str) -> str:
    return token[1:-1].replace(token[0] * 2, token[0])


def _name(token: Token) -> WrittenName:
    match token.type:
        case "IRI":
            return WrittenName(token[1:-1], NameForm.IRI, token_span(token))
        case "STRING":
            return WrittenName(_unquoted(token), NameForm.QUOTED, token_span(token))
    return WrittenName(str(token), NameForm.BARE, token_span(token))


def _names(tree: Tree[Token]) -> list[WrittenName]:
    return [_name(token) for token in _tokens(tree) if token.type in _NAME_TOKENS]


def _trees(tree: Tree[Token]) -> list[Tree[Token]]:
    return [child for child in tree.children if isinstance(child, Tree)]


def _tokens(tree: Tree[Token]) -> list[Token]:
    return [child for child in tree.children if isinstance(child, Token)]


def _token_types(tree: Tree[Token]) -> Iterator[str]:
    return (token.type for token in _tokens(tree))


def _find(tree: Tree[Token], *data: str) -> list[Tree[Token]]:
    return [child for child in _trees(tree) if child.data in data]


def _span(tree: Tree[Token]) -> Span:
    return Span(tree.meta.start_pos, tree.meta.end_pos)
