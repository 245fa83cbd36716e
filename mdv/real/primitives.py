"""The primitive actions that need no store: values in, a value out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Context, Decimal

from mdv.model import XSD, Term
from mdv.rdf.values import MAX_DIGITS, ValueKind, parse_instant, parse_number, value_kind
from mdv.real.terms import XSD_DECIMAL, XSD_DOUBLE, XSD_INTEGER

MAX_TEXT = 1_000_000
"""Characters of a text that `concat` makes."""

_EXACT = Context(prec=2 * MAX_DIGITS + 4)
_FLOATS = (XSD_DOUBLE, XSD + "float")


class PrimitiveError(Exception):
    """An input that a primitive does not accept."""


def run_primitive(name: str, inputs: Sequence[Term], process: str, now: Callable[[], float]) -> Term | None:
    """Return the output of a primitive; for a test any term, or None if it fails.

    >>> one, two = (Term.literal(text, datatype=XSD_INTEGER) for text in ("1", "2"))
    >>> run_primitive("add", [one, two], "", lambda: 0.0).value
    '3'
    >>> run_primitive("less", [two, one], "", lambda: 0.0) is None
    True
    """
    match name:
        case "self":
            return Term.uri(process)
        case "now":
            moment = datetime.fromtimestamp(now(), UTC)
            return Term.literal(moment.isoformat(timespec="milliseconds")[:-6] + "Z", datatype=XSD + "dateTime")
        case "equal":
            return inputs[0] if _is_equal(*inputs) else None
        case "less":
            return inputs[0] if _is_less(*inputs) else None
        case "add":
            return _sum(*inputs)
        case "inc":
            return _sum(inputs[0], Term.literal("1", datatype=XSD_INTEGER))
        case "concat":
            if any(term.is_uri for term in inputs):
                raise PrimitiveError("an IRI is not a text")
            text = inputs[0].value + inputs[1].value
            if len(text) > MAX_TEXT:
                raise PrimitiveError(f"the text has more than {MAX_TEXT:,} characters")
            return Term.literal(text)
    raise PrimitiveError("unknown")


def _number(term: Term) -> Decimal | None:
    return None if term.is_uri or term.lang is not None else parse_number(term.value, term.datatype)


def _is_equal(left: Term, right: Term) -> bool:
    if left == right:
        return True
    if left.datatype is None and right.datatype is None:
        return False  # two texts
    numbers = _number(left), _number(right)
    return None not in numbers and numbers[0] == numbers[1]


def _is_less(left: Term, right: Term) -> bool:
    numbers = _number(left), _number(right)
    if numbers[0] is not None and numbers[1] is not None:
        return numbers[0] < numbers[1]
    instants = [
        parse_instant(term.value, term.datatype)
        for term in (left, right)
        if not term.is_uri and value_kind(term.datatype) is ValueKind.INSTANT
    ]
    if len(instants) == 2 and instants[0] is not None and instants[1] is not None:
        return instants[0] < instants[1]
    if all(not term.is_uri and term.datatype is None for term in (left, right)):
        return left.value < right.value
    raise PrimitiveError("the inputs must be two numbers, two dates or two texts")


def _sum(left: Term, right: Term) -> Term:
    numbers = []
    for term in (left, right):
        number = _number(term)
        if number is None:
            raise PrimitiveError(f"{term.value[:60]!r} is not a number")
        numbers.append(number)
    total = _EXACT.add(*numbers)
    text = f"{total:f}"
    if len(text) > MAX_DIGITS:
        raise PrimitiveError(f"the sum has more than {MAX_DIGITS:,} digits")
    if any(term.datatype in _FLOATS for term in (left, right)):
        return Term.literal(f"{total.normalize():E}", datatype=XSD_DOUBLE)
    is_whole = all("." not in term.value and "e" not in term.value.lower() for term in (left, right))
    if is_whole and not any(term.datatype == XSD_DECIMAL for term in (left, right)):
        return Term.literal(text, datatype=XSD_INTEGER)
    return Term.literal(text, datatype=XSD_DECIMAL)
