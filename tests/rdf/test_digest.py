"""Digests: equal for equal content only, and stable across machines and versions."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from mdv.model import XSD, Statement, Term
from mdv.rdf.digest import content_hash, statement_hash

A, P = "http://e/a", "http://e/p"
NEARLY_THE_SAME = [
    Statement(A, P, Term.literal("x")),
    Statement(A, P, Term.uri("x")),
    Statement(A, P, Term.literal("x", lang="en")),
    Statement(A, P, Term.literal("x", datatype="en")),
    Statement(A, P, Term.literal("x", datatype=XSD + "date")),
    Statement(A, P, Term.literal("xen")),
    Statement(A + "http", "://e/p", Term.literal("x")),
    Statement(A, P + "literal", Term.literal("x")),
    Statement(P, A, Term.literal("x")),
    Statement(A, P, Term.literal("")),
    Statement(A, P, Term.literal("é")),
    Statement(A, P, Term.literal("e\u0301")),
]


def test_different_statements_have_different_digests() -> None:
    for one, other in combinations(NEARLY_THE_SAME, 2):
        assert statement_hash(one) != statement_hash(other)
        assert content_hash([one]) != content_hash([other])
        assert content_hash([one, other]) != content_hash([one])


def test_digests_are_stable() -> None:
    statement = Statement("http://e/é", P, Term.literal("𝒳\r\n", lang="en-gb"))
    assert statement_hash(statement) == -549884723141920065
    assert (
        content_hash([statement, NEARLY_THE_SAME[0]]).hex()
        == "b8d83c71a7f8b7ff78b3ecf7d9442cffbb991c5879ecb923438d74bcb5e382b5"
    )


@given(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")))
def test_a_statement_hash_is_a_bigint(text: str) -> None:
    assert -(2**63) <= statement_hash(Statement(A, P, Term.literal(text))) < 2**63
