"""The order of terms: total for all kinds of terms, and used by every tuple that contains terms."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mdv.model import Statement, Term

PARTS = st.none() | st.sampled_from(["a", "b"])
TERMS = st.builds(Term, st.sampled_from(["literal", "uri", "blank"]), st.sampled_from(["", "a", "b"]), PARTS, PARTS)
STATEMENTS = st.builds(Statement, st.sampled_from("st"), st.sampled_from("pq"), TERMS)


def key(term: Term) -> tuple[str, ...]:
    return tuple(part or "" for part in term)


@given(TERMS, TERMS)
def test_terms_are_totally_ordered(one: Term, other: Term) -> None:
    assert (one < other, one <= other, one > other, one >= other) == (
        key(one) < key(other), key(one) <= key(other), key(one) > key(other), key(one) >= key(other),
    )  # fmt: skip
    assert (one < other) + (one == other) + (one > other) == 1


@given(st.lists(STATEMENTS))
def test_statements_and_other_tuples_sort_by_their_terms(statements: list[Statement]) -> None:
    assert sorted(statements) == sorted(statements, key=lambda s: (s.subject, s.property, key(s.object)))
    tuples = [(1, statement.object, statement) for statement in statements]
    assert sorted(tuples) == sorted(tuples, key=lambda t: (key(t[1]), t[2].subject, t[2].property))
    if statements:
        assert min(statements) == sorted(statements)[0] and max(statements) == sorted(statements)[-1]
