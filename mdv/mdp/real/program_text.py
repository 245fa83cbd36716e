"""The text of a program: parsed with the prefixes of the schema, and places in it as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mdv.errors import Flaw, InvalidProgram, InvalidRule
from mdv.rdf.parse import is_absolute_iri
from mdv.rdf.schema import Schema
from mdv.real.resolve import read_program
from mdv.real.syntax import Program
from mdv.rules.ast import Span
from mdv.rules.text_errors import Mark, flaw_of

MAX_PREFIXES = 1000


def parse_code(code: str, schema: Schema, prefixes: Mapping[str, str]) -> Program:
    """Return the program of a text, with terms in the place of names. Raise `InvalidProgram` if it is not valid."""
    if len(prefixes) > MAX_PREFIXES:
        raise InvalidProgram(f"`prefixes` has more than {MAX_PREFIXES:,} entries.")
    for prefix, iri in prefixes.items():
        if not is_absolute_iri(iri):
            raise InvalidProgram(f"The prefix {prefix[:40]}: stands for {iri[:80]!r}, which is no URI.")
    try:
        return read_program(code, {**schema.prefixes, **prefixes})
    except InvalidRule as error:
        first = error.flaws[0] if error.flaws else None
        extra = {} if first is None else {"span": _span_of_flaw(code, first)}
        raise InvalidProgram(error.detail, error.flaws, **extra) from None


def _span_of_flaw(text: str, flaw: Flaw) -> dict[str, int]:
    line, column = flaw.line or 1, flaw.column or 1
    start = sum(len(one) + 1 for one in text.split("\n")[: line - 1]) + column - 1
    return {"start": start, "end": start + (flaw.length or 1), "line": line, "column": column}


def span_of(text: str, span: Span) -> dict[str, int]:
    """Return the place of a span.

    >>> span_of("a\\nbc", Span(3, 4))
    {'start': 3, 'end': 4, 'line': 2, 'column': 2}
    """
    flaw = flaw_of(text, Mark(span, ""))
    return {"start": span.start, "end": span.end, "line": flaw.line or 1, "column": flaw.column or 1}


def mark_json(text: str, mark: Mark) -> dict[str, Any]:
    """Return a warning with its place."""
    hint = {} if mark.hint is None else {"hint": mark.hint}
    return {"message": mark.message, "span": span_of(text, mark.span)} | hint
