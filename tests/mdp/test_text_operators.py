"""`contains`, `startswith` and `endswith` compare plain text by code point, in the filter and in full evaluation."""

from __future__ import annotations

import json
from itertools import product

import pytest

from mdv.inspect.query import QueryRows, run_query
from mdv.rules.operators import WORDS, Operator
from tests.support.mdp import Mdp
from tests.support.rule_oracle import HOLDS
from tests.support.sent_sql import executed

SCHEMA = """:C a rdfs:Class . :D a rdfs:Class .
:host rdfs:range xsd:string . :tag rdfs:range xsd:string ; mdv:setValued true .
:to rdfs:range :D . :any a rdf:Property .
"""
LONG = "ab" * 100
VALUES = [
    "a", "ab", "abc", "b", "cab", "%", "_", "a%b", "a_b", "axb", "100%", "\\%", "it's",
    "é", "e\u0301", "été", "e\u0301te\u0301", "𝄞", "𝄞x", "x𝄞", "\U0010ffff", "a\U0010ffff", "a\U0010ffff\U0010ffff",
    "Straße", "STRASSE", "A", LONG, LONG + "c", "c" + LONG, LONG[:199], LONG[:-1] + "x", LONG * 50, "ä" * 3000,
]  # fmt: skip
CONSTANTS = [
    "a", "ab", "b", "c", "%", "_", "a%", "%b", "a_", "\\", "'", "e", "é", "\u0301", "𝄞", "x", "\U0010ffff",
    "a\U0010ffff", "ss", "SSE", LONG, LONG + "c", "c" + LONG, LONG[:199], LONG[1:], LONG * 2, "ä" * 300, "ä",
]  # fmt: skip


def written(operator: Operator, path: str, constant: str) -> str:
    quoted = constant.replace("'", "''")
    return operator.text(path, f"'{quoted}'")


def document(values: list[str], first: int = 0) -> dict[str, str]:
    return {
        f"http://d/{number}": f"<#c> a :C ; :host {json.dumps(value, ensure_ascii=False)} ."
        for number, value in enumerate(values, first)
    }


@pytest.mark.parametrize("word", WORDS)
def test_the_filter_and_full_evaluation_agree_with_the_oracle(mdp: Mdp, word: str) -> None:
    mdp.put_schema(SCHEMA)
    operators = (Operator(word), Operator(word).negated)
    wheres = list(product(operators, CONSTANTS))
    added = mdp.add_rules([f"search C c register c where {written(o, 'c.host', c)}" for o, c in wheres])
    mdp.put(document(VALUES))
    expected = {
        (rule.ends[0], f"http://d/{number}#c", True)
        for rule, (operator, constant) in zip(added, wheres, strict=True)
        for number, value in enumerate(VALUES)
        if HOLDS[operator](value, constant)
    }
    assert set(mdp.changes()) == expected
    for rule in added:
        assert mdp.results_of(rule.id) == {uri for end, uri, _ in expected if end == rule.ends[0]}
    mdp.put(dict.fromkeys(document(VALUES)))
    assert set(mdp.changes()) == {(end, uri, False) for end, uri, _ in expected}


@pytest.mark.parametrize("word", WORDS)
def test_first_results_and_queries_agree_with_the_oracle(mdp: Mdp, word: str) -> None:
    mdp.put_schema(SCHEMA)
    mdp.put(document(VALUES))
    for operator, constant in product((Operator(word), Operator(word).negated), CONSTANTS):
        expected = {f"http://d/{n}#c" for n, value in enumerate(VALUES) if HOLDS[operator](value, constant)}
        where = written(operator, "c.host", constant)
        mdp.add_rules([f"search C c register c where {where}"])
        assert {uri for _, uri, matched in mdp.changes() if matched} == expected, where
        with mdp.engine.connect() as connection:
            found = run_query(connection, f"search C c where {where} return c", mdp.schemas)
        assert isinstance(found, QueryRows)
        assert {row[0].value for row in found.rows if row[0] is not None} == expected, where


def test_a_changed_value_changes_the_matches(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    ends = {
        rule.ends[0]: text
        for text in ("c.host startswith 'uni'", "c.host endswith '.de'", "not c.host startswith 'uni'")
        for rule in mdp.add_rules([f"search C c register c where {text}"])
    }
    mdp.put_one("http://d/1", "<#c> a :C ; :host 'uni-passau.de' .")
    assert [ends[end] for end, _, matched in mdp.changes() if matched] == [*ends.values()][:2]
    mdp.put_one("http://d/1", "<#c> a :C ; :host 'www.uni-passau.de' .")
    assert {(ends[end], matched) for end, _, matched in mdp.changes()} == {
        ("c.host startswith 'uni'", False), ("not c.host startswith 'uni'", True),
    }  # fmt: skip


def test_over_several_values_an_operator_and_its_negation_can_both_hold(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    (both, none) = mdp.add_rules([
        "search C c register c where c.tag? startswith 'x' and not c.tag? startswith 'x'",
        "search C c register c where not c.host startswith 'x'",
    ])  # fmt: skip
    mdp.put_one("http://d/1", "<#c> a :C ; :tag 'xy', 'yx' .")
    assert mdp.changes() == [(both.ends[0], "http://d/1#c", True)]
    assert mdp.results_of(none.id) == set()  # a missing property satisfies no predicate


def test_uris_of_variables_references_and_properties_without_range_are_compared(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    texts = ["c startswith 'http://d/1'", "c.to endswith '#d'", "c.any startswith 'http://d/'", "c.any endswith 'text'"]
    rules = mdp.add_rules([f"search C c register c where {text}" for text in texts])
    mdp.put_one("http://d/1", "<#c> a :C ; :to <#d> ; :any <#d> . <#d> a :D .")
    assert {end for end, _, _ in mdp.changes()} == {rule.ends[0] for rule in rules[:3]}
    mdp.put_one("http://d/2", "<#c> a :C ; :any 'a text' .")
    assert [end for end, _, _ in mdp.changes()] == [rules[3].ends[0]]


def test_many_constants_of_many_lengths_are_found_by_their_keys(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    stem = "".join(chr(ord("a") + number % 26) for number in range(260))
    added = mdp.add_rules(
        [f"search C c register c where c.host startswith '{stem[:length]}'" for length in range(1, 261)]
        + [f"search C c register c where c.host endswith '{stem[-length:]}'" for length in range(1, 261)]
    )
    mdp.put_one("http://d/1", f"<#c> a :C ; :host '{stem[:230]}' .")
    assert {end for end, _, _ in mdp.changes()} == {rule.ends[0] for rule in added[:230]}
    mdp.put_one("http://d/2", f"<#c> a :C ; :host '{stem[30:]}' .")
    assert {end for end, _, _ in mdp.changes()} == {rule.ends[0] for rule in added[260 : 260 + 230]}
    mdp.remove_rules([rule.id for rule in added])
    assert mdp.one("select count(*) from rule_constants") == 0


def test_a_text_of_a_megabyte_is_matched(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    (start, end) = mdp.add_rules(["search C c register c where c.host startswith 'ä hay'",
                                  "search C c register c where c.host endswith 'ä needle'"])  # fmt: skip
    mdp.put_one("http://d/1", f"<#c> a :C ; :host '{'ä hay ' * 150_000}ä needle' .")
    assert {number for number, _, _ in mdp.changes()} == {start.ends[0], end.ends[0]}


def test_without_such_rules_a_registration_sends_no_other_statements(mdp: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    mdp.put_schema(SCHEMA)
    mdp.add_rules(["search C c register c where c.host = 'a'", "search C c register c where c.host contains 'a'"])
    mdp.put(document(["x"]))
    with executed(monkeypatch) as statements:
        mdp.put(document(["a"], 1))
    assert len(mdp.changes()) == 2
    assert not [sql for sql in statements if "filter_rules_pre" in sql or "filter_rules_suf" in sql]
