"""`mdv bench paper` at tiny sizes: the form of its results, and that a wrong filter is not measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mdv.mdp.transaction as transaction_module
from mdv.bench.goals import evaluate_goals, measure_growth
from mdv.bench.paper import EXPERIMENTS, PaperPlan, run_paper
from mdv.bench.report import BenchResult
from mdv.bench.rule_types import RULE_TYPES, comp_rules
from mdv.bench.sql.bench_store import BenchDatabases
from mdv.cli import cli
from mdv.cli.errors import run_for_exit_code
from mdv.embedded import start_postgres

UNSAFE_AND_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
TINY = ("--rules", "100,200", "--batches", "1,10", "--rounds", "1", "--bulk", "150", "--matched", "5")


def bench_paper(*arguments: object) -> int:
    line = ["bench", "paper", *map(str, arguments)]
    return run_for_exit_code(lambda: cli.main(line, prog_name="mdv", standalone_mode=False))


def test_the_results_have_the_documented_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["mdv", "bench", "paper", *TINY])
    monkeypatch.setattr("mdv.embedded.start_postgres", lambda folder: start_postgres(folder, UNSAFE_AND_FAST))
    plots = tmp_path / "plots"
    assert bench_paper(*TINY, "--json", tmp_path / "figures.json", "--plots", plots) == 0, capsys.readouterr().err
    drawn = {
        f"paper-{name}"
        for name in ("figure-11", "figure-12", "figure-14", "contains", "startswith", "endswith", "not-equal")
    }
    assert {path.stem for path in plots.glob("*.svg")} == {path.stem for path in plots.glob("*.png")} == drawn
    assert json.loads((plots / "paper.json").read_text("utf-8")) == json.loads((tmp_path / "figures.json").read_text())
    figures = json.loads((tmp_path / "figures.json").read_text("utf-8"))
    assert figures["machine"]["cores"] >= 1
    assert figures["command"] == "mdv bench paper " + " ".join(TINY)
    for result in figures["results"]:
        assert {"name", "rules", "batch", "ours_us", "floor_us", "ratio", "peers"} <= result.keys()
        assert result["ours_us"] > 0 and result["floor_us"] > 0
        assert result["ratio"] == pytest.approx(result["ours_us"] / result["floor_us"], abs=0.001)
        assert all(us > 0 for us in result["peers"].values())
    measured = {(result["name"], result["rules"], result["batch"]) for result in figures["results"]}
    assert len(measured) == len(figures["results"])
    names = ("OID", "PATH", "JOIN", "COMP 5 %", "contains", "startswith", "endswith", "ne")
    parts = [f"{name}: {part}" for name in names for part in ("filter alone", "store and filter", "text to commit")]
    parts += ["PATH: update", "JOIN: update"]
    assert measured >= {(part, rules, batch) for part in parts for rules in (100, 200) for batch in (1, 10)}
    assert measured >= {(f"{name}: rules in bulk", 0, 150) for name in ("OID", "JOIN")}
    assert measured >= {(f"{name}: rules one by one", 150, 1) for name in ("OID", "JOIN")}
    assert {(grown["from_rules"], grown["to_rules"], grown["batch"]) for grown in figures["growth"]} == {(100, 200, 10)}
    unmeasured = [goal["what"] for goal in figures["goals"] if goal["met"] is None]
    assert unmeasured == ["growth from 10,000 to 100,000 rules: COMP 10 %"]
    shown = capsys.readouterr().out
    assert "OID: filter alone\t100\t1\t" in shown
    assert "rules in bulk, per second: OID\t≥ 20,000\t≥ 50,000\t" in shown


@pytest.mark.parametrize(
    "line",
    ["--types oid,nonsense", "--rules 0", "--rules many", "--batches 1,,2", "--matched 101", "--rules 100 --rounds 0",
     "--rules 10 --batches 11"],
)  # fmt: skip
def test_invalid_arguments_are_refused_before_anything_starts(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_paper(*line.split()) == 2
    assert "Error:" in capsys.readouterr().err


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BenchDatabases]:
    with start_postgres(tmp_path_factory.mktemp("bench") / "pg", UNSAFE_AND_FAST) as server:
        yield BenchDatabases(server.url)


def measure(databases: BenchDatabases, *kinds: str) -> list[BenchResult]:
    paper = PaperPlan(rules=(20,), batches=(3,), kinds=kinds, rounds=1, bulk=30)
    return list(run_paper(databases, paper, lambda _: None))


def idle(run: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that finds nothing."""
    return lambda pipeline, groups, change, *rest: run(pipeline, groups, change._replace(gains=(), losses=()), *rest)


def forgetful(run: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that misses the last document."""

    def wrong(pipeline: Any, groups: Any, change: Any, *rest: Any) -> Any:
        last = sorted({key.resource for key in change.gains})[-2:]
        gains = [key for key in change.gains if key.resource not in last]
        losses = [key for key in change.losses if key.resource not in last]
        return run(pipeline, groups, change._replace(gains=gains, losses=losses), *rest)

    return wrong


@pytest.mark.parametrize("broken", [idle, forgetful])
@pytest.mark.parametrize("kind", [kind for kind in EXPERIMENTS if kind != "rules"])
def test_a_broken_filter_is_not_measured(
    kind: str, broken: Callable[..., Any], databases: BenchDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_module, "filter_changes", broken(transaction_module.filter_changes))
    with pytest.raises(AssertionError, match="20 rules: "):
        measure(databases, kind)


def test_missing_first_results_are_detected(databases: BenchDatabases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.mdp.rules.add.evaluate_ends", lambda *_: [])
    with pytest.raises(AssertionError, match="first results"):
        measure(databases, "rules")


def test_the_timer_is_removed_from_the_filter_after_measuring(databases: BenchDatabases) -> None:
    run = transaction_module.filter_changes
    measure(databases, "oid")
    assert transaction_module.filter_changes is run


def test_documents_of_a_type_match_the_declared_rules() -> None:
    for rule_type in (*RULE_TYPES.values(), comp_rules(10)):
        for turn in (0, 7, 19, 23):
            _, body = rule_type.document(turn, 20)
            numbers = [number for number in range(20) if evaluate(rule_type.name, number, body.decode())]
            if not rule_type.selects_by_uri:
                assert numbers == sorted(rule_type.matching(turn, 20))


def evaluate(name: str, number: int, text: str) -> bool:
    """Evaluate a rule on the text of a document."""
    synth = int(text.split("<synthValue>")[1].split("<")[0])
    if name.startswith("COMP"):
        return synth > number
    if name == "ne":
        return synth != number
    host = text.split("<serverHost>")[1].split("<")[0]
    match name:
        case "contains":
            return f"host{number}.uni" in host
        case "startswith":
            return host.startswith(f"host{number}.uni")
        case "endswith":
            return host.endswith(f"t{number}.uni-passau.de")
    return f'memory="{number}"' in text


def test_a_goal_states_where_it_was_measured_and_if_it_was_met() -> None:
    figures = [
        BenchResult("OID: store and filter", rules, batch, us, 10.0)
        for rules, us in ((10_000, 20.0), (100_000, 40.0))
        for batch in (1, 1000)
    ]
    (grown,) = measure_growth(figures)
    assert (grown.batch, grown.from_rules, grown.to_rules, grown.ratio) == (1000, 10_000, 100_000, 2.0)
    found = {goal.what: goal for goal in evaluate_goals(figures)}
    stored = found["store and filter / floor: OID"]
    assert (stored.measured, stored.at, stored.met) == (4.0, "100,000 rules, batches of 1,000", False)
    assert found["growth of store and filter from 10,000 to 1,000,000 rules: OID"].as_row()[3:] == (
        "2.00", "10,000 to 100,000 rules, batches of 1,000", "no",
    )  # fmt: skip
    assert found["filter alone / floor: OID"].met is None
