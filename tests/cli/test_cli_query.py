"""`mdv query` and `mdv filter`, against a running system."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.whole_system import MDV, SCHEMA, Up, environment

DEMO = SCHEMA.parent
DOC = "http://mdv.example/doc.rdf"
HOSTS = "search CycleProvider c where c.serverPort = 5874 return c, c.serverHost"


@pytest.fixture
def on(running: Up, mdv: Callable) -> Callable:
    """A command on the running system, which has the paper's schema and the document of its Figure 1."""

    def run(*arguments: object) -> object:
        return mdv("--data", running.folder, *arguments)

    assert run("schema", "put", SCHEMA).code == 0
    assert run("register", DEMO / "doc.rdf", "--uri", DOC).code == 0
    return run


def test_a_query_is_read_from_an_argument_a_file_or_standard_input(on: Callable, running: Up, tmp_path: Path) -> None:
    line = f"{DOC}#host\tpirates.uni-passau.de\n"
    assert on("query", HOSTS).out == line
    file = tmp_path / "hosts.rule"
    file.write_text(HOSTS.replace(" where", "\nwhere"), encoding="utf-8-sig")
    assert on("query", file).out == line
    argv = [MDV, "query", "-", "--data", running.folder]
    ran = subprocess.run(argv, input=HOSTS, capture_output=True, text=True, env=environment(), cwd="/")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, line, "")
    missing = on("query", tmp_path / "none.rule")
    assert missing.code == 1 and "none.rule" in missing.err
    file.write_bytes(b"\xff")
    assert "is not UTF-8" in on("query", file).err


def test_results_are_printed_as_json_and_csv(on: Callable) -> None:
    body = json.loads(on("query", HOSTS, "--json").out)
    assert body["columns"] == ["c", "c.serverHost"] and body["rows"][0][0] == {"type": "uri", "value": DOC + "#host"}
    assert on("query", HOSTS, "--csv").out == f"c,c.serverHost\n{DOC}#host,pirates.uni-passau.de\n"
    assert on("query", HOSTS, "--csv", "--json").code == 2
    assert on("query", HOSTS, "--limit", 0).code == 2


def test_a_search_finds_resources_by_words(on: Callable) -> None:
    class_ = "http://mdv.example/schema#CycleProvider"
    assert f"{DOC}#host\t\t{class_}\tpirates.uni-passau.de\n" in on("search", "PIRATES", "pass*").out
    (item,) = json.loads(on("search", f"{DOC}#host", "--class", "CycleProvider", "--json").out)["items"]
    assert (item["uri"], item["classes"], item["label"], item["matches"]) == (f"{DOC}#host", [class_], None, [])
    assert on("search", "unheardofword").out == ""
    refused = on("search", "!")
    assert refused.code == 1 and "contains no word" in refused.err
    assert on("search", "x", "--class", "Unheard").code == 1


def test_a_rule_lists_its_resources(on: Callable, tmp_path: Path) -> None:
    (tmp_path / "more.ttl").write_text(
        "".join(f"<#n{n}> a <http://mdv.example/schema#ServerInformation> ." for n in range(5))
    )
    assert on("register", tmp_path / "more.ttl", "--uri", "http://mdv.example/more").code == 0
    rule = "search ServerInformation s register s where s contains 'example/more'"
    kind = "http://mdv.example/schema#ServerInformation"
    wanted = [f"http://mdv.example/more#n{n}" for n in range(5)]
    assert on("query", rule).out.splitlines() == [f"{uri}\t{kind}" for uri in wanted]
    page = json.loads(on("query", rule, "--json", "--limit", 2).out)
    assert [item["uri"] for item in page["items"]] == wanted[:2] and page["more"]
    for limit in ([], ["--limit", 3]):
        rows = list(csv.reader(io.StringIO(on("query", rule, "--csv", *limit).out)))
        assert rows == [["uri", "classes"], *([uri, kind] for uri in wanted[: 3 if limit else 5])]


def test_truncated_results_are_reported(on: Callable) -> None:
    ran = on("query", "search rdfs:Resource r return r", "--limit", 1)
    assert len(ran.out.splitlines()) == 1 and ran.err == "mdv: there are more than 1 rows.\n"


def test_an_error_in_a_query_is_shown_with_carets(on: Callable) -> None:
    ran = on("query", "search CycleProvider c return c.serverHst")
    assert ran.code == 1 and ran.out == ""
    assert "did you mean serverHost" in ran.err and "^^^^^^^^^" in ran.err
    assert on("query", "search CycleProvider c").code == 1


def test_a_terminal_shows_a_table(running: Up, on: Callable) -> None:
    argv = [str(MDV), "query", HOSTS, "--data", str(running.folder)]
    master, slave = pty.openpty()
    process = subprocess.Popen(argv, stdout=slave, stderr=slave, stdin=slave, env=environment(TERM="xterm"))
    os.close(slave)
    shown = b""
    try:
        while chunk := os.read(master, 4096):
            shown += chunk
    except OSError:  # the other end was closed
        pass
    assert process.wait(60) == 0
    assert b"c.serverHost" in shown and "─".encode() in shown


def test_filter_trace_prints_the_iterations(on: Callable) -> None:
    ran = on("filter", "trace", DOC)
    assert (ran.code, ran.out) == (0, "Results\n")
    assert json.loads(on("filter", "trace", DOC, "--json").out)["iterations"] == []
    missing = on("filter", "trace", "http://mdv.example/never")
    assert missing.code == 1 and missing.err.startswith("mdv: Not found: ")
