"""The gate for Turtle, N-Triples and JSON-LD: valid UTF-8, no NUL, limited nesting."""

from __future__ import annotations

import codecs
import re

from mdv.errors import NotWellFormed
from mdv.rdf.gated import MAX_DEPTH, Gated, line_and_column, not_well_formed, too_deep
from mdv.rdf.syntax import JSON_LD, Syntax


def gate_text(body: bytes, syntax: Syntax, charset: str | None) -> Gated:
    if charset is not None and charset.lower() not in ("utf-8", "utf8", "us-ascii"):
        raise NotWellFormed(f"{syntax.label} must be UTF-8, but the Content-Type has charset={charset}. Send UTF-8.")
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise NotWellFormed(f"{syntax.label} must be UTF-8, but the document starts with a UTF-16 byte order mark.")
    body = body.removeprefix(codecs.BOM_UTF8)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = line_and_column(body[: error.start].decode("utf-8", "replace"))
        raise not_well_formed(syntax, f"byte 0x{body[error.start]:02x} is not UTF-8", line, column) from None
    if "\0" in text:
        raise not_well_formed(syntax, "a NUL character", *line_and_column(text[: text.index("\0")]))
    _refuse_deep_brackets(text, syntax)
    return Gated(body, syntax)


_CLOSES = {"]": "[", "}": "{", ")": "(", ">>": "<<"}
_JSON_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[{\]}]|"', re.DOTALL)
_TURTLE_TOKEN = re.compile(
    r'"""(?:[^"\\]++|\\.|"(?!""))*+"""|' + r"'''(?:[^'\\]++|\\.|'(?!''))*+'''|"
    r'"(?!"")(?:[^"\\\r\n]++|\\.)*+"|' + r"'(?!'')(?:[^'\\\r\n]++|\\.)*+'|"
    r"<(?:[^<>\"{}|^`\\\x00-\x20]++|\\[uU])*+>|"
    r"<<|>>|\\.|#[^\r\n]*+|[\[{(\]})]|[\"']",
    re.DOTALL,
)


def _refuse_deep_brackets(text: str, syntax: Syntax) -> None:
    """Raise `NotWellFormed` if brackets outside of strings, names and comments are nested too deeply."""
    if sum(map(text.count, ("[", "{", "(", "<<"))) <= MAX_DEPTH:
        return
    open_brackets: list[str] = []
    for token in (_JSON_TOKEN if syntax is JSON_LD else _TURTLE_TOKEN).finditer(text):
        found = token.group()
        if found in ("[", "{", "(", "<<"):
            open_brackets.append(found)
            if len(open_brackets) > MAX_DEPTH:
                raise too_deep(syntax, *line_and_column(text[: token.start()]))
        elif found in _CLOSES:
            # An unmatched closing bracket is reported by the parser. It must not reduce the depth here.
            if open_brackets and open_brackets[-1] == _CLOSES[found]:
                open_brackets.pop()
        elif found in ('"', "'"):
            raise not_well_formed(syntax, "a string without a closing quote", *line_and_column(text[: token.start()]))
