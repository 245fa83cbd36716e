"""Additions of rules and documents are serialised: the second sees the first, also if they overlap."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from mdv.errors import BadRequest, Conflict, InvalidRule, NotFound
from mdv.mdp.register import register
from mdv.mdp.rules.add import add_rules
from mdv.mdp.rules.planning import RuleDraft
from mdv.mdp.rules.remove import remove_rules
from tests.support.mdp import Mdp

SCHEMA = ":C a rdfs:Class . :n rdfs:range xsd:integer . :next rdfs:range :C ."
RULE = "search C c register c where c.n = 1"
DOCUMENT = "<#c> a :C ; :n 1 ."


def in_the_background(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread


def test_a_rule_added_during_a_registration_matches_its_document(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    other = type(mdp)(mdp.engine)
    item = mdp.prepare("http://d/1", DOCUMENT)
    with mdp.engine.begin() as connection:
        register(connection, [item], mdp.provider)
        thread = in_the_background(lambda: other.add_rules([RULE]))
        thread.join(0.3)
        assert thread.is_alive()
    thread.join(60)
    assert [(uri, matched) for _, uri, matched in mdp.changes()] == [("http://d/1#c", True)]


def test_a_document_registered_while_a_rule_is_being_added_is_matched(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    other = type(mdp)(mdp.engine)
    with mdp.engine.begin() as connection:
        add_rules(connection, [RuleDraft(1, None, RULE)], mdp.provider)
        thread = in_the_background(lambda: other.put_one("http://d/1", DOCUMENT))
        thread.join(0.3)
        assert thread.is_alive()
    thread.join(60)
    assert [(uri, matched) for _, uri, matched in mdp.changes()] == [("http://d/1#c", True)]


def test_cached_plans_of_a_rolled_back_rule_are_dropped(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    with pytest.raises(ZeroDivisionError), mdp.engine.begin() as connection:
        add_rules(connection, [RuleDraft(1, None, RULE)], mdp.provider)
        _ = 1 / 0
    # Another rule takes the same numbers, in another process.
    type(mdp)(mdp.engine).add_rules(["search C c register c where c.next.n = 7"])
    mdp.put_one("http://d/1", DOCUMENT + " <#d> a :C ; :next <#e> . <#e> a :C ; :n 7 .")
    assert [(uri, matched) for _, uri, matched in mdp.changes()] == [("http://d/1#d", True)]


def test_a_rule_is_parsed_with_the_schema_at_its_position(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    mdp.add_rules([RULE])
    other = type(mdp)(mdp.engine)
    other.put_schema(SCHEMA + " :D rdfs:subClassOf :C .")
    other.put_one("http://d/1", "<#d> a :D ; :n 1 .")
    # This process has no news of it: it knows one rule, and another meaning of the other.
    for text in ("search D d register d", "search C c register c where c.n < 2"):
        mdp.add_rules([text])
        assert [(uri, matched) for _, uri, matched in mdp.changes()] == [("http://d/1#d", True)]
    other.put_one("http://d/1", None)
    for rule in other.rows("select id from rules where text like '%D%'"):
        other.remove_rules(rule)
    other.put_schema(SCHEMA)
    with pytest.raises(InvalidRule):
        mdp.add_rules(["search D d register d"])


def test_groups_removed_by_another_process_are_created_again(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    mdp.put_one("http://d/1", "<#c> a :C ; :n 1 ; :next <#d> . <#d> a :C ; :n 2 .")
    other = type(mdp)(mdp.engine)
    for _ in range(3):
        (rule,) = mdp.add_rules(["search C c register c where c.next.n = 2 and c.n = 1"])
        assert mdp.changes() == [(rule.ends[0], "http://d/1#c", True)]
        other.remove_rules([rule.id])
        assert other.one("select count(*) from rule_groups") == 0


def test_a_dry_run_leaves_no_trace(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    mdp.add_rules([RULE])
    with mdp.engine.begin() as connection:
        savepoint = connection.begin_nested()
        item = mdp.prepare("http://d/1", DOCUMENT)
        (answer,) = register(connection, [item], mdp.provider)
        savepoint.rollback()
    assert getattr(answer, "matched", None) == 1
    assert mdp.put_one("http://d/1", DOCUMENT).matched == 1


def test_matched_counts_new_matches(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    mdp.add_rules([RULE, "search C c register c where c.next.n = 5", "search C c register c where c.n > 100"])
    assert mdp.put_one("http://d/1", "<#a> a :C ; :n 1 . <#b> a :C ; :n 2 ; :next <http://d/2#t> .").matched == 1
    assert mdp.put_one("http://d/1", "<#a> a :C ; :n 1 . <#b> a :C ; :n 3 ; :next <http://d/2#t> .").matched == 0
    # A referrer of it matches because of this document.
    assert mdp.put_one("http://d/2", "<#t> a :C ; :n 5 .").matched == 1
    answers = mdp.put({"http://d/3": "<#x> a :C ; :n 101 .", "http://d/4": "<#y> a :C ; :n 4 ."})
    assert [getattr(answer, "matched", None) for answer in answers] == [1, 0]


def test_a_rule_that_another_searches_cannot_be_removed_before_it(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    mdp.put_one("http://d/1", "<#a> a :C ; :n 1 ; :next <#b> . <#b> a :C ; :n 2 .")
    (one,) = mdp.add_rules([("ones", RULE)])
    (two,) = mdp.add_rules([("after", "search ones o, C c register c where o.next = c")])
    assert mdp.results_of(two.id) == {"http://d/1#b"}
    with pytest.raises(Conflict, match="after"):
        mdp.remove_rules([one.id])
    mdp.change_rule(one.id, "search C c register c where c.n = 99")
    assert mdp.results_of(two.id) == set()
    with pytest.raises(InvalidRule, match="itself"):
        mdp.change_rule(one.id, "search after a register a")
    with pytest.raises(Conflict, match="already"):
        mdp.add_rules([("ones", RULE)])
    assert mdp.add_rules([("ones", RULE)], owner=2)
    mdp.remove_rules([one.id, two.id])
    with pytest.raises(NotFound):
        mdp.remove_rules([two.id])


def test_rules_added_and_removed_concurrently_keep_exact_use_counts(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    failures: list[BaseException] = []

    def come_and_go(number: int) -> None:
        own = type(mdp)(mdp.engine)
        try:
            for n in range(8):
                added = own.add_rules([RULE, f"search C c register c where c.n = {n} and c.next.n = 1"])
                with own.engine.begin() as connection:
                    remove_rules(connection, [rule.id for rule in added[: 1 + n % 2]], own.provider)
        except BaseException as error:
            failures.append(error)

    threads = [in_the_background(lambda number=n: come_and_go(number)) for n in range(3)]  # type: ignore[misc]
    for thread in threads:
        thread.join(60)
    assert not failures
    uses = """select a.rule_id, a.uses, (select count(*) from rule_dependencies d where d.source = a.rule_id)
              + (select count(*) from rule_ends e where e.end_id = a.rule_id) from atomic_rules a"""
    rows = mdp.rows(uses)
    assert rows
    assert all(uses == needed > 0 for _, uses, needed in rows)
    assert mdp.one("select count(*) from rules") == 12


@pytest.mark.parametrize("compared", ["c.n = {}", "c.n > {}"])
def test_rules_added_together_gain_only_their_own_matches(mdp: Mdp, compared: str) -> None:
    """Also if an atomic rule that existed as a part becomes an end rule, with a smaller number than other end rules."""
    mdp.put_schema(SCHEMA)
    rule = "search C c register c where " + compared
    mdp.add_rules([rule.format(5) + " and c.next.n = 1"])
    mdp.add_rules([rule.format(3)])
    mdp.put_one("http://d/1", "<#c> a :C ; :n 4 . <#d> a :C ; :n 3 .")
    added = mdp.add_rules([rule.format(5), *(rule.format(n) for n in range(100, 125))])
    mine = {end for one in added for end in one.ends}
    assert {end for end, _, _ in mdp.changes()} <= mine
    mdp.put_one("http://d/1", "<#c> a :C ; :n 104 .")
    gained = {end for end, _, matched in mdp.changes() if matched}
    expected = {end for one in added if "http://d/1#c" in mdp.results_of(one.id) for end in one.ends}
    assert gained & mine == expected


def test_matched_excludes_the_one_constant_that_is_equal(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    mdp.add_rules(["search C c register c where c.n != 5"])
    assert mdp.put_one("http://d/1", "<#c> a :C ; :n 5 .").matched == 0
    assert mdp.changes() == []
    assert mdp.put_one("http://d/1", "<#c> a :C ; :n 6 .").matched == 1
    assert mdp.put_one("http://d/1", "<#c> a :C ; :n 5 .").matched == 0
    assert [matched for _, _, matched in mdp.changes()] == [False]


def test_cached_groups_of_a_rolled_back_schema_are_dropped(mdp: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    mdp.put_schema(SCHEMA)
    mdp.add_rules([RULE])
    other = type(mdp)(mdp.engine)

    def fail(*rest: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("mdv.db.filter.store_difference", fail)
        with pytest.raises(ZeroDivisionError):
            mdp.put_schema(SCHEMA + " :D rdfs:subClassOf :C .")
    other.put_schema(SCHEMA + " :E rdfs:subClassOf :C . :F rdfs:subClassOf :C .")
    mdp.put_one("http://d/1", "<#f> a :F ; :n 1 .")
    assert [(uri, matched) for _, uri, matched in mdp.changes()] == [("http://d/1#f", True)]


def test_rules_that_are_parsed_once_are_not_cached_forever(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    with mdp.engine.connect() as connection:
        schema = mdp.schemas.now(connection)
    text = RULE + " " * 2100
    for _ in range(50):
        mdp.rules.read(text, schema)
    assert len(mdp.rules._plans) < 10


def test_rules_with_long_names_are_found(mdp: Mdp) -> None:
    long = "x" * 1900
    mdp.put_schema(f"<http://v/{long}C> a rdfs:Class . <http://v/{long}p> rdfs:range xsd:integer .")
    (rule,) = mdp.add_rules([f"search <http://v/{long}C> c register c where c.<http://v/{long}p> > 3"])
    mdp.put_one("http://d/1", f"<#c> a <http://v/{long}C> ; <http://v/{long}p> 4 .")
    assert mdp.results_of(rule.id) == {"http://d/1#c"}
    with pytest.raises(BadRequest, match="200"):
        mdp.add_rules([("n" * 3000, RULE)])
