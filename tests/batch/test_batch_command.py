"""`mdv batch` on whole systems leaves the same state at the MDP and the LMR as single HTTP registrations."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from mdv.cli import cli
from mdv.client import Client
from mdv.db.batch import delete_old_runs
from mdv.db.engine import make_engine
from mdv.errors import Refused
from mdv.system import LmrSystem
from tests.support.catalogues import BASE, FLAWED, NAMES, RULES, SCHEMA, catalogue, rdf_xml, write
from tests.support.eventually import eventually
from tests.support.listed_documents import MEDIA_TYPES
from tests.support.mdp_content import assert_alike
from tests.support.whole_system import MDV, Up, environment

pytestmark = pytest.mark.full


class Side:
    """A system with an LMR that has a subscription."""

    def __init__(self, up: Up) -> None:
        system = up.start().system
        self.up = up
        self.mdp = Client(system)
        self.lmr = Client(LmrSystem(system.lmr_url, system.token))
        self.engine = make_engine(system.database_url)
        self.mdp.put_schema(SCHEMA.encode(), "text/turtle")
        for rule in RULES:
            self.lmr.change("POST", "/subscriptions", {"rule": rule}, seconds=60)

    def close(self) -> None:
        self.engine.dispose()
        self.mdp.close()
        self.lmr.close()
        assert self.up.end(signal.SIGTERM) == 0

    def register(self, files: dict[str, bytes]) -> int:
        """Register documents one by one; return the number refused."""
        refused = 0
        for name, text in files.items():
            try:
                self.mdp.register(BASE + name, text, MEDIA_TYPES[name[name.rindex(".") :]])
            except Refused:
                refused += 1
        return refused

    def batch(self, *arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:
        argv = [str(MDV), "batch", *map(str, arguments), "--uri-base", BASE, "--data", str(self.up.folder)]
        more = {"capture_output": True} | more
        return subprocess.run(argv, env=environment(), text=True, timeout=200, **more)

    def versions(self) -> dict[str, int]:
        """Return the version of each document."""
        with self.engine.connect() as connection:
            rows = connection.exec_driver_sql("select uri, version from documents")
            return {row.uri: row.version for row in rows}

    def cache(self) -> dict[str, Any]:
        """Return everything that the LMR holds."""
        position = self.mdp.get("/status")["position"]
        self.lmr.get("/status", after=position, wait=30)
        items: list[dict[str, Any]] = []
        after: str | None = ""
        while after is not None:
            page = self.lmr.get("/resources", limit=1000, **({"after": after} if after else {}))
            items += page["items"]
            after = page["next"]
        assert self.lmr.change("POST", "/check", seconds=60)["problems"] == []
        return {item["uri"]: self.lmr.get("/resources", uri=item["uri"]) for item in items}


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    folder = tmp_path_factory.mktemp("sides")
    with ThreadPoolExecutor(2) as beside:
        one, other = beside.map(Side, (Up(folder / "batch"), Up(folder / "http")))
        yield one, other
        list(beside.map(Side.close, (one, other)))


def encoded() -> dict[str, bytes]:
    """Documents that are not plain UTF-8."""
    xml, turtle = rdf_xml(1007).replace("The ", "Thé "), f"<{BASE}book/1009> a <{NAMES}Book> ."
    declared = '<?xml version="1.0" encoding="{}"?>\n'
    return {
        "utf16.rdf": (declared.format("utf-16") + xml).encode("utf-16"),
        "latin1.rdf": (declared.format("iso-8859-1") + xml).encode("latin-1"),
        "marked.rdf": xml.encode("utf-8-sig"),
        "marked.ttl": turtle.encode("utf-8-sig"),
    }


def test_a_batch_leaves_the_same_state_as_single_http_registrations(sides: tuple[Side, Side], tmp_path: Path) -> None:
    by_batch, by_http = sides
    flawed = {name: text.encode() for name, text in FLAWED.items()}
    first = catalogue(90) | flawed | encoded()
    with ThreadPoolExecutor(1) as beside:
        refused = beside.submit(by_http.register, first)
        ended = by_batch.batch(write(first, tmp_path / "first"), "--rejects", tmp_path / "rejects", "--json", "--spark")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert (found["registered"], found["refused"]) == (90 + len(encoded()), len(FLAWED))
    assert found["documents_per_second"] > 0 and {"prepare", "stage", "store", "publish"} <= found["stages"].keys()
    assert refused.result() == len(FLAWED)
    assert len(found["examples"]) == len(FLAWED)
    assert_alike(by_batch.engine, by_http.engine)
    assert by_batch.cache() == by_http.cache()

    second = catalogue(100, edition=2)
    with ThreadPoolExecutor(1) as beside:
        refused = beside.submit(by_http.register, second)
        ended = by_batch.batch(write(second, tmp_path / "second"))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("10 registered, 45 changed, 45 unchanged, 0 refused; ")
    assert ended.stderr == ""
    assert refused.result() == 0
    assert_alike(by_batch.engine, by_http.engine)
    cache = by_batch.cache()
    assert cache == by_http.cache() and len(cache) > 20


@pytest.mark.parametrize(
    ("options", "told"),
    [([], "Registering without Spark (45 files, "), (["--spark"], "Starting Spark (--spark was given)")],
)
def test_a_terminal_shows_the_way_a_progress_bar_and_refusals(
    sides: tuple[Side, Side], tmp_path: Path, options: list[str], told: str
) -> None:
    folder = write({name: text.encode() for name, text in FLAWED.items()} | catalogue(40, 3), tmp_path / "shown")
    terminal, end = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        try:
            while block := os.read(terminal, 4096):
                shown.append(block)
        except OSError:  # the other end is closed
            pass

    reading = threading.Thread(target=read)
    reading.start()
    ended = sides[0].batch(folder, "--dry-run", *options, capture_output=False, stdout=subprocess.PIPE, stderr=end)
    os.close(end)
    reading.join()
    words = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(shown).decode())
    assert ended.returncode == 1, "some documents were refused and there is no folder for rejects"
    assert told in words
    assert re.search(r"documents .*45/45.*refused 5", words), words
    assert re.search(r"refused \S*untrue\.rdf, line 4: .*many", words)
    assert re.match(r"Dry run, nothing was changed: .* 5 refused; ", ended.stdout)


def test_the_web_server_exports_the_metrics_of_batch_runs(sides: tuple[Side, Side]) -> None:
    text = httpx2.get(f"{sides[0].up.system.url}/metrics").text
    assert "mdv_batches_running 0.0" in text and 'mdv_batches_documents{state="promoted"} 0.0' in text


def test_files_in_a_watched_folder_are_registered_once_across_restarts(
    sides: tuple[Side, Side], tmp_path: Path
) -> None:
    side, folder = sides[0], tmp_path / "inbox"
    before = side.versions()
    argv = [str(MDV), "batch", str(folder), "--watch", "--json", "--uri-base", BASE + "inbox/"]
    argv += ["--data", str(side.up.folder), "--rejects", str(tmp_path / "rejects")]

    def arrived() -> dict[str, int]:
        return {uri: version for uri, version in side.versions().items() if uri.startswith(BASE + "inbox/")}

    def arrive(files: dict[str, bytes]) -> None:
        for name, text in files.items():
            (tmp_path / name).write_bytes(text)
            (tmp_path / name).rename(folder / name)

    first = dict(list(catalogue(12).items()))
    write(dict(list(first.items())[:4]), folder)
    with (tmp_path / "out").open("wb") as out:
        watching = subprocess.Popen(argv, env=environment(), stdout=out, stderr=out, start_new_session=True)
    try:
        eventually(lambda: len(arrived()) == 4, 90, detail=lambda: (tmp_path / "out").read_text())
        arrive(dict(list(first.items())[4:8]) | {"broken.rdf": b"<rdf:RDF"})
        eventually(lambda: len(arrived()) == 8, detail=lambda: (tmp_path / "out").read_text())
    finally:
        os.killpg(watching.pid, signal.SIGKILL)
        watching.wait()
    arrive({"dump.nq": b"<urn:a> <urn:b> <urn:c> <urn:d> .\n", "noise.txt": b"noise", "also.rdf": b"<broken"})
    arrive(dict(list(first.items())[8:]))
    with (tmp_path / "out").open("ab") as out:
        watching = subprocess.Popen(argv, env=environment(), stdout=out, stderr=out, start_new_session=True)
    try:
        told = "skipped: In a dump, graphs and subjects name the documents"
        eventually(lambda: len(arrived()) == 12 and told in (tmp_path / "out").read_text(), 90)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 130
    finally:
        if watching.poll() is None:
            os.killpg(watching.pid, signal.SIGKILL)
    assert set(arrived().values()) == {1}
    others = [line for line in (tmp_path / "out").read_text().splitlines() if line and not line.startswith("{")]
    assert len(others) == 1, "only the error message"
    rejects = pq.read_table(tmp_path / "rejects").to_pylist()
    assert {row["document"] for row in rejects} == {BASE + "inbox/also.rdf", BASE + "inbox/broken.rdf"}
    runs = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines() if line.startswith("{")]
    # Work that the killed process did not report is handed over again and found to be registered.
    assert sum(run["registered"] + run["unchanged"] for run in runs) >= 12
    assert len(side.versions()) == len(before) + 12
    assert sides[1].register({f"inbox/{name}": text for name, text in first.items()}) == 0
    assert_alike(side.engine, sides[1].engine)
    with side.engine.begin() as connection:  # as if the time limit of the killed run had passed
        connection.exec_driver_sql("update batch_runs set heard_at = 'epoch' where state = 'running'")
        delete_old_runs(connection)


# Invalid arguments are reported before Spark starts


@pytest.mark.parametrize(
    "line, words",
    [
        ("", "Missing argument"),
        ("x --uri http://a/{1} --uri-base http://b/", "Use only one of them"),
        ("x --uri http://a/{place}", "which is unknown"),
        ("x --uri http://a/one", "gives every document the same URI"),
        ("x --match (\\d+)", "Add --uri"),
        ("x --watch y", "--watch requires exactly one folder"),
        ("x --watch --dry-run", "cannot be combined"),
        ("x --conf executor.memory=2g", "use NAME=VALUE"),
        ("x --data /nowhere", "No MDV is running in /nowhere"),
    ],
)
def test_invalid_arguments_are_refused_before_spark_starts(
    line: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdv.batch.session.open_session", None)
    result = CliRunner().invoke(cli, ["batch", *line.split()])
    assert result.exit_code != 0
    assert words in result.output + str(result.exception)


def test_a_missing_path_is_reported(sides: tuple[Side, Side], tmp_path: Path) -> None:
    ended = sides[0].batch(tmp_path / "nothing")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "No such file or folder" in ended.stderr and "Traceback" not in ended.stderr


def test_the_script_for_spark_submit_exists() -> None:
    result = CliRunner().invoke(cli, ["batch", "--script"])
    assert result.exit_code == 0 and Path(result.output.strip()).is_file()
