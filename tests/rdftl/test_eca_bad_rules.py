"""Bad rules beside good changes: slow ones, loops, rules that undo each other, and refusals in a batch."""

from __future__ import annotations

from typing import Any

import pytest

from mdv.errors import InvalidRule
from mdv.mdp.eca.run import RunLimits
from mdv.mdp.provider import Provider
from tests.support.eca_system import RULES, SCHEMA, add, put, rule_named, statements, submit, update, work
from tests.support.mdp import Mdp

PEOPLE = 3_000
CROSS_PRODUCT = "resource()[target(tag) = 'p']/target(tag) != resource()[target(tag) = 'p']/target(tag)"
"""A condition that compares every person with every other one, and holds for none."""


@pytest.fixture
def eca(mdp: Mdp) -> Mdp:
    mdp.put_schema(SCHEMA)
    mdp.provider = Provider(mdp.engine, run_limits=RunLimits(60, 40, 60, query_seconds=0.2))
    return mdp


@pytest.fixture
def crowded(eca: Mdp) -> Mdp:
    eca.put_one("http://d/people", "".join(f"<http://p/{n}> :tag 'p' ; :subject 's{n}' . " for n in range(PEOPLE)))
    return eca


@pytest.mark.parametrize(("abort", "state"), [("Mutual", "failed"), ("ChildParent", "failed"),
                                              ("ParentChild", "done"), ("Independent", "done")])  # fmt: skip
def test_a_rule_with_a_cross_product_is_quarantined_at_once(crowded: Mdp, abort: str, state: str) -> None:
    add(crowded, f"RULE slow ABORT {abort} ON INSERT (_, level, _) IF {CROSS_PRODUCT} DO INSERT ($delta, tag, 'slow')",
                 "RULE good ON INSERT (_, level, _) IF TRUE DO INSERT ($delta, tag, 'good')")  # fmt: skip

    (first,) = put(crowded, "http://d/1", "<http://r/1> :level 1 .")
    second = put(crowded, "http://d/2", "<http://r/2> :level 1 .")[1]

    slow = rule_named(crowded, "slow")
    assert (first.state, second.state, slow.state, slow.failed) == (state, "done", "quarantined", 1)
    assert "its event or condition took longer than 0.2 s" in (slow.reason or "")
    good = {("http://r/2", "tag", "good")} | ({("http://r/1", "tag", "good")} if state == "done" else set())
    assert statements(crowded, RULES) == good
    if state == "failed":
        assert (first.answer["type"], first.answer["name"]) == ("urn:mdv:problem:rule-failed", "slow")
        assert crowded.rows("select outcome from eca_runs where id = :id", id=first.answer["run"]) == [("refused",)]


def test_only_the_slow_rule_of_a_template_is_quarantined(crowded: Mdp) -> None:
    for name, level in (("other", 2), ("slow", 1)):
        add(crowded, f"RULE {name} ABORT Independent ON INSERT (_, level, {level}) IF {CROSS_PRODUCT}"
                     " DO INSERT ($delta, tag, 'x')")  # fmt: skip

    put(crowded, "http://d/1", "<http://r/1> :level 1 .")

    assert (rule_named(crowded, "other").state, rule_named(crowded, "slow").state) == ("active", "quarantined")


def test_a_rule_with_a_slow_action_is_quarantined_at_once(crowded: Mdp) -> None:
    add(crowded, "RULE slow ABORT ParentChild ON INSERT (_, level, _) IF TRUE DO"
                 f" INSERT ($delta, tag, 'a') DELETE (resource()[{CROSS_PRODUCT}], tag, _)")  # fmt: skip

    (ended,) = put(crowded, "http://d/1", "<http://r/1> :level 1 .")

    slow = rule_named(crowded, "slow")
    assert (ended.state, slow.state, slow.reason) == (
        "done", "quarantined", "It was too slow: action 2 took longer than 0.2 s."
    )  # fmt: skip
    assert statements(crowded, RULES) == set()


def test_a_slow_update_is_refused(crowded: Mdp) -> None:
    (ended,) = update(crowded, f"DELETE (resource()[{CROSS_PRODUCT}], tag, _)")

    assert (ended.state, ended.answer["type"]) == ("failed", "urn:mdv:problem:update-failed")
    assert "took longer than 0.2 s" in ended.answer["detail"]


def test_a_slow_detached_rule_compensates_its_parent(crowded: Mdp) -> None:
    add(crowded, "RULE slow COUPLING Detached ABORT Mutual ON INSERT (_, level, _) IF TRUE"
                 f" DO DELETE (resource()[{CROSS_PRODUCT}], tag, _)")  # fmt: skip

    ended = put(crowded, "http://d/1", "<http://r/1> :level 1 .")

    assert [(job.kind, job.state) for job in ended] == [
        ("register", "done"), ("detached", "failed"), ("compensate", "done")
    ]  # fmt: skip
    assert rule_named(crowded, "slow").state == "quarantined"
    assert statements(crowded, "http://d/1") == set()


def test_only_the_document_to_blame_fails_in_a_batch(eca: Mdp) -> None:
    add(eca, "RULE picky ON INSERT (_, subject, 'bad') IF TRUE DO INSERT ($delta, level, 1), ($delta, level, 2)",
             "RULE mark ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'seen')")  # fmt: skip
    for number, subject in enumerate(("good", "bad", "good", "bad", "good")):
        submit(eca, "register", f"http://d/{number}", f"<http://r/{number}> :subject '{subject}' .")

    ended = work(eca)

    assert [job.state for job in ended] == ["done", "failed", "done", "failed", "done"]
    assert [job.answer["position"] for job in ended if job.state == "done"] == [4, 5, 6]
    assert statements(eca, RULES) == {(f"http://r/{number}", "tag", "seen") for number in (0, 2, 4)}


def test_a_loop_names_the_rules_that_repeat(eca: Mdp) -> None:
    add(eca, "RULE start ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'a')",
             "RULE there ON INSERT (_, tag, 'a') IF TRUE DO DELETE ($delta, tag, 'a') INSERT ($delta, tag, 'b')",
             "RULE back ON INSERT (_, tag, 'b') IF TRUE DO DELETE ($delta, tag, 'b') INSERT ($delta, tag, 'a')"
             )  # fmt: skip

    (ended,) = put(eca, "http://d/1", "<http://r/1> :subject 'x' .")

    problem: Any = ended.answer
    assert (ended.state, problem["type"]) == ("failed", "urn:mdv:problem:rules-do-not-end")
    assert sorted(problem["rules"]) == ["back", "there"]
    assert problem["times"] > 10
    assert "The last change: <http://r/1> <http://v/tag>" in problem["detail"]
    assert statements(eca, "http://d/1") == set() == statements(eca, RULES)


def test_rules_end_when_their_time_is_over(eca: Mdp) -> None:
    eca.provider = Provider(eca.engine, run_limits=RunLimits(seconds=0))
    add(eca, "RULE tags ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'a')")

    (ended,) = put(eca, "http://d/1", "<http://r/1> :subject 'x' .")

    assert (ended.state, ended.answer["type"]) == ("failed", "urn:mdv:problem:rules-do-not-end")
    assert ended.answer["limit"] == "more than 0 seconds"
    assert statements(eca, "http://d/1") == set() == statements(eca, RULES)


def test_a_registration_is_one_of_the_updates_that_a_transaction_may_have(eca: Mdp) -> None:
    """The limit is 60 updates."""
    add(eca, "ON INSERT (_, tag, _) IF TRUE DO INSERT ($delta, subject, $delta.target)")

    ended = [put(eca, f"http://d/{n}", f"<http://r/{n}> " + "; ".join(f":tag '{t}'" for t in range(n)) + " .")[-1]
             for n in (59, 60)]  # fmt: skip

    assert [one.state for one in ended] == ["done", "failed"]
    assert ended[1].answer["limit"] == "more than 60 updates"


def test_detached_rules_that_trigger_each_other_end(eca: Mdp) -> None:
    add(eca, "RULE there COUPLING Detached ABORT Independent ON INSERT (_, tag, 'a') IF TRUE"
             " DO DELETE ($delta, tag, 'a') INSERT ($delta, tag, 'b')",
             "RULE back COUPLING Detached ABORT Independent ON INSERT (_, tag, 'b') IF TRUE"
             " DO DELETE ($delta, tag, 'b') INSERT ($delta, tag, 'a')")  # fmt: skip

    ended = put(eca, "http://d/1", "<http://r/1> :tag 'a' .")

    assert [job.state for job in ended[:-1]] == ["done"] * 41
    assert (ended[-1].kind, ended[-1].state) == ("detached", "failed")
    assert ended[-1].answer["limit"] == "a chain of more than 40 rules"


def test_a_detached_rule_that_multiplies_ends(eca: Mdp) -> None:
    add(eca, "RULE more COUPLING Detached ABORT Independent ON UPDATE (_, level, _ -> _) IF TRUE"
             " DO UPDATE (resource(), level, _ -> 1) UPDATE (resource(), level, _ -> 2)")  # fmt: skip
    put(eca, "http://d/1", "<http://r/1> :level 1 . <http://r/2> :level 1 .")

    ended = put(eca, "http://d/1", "<http://r/1> :level 2 . <http://r/2> :level 1 .")

    detached = [job.state for job in ended if job.kind == "detached"]
    assert detached.count("done") <= 60
    assert "More than 60 detached copies" in ended[-1].answer["detail"]
    assert eca.rows("select id from jobs where state = 'queued'") == []


def test_rules_that_undo_each_other_leave_nothing(eca: Mdp) -> None:
    add(eca, "RULE put ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'a')",
             "RULE drop ON INSERT (_, tag, 'a') IF TRUE DO DELETE ($delta, tag, 'a')",
             "RULE undo ON DELETE (_, tag, 'a') IF TRUE DO DELETE (_, subject, 'x')")  # fmt: skip

    (ended,) = put(eca, "http://d/1", "<http://r/1> :subject 'x' .")
    again = put(eca, "http://d/1", "<http://r/1> :subject 'y' .")

    assert (ended.state, again[-1].state) == ("done", "done")
    assert statements(eca, RULES) == set()
    assert statements(eca, "http://d/1") == {("http://r/1", "subject", "y")}


@pytest.mark.parametrize("text", [
    "ON INSERT (_, nothing, _) IF TRUE DO INSERT ($delta, tag, 'a')",
    "ON INSERT (_, level, _) IF $delta/target(level) = 'high' DO INSERT ($delta, tag, 'a')",
    "ON INSERT (_, subject, _) IF " + "(" * 200 + "TRUE" + ")" * 200 + " DO INSERT ($delta, tag, 'a')",
    "ON INSERT (_, subject, _) IF TRUE DO " + "INSERT ($delta, tag, 'a') " * 2_000,
    "ON INSERT (_, subject, _) IF " + " AND ".join(["$delta/target(seen)" + "/target(seen)" * 70] * 3)
    + " DO INSERT ($delta, tag, 'a')",
])  # fmt: skip
def test_bad_texts_are_refused(eca: Mdp, text: str) -> None:
    with pytest.raises(InvalidRule):
        add(eca, text)

    assert put(eca, "http://d/1", "<http://r/1> :subject 'x' .")[0].state == "done"


@pytest.mark.full
def test_rules_that_always_fail_beside_many_registrations(eca: Mdp) -> None:
    add(eca, "RULE fails ABORT ParentChild ON INSERT (_, subject, _) IF TRUE"
             " DO INSERT ($delta, level, 1), ($delta, level, 2)",
             "RULE loops ABORT Independent ON INSERT (_, seen, _) IF TRUE DO UPDATE ($delta, level, _ -> 2)"
             " UPDATE ($delta, level, _ -> 1)",
             "RULE again ON UPDATE (_, level, _ -> _) IF TRUE DO UPDATE ($delta, level, _ -> 2)"
             " UPDATE ($delta, level, _ -> 1)")  # fmt: skip
    update(eca, " ".join(f"INSERT (resource('http://r/{number}'), level, 1)" for number in range(49, 200, 50)))
    for number in range(200):
        more = " ; :seen <http://r/0>" if number % 50 == 49 else ""
        submit(eca, "register", f"http://d/{number}", f"<http://r/{number}> :subject 'x'{more} .")

    ended = work(eca)

    states = [job.state for job in ended if job.kind == "register"]
    assert (len(states), states.count("failed")) == (200, 4)
    assert {job.answer["type"] for job in ended if job.state == "failed"} == {"urn:mdv:problem:rules-do-not-end"}
    assert rule_named(eca, "fails").state == "quarantined"
    assert eca.one("select count(*) from documents where present and uri like 'http://d/%'") == 196


@pytest.mark.parametrize("abort", ["Mutual", "Independent"])
def test_the_reason_of_a_quarantine_counts_every_failure(eca: Mdp, abort: str) -> None:
    add(eca, f"RULE fails ABORT {abort} ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, seq++, $delta)")
    for number in range(4):
        put(eca, f"http://d/{number}", f"<http://r/{number}> a :Lo ; :subject 'x' .")
    assert rule_named(eca, "fails").state == "active"
    put(eca, "http://d/4", "<http://r/4> a :Lo ; :subject 'x' .")
    assert rule_named(eca, "fails").reason == "It failed in 5 transactions in a row."
