"""The SQL of the operators: beside the table in `mdv/rules/operators.py`, what differs between databases.

Comparisons of ordered or equal values are the same everywhere. A text operator has an entry for each database. It
compares by code point and never interprets its constant as a pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import Boolean, ColumnElement, Integer, func, literal_column, not_

from mdv.rules.operators import Operands, Operator

Comparison = Callable[[ColumnElement[Any], ColumnElement[Any]], ColumnElement[bool]]


class TextComparison(NamedTuple):
    """The condition that a text and a constant satisfy an operator, for each database."""

    postgres: Comparison
    sqlite: Comparison


_ZERO, _ONE = literal_column("0", Integer), literal_column("1", Integer)

TEXT_COMPARISONS = {
    Operator.CONTAINS: TextComparison(
        postgres=lambda text, part: func.strpos(text, part) > _ZERO,
        sqlite=lambda text, part: func.instr(text, part) > _ZERO,
    ),
    Operator.STARTSWITH: TextComparison(
        postgres=lambda text, part: func.starts_with(text, part, type_=Boolean),
        sqlite=lambda text, part: func.substr(text, _ONE, func.length(part)) == part,
    ),
    Operator.ENDSWITH: TextComparison(
        postgres=lambda text, part: func.right(text, func.length(part)) == part,
        sqlite=lambda text, part: func.substr(text, -func.length(part)) == part,
    ),
}
"""The text operators that have a syntax of their own. Their negations are derived."""


def compare(
    left: ColumnElement[Any], operator: Operator, right: ColumnElement[Any], sqlite: bool = False
) -> ColumnElement[bool]:
    """Return the condition that two values satisfy an operator.

    >>> from sqlalchemy import column
    >>> print(compare(column("a"), Operator.GE, column("b")))
    a >= b
    >>> print(compare(column("a"), Operator.NOT_STARTSWITH, column("b")))
    NOT starts_with(a, b)
    """
    if operator.takes is not Operands.TEXT:
        return operator.holds(left, right)  # type: ignore[return-value]
    if not operator.is_written:
        return not_(compare(left, operator.negated, right, sqlite))
    comparison = TEXT_COMPARISONS[operator]
    return (comparison.sqlite if sqlite else comparison.postgres)(left, right)
