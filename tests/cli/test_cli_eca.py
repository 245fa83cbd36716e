"""`mdv eca` and `mdv update`: rules, runs and the log, from the command line to the worker of a running system."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.whole_system import SCHEMA, Up

HOST = "http://mdv.example/doc.rdf#host"
Run = Callable[..., Any]
_numbers = count(1)


@pytest.fixture
def on(running: Up, mdv: Run) -> Iterator[Run]:
    """A command on the running system, which has the paper's schema and a document of its own for each test."""

    def run(*arguments: object) -> Any:
        return mdv("--data", running.folder, *arguments)

    assert run("schema", "put", SCHEMA).code == 0
    yield run
    for item in json.loads(run("eca", "list", "--json").out)["items"]:
        assert run("eca", "remove", item["id"]).code == 0


@pytest.fixture
def provider(tmp_path: Path) -> tuple[Path, str]:
    """The file and the URI of a document."""
    number = next(_numbers)
    file = tmp_path / f"server{number}.ttl"
    file.write_text(
        "@prefix : <http://mdv.example/schema#> .\n<#host> a :CycleProvider ; :serverPort 80 .\n", "utf-8"
    )  # fmt: skip
    return file, f"http://eca.example/{number}.ttl"


RULE = "RULE {name} ON INSERT resource() AS INSTANCE OF CycleProvider IF $delta/target(serverPort) < 1024 DO {action}"
NOTE = "INSERT ($delta, synthValue, 7)"


def rule(name: str = "low", action: str = NOTE) -> str:
    return RULE.format(name=name, action=action)


def test_a_rule_is_added_runs_and_is_explained(on: Run, provider: tuple[Path, str]) -> None:
    file, uri = provider
    added = on("eca", "add", "--text", rule())
    assert added.code == 0 and re.fullmatch(r"Rule low \(\d+\) is added\.\n", added.out)

    tried = on("eca", "dry-run", file, "--uri", uri)
    assert tried.out.splitlines()[0] == "Dry run, nothing was changed. Rules would fire: 1."
    assert on("register", file, "--uri", uri).code == 0

    listed = on("eca", "list").out.rstrip("\n").split("\t")
    assert listed[1:] == ["low", "main", "active", "1", "0", rule()]
    (run, *_) = (line.split("\t") for line in on("eca", "trace", "--rule", "low").out.splitlines())
    assert run[3:] == ["done", "1", uri]
    traced = on("eca", "trace", run[0]).out.splitlines()
    assert traced == [
        f"Run {run[0]}: registration of {uri}, at position {run[2]}, done.",
        f"rule low because of <{uri}#host>",
        "  if $delta/target(serverPort) < 1024: true ('80'; '1024')",
        f"  update {0}, action 1",
        f"    + <{uri}#host> <http://mdv.example/schema#synthValue> '7' in urn:mdv:eca:main",
    ]
    assert tried.out.splitlines()[1:] == traced[1:]
    log = on("eca", "log", "--resource", f"{uri}#host").out.rstrip("\n").split("\t")
    assert log[1:] == [
        "+",
        f"{uri}#host",
        "http://mdv.example/schema#synthValue",
        "7",
        f"rule low because of <{uri}#host>",
    ]
    explained = on("explain", f"{uri}#host").out
    assert f"'7' in urn:mdv:eca:main: inserted by rule low because of <{uri}#host>." in explained
    undone = on("eca", "compensate", run[0])
    assert undone.out == "Changes: 3 undone, 0 skipped.\n"
    assert on("resources", f"{uri}#host").code == 1
    shown = on("eca", "show", "low").out
    assert "\nnormal:\n  RULE low\n" in shown and "fired\t1" in shown


def test_rules_of_a_file_are_added_whole_and_change_their_states(on: Run, tmp_path: Path) -> None:
    file = tmp_path / "my.rules"
    file.write_text(";;\n".join([rule("one"), rule("two")]), "utf-8")
    assert on("eca", "add", file, "--set", "own", "--state", "shadow").code == 0
    again = on("eca", "add", file)
    assert again.code == 1 and "already a rule" in again.err
    items = json.loads(on("eca", "list", "--set", "own", "--json").out)["items"]
    assert [(item["name"], item["state"]) for item in items] == [("one", "shadow"), ("two", "shadow")]
    assert on("eca", "enable", "one", "two").out == "Rule one is active.\nRule two is active.\n"
    assert on("eca", "disable", "two").out == "Rule two is disabled.\n"
    assert on("eca", "shadow", items[0]["id"]).out == f"Rule {items[0]['id']} is a shadow rule.\n"
    assert [line.split("\t")[3] for line in on("eca", "list").out.splitlines()] == ["shadow", "disabled"]
    assert on("eca", "list", "--state", "active").out == ""
    assert on("eca", "remove", "one").out == "Rule one is removed.\n"
    gone = on("eca", "show", "one")
    assert gone.code == 1 and "`mdv eca list` shows all rules" in gone.err


def test_a_registration_that_a_rule_refuses_says_why(on: Run, provider: tuple[Path, str]) -> None:
    file, uri = provider
    assert on("eca", "add", "--text", rule("bad", "INSERT ($delta, synthValue, 7), ($delta, synthValue, 8)")).code == 0
    refused = on("register", file, "--uri", uri)
    assert refused.code == 1 and "A rule failed: The rule bad failed" in refused.err
    (run, *_) = (line.split("\t") for line in on("eca", "trace").out.splitlines())
    assert (run[2], run[3]) == ("", "refused")
    traced = on("eca", "trace", run[0]).out
    assert traced.startswith(f"Run {run[0]}: registration of {uri}, refused.\nThe rule bad failed for {uri}#host, so")
    assert "  failed: " in traced


def test_an_update_changes_statements(on: Run, provider: tuple[Path, str], tmp_path: Path) -> None:
    file, uri = provider
    assert on("register", file, "--uri", uri).code == 0
    text = f"UPDATE (resource({uri}#host), serverPort, _ -> 8080)"
    tried = on("update", "-e", text, "--dry-run")
    assert tried.out.splitlines()[0] == "Dry run, nothing was changed: statements: 0 inserted, 0 deleted, 1 updated."
    assert f"~ <{uri}#host> <http://mdv.example/schema#serverPort> '80' → '8080' in {uri}" in tried.out
    script = tmp_path / "change.rdftl"
    script.write_text(text, "utf-8")
    assert on("update", script).out == "Statements: 0 inserted, 0 deleted, 1 updated.\n"
    done = json.loads(on("update", script, "--json").out)
    assert (done["updated"], done["fired"]) == (0, 0)
    assert on("update", "-e", f"INSERT (resource({uri}#b), serverPort, 1)", "--graph", uri).code == 0
    assert json.loads(on("documents", "history", uri, "--json").out)["items"][0]["cause"] == "update"


def test_errors_show_their_place(on: Run) -> None:
    wrong = on("eca", "add", "--text", rule(action="INSERT ($delta, synthValu, 7)"))
    assert wrong.code == 1 and "^^^^^" in wrong.err and "synthValue" in wrong.err
    wrong = on("update", "-e", "DELETE (resource(http://a/b), serverPrt, _)")
    assert wrong.code == 1 and "^^^^^" in wrong.err and "serverPort" in wrong.err
    warned = on("eca", "add", "--text", rule("warn").replace("CycleProvider", "cycleprovider"))
    assert warned.code == 0 and "mdv: warning: line 1, column " in warned.err


@pytest.mark.parametrize(
    "line",
    ["eca add", "eca add --text x --state quarantined", "eca show", "eca trace x", "eca enable", "eca dry-run",
     "eca dry-run --update x --uri http://a/", "eca log --run x", "update", "update nosuch.file"],
)  # fmt: skip
def test_invalid_arguments_exit_with_2(line: str, mdv: Run) -> None:
    ran = mdv(*line.split())
    assert ran.code == 2 and "Error:" in ran.err
