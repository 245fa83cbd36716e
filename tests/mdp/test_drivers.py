"""Driving predicates: rules of a group are found by their selective side, chosen again when the data change."""

from __future__ import annotations

import pytest

from tests.support.mdp import Mdp

SCHEMA = """:C a rdfs:Class . :S a rdfs:Class .
:host rdfs:range xsd:string . :cpu rdfs:range xsd:integer . :memory rdfs:range xsd:integer . :info rdfs:range :S .
"""


def driver(mdp: Mdp) -> str:
    """Return the property by which the rules of the only group with several constants are found."""
    ((pattern, number),) = mdp.rows("select pattern, driver from rule_groups where whole")
    return str(pattern["leaves"][number][2]).removeprefix("http://v/")


def document(number: int, cpu: int = 600, memory: int | None = None) -> str:
    return (
        f"<#c> a :C ; :host 'host{number}.uni-passau.de' ; :info <#s> ."
        f" <#s> a :S ; :cpu {cpu} ; :memory {number if memory is None else memory} ."
    )


def rules(count: int, cpu: str, memory: str) -> list[str]:
    return [
        "search C c register c where c.host contains 'uni-passau.de'"
        f" and c.info.cpu = {cpu.format(i)} and c.info.memory = {memory.format(i)}"
        for i in range(count)
    ]


@pytest.mark.parametrize(("cpu", "memory", "expected"), [("600", "{}", "memory"), ("{}", "600", "cpu")])
def test_rules_are_found_by_the_side_with_the_most_constants(mdp: Mdp, cpu: str, memory: str, expected: str) -> None:
    mdp.put_schema(SCHEMA)
    mdp.add_rules(rules(30, cpu, memory))
    assert driver(mdp) == expected


def test_another_driving_predicate_is_chosen_after_many_more_rules(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    mdp.add_rules(rules(3, "{}", "7"))
    assert driver(mdp) == "cpu"
    mdp.add_rules(rules(40, "600", "{}"))
    assert driver(mdp) == "memory"
    drivers = mdp.rows("select driver_id, leaves from end_rules")
    assert all(found_by in leaves for found_by, leaves in drivers)
    mdp.put_one("http://d/1", document(5))
    assert [(uri, matched) for _, uri, matched in mdp.changes()] == [("http://d/1#c", True)]


def test_another_driving_predicate_is_chosen_after_the_data_change(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    # By their constants both sides look the same; in the data one is much more common.
    mdp.add_rules(rules(40, "{}", "{}"))
    before = driver(mdp)
    common = {"cpu": {"cpu": 7}, "memory": {"memory": 7}}[before]
    mdp.add_rules([rule.replace("= 0 ", "= 7 ").replace("= 0", "= 7") for rule in rules(1, "{}", "{}")])
    mdp.add_rules([text for i in range(30) for text in rules(1, "7", str(1000 + i))] if before == "cpu" else
                  [text for i in range(30) for text in rules(1, str(1000 + i), "7")])  # fmt: skip
    mdp.put({f"http://d/{n}": document(n, **common) for n in range(600)})
    mdp.put_one("http://d/a", document(2000))
    assert driver(mdp) != before
    mdp.put_one("http://d/b", document(9, cpu=9))
    assert [(uri, matched) for _, uri, matched in mdp.changes()] == [("http://d/b#c", True)]
