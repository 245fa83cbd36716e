"""`mdv bench scale` at tiny sizes: every series measured and checked, fits of known data, and predicted limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mdv.mdp.publish as publishing
import mdv.mdp.transaction as transaction_module
from mdv.bench.scale import depth, documents, lmrs, rules, sets
from mdv.bench.scale.extrapolate import Assumptions, SystemSize, extrapolate
from mdv.bench.scale.fit import CONSTANT, LINEAR, Fit, fit_power_law, make_fit
from mdv.bench.scale.run import SERIES, run_series
from mdv.bench.scale.series import ScalePlan, SizeSeries, TimedRound, TimeSeries, run_rounds
from mdv.bench.sql.bench_store import BenchDatabases
from mdv.cli import cli
from mdv.cli.errors import run_for_exit_code
from mdv.embedded import start_postgres

UNSAFE_AND_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
TINY = ("--largest", "20", "--rounds", "1")


def bench_scale(*arguments: object) -> int:
    line = ["bench", "scale", *map(str, arguments)]
    return run_for_exit_code(lambda: cli.main(line, prog_name="mdv", standalone_mode=False))


def test_every_series_is_measured_fitted_and_extrapolated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["mdv", "bench", "scale", *TINY])
    monkeypatch.setattr("mdv.embedded.start_postgres", lambda folder: start_postgres(folder, UNSAFE_AND_FAST))
    assert bench_scale(*TINY, "--json", tmp_path / "figures.json") == 0, capsys.readouterr().err
    figures = json.loads((tmp_path / "figures.json").read_text("utf-8"))
    assert figures["command"] == "mdv bench scale " + " ".join(TINY)
    for result in figures["results"]:
        assert result.keys() >= {"name", "rules", "batch", "ours_us", "floor_us", "ratio", "peers"}
        assert result["ours_us"] > 0 and result["floor_us"] > 0
    measured = {fit["name"] for fit in figures["fits"]}
    series = {documents.IN_BATCHES, documents.ONE_BY_ONE, rules.PATH, rules.JOIN, lmrs.IDLE_IN_BATCHES,
              lmrs.IDLE_ONE_BY_ONE, lmrs.NOTIFIED, sets.SAME_DOCUMENT, sets.OTHER_DOCUMENT, sets.MATCHED,
              sets.UNMATCHED, depth.CHAINS, depth.PATHS, depth.GROUPED}  # fmt: skip
    weights = {documents.DOCUMENT_BYTES, documents.INDEX_BYTES, documents.HELD_BYTES, documents.EVENT_BYTES,
               documents.HELD_INDEX_BYTES,
               documents.VACUUM, documents.SNAPSHOT, rules.RULE_BYTES, rules.RULE_INDEX_BYTES,
               depth.GROUP_BYTES, depth.PLAN_BYTES}  # fmt: skip
    assert measured == series | weights
    assert {weight["name"] for weight in figures["weights"]} == weights
    assert all(point["value"] > 0 for weight in figures["weights"] for point in weight["points"])
    groups = next(weight for weight in figures["weights"] if weight["name"] == depth.GROUP_BYTES)
    assert [point["size"] for point in groups["points"]] == list(depth.SMALL_GROUPS)
    told = figures["extrapolation"]
    assert told["size"] == {"documents": 1e8, "rules": 1e7, "lmrs": 1e5} and len(told["rows"]) == 18
    reached = [row["reached"] for row in told["rows"] if row["reached"] is not None]
    assert reached == sorted(reached) and all(row["share"] >= 0 for row in told["rows"])
    shown = capsys.readouterr().out
    assert "documents: batches of 100\t20\tstored documents\t996\t100\t" in shown
    assert "growth of\twith\texponent" in shown and told["sentences"][0] in shown


@pytest.mark.parametrize(
    "line", ["--series nonsense", "--largest 1", "--rounds 0", "--at 5,6", "--at many", "--changing 0"]
)
def test_invalid_arguments_are_refused_before_anything_starts(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_scale(*line.split()) == 2
    assert "Error:" in capsys.readouterr().err


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BenchDatabases]:
    with start_postgres(tmp_path_factory.mktemp("bench") / "pg", UNSAFE_AND_FAST) as server:
        yield BenchDatabases(server.url)


@pytest.mark.parametrize("name", SERIES)
def test_a_filter_that_finds_nothing_is_not_measured(
    name: str, databases: BenchDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = transaction_module.filter_changes

    def idle(connection: Any, groups: Any, change: Any, limits: Any, _: Any) -> Any:
        return right(connection, groups, change._replace(gains=(), losses=()), limits)

    monkeypatch.setattr(transaction_module, "filter_changes", idle)
    with pytest.raises(AssertionError):
        list(run_series(databases, [name], ScalePlan(20, 20, 1), lambda _: None))


@pytest.mark.parametrize("name", ["documents", "lmrs", "sets", "depth"])
def test_missing_notifications_of_lmrs_are_detected(
    name: str, databases: BenchDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_module, "publish_changes", lambda *_: publishing.NOTHING_PUBLISHED)
    with pytest.raises(AssertionError, match=r"0 LMRs were notified|0 rows for"):
        list(run_series(databases, [name], ScalePlan(20, 20, 1), lambda _: None))


def test_sizes_alternate_and_warm_up_rounds_do_not_count() -> None:
    order: list[int] = []

    def turn(size: int) -> TimedRound:
        order.append(size)
        return TimedRound(float(len(order)), 1.0)

    taken = run_rounds({1: lambda: turn(1), 10: lambda: turn(10)}, rounds=2, warm_up=1)
    assert order == [1, 10] * 3
    assert [[timed.ours for timed in rounds] for rounds in taken] == [[3, 5], [4, 6]]


def test_a_series_gives_microseconds_per_document_and_their_growth() -> None:
    rounds = tuple(tuple(TimedRound(size * factor * 1e-6, 5e-6) for factor in (9, 10, 11)) for size in (10, 100))
    series = TimeSeries("x", "things", LINEAR, (10, 100), (7, 7), 10, rounds)
    assert [result.ours_us for result in series.results()] == pytest.approx([10, 100])
    assert series.results()[1].as_dict()["name"] == "x: 100 things"
    fit = series.fit()
    assert fit.exponent == pytest.approx(1) and fit.spread == pytest.approx(0) and fit.verdict == "keeps its law"
    weighed = SizeSeries("x", "things", "bytes", (10, 100), (1100, 2000)).fit()
    assert (weighed.base, weighed.slope) == pytest.approx((1000, 10))


def test_a_fit_finds_the_exponent_of_known_data_with_its_confidence() -> None:
    a, b, r2 = fit_power_law([1, 10, 100, 1000], [5 * n**0.5 for n in (1, 10, 100, 1000)])
    assert (a, b, r2) == pytest.approx((5, 0.5, 1))
    assert make_fit("x", "n", "µs", CONSTANT, [10, 100, 1000], [7, 7.2, 7.1]).verdict == "flat"
    assert make_fit("x", "n", "µs", CONSTANT, [10, 100, 1000], [7, 14, 28]).verdict == "exceeds its law"
    rounds = [[7, 7, 7], [7, 70, 700], [7, 8, 60], [7, 7, 8]]
    assert make_fit("x", "n", "µs", CONSTANT, [10, 100, 1000], [7, 8, 30], rounds).verdict == "too noisy"


def test_a_series_that_breaks_its_law_is_extrapolated_as_measured() -> None:
    squared = make_fit("x", "n", "µs", LINEAR, [10, 100], [1, 100])
    assert squared.at(1000) == pytest.approx(10_000) and squared.growth(1000) == pytest.approx(100)
    assert make_fit("x", "n", "µs", CONSTANT, [10, 100], [5, 4]).growth(1e9) == 1


def linear(name: str, each: float) -> Fit:
    return make_fit(name, "n", "", LINEAR, [1000, 100_000], [1000 * each, 100_000 * each])


def flat(name: str, cost: float) -> Fit:
    return make_fit(name, "n", "µs", CONSTANT, [1000, 100_000], [cost, cost])


MEASURED = {
    fit.name: fit
    for fit in (
        linear(documents.DOCUMENT_BYTES, 2500), linear(documents.INDEX_BYTES, 1200),
        linear(documents.HELD_BYTES, 140), linear(documents.EVENT_BYTES, 100), linear(documents.VACUUM, 1e-5),
        linear(documents.SNAPSHOT, 2e-5), flat(documents.IN_BATCHES, 400), flat(documents.ONE_BY_ONE, 3000),
        flat(rules.JOIN, 300), linear(rules.RULE_BYTES, 1900), linear(rules.RULE_INDEX_BYTES, 700),
        flat(lmrs.IDLE_IN_BATCHES, 300), linear(lmrs.NOTIFIED, 40), linear(depth.GROUP_BYTES, 20_000),
    )
}  # fmt: skip
ORDER = "the serialized transactions, all"
ROOMY = Assumptions(disk_gib=1e6, memory_gib=1e6)


@pytest.mark.parametrize(
    ("fit", "first", "remedy"),
    [
        (linear(documents.DOCUMENT_BYTES, 1e9), "disk, all", "by URI"),
        (linear(documents.INDEX_BYTES, 1e9), "memory, all", "by URI"),
        (linear(documents.HELD_BYTES, 1e9), "disk, all", "feed shards"),
        (linear(documents.EVENT_BYTES, 1e9), "disk, all", "shorten the retention"),
        (linear(documents.HELD_INDEX_BYTES, 1e9), "memory, all", "feed shards"),
        (linear(rules.RULE_BYTES, 1e10), "disk, all", "by class"),
        (flat(documents.IN_BATCHES, 4e6), ORDER, "by URI"),
        (linear(lmrs.NOTIFIED, 4e6), ORDER, "after the commit"),
        (linear(depth.GROUPED, 4e9), ORDER, "by class"),
        (linear(documents.VACUUM, 10.0), "time for a full vacuum", "ranges of resources"),
        (linear(depth.GROUP_BYTES, 1e11), "a worker's memory for groups", "by class"),
        (linear(depth.PLAN_BYTES, 1e12), "a connection's memory for plans", "by class"),
        (linear(documents.SNAPSHOT, 10.0), "time for the snapshot of one LMR", "replicas"),
    ],
)
def test_a_different_fit_predicts_a_different_first_limit(fit: Fit, first: str, remedy: str) -> None:
    told = extrapolate(MEASURED | {fit.name: fit}, SystemSize(), ROOMY)
    assert told.breaking[0].what == first
    sentence = next(iter(told.sentences()))
    assert sentence.startswith(f"First limit: {first}") and remedy in sentence


def test_growth_against_the_law_reaches_the_limit_sooner() -> None:
    before = extrapolate(MEASURED, SystemSize(), ROOMY)
    growing = replace(MEASURED[rules.JOIN], exponent=0.5)
    after = extrapolate(MEASURED | {growing.name: growing}, SystemSize(), ROOMY)
    lock = "the serialized transactions for storing and filtering"
    (was,), (now,) = ([row for row in told.rows if row.what == lock] for told in (before, after))
    assert was.reached is not None and now.reached is not None
    assert now.reached < was.reached and now.share > was.share


def test_if_no_limit_is_exceeded_the_nearest_one_is_named() -> None:
    told = extrapolate(MEASURED, SystemSize(1000, 1000, 10), ROOMY)
    assert not told.breaking
    assert next(iter(told.sentences())).startswith("No limit is exceeded at that size. The closest one is ")


def test_only_measured_series_are_extrapolated() -> None:
    assert extrapolate({}, SystemSize(), Assumptions()).rows == ()
    assert next(iter(extrapolate({}, SystemSize(), Assumptions()).sentences())).startswith("Nothing was measured")
    told = extrapolate({rules.RULE_BYTES: MEASURED[rules.RULE_BYTES]}, SystemSize(), Assumptions())
    assert [row.what for row in told.rows] == ["disk for rules"]
