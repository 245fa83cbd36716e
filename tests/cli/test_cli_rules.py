"""`mdv rule`: rules checked and explained, and errors that point at the place."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from systems import SCHEMA, Up

RULE = "search CycleProvider c register c where c.serverInformation.memory > 64"
NORMAL = [
    "search    CycleProvider c, ServerInformation s",
    "register  c",
    "where     c.serverInformation = s",
    "          and s.memory > 64",
]


@pytest.fixture
def on(running: Up, mdv: Callable) -> Callable:
    """A command on the running system, which has the paper's schema."""

    def run(*arguments: object) -> object:
        return mdv("--data", running.folder, *arguments)

    assert run("schema", "put", SCHEMA).code == 0
    return run


def test_a_rule_is_checked_from_a_file_from_the_line_and_from_standard_input(
    on: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "my.rule"
    file.write_text(RULE)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(RULE.encode())))
    for given in ([file], ["--text", RULE], ["-"]):
        ran = on("rule", "check", *given)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.splitlines() == ["ok", *NORMAL]


@pytest.mark.parametrize("verb", ["check", "explain"])
def test_a_flaw_is_shown_with_its_place_on_standard_error(on: Callable, verb: str) -> None:
    ran = on("rule", verb, "--text", "search CycleProvider c\nregister c where c.serverHst = 'a'")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("mdv: Rule refused: The rule has a flaw at line 2, column 20: ")
    assert "serverHost" in ran.err
    source, carets = ran.err.rstrip("\n").split("\n")[-2:]
    assert source.strip() == "register c where c.serverHst = 'a'"
    assert carets.strip() == "^" * len("serverHst") and carets.index("^") == source.index("serverHst")


def test_a_rule_is_explained(on: Callable) -> None:
    ran = on("rule", "explain", "--text", RULE)
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[2:6] == NORMAL
    assert "├── A  search ServerInformation s register s where s.memory > 64" in lines
    assert "└── B  search CycleProvider c register c" in lines
    assert lines[-1] == "Cost: a change looks only at what references and equal values lead to"
    assert "SQL" not in ran.out
    assert "SQL, evaluation" in on("rule", "explain", "--sql", "--text", RULE).out
    body = json.loads(on("rule", "explain", "--json", "--text", RULE).out)
    assert body["conjunctions"][0]["normal"].splitlines() == NORMAL


def test_what_a_rule_holds_does_not_reach_the_terminal_raw(on: Callable) -> None:
    text = "search CycleProvider c register c where c.serverHost = 'a\x1b[31m\x07'"
    for verb in ("check", "explain"):
        ran = on("rule", verb, "--text", text)
        assert ran.code == 0 and "\x1b" not in ran.out and "\\x1b[31m\\x07" in ran.out


@pytest.mark.parametrize("line", [[], ["--text", RULE, "-"], ["no.such.file"]])
def test_a_line_that_names_no_rule_or_two_exits_2(mdv: Callable, line: list[str]) -> None:
    for verb in ("check", "explain"):
        ran = mdv("rule", verb, *line)
        assert ran.code == 2 and "Error:" in ran.err


def test_a_file_that_is_no_text_is_a_sentence(on: Callable, tmp_path: Path) -> None:
    (tmp_path / "bad.rule").write_bytes(b"search \xff")
    ran = on("rule", "check", tmp_path / "bad.rule")
    assert ran.code == 1 and "byte 8 is not UTF-8" in ran.err
    (tmp_path / "empty.rule").write_text("")
    ran = on("rule", "check", tmp_path / "empty.rule")
    assert ran.code == 1 and "expected 'search'" in ran.err
