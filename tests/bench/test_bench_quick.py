"""`mdv bench quick` at tiny sizes: every user-visible operation is measured on a whole system and checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mdv.bench import quick
from mdv.cli import cli
from mdv.cli.errors import run_for_exit_code

WAYS = (
    "in one process: text to commit",
    "HTTP: a document registered",
    "HTTP: a document, until the LMR has it",
    "HTTP: a rule subscribed",
    "HTTP: rules subscribed in one call",
    "feed: a snapshot, each event",
    "LMR: a query over a path",
    "MDP: a query over a path",
    "batch: a document",
    "batch: a document, with the start of Spark",
)


def bench_quick(*arguments: object) -> int:
    line = ["bench", "quick", *map(str, arguments)]
    return run_for_exit_code(lambda: cli.main(line, prog_name="mdv", standalone_mode=False))


def test_every_operation_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_quick("--rounds", 3, "--many", 10, "--json", tmp_path / "q.json") == 0, capsys.readouterr().err
    figures = json.loads((tmp_path / "q.json").read_text("utf-8"))
    by_name = {result["name"]: result for result in figures["results"]}
    assert set(WAYS) <= by_name.keys()
    assert all(result["ours_us"] > 0 and result["floor_us"] > 0 for result in by_name.values())
    assert figures["floors"].keys() == by_name.keys()
    shown = capsys.readouterr().out
    assert "HTTP: a document registered\t1\t" in shown and "\tCOPY and commit\n" in shown


def test_a_wrong_answer_is_not_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A rule that selects nothing instead of every document."""
    monkeypatch.setattr(quick, "_rule_for_all_documents", lambda name: quick._path_rule(7))
    with pytest.raises(AssertionError, match="the response for"):
        cli.main(["bench", "quick", "--rounds", "1", "--many", "10"], prog_name="mdv", standalone_mode=False)
