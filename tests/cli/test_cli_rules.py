"""`mdv rule add`, `list`, `resume`, `end`: rules of the MDP itself, from the command line to the filter."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.whole_system import SCHEMA, Up, suspend

LARGE = "search CycleProvider c register c where c.serverInformation.memory > 64"


@pytest.fixture
def on(running: Up, mdv: Callable) -> Callable:
    """A command on the running system, which has the paper's schema and the document of its Figure 1."""

    def run(*arguments: object) -> object:
        return mdv("--data", running.folder, *arguments)

    assert run("schema", "put", SCHEMA).code == 0
    assert run("register", SCHEMA.parent / "doc.rdf", "--uri", "http://mdv.example/doc.rdf").code == 0
    return run


def test_a_rule_is_added_listed_searched_and_removed(on: Callable) -> None:
    added = json.loads(on("rule", "add", "--name", "large", "--text", LARGE, "--json").out)
    assert (added["name"], added["matches"]) == ("large", 1)
    again = json.loads(on("rule", "add", "--text", LARGE, "--json").out)
    assert again["matches"] == 1, "all matches count, not only new ones"
    over = json.loads(on("rule", "add", "--text", "search large l register l", "--json").out)
    asked = on("query", "search large l return l.serverHost")
    assert (asked.code, asked.out) == (0, "pirates.uni-passau.de\n")
    listed = json.loads(on("rule", "list", "--json").out)["items"]
    assert [item["id"] for item in listed] == [added["id"], again["id"], over["id"]]
    traced = json.loads(on("filter", "trace", "http://mdv.example/doc.rdf", "--json").out)
    assert {row["resource"] for row in traced["results"]} == {"http://mdv.example/doc.rdf#host"}

    searched = on("rule", "end", added["id"])
    assert searched.code == 1 and f"Rule {over['id']} searches rule large" in searched.err
    for rule in (over, added, again):
        assert on("rule", "end", rule["id"]).code == 0
    assert json.loads(on("rule", "list", "--json").out)["items"] == []
    gone = on("rule", "end", added["id"])
    assert gone.code == 1 and "mdv rule list" in gone.err


def test_a_suspended_rule_is_listed_as_such_and_resumed(on: Callable, running: Up) -> None:
    rule = json.loads(on("rule", "add", "--text", LARGE, "--json").out)["id"]
    (active,) = json.loads(on("rule", "list", "--json").out)["items"]
    assert active == {"id": rule, "name": None, "text": LARGE, "state": "active", "by": "command line"}
    suspend(running, rule)
    (item,) = json.loads(on("rule", "list", "--json").out)["items"]
    assert (item["state"], item["suspended"]["reason"]) == ("suspended", "It took 9 s.")
    listed = on("rule", "list")
    assert listed.out == f"{rule}\t\t{LARGE}\tsuspended\n"
    assert "It took 9 s." in listed.err and f"`mdv rule resume {rule}`" in listed.err
    traced = json.loads(on("filter", "trace", "http://mdv.example/doc.rdf", "--json").out)
    assert traced["results"] == []
    for _ in "12":
        assert on("rule", "resume", rule).out == f"Rule {rule} is active.\n"
    assert on("rule", "list").out.endswith("\tactive\n") and on("rule", "list").err == ""
    assert on("rule", "end", rule).code == 0
    gone = on("rule", "resume", rule)
    assert gone.code == 1 and "mdv rule list" in gone.err


def test_a_registration_prints_the_number_of_new_matches(on: Callable, tmp_path: Path) -> None:
    rule = json.loads(on("rule", "add", "--text", LARGE.replace("64", "9000"), "--json").out)
    document = tmp_path / "huge.ttl"
    document.write_text("@prefix : <http://mdv.example/schema#> .\n<#h> a :CycleProvider ; :serverInformation <#i> .\n"
                        "<#i> a :ServerInformation ; :memory 9001 .\n", "utf-8")  # fmt: skip
    told = on("register", document, "--uri", "http://mdv.example/huge.ttl")
    assert told.code == 0 and "new matches: 1" in told.err + told.out
    assert on("rule", "end", rule["id"]).code == on("delete", "http://mdv.example/huge.ttl", "--yes").code == 0


def test_an_invalid_rule_is_refused_with_its_place(on: Callable) -> None:
    wrong = on("rule", "add", "--text", LARGE.replace("memory", "memry"))
    assert wrong.code == 1
    assert "^^^^^" in wrong.err and "memory" in wrong.err
