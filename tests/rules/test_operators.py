"""The table of operators: its entries are consistent, and the rest of the system covers all of them."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from mdv.db.tables import FILTER_RULES_TABLES
from mdv.inspect.propose import OPERATORS
from mdv.query.operator_sql import TEXT_COMPARISONS
from mdv.rules.operators import SIGNS, WORDS, WRITTEN, Operands, Operator
from mdv.rules.parse import KEYWORDS, parse
from tests.support.rule_oracle import HOLDS

ROOT = Path(__file__).parents[2]
TEXTS = ["", "a", "ab", "ba", "aba", "%", "a_", "é", "e\u0301", "𝄞a"]


@pytest.mark.parametrize("operator", Operator)
def test_a_negation_holds_exactly_where_the_operator_does_not(operator: Operator) -> None:
    assert operator.negated is not operator and operator.negated.negated is operator
    assert operator.negated.takes is operator.takes
    for left in TEXTS:
        for right in TEXTS:
            assert operator.holds(left, right) is not operator.negated.holds(left, right)
            assert operator.holds(left, right) is HOLDS[operator](left, right)


@pytest.mark.parametrize("operator", Operator)
def test_a_flipped_operator_holds_with_exchanged_operands(operator: Operator) -> None:
    if operator.takes is Operands.TEXT:
        assert operator.flipped is operator and operator.entry.flipped is None
        return
    assert all(operator.holds(a, b) is operator.flipped.holds(b, a) for a in range(3) for b in range(3))


@pytest.mark.parametrize("operator", WRITTEN)
def test_an_operator_is_written_as_its_symbol_in_any_case(operator: Operator) -> None:
    for symbol in (operator.value, operator.value.upper()):
        assert parse(f"search C c register c where c.p {symbol} 'x'").where.operator is operator


def test_signs_and_words_are_all_written_operators() -> None:
    assert [one.value for one in WRITTEN] == [*SIGNS, *WORDS] == list(OPERATORS)
    assert set(WORDS) <= KEYWORDS
    assert {one for one in WRITTEN if one.takes is Operands.TEXT} == TEXT_COMPARISONS.keys()


def test_every_operator_has_its_own_table_and_label() -> None:
    assert {table.name for table in FILTER_RULES_TABLES.values()} == {one.constants_table for one in Operator}
    assert len({one.constants_table for one in Operator}) == len({one.label for one in Operator}) == len(Operator)


def test_operators_keep_their_identity_when_they_are_pickled() -> None:
    """Executors receive them."""
    assert all(pickle.loads(pickle.dumps(operator)) is operator for operator in Operator)


def test_the_documentation_lists_all_operators() -> None:
    page = (ROOT / "docs" / "reference" / "rules.md").read_text("utf-8")
    listed = re.search(r"by `(=  .*?)`", page, re.DOTALL)
    assert listed is not None and tuple(listed[1].split()) == OPERATORS
