"""`mdv batch` on whole systems: what one by one over HTTP leaves, at the provider and at the local repository."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
from alike import assert_alike, content_of
from catalogues import BASE, FLAWED, NAMES, RULES, SCHEMA, catalogue, rdf_xml, write
from click.testing import CliRunner
from listed import MEDIA_TYPES
from systems import MDV, Up, environment, eventually

from mdv.cli import cli
from mdv.client import Client
from mdv.db.engine import make_engine
from mdv.errors import Refused
from mdv.system import LocalSystem


class Side:
    """A system with a local repository that has subscribed."""

    def __init__(self, up: Up) -> None:
        system = up.start().system
        self.up = up
        self.mdp = Client(system)
        self.lmr = Client(LocalSystem(system.lmr_url, system.token))
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
        """One by one; how many were refused."""
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

    def cache(self) -> dict[str, Any]:
        """All that the repository holds."""
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
    one, other = Side(Up(folder / "batch")), Side(Up(folder / "http"))
    yield one, other
    one.close()
    other.close()


def encoded() -> dict[str, bytes]:
    """Documents that are not in plain UTF-8."""
    xml, turtle = rdf_xml(1007).replace("The ", "Thé "), f"<{BASE}book/1009> a <{NAMES}Book> ."
    declared = '<?xml version="1.0" encoding="{}"?>\n'
    return {
        "utf16.rdf": (declared.format("utf-16") + xml).encode("utf-16"),
        "latin1.rdf": (declared.format("iso-8859-1") + xml).encode("latin-1"),
        "marked.rdf": xml.encode("utf-8-sig"),
        "marked.ttl": turtle.encode("utf-8-sig"),
    }


def test_a_batch_leaves_what_one_by_one_over_http_leaves(sides: tuple[Side, Side], tmp_path: Path) -> None:
    by_batch, by_http = sides
    flawed = {name: text.encode() for name, text in FLAWED.items()}
    first = catalogue(90) | flawed | encoded()
    ended = by_batch.batch(write(first, tmp_path / "first"), "--rejects", tmp_path / "rejects", "--json")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert (found["registered"], found["refused"]) == (90 + len(encoded()), len(FLAWED))
    assert found["documents_per_second"] > 0 and {"prepare", "stage", "store", "publish"} <= found["stages"].keys()
    assert by_http.register(first) == len(FLAWED)
    assert len(found["examples"]) == len(FLAWED)
    assert_alike(by_batch.engine, by_http.engine)
    assert by_batch.cache() == by_http.cache()

    second = catalogue(100, edition=2)
    ended = by_batch.batch(write(second, tmp_path / "second"))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("10 registered, 45 changed, 45 unchanged, 0 refused; ")
    assert ended.stderr == ""
    by_http.register(second)
    assert_alike(by_batch.engine, by_http.engine)
    cache = by_batch.cache()
    assert cache == by_http.cache() and len(cache) > 20


def test_on_a_terminal_a_bar_shows_how_far_it_is_and_refusals_are_told(
    sides: tuple[Side, Side], tmp_path: Path
) -> None:
    folder = write({name: text.encode() for name, text in FLAWED.items()} | catalogue(40, 3), tmp_path / "shown")
    terminal, end = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        try:
            while block := os.read(terminal, 4096):
                shown.append(block)
        except OSError:  # nobody is at the other end any more
            pass

    reading = threading.Thread(target=read)
    reading.start()
    ended = sides[0].batch(folder, "--dry-run", capture_output=False, stdout=subprocess.PIPE, stderr=end)
    os.close(end)
    reading.join()
    words = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(shown).decode())
    assert ended.returncode == 1, "not all is registered, and nothing keeps the rejects"
    assert re.search(r"documents .*45/45.*refused 5", words), words
    assert re.search(r"refused \S*untrue\.rdf, line 4: .*many", words)
    assert re.match(r"Nothing was changed; this would be: .* 5 refused; ", ended.stdout)


def test_the_figures_of_a_run_are_those_of_the_web_server(sides: tuple[Side, Side]) -> None:
    text = httpx.get(f"{sides[0].up.system.url}/metrics").text
    assert "mdv_batches_running 0.0" in text and 'mdv_batches_documents{state="promoted"} 0.0' in text


def test_what_arrives_in_a_watched_folder_is_registered_once_over_restarts(
    sides: tuple[Side, Side], tmp_path: Path
) -> None:
    side, folder = sides[0], tmp_path / "inbox"
    before = content_of(side.engine)["documents"]
    argv = [str(MDV), "batch", str(folder), "--watch", "--json", "--uri-base", BASE + "inbox/"]
    argv += ["--data", str(side.up.folder), "--rejects", str(tmp_path / "rejects")]

    def arrived() -> dict[str, int]:
        rows = content_of(side.engine)["documents"]
        return {uri: version for uri, version, *_ in rows if uri.startswith(BASE + "inbox/")}

    def arrive(files: dict[str, bytes]) -> None:
        for name, text in files.items():
            (tmp_path / name).write_bytes(text)
            (tmp_path / name).rename(folder / name)

    first = dict(list(catalogue(12).items()))
    write(dict(list(first.items())[:4]), folder)
    with (tmp_path / "out").open("wb") as out:
        watching = subprocess.Popen(argv, env=environment(), stdout=out, stderr=out, start_new_session=True)
    try:
        assert eventually(lambda: len(arrived()) == 4, 90), (tmp_path / "out").read_text()
        arrive(dict(list(first.items())[4:8]) | {"broken.rdf": b"<rdf:RDF"})
        assert eventually(lambda: len(arrived()) == 8, 60), (tmp_path / "out").read_text()
    finally:
        os.killpg(watching.pid, signal.SIGKILL)
        watching.wait()
    arrive({"dump.nq": b"<urn:a> <urn:b> <urn:c> <urn:d> .\n", "noise.txt": b"noise", "also.rdf": b"<broken"})
    arrive(dict(list(first.items())[8:]))
    with (tmp_path / "out").open("ab") as out:
        watching = subprocess.Popen(argv, env=environment(), stdout=out, stderr=out, start_new_session=True)
    try:
        told = "left alone: In a dump the graphs and subjects name the documents"
        assert eventually(lambda: len(arrived()) == 12 and told in (tmp_path / "out").read_text(), 90)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 130
    finally:
        if watching.poll() is None:
            os.killpg(watching.pid, signal.SIGKILL)
    assert set(arrived().values()) == {1}
    others = [line for line in (tmp_path / "out").read_text().splitlines() if line and not line.startswith("{")]
    assert len(others) == 1, "nothing but the complaint"
    rejects = pq.read_table(tmp_path / "rejects").to_pylist()
    assert {row["document"] for row in rejects} == {BASE + "inbox/also.rdf", BASE + "inbox/broken.rdf"}
    runs = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines() if line.startswith("{")]
    # What the killed one did not live to report was handed over again, and found to be there.
    assert sum(run["registered"] + run["unchanged"] for run in runs) >= 12
    assert len(content_of(side.engine)["documents"]) == len(before) + 12


# What cannot be meant is told before Spark is started


@pytest.mark.parametrize(
    "line, words",
    [
        ("", "Missing argument"),
        ("x --uri http://a/{1} --uri-base http://b/", "say one of them"),
        ("x --uri http://a/{place}", "no path has"),
        ("x --uri http://a/one", "gives every document the same name"),
        ("x --match (\\d+)", "say --uri, too"),
        ("x --watch y", "--watch takes one folder"),
        ("x --watch --dry-run", "has no --dry-run"),
        ("x --conf executor.memory=2g", "a setting of Spark"),
        ("x --data /nowhere", "No MDV runs on /nowhere"),
    ],
)
def test_a_line_that_cannot_be_meant_starts_no_spark(line: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.batch.session.open_session", None)
    result = CliRunner().invoke(cli, ["batch", *line.split()])
    assert result.exit_code != 0
    assert words in result.output + str(result.exception)


def test_a_path_that_is_not_there_is_told(sides: tuple[Side, Side], tmp_path: Path) -> None:
    ended = sides[0].batch(tmp_path / "nothing")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "There is no file or folder" in ended.stderr and "Traceback" not in ended.stderr


def test_the_script_for_spark_submit_is_there() -> None:
    result = CliRunner().invoke(cli, ["batch", "--script"])
    assert result.exit_code == 0 and Path(result.output.strip()).is_file()
