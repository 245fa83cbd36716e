"""Literals of programs as terms, and the comparison of typed values."""

from __future__ import annotations

import re

from mdv.model import XSD, Term
from mdv.rdf.values import ValueKind, typed_text, value_kind

XSD_INTEGER, XSD_DECIMAL, XSD_DOUBLE, XSD_BOOLEAN = (XSD + n for n in ("integer", "decimal", "double", "boolean"))
_INTEGER = re.compile(r"[+-]?[0-9]+")


def number_term(text: str) -> Term:
    """Return the term of a number, whose datatype follows from its form.

    >>> [number_term(text).datatype.partition("#")[2] for text in ("3", "3.0", "3e0")]
    ['integer', 'decimal', 'double']
    """
    if _INTEGER.fullmatch(text):
        return Term.literal(text, datatype=XSD_INTEGER)
    return Term.literal(text, datatype=XSD_DOUBLE if "e" in text.lower() else XSD_DECIMAL)


def typed_value(term: Term, range_kind: ValueKind) -> tuple[ValueKind, str] | None:
    """Return the value of a number or boolean; None for other terms.

    A literal without datatype has the type of its property's range.

    >>> typed_value(Term.literal("3.0", datatype=XSD_DECIMAL), ValueKind.TEXT)
    (<ValueKind.NUMBER: 'number'>, '3')
    >>> typed_value(Term.literal("03"), ValueKind.NUMBER) == typed_value(number_term("3"), ValueKind.TEXT)
    True
    >>> typed_value(Term.literal("03"), ValueKind.TEXT) is None
    True
    """
    if term.type != "literal" or term.lang is not None:
        return None
    kind = range_kind if term.datatype is None else value_kind(term.datatype)
    if kind is not ValueKind.NUMBER and kind is not ValueKind.TRUTH:
        return None
    text = typed_text(term.value, kind)
    return None if text is None else (kind, text)
