"""`mdv real`, against a running system."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.whole_system import SCHEMA, Up

DOC = "http://mdv.example/doc.rdf"
PREFIX = "PREFIX ex: <http://mdv.example/schema#> "
HOST = {"type": "uri", "value": f"{DOC}#host"}


@pytest.fixture
def on(running: Up, mdv: Callable) -> Callable:
    """A command on the running system, which has the paper's schema and the document of its Figure 1."""

    def run(*arguments: object) -> object:
        return mdv("--data", running.folder, *arguments)

    assert run("schema", "put", SCHEMA).code == 0
    assert run("register", SCHEMA.parent / "doc.rdf", "--uri", DOC).code == 0
    return run


def test_a_program_is_run_from_a_file_or_an_expression(on: Callable, tmp_path: Path) -> None:
    code = PREFIX + "ex:serverPort(?x, 5874)"
    assert on("real", "run", "-e", code, "--read").out == f"{DOC}#host\n"
    file = tmp_path / "program.real"
    file.write_text(code, encoding="utf-8")
    found = json.loads(on("real", "run", file, "--json", "--bind", f"x={DOC}#host").out)
    assert found["solutions"] == [{"x": HOST}]
    none = on("real", "run", "-e", "ex:serverPort(?x, ?p)", "--prefix", "ex=http://none/", "--limit", 1)
    assert none.code == 0 and none.out == "0 solutions.\n"


def test_a_sandbox_shows_what_would_change(on: Callable) -> None:
    code = PREFIX + f"ON <{DOC}> {{ -ex:serverPort(?x, ?) AND +ex:serverPort(?x, 1) }}"
    ran = on("real", "run", "-e", code, "--sandbox")
    assert f'Would change {DOC}:\n  + <{DOC}#host> <http://mdv.example/schema#serverPort> "1"^^<' in ran.out
    assert on("real", "run", "-e", code, "--read").code == 1
    assert on("real", "run", "-e", code, "--read", "--sandbox").code == 2
    assert on("real", "run").code == 2
    ran = on("real", "run", "-e", "TRUE AND")
    assert ran.code == 1 and "Program refused" in ran.err and "line 1" in ran.err


def test_a_program_is_checked(on: Callable) -> None:
    ran = on("real", "check", "-e", PREFIX + "TRUE AND\n+ex:serverPort(?x, 1)")
    assert ran.code == 0 and "line 2, column 16: ?x is never bound" in ran.err
    assert json.loads(on("real", "check", "-e", "TRUE", "--json").out) == {"warnings": []}
    assert on("real", "check", "-e", "unknown:p(?x, ?y)").code == 1


def test_a_program_changes_documents_and_its_process_is_shown(on: Callable) -> None:
    code = PREFIX + f"ON <{DOC}> {{ -ex:serverPort(?x, ?p) AND +ex:serverPort(?x, 7) }} AND CALL primitive:log('done')"
    ran = on("real", "run", "-e", code)
    assert ran.code == 0 and "Added 1 and removed 1 statements, up to position" in ran.out
    found = json.loads(on("real", "ps", "--json").out)["items"][0]
    assert found["state"] == "done" and found["effects"] == {"added": 1, "removed": 1}
    shown = on("real", "show", found["id"]).out
    assert found["process"] in shown and "ex:serverPort(?x, 7)" in shown
    logged = on("real", "logs", found["process"]).out
    assert "1 added, 1 removed" in logged and "done" in logged


def test_a_detached_program_is_stopped(on: Callable) -> None:
    started = on("real", "run", "-e", PREFIX + "WAIT ex:serverPort(?x, 12345)", "--detach")
    process = started.out.strip()
    assert started.code == 0 and process.startswith("urn:mdv:real:process/")
    assert process in on("real", "ps", "--state", "live").out
    assert on("real", "stop", process, "--message", "enough").code == 0
    assert on("real", "logs", process, "-f").code == 0
    shown = json.loads(on("real", "show", process, "--json").out)
    assert shown["state"] == "stopped" and shown["message"]["value"] == "enough"
    assert on("real", "stop", process).code == on("real", "stop", process, "--family").code == 1
    assert on("real", "run", "-e", "TRUE", "--detach", "--read").code == 2
