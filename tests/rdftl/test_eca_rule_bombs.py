"""Rules and updates that ask for much: many rules of one template, slow STRICT rules, long paths, and products."""

from __future__ import annotations

import pytest

from mdv.mdp.eca.change_rules import EcaDraft, add_drafts, change_state
from mdv.mdp.eca.run import RunLimits
from mdv.mdp.provider import Provider
from tests.support.eca_system import RULES, SCHEMA, add, put, rule_named, statements, submit, update, work
from tests.support.mdp import Mdp

PEOPLE = 3_000
CROSS_PRODUCT = "resource()[target(tag) = 'p']/target(tag) != resource()[target(tag) = 'p']/target(tag)"
"""A condition that compares every person with every other one, and holds for none."""
AND_BACK = "/target(rdf:type)/source(rdf:type)" * 8
"""Leads from each instance of a class to all of them, again and again."""


@pytest.fixture
def eca(mdp: Mdp) -> Mdp:
    mdp.put_schema(SCHEMA)
    mdp.provider = Provider(mdp.engine, run_limits=RunLimits(60_000, 40, 60, query_seconds=0.2))
    return mdp


@pytest.fixture
def crowded(eca: Mdp) -> Mdp:
    people = "".join(f"<http://p/{n}> a :User ; :tag 'p' ; :subject 's{n}' . " for n in range(PEOPLE))
    eca.put_one("http://d/people", people)
    return eca


def test_every_rule_of_a_template_that_is_slow_as_a_whole_fires(crowded: Mdp) -> None:
    condition = "NOT resource()[target(tag) = 'p']/target(subject) = 'none{}'"
    drafts = [
        EcaDraft(f"RULE n{n} ON INSERT (_, level, _) IF {condition.format(n)} DO INSERT ($delta, tag, 'n{n}')")
        for n in range(1_100)
    ]
    with crowded.engine.begin() as connection:
        add_drafts(connection, drafts, crowded.provider)

    (ended,) = put(crowded, "http://d/1", "<http://r/1> :level 1 .")

    assert ended.state == "done"
    assert statements(crowded, RULES) == {("http://r/1", "tag", f"n{n}") for n in range(1_100)}


def test_a_slow_strict_rule_is_quarantined(crowded: Mdp) -> None:
    add(crowded, f"RULE slow ABORT Independent STRICT ON INSERT (_, level, _) IF resource()[{CROSS_PRODUCT}]/element()"
                 " = 'x' DO INSERT ($delta, tag, 'slow')",
                 "RULE good ON INSERT (_, level, _) IF TRUE DO INSERT ($delta, tag, 'good')")  # fmt: skip

    (ended,) = put(crowded, "http://d/1", "<http://r/1> :level 1 .")

    assert (ended.state, rule_named(crowded, "slow").state) == ("done", "quarantined")
    assert statements(crowded, RULES) == {("http://r/1", "tag", "good")}


@pytest.mark.parametrize("action", [
    f"INSERT ($delta{AND_BACK}, tag, 'x')",
    f"DELETE ($delta{AND_BACK}, tag, 'x')",
    f"UPDATE ($delta, level, _ -> resource(http://p/1){AND_BACK}/target(level))",
    f"DELETE $delta{AND_BACK}[target(tag) = 'none']",
])  # fmt: skip
def test_an_action_with_a_path_that_multiplies_is_slow(crowded: Mdp, action: str) -> None:
    add(crowded, f"RULE slow ABORT Independent ON INSERT (_, level, _) IF TRUE DO {action}")

    (ended,) = put(crowded, "http://d/1", "<http://r/1> a :User ; :level 1 .")

    assert (ended.state, rule_named(crowded, "slow").state) == ("done", "quarantined")


def test_an_update_with_a_path_that_multiplies_is_refused(crowded: Mdp) -> None:
    (ended,) = update(crowded, f"INSERT (resource(http://p/1){AND_BACK}, tag, 'x')")

    assert (ended.state, ended.answer["type"]) == ("failed", "urn:mdv:problem:update-failed")
    assert "took longer than 0.2 s" in ended.answer["detail"]


def test_an_action_that_inserts_a_product_fails(crowded: Mdp) -> None:
    (ended,) = update(crowded, "INSERT (resource(), seen, resource())")

    assert (ended.state, ended.answer["type"]) == ("failed", "urn:mdv:problem:update-failed")
    assert "would insert 9,000,000 statements" in ended.answer["detail"]


def test_slow_rules_of_several_documents_of_a_batch_are_all_quarantined(crowded: Mdp) -> None:
    add(crowded, f"RULE one ABORT Independent ON INSERT (_, level, _) IF {CROSS_PRODUCT} DO INSERT ($delta, tag, 'x')",
                 f"RULE two ABORT Independent ON INSERT (_, owner, _) IF {CROSS_PRODUCT} DO INSERT ($delta, tag, 'x')"
                 )  # fmt: skip
    for number, turtle in enumerate((":level 1", ":subject 'x'", ":owner <http://p/1>", ":subject 'y'")):
        submit(crowded, "register", f"http://d/{number}", f"<http://r/{number}> {turtle} .")

    ended = work(crowded)

    assert [job.state for job in ended] == ["done"] * 4
    assert {rule_named(crowded, name).state for name in ("one", "two")} == {"quarantined"}


def test_the_dry_run_of_a_slow_draft_does_not_affect_the_next_rule(crowded: Mdp) -> None:
    slow = f"ON INSERT (_, level, _) IF TRUE DO DELETE (resource()[{CROSS_PRODUCT}], tag, _)"
    submit(crowded, "register", "http://d/1", "<http://r/1> :level 1 .", dry_run=True, rules=[[slow, "main", "active"]])
    (tried,) = work(crowded)

    add(crowded, "RULE good ON INSERT (_, level, _) IF TRUE DO INSERT ($delta, tag, 'good')")
    ended = put(crowded, "http://d/1", "<http://r/1> :level 1 .")

    assert (tried.state, tried.answer["type"]) == ("failed", "urn:mdv:problem:rule-failed")
    assert (ended[-1].state, rule_named(crowded, "good").state) == ("done", "active")
    assert statements(crowded, RULES) == {("http://r/1", "tag", "good")}


def test_a_rule_with_several_slow_actions_is_quarantined(crowded: Mdp) -> None:
    slow = f"resource()[{CROSS_PRODUCT}]"
    add(crowded, "RULE slow ABORT Independent ON INSERT (_, level, _) IF TRUE DO"
                 f" DELETE ($delta[target(level) = 2]/target(seen)/source(tag)[{CROSS_PRODUCT}], tag, _)"
                 f" DELETE ({slow}, tag, _)")  # fmt: skip

    (ended,) = put(crowded, "http://d/1", "<http://r/1> :level 1 . <http://r/2> :level 1 .")

    assert (ended.state, rule_named(crowded, "slow").state) == ("done", "quarantined")


def test_a_slow_shadow_rule_is_quarantined(crowded: Mdp) -> None:
    add(crowded, f"RULE slow ON INSERT (_, level, _) IF {CROSS_PRODUCT} DO INSERT ($delta, tag, 'x')")
    with crowded.engine.begin() as connection:
        change_state(connection, "slow", "shadow", None, crowded.provider)

    (ended,) = put(crowded, "http://d/1", "<http://r/1> :level 1 .")

    assert (ended.state, rule_named(crowded, "slow").state) == ("done", "quarantined")


def test_the_target_of_a_delete_event_is_a_node_of_the_state_before(eca: Mdp) -> None:
    add(eca, "RULE gone ON DELETE (_, owner, resource()) IF TRUE DO INSERT (resource(http://r/log), tag, 'gone')")
    put(eca, "http://d/1", "<http://r/1> :owner <http://r/2> . <http://r/2> a :User .")

    put(eca, "http://d/1", "<http://r/1> :subject 'x' .")

    assert statements(eca, RULES) == {("http://r/log", "tag", "gone")}
