"""Rules that are too expensive are refused; the number of SQL statements of a run does not depend on the rules."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy

from mdv.errors import InvalidRule, TooCostly
from tests.support.mdp import Mdp
from tests.support.sent_sql import executed

SCHEMA = """:C a rdfs:Class . :S a rdfs:Class .
:host rdfs:range xsd:string . :cpu rdfs:range xsd:integer . :memory rdfs:range xsd:integer . :info rdfs:range :S .
"""


def document(number: int) -> str:
    return f"<#c> a :C ; :host 'h{number}.de' ; :info <#s> . <#s> a :S ; :cpu 600 ; :memory {number} ."


def rules(count: int, first: int = 0) -> list[str]:
    kinds = (
        "search C c register c where c = <http://d/{}#c>",
        "search C c register c where c.info.memory = {}",
        "search C c register c where c.host contains 'h{}.de'",
        "search C c register c where c.host contains '.de' and c.info.cpu = 600 and c.info.memory = {}",
        "search S s register s where s.memory > {}",
    )
    return [kind.format(number) for number in range(first, first + count) for kind in kinds]


def sent(act: Callable[[], object]) -> int:
    """Return the number of SQL statements sent to the database."""
    with executed(pytest.MonkeyPatch()) as statements:
        act()
    return len(statements)


def test_the_number_of_sql_statements_does_not_grow_with_the_rules(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    mdp.add_rules(rules(2))
    mdp.put_one("http://d/0", document(0))
    few = sent(lambda: mdp.put_one("http://d/1", document(1)))
    assert len(mdp.changes()) >= 4
    mdp.add_rules(rules(400, first=10))
    mdp.put_one("http://d/20", document(20))
    many = sent(lambda: mdp.put_one("http://d/21", document(21)))
    assert {uri for _, uri, _ in mdp.changes()} == {"http://d/21#c", "http://d/21#s"}
    assert few == many


def test_a_rule_over_the_time_limit_is_refused_and_nothing_is_added(mdp: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    mdp.put_schema(SCHEMA)
    mdp.put({f"http://d/{n}": document(n) for n in range(300)})
    monkeypatch.setattr("mdv.mdp.rules.operations.MAX_EVALUATION_SECONDS", 1)
    variables = ", ".join(f"S s{n}" for n in range(8))
    unequal = " and ".join(f"s{n}.memory < s{n + 1}.memory" for n in range(7))
    with pytest.raises(TooCostly, match="explain"):
        mdp.add_rules([f"search {variables} register s0 where {unequal} and s7.cpu != 600"])
    assert mdp.one("select count(*) from atomic_rules") == 0
    (rule,) = mdp.add_rules(["search S s register s where s.memory = 7"])
    assert mdp.results_of(rule.id) == {"http://d/7#s"}


def test_all_rules_of_a_call_are_added_or_none(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    with pytest.raises(InvalidRule):
        mdp.add_rules([*rules(3), "search C c register c where c.nowhere = 1"])
    assert mdp.one("select count(*) from rules") == mdp.one("select count(*) from rule_groups") == 0


def test_a_text_of_a_megabyte_is_matched_by_contains(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    (found, _) = mdp.add_rules(["search C c register c where c.host contains 'ä needle'",
                                "search C c register c where c.host contains 'no such thing'"])  # fmt: skip
    mdp.put_one("http://d/1", f"<#c> a :C ; :host '{'ä hay ' * 150_000}ä needle' .")
    assert [(end, matched) for end, _, matched in mdp.changes()] == [(found.ends[0], True)]


def test_names_and_constants_that_look_like_sql_are_data(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    hostile = "'); drop table rules; --%s %(x)s \\\\ $1 {0}"
    mdp.put_one("http://d/1", f"<#c> a :C ; :host {hostile!r} .")
    text = hostile.replace("'", "''")
    (equal, contains) = mdp.add_rules([f"search C c register c where c.host = '{text}'",
                                       f"search C c register c where c.host contains '{text}'"])  # fmt: skip
    assert mdp.results_of(equal.id) == mdp.results_of(contains.id) == {"http://d/1#c"}
    with mdp.engine.connect() as connection:
        assert connection.execute(sqlalchemy.text("select count(*) from rules")).scalar_one() == 2


@pytest.mark.parametrize("constant", ["%", "_", "100%", "a_b", "\\%"])
def test_contains_matches_plain_text(mdp: Mdp, constant: str) -> None:
    mdp.put_schema(SCHEMA)
    (rule,) = mdp.add_rules([f"search C c register c where c.host contains '{constant}'"])
    mdp.put_one("http://d/1", "<#c> a :C ; :host 'axb plain' .")
    assert mdp.changes() == []
    mdp.put_one("http://d/1", f"<#c> a :C ; :host 'x {constant.replace(chr(92), chr(92) * 2)} y' .")
    assert [(end, matched) for end, _, matched in mdp.changes()] == [(rule.ends[0], True)]


def test_calls_of_any_size_are_added(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    mdp.put_one("http://d/3", document(3))
    many = " or ".join(f"c.info.memory = {n} and c.info.cpu = 600 and c.host contains 'h{n}.'" for n in range(10))
    for count in (1, 12, 19, 21, 60):
        added = mdp.add_rules([f"search C c register c where {many}"] * count)
        assert {uri for _, uri, _ in mdp.changes()} == ({"http://d/3#c"} if count == 1 else set())
        assert mdp.results_of(added[-1].id) == {"http://d/3#c"}


def test_the_number_of_sql_statements_does_not_grow_with_the_batch(mdp: Mdp) -> None:
    """Also if a new match is described by none of its documents, but refers to them."""
    mdp.put_schema(SCHEMA)
    mdp.add_rules(["search C c register c where c.info.memory = 1"])
    mdp.put({f"http://c/{n}": f"<#c> a :C ; :info <http://s/{n}#s> ." for n in range(60)})
    ready = [mdp.prepare(f"http://s/{n}", "<#s> a :S ; :memory 1 .") for n in range(60)]
    answers = [mdp.register_batch(ready[:2])]
    few = sent(lambda: answers.append(mdp.register_batch(ready[2:5])))
    many = sent(lambda: answers.append(mdp.register_batch(ready[5:])))
    assert all(getattr(answer, "matched", None) == 1 for batch in answers for answer in batch)
    assert few == many
