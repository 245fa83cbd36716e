"""Errors in the texts of the languages: the line and column, the marked source line, and what was expected."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedEOF, UnexpectedInput

from mdv.errors import Flaw, InvalidRule
from mdv.rules.ast import Span

ExpectedNames: TypeAlias = Sequence[tuple[frozenset[str], list[str]]]
"""Names of terminals in errors, in the order of output. A name for several terminals is used if all are allowed."""


class Mark(NamedTuple):
    """An error or warning at a place of a text."""

    span: Span
    message: str
    hint: str | None = None


def rule_error(text: str, span: Span, message: str, hint: str | None = None, what: str = "rule") -> InvalidRule:
    """Return an error that marks `span` in the text of a rule or query.

    >>> rule_error("search Cycle c", Span(7, 12), "unknown class 'Cycle'", "did you mean Bicycle?").flaws[0].column
    8
    """
    return rule_errors(text, [Mark(span, message, hint)], what)


def rule_errors(text: str, marks: Sequence[Mark], what: str = "rule") -> InvalidRule:
    """Return one error for all `marks`, in the order of the text.

    >>> error = rule_errors("a b", [Mark(Span(2, 3), "unknown 'b'"), Mark(Span(0, 1), "unknown 'a'")])
    >>> print(error.detail.splitlines()[0])
    The rule has 2 errors.
    """
    ordered = sorted(dict.fromkeys(marks), key=lambda mark: (mark.span.start, mark.span.end))
    flaws = [flaw_of(text, mark) for mark in ordered]
    shown = [_shown(text, mark.span) for mark in ordered]
    if len(flaws) == 1:
        return InvalidRule(f"The {what} has an error at {flaws[0]}.\n\n{shown[0]}", flaws)
    parts = (f"{str(flaw)[:1].upper()}{str(flaw)[1:]}.\n\n{lines}" for flaw, lines in zip(flaws, shown, strict=True))
    return InvalidRule(f"The {what} has {len(flaws)} errors.\n\n" + "\n\n".join(parts), flaws)


def flaw_of(text: str, mark: Mark) -> Flaw:
    """Return the flaw of a mark, with its line and column."""
    span = mark.span
    start, source = _line(text, span.start)
    line = text.count("\n", 0, span.start) + 1
    length = max(1, min(span.end, start + len(source)) - span.start)
    return Flaw(mark.message, line=line, column=span.start - start + 1, hint=mark.hint, length=length)


def _line(text: str, position: int) -> tuple[int, str]:
    start = text.rfind("\n", 0, position) + 1
    return start, text[start:].partition("\n")[0]


SHOWN_CHARACTERS = 100
"""Characters of a source line that are shown in an error."""


def _shown(text: str, span: Span) -> str:
    """Return the line, truncated around the position, with carets below it."""
    offset, source = _line(text, span.start)
    start, end = span.start - offset, span.end - offset
    left = max(0, start - SHOWN_CHARACTERS // 2) if len(source) > SHOWN_CHARACTERS else 0
    right = min(len(source), left + SHOWN_CHARACTERS)
    visible = "".join(character if character.isprintable() else " " for character in source[left:right])
    start, end = start - left, max(min(end, right) - left, start - left + 1)
    before, after = ("…" if left else ""), ("…" if right < len(source) else "")
    indent = " " * (len(before) + _width(visible[:start]))
    lines = (before + visible + after, indent + "^" * max(1, _width(visible[start:end])))
    return "\n".join(f"    {line}".rstrip() for line in lines)


def _width(text: str) -> int:
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


def check_text(text: str, what: str, max_bytes: int) -> None:
    """Refuse texts that are too long or contain invalid characters."""
    if len(text) > max_bytes or len(text.encode("utf-8", "replace")) > max_bytes:
        fits = len(text[:max_bytes].encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore"))
        message = f"the text is longer than {max_bytes:,} bytes"
        raise rule_error(text[: fits + SHOWN_CHARACTERS], Span(fits, fits + 1), message, what=what)
    if found := _UNSTORABLE.search(text):
        kind = "a NUL character" if found[0] == "\0" else "an unpaired surrogate, which is not a character"
        raise rule_error(text, Span(*found.span()), f"the text contains {kind}", what=what)


_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class UnexpectedText(Exception):
    """A text that the grammar does not accept, with the position and the terminals that are allowed there."""

    def __init__(self, position: int, allowed: set[str]) -> None:
        super().__init__(position, allowed)
        self.position, self.allowed = position, allowed


def parse_tree(grammar: Lark, text: str, start: str) -> Tree[Token]:
    """Return the tree of a text. Raise `UnexpectedText` if the grammar does not accept it."""
    parser: Any = grammar.parse_interactive(text, start=start)
    try:
        parser.exhaust_lexer()
        tree: Tree[Token] = parser.feed_eof()
    except UnexpectedInput as error:
        ended = isinstance(error, UnexpectedEOF) or getattr(getattr(error, "token", None), "type", "") == "$END"
        position = len(text.rstrip()) if ended else error.pos_in_stream
        assert position is not None
        raise UnexpectedText(position, _allowed(grammar, text[:position], start) or parser.accepts()) from None
    return tree


def _allowed(grammar: Lark, read: str, start: str) -> set[str]:
    """Return the terminals that are allowed after `read`. The failed parser cannot be asked: it has already reduced
    its stack."""
    parser: Any = grammar.parse_interactive(read, start=start)
    try:
        parser.exhaust_lexer()
    except UnexpectedInput:
        return set()
    return {str(terminal) for terminal in parser.accepts()}


def describe_expected(terminals: Iterable[str], expected: ExpectedNames) -> str:
    """Return the names of the terminals as an enumeration."""
    left, names = set(terminals), []
    for group, group_names in expected:
        if group <= left:
            names += group_names
            left -= group
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else "".join(names)


def quoted(found: str) -> str:
    """Return a part of a text as it is quoted in errors.

    >>> print(quoted("it's"))
    "it's"
    """
    shown = found if len(found) <= 40 else found[:39] + "…"
    shown = "".join(character if character.isprintable() else "�" for character in shown)
    return f'"{shown}"' if "'" in shown else f"'{shown}'"


def token_span(token: Token) -> Span:
    """Return the range of a token."""
    assert token.start_pos is not None and token.end_pos is not None
    return Span(token.start_pos, token.end_pos)
