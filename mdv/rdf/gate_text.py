"""The gate for Turtle, N-Triples and JSON-LD: UTF-8, no NUL, not too deep."""

from __future__ import annotations

import codecs
import re

from mdv.errors import NotWellFormed
from mdv.rdf.gated import MAX_DEPTH, Gated, not_well_formed, place, too_deep
from mdv.rdf.syntax import JSON_LD, Syntax


def gate_text(body: bytes, syntax: Syntax, charset: str | None) -> Gated:
    if charset is not None and charset.lower() not in ("utf-8", "utf8", "us-ascii"):
        raise NotWellFormed(f"{syntax.label} is always UTF-8; this says charset={charset}.")
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise NotWellFormed(f"{syntax.label} is always UTF-8; this begins like UTF-16.")
    body = body.removeprefix(codecs.BOM_UTF8)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = place(body[: error.start].decode("utf-8", "replace"))
        raise not_well_formed(syntax, f"byte 0x{body[error.start]:02x} is not UTF-8", line, column) from None
    if "\0" in text:
        raise not_well_formed(syntax, "a NUL character", *place(text[: text.index("\0")]))
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
    """Count brackets that stand outside of strings, names and comments."""
    if sum(map(text.count, ("[", "{", "(", "<<"))) <= MAX_DEPTH:
        return
    open_brackets: list[str] = []
    for token in (_JSON_TOKEN if syntax is JSON_LD else _TURTLE_TOKEN).finditer(text):
        found = token.group()
        if found in ("[", "{", "(", "<<"):
            open_brackets.append(found)
            if len(open_brackets) > MAX_DEPTH:
                raise too_deep(syntax, *place(text[: token.start()]))
        elif found in _CLOSES:
            # A bracket that closes nothing is the parser's to complain about; it must not hide depth.
            if open_brackets and open_brackets[-1] == _CLOSES[found]:
                open_brackets.pop()
        elif found in ('"', "'"):
            raise not_well_formed(syntax, "a string that does not end", *place(text[: token.start()]))
