"""`mdv bench peers` at tiny sizes: each peer runs on each type of rules, and a wrong peer is not measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mdv.bench.goals import evaluate_peer_goals
from mdv.bench.peers import PEER_KINDS, PeerKind, PeerResult, rule_family
from mdv.bench.peers.compare import PEER_RULE_TYPES, ComparisonResult, PeerComparison, check_matches, compare_peers
from mdv.bench.peers.peer_process import python_for
from mdv.bench.report import BenchResult
from mdv.bench.sql.bench_store import BenchDatabases
from mdv.cli import cli
from mdv.cli.errors import run_for_exit_code
from mdv.embedded import start_postgres

UNSAFE_AND_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
TINY = PeerComparison(rules=(50,), batches=(10,), rounds=1)


def bench_peers(*arguments: object) -> int:
    line = ["bench", "peers", *map(str, arguments)]
    return run_for_exit_code(lambda: cli.main(line, prog_name="mdv", standalone_mode=False))


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BenchDatabases]:
    with start_postgres(tmp_path_factory.mktemp("bench") / "pg", UNSAFE_AND_FAST) as server:
        yield BenchDatabases(server.url)


def run(databases: BenchDatabases, comparison: PeerComparison) -> list[ComparisonResult]:
    return list(compare_peers(databases, comparison, lambda _: None))


@pytest.fixture
def strange(monkeypatch: pytest.MonkeyPatch) -> Iterator[PeerKind]:
    """A slot for a peer of `tests.support.broken_peers`, to be registered as `strange`."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    yield replace(PEER_KINDS["oxigraph"], title="a strange peer")


def register(monkeypatch: pytest.MonkeyPatch, kind: PeerKind, name: str) -> None:
    monkeypatch.setitem(PEER_KINDS, "strange", replace(kind, home=f"tests.support.broken_peers:{name}"))


@pytest.mark.parametrize("peer", PEER_KINDS)
def test_each_peer_finds_the_same_matches_as_our_filter(peer: str, databases: BenchDatabases) -> None:
    kind = PEER_KINDS[peer]
    assert python_for(kind) is not None, f"{kind.title} is not installed"
    types = tuple(name for name, rule_type in PEER_RULE_TYPES.items() if rule_family(rule_type) in kind.families)
    # OID has 50 documents and takes 60: the peer restarts with the store.
    found = run(databases, replace(TINY, types=types, peers=(peer,)))
    assert len(found) == len(types)
    for compared in found:
        assert not compared.left_out
        assert [result.name.partition(": ")[2] for result in compared.results] == ["filter alone", "store and filter"]
        assert all(result.peers[kind.title] > 0 for result in compared.results)
        assert peer == "sql-queries" or compared.memory_mib[kind.title] > 1


def test_batches_of_several_sizes_use_the_same_peer(databases: BenchDatabases) -> None:
    found = run(databases, replace(TINY, rules=(50, 60), batches=(5, 1), types=("path",), peers=("clips",)))
    assert [(c.results[0].rules, c.results[0].batch) for c in found] == [(50, 1), (50, 5), (60, 1), (60, 5)]
    assert all(c.results[0].peers["CLIPS"] > 0 for c in found)


@pytest.mark.parametrize("name", ["Forgetful", "Inventive", "Repeating"])
@pytest.mark.parametrize("kind", ["oid", "comp"])
def test_a_peer_with_wrong_matches_is_detected(
    kind: str, name: str, databases: BenchDatabases, strange: PeerKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, strange, name)
    with pytest.raises(AssertionError, match="50 rules: a strange peer found"):
        run(databases, replace(TINY, types=(kind,), peers=("strange",)))


def test_a_sample_that_is_not_queried_is_detected(
    databases: BenchDatabases, strange: PeerKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, replace(strange, sampled=True), "Unasking")
    with pytest.raises(AssertionError, match="a strange peer found 0 matches, expected 10"):
        run(databases, replace(TINY, types=("join",), peers=("strange",)))


def test_only_the_rules_of_a_sample_are_expected() -> None:
    rule_type, kind = PEER_RULE_TYPES["path"], PEER_KINDS["rdflib-queries"]
    found = {rule_type.provider(3, 50): [3]}
    check_matches(kind, rule_type, 50, range(10), PeerResult(1.0, found, frozenset({3, 40})))
    with pytest.raises(AssertionError, match="found 1 matches, expected 2"):
        check_matches(kind, rule_type, 50, range(10), PeerResult(1.0, found, frozenset({3, 4})))


def test_a_peer_that_is_too_slow_is_left_out_and_the_others_are_measured(
    databases: BenchDatabases, strange: PeerKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, strange, "Slow")
    limited = replace(TINY, batches=(5, 10), types=("oid",), peers=("strange", "oxigraph"), max_batch_seconds=5)
    for compared in run(databases, limited):
        assert compared.left_out == {"a strange peer": "over 5 s for a batch"}
        assert set(compared.results[0].peers) == {"Oxigraph"}


def test_a_peer_that_uses_too_much_memory_is_left_out_of_larger_sizes(databases: BenchDatabases) -> None:
    small, large = run(databases, replace(TINY, batches=(5, 10), types=("oid",), peers=("clips",), max_mib=1))
    assert small.left_out == large.left_out == {"CLIPS": "over 1 MiB"}
    assert small.results[0].peers and not large.results[0].peers


def test_a_peer_that_exits_unexpectedly_is_named(
    databases: BenchDatabases, strange: PeerKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, strange, "Dying")
    with pytest.raises(RuntimeError, match="a strange peer ended unexpectedly with exit code 7"):
        run(databases, replace(TINY, types=("oid",), peers=("strange",)))


def test_the_results_have_the_documented_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ("--rules", "50", "--batches", "10", "--rounds", "1", "--types", "oid,comp")
    line = (*line, "--peers", "clips,oxigraph,sql-queries")
    monkeypatch.setattr("sys.argv", ["mdv", "bench", "peers", *line])
    monkeypatch.setattr("mdv.embedded.start_postgres", lambda folder: start_postgres(folder, UNSAFE_AND_FAST))
    assert bench_peers(*line, "--json", tmp_path / "figures.json") == 0, capsys.readouterr().err
    figures = json.loads((tmp_path / "figures.json").read_text("utf-8"))
    assert figures["machine"]["cores"] >= 1
    assert figures["command"] == "mdv bench peers " + " ".join(line)
    for result in figures["results"]:
        assert {"name", "rules", "batch", "ours_us", "floor_us", "ratio", "peers"} == result.keys()
        assert result["ratio"] == pytest.approx(result["ours_us"] / result["floor_us"], abs=0.001)
        assert {"CLIPS", "Oxigraph"} <= result["peers"].keys() and all(us > 0 for us in result["peers"].values())
    names = [result["name"] for result in figures["results"]]
    assert names == [
        f"{name}: {part}" for name in ("OID", "COMP 10 %") for part in ("filter alone", "store and filter")
    ]
    assert {goal["what"] for goal in figures["goals"] if goal["met"] is not None} == {
        "CLIPS / our filter alone: OID", "CLIPS / our store and filter: OID",
        "one query per rule (extrapolated from a sample) / ours: OID",
    }  # fmt: skip
    beside = figures["beside"][0]
    assert (beside["type"], beside["rules"], beside["batch"], beside["left_out"]) == ("OID", 50, 10, {})
    assert beside["memory_mib"]["CLIPS"] > 1
    shown = capsys.readouterr().out
    assert "OID\t50\t10\tCLIPS\t" in shown and "\tmemory only\t" in shown and "\tdurable commit\t" in shown
    assert "one query per rule\t\t\t\tdurable commit\t\tleft out: does not support this rule type" in shown


@pytest.mark.parametrize(
    ("line", "said"),
    [("--peers clips,nonsense", "nonsense is unknown. Use one of clips, pathway, oxigraph"),
     ("--types oid,nonsense", "nonsense is unknown. Use one of oid, path, join, contains, comp"),
     ("--rules 10 --batches 11", "needs as many rules"), ("--rules none", "whole numbers"),
     ("--rounds 0", "--rounds"), ("--patience 0", "--patience")],
)  # fmt: skip
def test_invalid_arguments_are_refused_before_anything_starts(
    line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench_peers(*line.split()) == 2
    assert said in capsys.readouterr().err


def test_a_peer_that_is_not_installed_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("clips", "pathway"):
        monkeypatch.setitem(PEER_KINDS, name, replace(PEER_KINDS[name], package="nowhere"))
    assert bench_peers("--peers", "clips") == 2
    assert "CLIPS is not installed. Install it with `pip install 'mdv[bench]'`." in capsys.readouterr().err
    monkeypatch.setattr("mdv.embedded.start_postgres", lambda folder: start_postgres(folder, UNSAFE_AND_FAST))
    assert bench_peers("--rules", "20", "--batches", "2", "--rounds", "1", "--types", "oid") == 0
    told = capsys.readouterr()
    assert "Pathway is not installed. Install it with `make peers`, in an environment of its own." in told.err
    assert "Oxigraph\t" in told.out and "Pathway\t" not in told.out


def test_peers_are_compared_with_the_filter_and_with_store_and_filter() -> None:
    peers = {"CLIPS": 30.0, "one query per rule": 8000.0}
    figures = [
        BenchResult("OID: filter alone", 100_000, 1000, 10.0, 8.0, peers),
        BenchResult("OID: store and filter", 100_000, 1000, 20.0, 8.0, peers),
    ]
    found = {goal.what: goal for goal in evaluate_peer_goals(figures)}
    assert found["CLIPS / our filter alone: OID"].measured == 3.0
    assert found["CLIPS / our store and filter: OID"].as_row()[3:] == (
        "1.50", "100,000 rules, batches of 1,000", "yes",
    )  # fmt: skip
    assert found["one query per rule (extrapolated from a sample) / ours: OID"].measured == 800.0
    assert found["Pathway / our store and filter: OID"].met is None


def test_a_peer_that_has_used_its_time_gets_fewer_rounds_at_every_size(
    databases: BenchDatabases,
) -> None:
    # OID restarts several times, whether or not it is the peer's turn.
    small, large = run(
        databases, replace(TINY, batches=(10, 20), types=("oid",), peers=("clips",), max_total_seconds=0)
    )
    assert small.results[0].peers["CLIPS"] > 0 and large.results[0].peers["CLIPS"] > 0
    assert not small.left_out and not large.left_out
