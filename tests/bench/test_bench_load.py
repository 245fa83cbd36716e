"""`mdv bench load` and `mdv bench soak` at tiny sizes: the form of their results, and detection of errors."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mdv.bench.http_connection import HttpConnection, HttpConnectionError
from mdv.bench.load import LoadPattern, LoadTarget, count_waiting_jobs, run_load
from mdv.bench.load_documents import RULE_TYPE_NAMES, LoadDocuments, LoadWorkload
from mdv.bench.load_results import Latency, RequestSample, mean_batch_size, visibility_delays
from mdv.bench.load_system import LoadSystem, prepare_load_system
from mdv.bench.process_usage import PARTS, ProcessUsage, cpu_seconds_by_part, memory_by_part, sample_processes
from mdv.bench.soak import fit_line, memory_growth
from mdv.cli import cli
from mdv.cli.errors import run_for_exit_code
from mdv.client import Client
from mdv.embedded import start_postgres
from tests.support.eventually import eventually
from tests.support.whole_system import MDV, Up, alive, at_work_in, descendants, environment

TINY = ("--seconds", "1", "--warm-up", "0.5", "--rules", "50")
SOAK = ("--minutes", "0.1", "--rate", "10", "--every", "0.2", "--rules", "20", "--kept", "20")
MOST_WAITING = 50
UNSAFE_AND_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


def bench(*arguments: object) -> int:
    line = ["bench", *map(str, arguments)]
    return run_for_exit_code(lambda: cli.main(line, prog_name="mdv", standalone_mode=False))


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A system with a short queue, shared by the tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.whole_system.environment", lambda: environment(MDV_MAX_WAITING=str(MOST_WAITING)))
        running = Up(tmp_path_factory.mktemp("load") / "data", demo=True).start()
    yield running
    assert running.end(signal.SIGTERM) == 0


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes other than the load are not examined here."""
    monkeypatch.setattr(sys.modules["mdv.cli.bench.load"], "IN_PROCESS_ROUNDS", 2)
    monkeypatch.setattr("mdv.embedded.start_postgres", lambda folder: start_postgres(folder, UNSAFE_AND_FAST))


@contextmanager
def meanwhile(act: Callable[[], object]) -> Iterator[None]:
    """Repeat an action in a thread while the block runs."""
    ended = threading.Event()

    def go_on() -> None:
        while not ended.wait(0.1):
            act()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


# The command


def test_a_temporary_system_is_loaded_measured_checked_and_removed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv("MDV_URL", raising=False)
    figures = tmp_path / "figures.json"
    line = ("load", *TINY, "--clients", "1,2", "--updates", "0.3", "--lmrs", "2", "--json", figures)
    assert bench(*line) == 0, capfd.readouterr().err
    found = json.loads(figures.read_text("utf-8"))
    assert found["machine"]["cores"] >= 1 and found["problems"] == [] and found["lmrs"] == 2
    assert [run["name"] for run in found["runs"]] == ["closed, 1 client", "closed, 2 clients"]
    for run in found["runs"]:
        assert run["outcomes"].keys() == {"done"} and run["errors"] == 0
        assert 0 < run["documents"] <= run["outcomes"]["done"]
        assert run["per_second"] == pytest.approx(run["documents"], abs=0.1)
        assert 0 < run["answer"]["p50"] <= run["answer"]["p90"] <= run["answer"]["p99"] <= run["answer"]["most"]
        assert run["visible"]["count"] == 2 * run["answer"]["count"], "each document at each of two LMRs"
        assert 1 <= run["batch"] <= run["clients"]
        assert [part["part"] for part in run["parts"]] == list(PARTS)
        assert all(part["most_mib"] >= part["first_mib"] > 0 for part in run["parts"])
        assert run["in_process"]["ours_us"] > run["in_process"]["peers"]["filter"] > 0
    shown = capfd.readouterr().out
    assert re.search(r"^run\tdocuments/s\tresponse p50, ms\t.*\nclosed, 1 client\t", shown, re.MULTILINE)
    assert re.search(r"^run\tpart\tcores\tMiB at start\tMiB at end\tpeak MiB\n", shown, re.MULTILINE)
    assert re.search(r"^closed, 2 clients\t[\d,.]+\t", shown, re.MULTILINE)
    assert re.search(r"^closed, 2 clients\tworker\t[\d.]+\t", shown, re.MULTILINE)
    assert not at_work_in(tmp_path) and [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_a_running_system_is_left_unchanged(up: Up, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = tmp_path / "figures.json"
    with Client(up.system) as mdp, Client(replace(up.system, url=up.system.lmr_url)) as lmr:

        def seen() -> list[Any]:
            documents = [item["uri"] for item in mdp.items("/documents")]
            names = [item["name"] for item in mdp.items("/lmrs")]
            return [documents, names, [item["rule"] for item in lmr.items("/subscriptions")]]

        before = seen()
        line = ["load", *TINY, "--clients", "2", "--queued"]
        line += ["--data", str(up.folder)]
        assert bench(*line, "--json", figures) == 0, capsys.readouterr().err
        assert seen() == before
    (run,) = json.loads(figures.read_text("utf-8"))["runs"]
    assert run["name"] == "queued, 2 clients" and run["outcomes"].keys() <= {"accepted", "429"}
    assert run["documents"] == run["outcomes"]["accepted"] and run["batch"] >= 1
    assert {"web", "worker", "Postgres", "LMR", "generator"} <= {part["part"] for part in run["parts"]}


def test_a_load_fails_if_an_unexpected_document_exists(
    up: Up, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "figures.json"
    with Client(up.system) as mdp:

        def intrude() -> None:
            for lmr in mdp.items("/lmrs"):
                if lmr["name"].startswith("load-"):
                    load = LoadWorkload(lmr["name"].removeprefix("load-"), 1)
                    mdp.register(load.uri(10**6), load.body(0), "application/rdf+xml")

        with meanwhile(intrude):
            code = bench("load", *TINY, "--rate", "8", "--documents", "large", "--data", up.folder, "--json", figures)
    found = json.loads(figures.read_text("utf-8"))
    assert code == 1
    assert "/1000000.rdf." in capsys.readouterr().err
    assert any("1 documents are stored that should not be" in problem for problem in found["problems"])
    (run,) = found["runs"]
    assert (run["name"], run["rate"], run["errors"]) == ("open, 8/s", 8, 0)
    assert run["outcomes"] == {"done": 12}, "8 per second, for half a second of warm-up and one second that counts"
    assert run["answer"]["count"] == 8


def test_ctrl_c_stops_all_processes_and_removes_all_files(tmp_path: Path) -> None:
    argv = [str(MDV), "bench", "load", "--clients", "2", "--seconds", "600", "--rules", "10"]
    process = subprocess.Popen(argv, env=environment(TMPDIR=str(tmp_path)), cwd="/", start_new_session=True)
    try:
        eventually(lambda: len(descendants(process.pid)) > 8)
        below = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        eventually(lambda: not [pid for pid in below if alive(pid)])
        assert not list(tmp_path.iterdir())
    finally:
        process.kill()


@pytest.mark.parametrize(
    "line",
    ["load --rate 5 --queued", "load --clients 0", "load --updates 2", "load --documents odd", "load --rate 0",
     "soak --minutes 0", "soak --rate -1"],
)  # fmt: skip
def test_invalid_arguments_are_refused_before_anything_starts(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(*line.split()) == 2
    assert "Error:" in capsys.readouterr().err


@pytest.fixture
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Detect growth from few samples: on a busy machine each of them takes long."""
    monkeypatch.setattr("mdv.bench.soak.MIN_SAMPLES", 3)


@pytest.mark.usefixtures("few_samples")
def test_a_soak_samples_every_process_and_reports_flat_memory(
    up: Up, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples, figures = tmp_path / "soak.jsonl", tmp_path / "soak.json"
    line = ["--data", up.folder, "--growth", "1000000", "--samples", samples, "--json", figures]
    assert bench("soak", *SOAK, *line) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    lines = [json.loads(text) for text in samples.read_text("utf-8").splitlines()]
    found = json.loads(figures.read_text("utf-8"))["soak"]
    assert len(lines) == found["samples"] >= 4 and found["problems"] == []
    assert found["outcomes"] == {"done": 60} and found["queries"] >= 1
    assert lines[-1]["documents"] < 40, "documents are deleted, too"
    assert lines[-1]["tables"].keys() == found["tables"].keys() >= {"jobs", "feed", "filter_data"}
    processes = {line["process"] for line in found["growth"]}
    assert {name.split()[0] for name in processes} == set(PARTS) and processes == lines[-1]["memory"].keys()
    assert "0.0 min: " in shown and "Changes of documents: 60 done." in shown
    assert re.search(r"^process\tMiB after the first third\tMiB at end\tMiB per hour\t", shown, re.MULTILINE)
    assert re.search(r"^Postgres\t.*\tyes$", shown, re.MULTILINE)
    with Client(up.system) as mdp:
        assert [item["name"] for item in mdp.items("/lmrs")] == ["local", "school"], "those of the demo"


@pytest.mark.usefixtures("few_samples")
def test_a_soak_fails_if_the_memory_of_a_process_grows(up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    leak: list[bytes] = []
    with meanwhile(lambda: leak.append(secrets.token_bytes(2**20))):  # in the process that generates the load
        code = bench("soak", *SOAK, "--data", up.folder, "--growth", "1000")
    shown = capsys.readouterr()
    assert code == 1, shown.err
    assert re.search(r"^generator \d+ grew by [\d,.]+ MiB per hour .*; allowed are 1000\.$", shown.err, re.MULTILINE)
    assert re.search(r"^generator \d+\t.*\tno$", shown.out, re.MULTILINE)


def test_a_soak_that_is_too_short_to_detect_growth_proves_nothing(up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("soak", *SOAK, "--minutes", "0.02", "--every", "15", "--data", up.folder) == 2
    shown = capsys.readouterr()
    assert shown.err == "The run was too short to detect growth. Use --minutes 3 or more.\n"
    assert re.search(r"^Postgres\t\d+\t\d+\t\t\ttoo short$", shown.out, re.MULTILINE)
    assert "Changes of documents: 12 done." in shown.out and "\tyes" not in shown.out


def test_growth_is_the_slope_of_memory_after_the_first_third() -> None:
    def flat(minutes: int, limit: float) -> list[bool | None]:
        moments = [(60.0 * n, {1: ProcessUsage("web", 1, 0.0, 0, n * 2**20)}) for n in range(minutes + 1)]
        return [line.flat for line in memory_growth(moments, limit)]

    assert (flat(30, 30), flat(30, 60.1)) == ([False], [True]), "a MiB per minute is 60 per hour"
    assert (flat(11, 30), flat(10, 30)) == ([False], [None]), "eight samples, and seven"


# Sending, and detection of errors


@pytest.fixture
def ground(up: Up) -> Iterator[LoadSystem]:
    target = LoadTarget(up.system, (replace(up.system, url=up.system.lmr_url),), ())
    mark = secrets.token_hex(4)  # a document that was deleted keeps its versions
    with prepare_load_system(target, LoadWorkload(mark, 8), is_own=False, print_progress=lambda text: None) as ground:
        yield ground


def test_refused_clients_retry_after_the_given_time_and_the_queue_stays_short(ground: LoadSystem) -> None:
    documents, pattern = LoadDocuments(ground.workload), LoadPattern(clients=8, queued=True, seconds=3, warm_up=0)
    run = run_load(ground.target, documents, pattern, lambda words: None)
    assert run.outcomes.keys() == {"accepted", "429"} and run.errors == 0
    assert run.outcomes["429"] <= 8 * 3, "a client waits at least one second before it retries"
    assert run.most_waiting <= MOST_WAITING + 8, "that many may be in flight while the queue is measured"
    assert run.documents == run.outcomes["accepted"] == len(documents.present) > 0
    assert ground.problems(documents) == []


def test_a_document_that_differs_from_its_acknowledged_state_is_detected(ground: LoadSystem) -> None:
    documents = LoadDocuments(ground.workload)
    run_load(ground.target, documents, LoadPattern(clients=2, seconds=0.5, warm_up=0, updates=0.3), lambda words: None)
    assert ground.problems(documents) == []
    gone, twice, unknown = (ground.workload.uri(number) for number in (0, 1, 10**6))
    ground.mdp.delete(gone)
    ground.mdp.register(twice, ground.workload.body(5), "application/rdf+xml")
    ground.mdp.register(unknown, ground.workload.body(3), "application/rdf+xml")
    found = " ".join(ground.problems(documents))
    assert f"1 acknowledged documents are missing, such as {gone}." in found
    assert f"1 documents are stored that should not be, such as {unknown}." in found
    assert f"{twice} has version " in found
    assert "The rule base selects " in found


def test_a_cache_that_differs_is_noticed(ground: LoadSystem, up: Up) -> None:
    import sqlite3

    documents = LoadDocuments(ground.workload)
    run_load(ground.target, documents, LoadPattern(seconds=0.5, warm_up=0), lambda words: None)
    with sqlite3.connect(up.folder / "lmr" / "cache.db") as cache:
        cache.execute("delete from statements where document_id = 0 and rowid in (select max(rowid) from statements)")
    assert any("differed from the MDP" in problem for problem in ground.problems(documents))


def test_an_error_response_is_counted_and_leaves_its_change_in_doubt(ground: LoadSystem) -> None:
    documents = LoadDocuments(ground.workload)
    stranger = replace(ground.target, mdp=replace(ground.target.mdp, token="opens-nothing"))
    run = run_load(stranger, documents, LoadPattern(seconds=0.5, warm_up=0), lambda words: None)
    assert run.outcomes.keys() == {"401"} and run.errors == run.outcomes["401"] > 0
    assert (run.documents, run.answer, run.visible) == (0, None, None)
    assert len(documents.in_doubt) == run.errors and not documents.present


# Parts


def test_half_of_the_documents_match_the_rule_base(ground: LoadSystem) -> None:
    workload = ground.workload
    assert len(set(workload.rule_base())) == 8 and len(RULE_TYPE_NAMES) == 4
    documents = LoadDocuments(workload)
    changes = [documents.insert() for _ in range(8)]
    for change in changes:
        ground.mdp.register(change.uri, change.body, "application/rdf+xml")
        documents.done(change)
    assert [workload.matched(change.number, change.value) for change in changes] == [1, 1, 0, 0, 1, 1, 0, 0]
    assert ground.problems(documents) == []


def test_a_document_is_changed_by_one_client_at_a_time() -> None:
    documents = LoadDocuments(LoadWorkload("x", 8))
    first = documents.insert()
    assert documents.update().number == 1, "the first is unanswered, so there is nothing to update"
    documents.done(first)
    update = documents.update()
    assert (update.number, update.value) == (0, 1)
    assert documents.delete().number == 2
    documents.refused(update)
    assert documents.delete().number == 0


def test_a_connection_closed_by_the_server_is_opened_again() -> None:
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        if b"/cut" not in asked[-1]:
            writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 10\r\nRetry-After: 3\r\n\r\n{"a": "b"}')
        writer.close()

    async def ask() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        wire = HttpConnection(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/base", "secret")
        for _ in range(2):
            found = await wire.request("GET", "/x")
            assert (found.status, found.json(), found.pause) == (200, {"a": "b"}, 3.0)
            await asyncio.sleep(0.05)
        with pytest.raises(HttpConnectionError, match="connection closed"):
            await wire.request("PUT", "/cut")
        wire.close()
        server.close()

    asyncio.run(ask())
    assert len(asked) == 3, "a request that was sent is not repeated"
    assert asked[0].startswith(b"GET /base/x HTTP/1.1\r\n") and b"Authorization: Bearer secret" in asked[0]


def test_the_queue_length_is_read_from_the_metrics(up: Up) -> None:
    assert asyncio.run(count_waiting_jobs(HttpConnection(up.system.url, ""))) == 0
    with pytest.raises(HttpConnectionError, match="does not provide this metric"):
        asyncio.run(count_waiting_jobs(HttpConnection(up.system.url + "/nowhere", "")))


def test_processes_are_distinguished_and_their_usage_is_summed() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; a = bytearray(30 << 20); time.sleep(60)", "web.wsgi"])
    try:
        eventually(lambda: memory_by_part(sample_processes([child.pid])).get("web", 0) > 30)
        before = sample_processes([child.pid])
        began = time.process_time()
        while time.process_time() - began < 0.3:
            pass
        used = cpu_seconds_by_part(before, sample_processes([child.pid]))
        assert used.keys() == {"web", "generator"} and used["generator"] >= 0.2
    finally:
        child.kill()
        child.wait()


def test_statistics_of_samples() -> None:
    samples = [
        RequestSample(0.0, 0.1, "done", 5),
        RequestSample(0.0, 0.2, "done", 5),
        RequestSample(1.0, 1.3, "done", 6),
    ]
    assert Latency.of([]) is None and mean_batch_size([]) is None
    assert mean_batch_size(samples) == 1.5
    assert visibility_delays(samples, [(0.5, 5), (2.0, 7)]) == [0.5, 0.5, 1.0]
    slope, within = fit_line([(0.0, 1.0), (1.0, 2.5), (2.0, 3.0), (3.0, 4.5)])
    assert slope == pytest.approx(1.1) and 0 < within < 0.5
