"""`mdv bench scale`, tiny: every series measured and checked, fits of known data, and what breaks first by the fits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mdv.mdp.publish as publishing
import mdv.mdp.register as registering
from mdv.bench.scale import depth, documents, lmrs, rules, sets
from mdv.bench.scale.extrapolate import Assumed, Size, extrapolate
from mdv.bench.scale.fit import CONSTANT, LINEAR, Fit, fit_of, power_law
from mdv.bench.scale.run import SERIES, run
from mdv.bench.scale.series import Plan, Series, Timed, Weight, take_turns
from mdv.cli import cli
from mdv.cli.failures import exit_code_of
from mdv.db.bench import Databases
from mdv.embedded import start_postgres

UNSAFE_AND_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
TINY = ("--largest", "20", "--rounds", "1")


def bench_scale(*arguments: object) -> int:
    line = ["bench", "scale", *map(str, arguments)]
    return exit_code_of(lambda: cli.main(line, prog_name="mdv", standalone_mode=False))


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
    series = {documents.AT_ONCE, documents.ALONE, rules.PATH, rules.JOIN, lmrs.IDLE_AT_ONCE, lmrs.IDLE_ALONE,
              lmrs.TOLD, sets.SAME, sets.FOREIGN, sets.MATCHED, sets.UNMATCHED, depth.CHAINS, depth.PATHS,
              depth.GROUPED}  # fmt: skip
    weights = {documents.DOCUMENT_BYTES, documents.INDEX_BYTES, documents.HELD_BYTES, documents.EVENT_BYTES,
               documents.HELD_INDEX_BYTES,
               documents.VACUUM, documents.SNAPSHOT, rules.RULE_BYTES, rules.RULE_INDEX_BYTES,
               depth.GROUP_BYTES, depth.PLAN_BYTES}  # fmt: skip
    assert measured == series | weights
    assert {weight["name"] for weight in figures["weights"]} == weights
    assert all(point["value"] > 0 for weight in figures["weights"] for point in weight["points"])
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
def test_a_line_that_cannot_be_meant_is_refused_before_anything_starts(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench_scale(*line.split()) == 2
    assert "Error:" in capsys.readouterr().err


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    with start_postgres(tmp_path_factory.mktemp("bench") / "pg", UNSAFE_AND_FAST) as server:
        yield Databases(server.url)


@pytest.mark.parametrize("name", SERIES)
def test_a_filter_that_finds_nothing_is_not_measured(
    name: str, databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = registering.filter_changes

    def idle(connection: Any, groups: Any, change: Any, _: Any) -> Any:
        return right(connection, groups, change._replace(gains=(), losses=()))

    monkeypatch.setattr(registering, "filter_changes", idle)
    with pytest.raises(AssertionError):
        list(run(databases, [name], Plan(20, 20, 1), lambda _: None))


@pytest.mark.parametrize("name", ["documents", "lmrs", "sets", "depth"])
def test_lmrs_that_are_not_told_are_noticed(name: str, databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registering, "publish_changes", lambda *_: publishing.NOBODY)
    with pytest.raises(AssertionError, match=r"0 LMRs were told|0 rows for"):
        list(run(databases, [name], Plan(20, 20, 1), lambda _: None))


def test_sizes_take_turns_and_what_warms_up_does_not_count() -> None:
    order: list[int] = []

    def turn(size: int) -> Timed:
        order.append(size)
        return Timed(float(len(order)), 1.0)

    taken = take_turns({1: lambda: turn(1), 10: lambda: turn(10)}, rounds=2, warm_up=1)
    assert order == [1, 10] * 3
    assert [[timed.ours for timed in rounds] for rounds in taken] == [[3, 5], [4, 6]]


def test_a_series_tells_microseconds_a_document_and_how_they_grow() -> None:
    rounds = tuple(tuple(Timed(size * factor * 1e-6, 5e-6) for factor in (9, 10, 11)) for size in (10, 100))
    series = Series("x", "things", LINEAR, (10, 100), (7, 7), 10, rounds)
    assert [result.ours_us for result in series.results()] == pytest.approx([10, 100])
    assert series.results()[1].as_dict()["name"] == "x: 100 things"
    fit = series.fit()
    assert fit.exponent == pytest.approx(1) and fit.spread == pytest.approx(0) and fit.verdict == "keeps its law"
    weighed = Weight("x", "things", "bytes", (10, 100), (1100, 2000)).fit()
    assert (weighed.base, weighed.slope) == pytest.approx((1000, 10))


def test_a_fit_finds_the_exponent_of_known_data_and_says_how_sure_it_is() -> None:
    a, b, r2 = power_law([1, 10, 100, 1000], [5 * n**0.5 for n in (1, 10, 100, 1000)])
    assert (a, b, r2) == pytest.approx((5, 0.5, 1))
    assert fit_of("x", "n", "µs", CONSTANT, [10, 100, 1000], [7, 7.2, 7.1]).verdict == "flat"
    assert fit_of("x", "n", "µs", CONSTANT, [10, 100, 1000], [7, 14, 28]).verdict == "more than its law"
    rounds = [[7, 7, 7], [7, 70, 700], [7, 8, 60], [7, 7, 8]]
    assert fit_of("x", "n", "µs", CONSTANT, [10, 100, 1000], [7, 8, 30], rounds).verdict == "too noisy to say"


def test_what_breaks_its_law_is_extrapolated_as_it_was_measured() -> None:
    squared = fit_of("x", "n", "µs", LINEAR, [10, 100], [1, 100])
    assert squared.at(1000) == pytest.approx(10_000) and squared.growth(1000) == pytest.approx(100)
    assert fit_of("x", "n", "µs", CONSTANT, [10, 100], [5, 4]).growth(1e9) == 1


def linear(name: str, each: float) -> Fit:
    return fit_of(name, "n", "", LINEAR, [1000, 100_000], [1000 * each, 100_000 * each])


def flat(name: str, cost: float) -> Fit:
    return fit_of(name, "n", "µs", CONSTANT, [1000, 100_000], [cost, cost])


MEASURED = {
    fit.name: fit
    for fit in (
        linear(documents.DOCUMENT_BYTES, 2500), linear(documents.INDEX_BYTES, 1200),
        linear(documents.HELD_BYTES, 140), linear(documents.EVENT_BYTES, 100), linear(documents.VACUUM, 1e-5),
        linear(documents.SNAPSHOT, 2e-5), flat(documents.AT_ONCE, 400), flat(documents.ALONE, 3000),
        flat(rules.JOIN, 300), linear(rules.RULE_BYTES, 1900), linear(rules.RULE_INDEX_BYTES, 700),
        flat(lmrs.IDLE_AT_ONCE, 300), linear(lmrs.TOLD, 40), linear(depth.GROUP_BYTES, 20_000),
    )
}  # fmt: skip
ORDER = "the one order of transactions, all"
ROOMY = Assumed(disk_gib=1e6, memory_gib=1e6)


@pytest.mark.parametrize(
    ("fit", "first", "remedy"),
    [
        (linear(documents.DOCUMENT_BYTES, 1e9), "disk, all", "part of the URIs"),
        (linear(documents.INDEX_BYTES, 1e9), "memory, all", "part of the URIs"),
        (linear(documents.HELD_BYTES, 1e9), "disk, all", "feed shards"),
        (linear(documents.EVENT_BYTES, 1e9), "disk, all", "shorter time"),
        (linear(documents.HELD_INDEX_BYTES, 1e9), "memory, all", "feed shards"),
        (linear(rules.RULE_BYTES, 1e10), "disk, all", "by class"),
        (flat(documents.AT_ONCE, 4e6), ORDER, "part of the URIs"),
        (linear(lmrs.TOLD, 4e6), ORDER, "after the commit"),
        (linear(depth.GROUPED, 4e9), ORDER, "by class"),
        (linear(documents.VACUUM, 10.0), "time to vacuum all", "ranges of resources"),
        (linear(depth.GROUP_BYTES, 1e11), "a worker's memory for groups", "by class"),
        (linear(depth.PLAN_BYTES, 1e12), "a connection's memory for plans", "by class"),
        (linear(documents.SNAPSHOT, 10.0), "time of one LMR's snapshot", "replicas"),
    ],
)
def test_another_fit_lets_another_thing_break_first(fit: Fit, first: str, remedy: str) -> None:
    told = extrapolate(MEASURED | {fit.name: fit}, Size(), ROOMY)
    assert told.breaking[0].what == first
    sentence = next(iter(told.sentences()))
    assert sentence.startswith(f"First breaks {first}") and remedy in sentence


def test_what_grows_against_its_law_breaks_sooner_than_where_it_is_flat() -> None:
    before = extrapolate(MEASURED, Size(), ROOMY)
    growing = replace(MEASURED[rules.JOIN], exponent=0.5)
    after = extrapolate(MEASURED | {growing.name: growing}, Size(), ROOMY)
    lock = "the one order of transactions for storing and filtering"
    (was,), (now,) = ([row for row in told.rows if row.what == lock] for told in (before, after))
    assert was.reached is not None and now.reached is not None
    assert now.reached < was.reached and now.share > was.share


def test_where_nothing_breaks_the_nearest_limit_is_named() -> None:
    told = extrapolate(MEASURED, Size(1000, 1000, 10), ROOMY)
    assert not told.breaking
    assert next(iter(told.sentences())).startswith("Nothing breaks up to that size. Nearest is ")


def test_only_what_was_measured_is_extrapolated() -> None:
    assert extrapolate({}, Size(), Assumed()).rows == ()
    assert next(iter(extrapolate({}, Size(), Assumed()).sentences())).startswith("Nothing was measured")
    told = extrapolate({rules.RULE_BYTES: MEASURED[rules.RULE_BYTES]}, Size(), Assumed())
    assert [row.what for row in told.rows] == ["disk for rules"]
