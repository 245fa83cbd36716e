"""`mdv rule add`, `list`, `end`: rules of the provider's own, from the command line to the filter."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from systems import SCHEMA, Up

LARGE = "search CycleProvider c register c where c.serverInformation.memory > 64"


@pytest.fixture
def on(running: Up, mdv: Callable) -> Callable:
    """A command on the running system, which has the paper's schema and the document of its Figure 1."""

    def run(*arguments: object) -> object:
        return mdv("--data", running.folder, *arguments)

    assert run("schema", "put", SCHEMA).code == 0
    assert run("register", SCHEMA.parent / "doc.rdf", "--uri", "http://mdv.example/doc.rdf").code == 0
    return run


def test_a_rule_is_added_listed_searched_and_ended(on: Callable) -> None:
    added = json.loads(on("rule", "add", "--name", "large", "--text", LARGE, "--json").out)
    assert (added["name"], added["matches"]) == ("large", 1)
    again = json.loads(on("rule", "add", "--text", LARGE, "--json").out)
    assert again["matches"] == 1, "what it matches counts, not what is new"
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


def test_a_registration_tells_what_came_to_match(on: Callable, tmp_path: Path) -> None:
    rule = json.loads(on("rule", "add", "--text", LARGE.replace("64", "9000"), "--json").out)
    document = tmp_path / "huge.ttl"
    document.write_text("@prefix : <http://mdv.example/schema#> .\n<#h> a :CycleProvider ; :serverInformation <#i> .\n"
                        "<#i> a :ServerInformation ; :memory 9001 .\n", "utf-8")  # fmt: skip
    told = on("register", document, "--uri", "http://mdv.example/huge.ttl")
    assert told.code == 0 and "1 came to match a rule" in told.err + told.out
    assert on("rule", "end", rule["id"]).code == on("delete", "http://mdv.example/huge.ttl", "--yes").code == 0


def test_a_wrong_rule_is_refused_with_its_place(on: Callable) -> None:
    wrong = on("rule", "add", "--text", LARGE.replace("memory", "memry"))
    assert wrong.code == 1
    assert "^^^^^" in wrong.err and "memory" in wrong.err
