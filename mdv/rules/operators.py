"""The table of operators.

An entry states how an operator is written, its negation, its operands, its meaning, its wording, and how the filter
finds its constants. The SQL of text operators is in `mdv/query/operator_sql.py`. The grammar, the keywords, error
messages, constants tables, the filter, the batch matcher, editors and pages are derived from both.

To add an operator, add an entry, its SQL, and a revision under `migrations/versions` that makes its constants table.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

Holds: TypeAlias = Callable[[Any, Any], bool]

NOT = "not "
"""The prefix of operators that have no syntax of their own: `not … contains` is normalised to `not contains`."""


class Operands(Enum):
    """What an operator compares."""

    ANY = "any"
    """Values of any sort, on either side."""
    ORDERED = "ordered"
    """Numbers, dates or times, on either side."""
    TEXT = "text"
    """A text or a URI with a constant on the right, which is a text that is not empty."""


class Lookup(Enum):
    """How the constants that a value satisfies are found, from the most to the least selective."""

    EQUAL = 1
    """By the value itself."""
    PREFIX = 2
    """By the first characters of the value."""
    SUFFIX = 3
    """By the last characters of the value."""
    GRAM = 4
    """By a rare part of the constant that is also a part of the value."""
    ORDER = 5
    """By the range of constants below or above the value."""
    UNEQUAL = 6
    """All but one constant: by the range on both sides of the value."""
    SCAN = 7
    """All constants are compared."""

    def expected_rules(self, rules: int, distinct: int) -> float:
        """Return the estimated cost of finding rules by a predicate, in rules that a value finds.

        `distinct` is the number of distinct constants among `rules` rules.

        >>> Lookup.EQUAL.expected_rules(1000, 500), Lookup.SCAN.expected_rules(1000, 500)
        (2.0, 1002)
        """
        match self:
            case Lookup.EQUAL:
                return rules / distinct
            case Lookup.PREFIX | Lookup.SUFFIX | Lookup.GRAM:
                return 2 * rules / distinct + 1
            case Lookup.ORDER:
                return rules / 2 + 2
        return rules + 2


@dataclass(frozen=True, slots=True)
class OperatorEntry:
    """An entry of the table."""

    symbol: str
    negation: str
    """The symbol of the operator after `not` is applied."""
    flipped: str | None
    """The symbol of the same comparison with exchanged operands; None if the constant must be on the right."""
    takes: Operands
    lookup: Lookup
    holds: Holds
    """The meaning: whether a value on the left and one on the right satisfy the operator."""
    label: str
    """The wording in pages and messages: `x LABEL y`."""
    table: str
    """The suffix of its constants table: FilterRulesOP in the paper."""
    sign: str = ""
    """The sign in diagrams; by default the symbol."""


def _text_operator(symbol: str, lookup: Lookup, holds: Holds, label: str, table: str) -> OperatorEntry:
    return OperatorEntry(symbol, NOT + symbol, None, Operands.TEXT, lookup, holds, label, table)


def _negation(entry: OperatorEntry) -> OperatorEntry:
    """Return the entry of a negated text operator. Almost every value satisfies it, so all constants are compared."""
    return replace(
        entry,
        symbol=entry.negation,
        negation=entry.symbol,
        lookup=Lookup.SCAN,
        holds=lambda value, constant: not entry.holds(value, constant),
        label=entry.negation,
        table=f"n{entry.table}",
    )


class Operator(Enum):
    """A comparison operator. Its value is its symbol.

    >>> Operator("<").negated, Operator.CONTAINS.negated, Operator.LT.flipped
    (<Operator.GE: '>='>, <Operator.NOT_CONTAINS: 'not contains'>, <Operator.GT: '>'>)
    >>> Operator.STARTSWITH.holds("passau", "pass"), Operator.NOT_ENDSWITH.holds("passau", "pass")
    (True, True)
    """

    _value_: str
    entry: OperatorEntry

    def __new__(cls, entry: OperatorEntry | str) -> Operator:
        assert isinstance(entry, OperatorEntry)  # `Operator(symbol)` finds a member and does not come here
        member = object.__new__(cls)
        member._value_ = entry.symbol
        member.entry = entry
        return member

    EQ = OperatorEntry("=", "!=", "=", Operands.ANY, Lookup.EQUAL, operator.eq, "is", "eq")
    NE = OperatorEntry("!=", "=", "!=", Operands.ANY, Lookup.UNEQUAL, operator.ne, "is not", "ne", "≠")
    LT = OperatorEntry("<", ">=", ">", Operands.ORDERED, Lookup.ORDER, operator.lt, "less than", "lt")
    LE = OperatorEntry("<=", ">", ">=", Operands.ORDERED, Lookup.ORDER, operator.le, "at most", "le", "≤")
    GT = OperatorEntry(">", "<=", "<", Operands.ORDERED, Lookup.ORDER, operator.gt, "greater than", "gt")
    GE = OperatorEntry(">=", "<", "<=", Operands.ORDERED, Lookup.ORDER, operator.ge, "at least", "ge", "≥")
    CONTAINS = _text_operator("contains", Lookup.GRAM, operator.contains, "contains", "con")
    NOT_CONTAINS = _negation(CONTAINS)
    STARTSWITH = _text_operator("startswith", Lookup.PREFIX, str.startswith, "starts with", "pre")
    NOT_STARTSWITH = _negation(STARTSWITH)
    ENDSWITH = _text_operator("endswith", Lookup.SUFFIX, str.endswith, "ends with", "suf")
    NOT_ENDSWITH = _negation(ENDSWITH)

    @property
    def negated(self) -> Operator:
        """The operator after `not` is applied."""
        return Operator(self.entry.negation)

    @property
    def flipped(self) -> Operator:
        """The operator of the same comparison with exchanged operands."""
        return Operator(self.entry.flipped or self.value)

    @property
    def takes(self) -> Operands:
        return self.entry.takes

    @property
    def lookup(self) -> Lookup:
        return self.entry.lookup

    @property
    def holds(self) -> Holds:
        return self.entry.holds

    @property
    def label(self) -> str:
        return self.entry.label

    @property
    def sign(self) -> str:
        return self.entry.sign or self.value

    @property
    def constants_table(self) -> str:
        """The name of the table of its constants."""
        return f"filter_rules_{self.entry.table}"

    @property
    def orders(self) -> bool:
        """True if the operands must be ordered values."""
        return self.takes is Operands.ORDERED

    @property
    def is_written(self) -> bool:
        """True if the operator has a syntax of its own."""
        return not self.value.startswith(NOT)

    @property
    def is_word(self) -> bool:
        """True if the operator is written as a keyword."""
        return self.is_written and self.value.isalpha()

    def text(self, left: str, right: str) -> str:
        """Return the predicate as it is written in a rule.

        >>> Operator.GE.text("a.n", "5"), Operator.NOT_CONTAINS.text("a.s", "'x'")
        ('a.n >= 5', "not a.s contains 'x'")
        """
        if self.is_written:
            return f"{left} {self.value} {right}"
        return f"{NOT}{self.negated.text(left, right)}"


WRITTEN = tuple(one for one in Operator if one.is_written)
"""The operators that can be written in a rule."""
WORDS = tuple(one.value for one in WRITTEN if one.is_word)
"""The operators that are keywords."""
SIGNS = tuple(one.value for one in WRITTEN if not one.is_word)
"""The operators that are signs."""
