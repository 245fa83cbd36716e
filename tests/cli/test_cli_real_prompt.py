"""`mdv real` on a terminal, and the commands that show plans and actions."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.whole_system import SCHEMA, Up

DOC = "http://mdv.example/doc.rdf"
PREFIX = "PREFIX ex: <http://mdv.example/schema#> "


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.end, other = pty.openpty()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MDV_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mdv.cli", *arguments], stdin=other, stdout=other, stderr=other, close_fds=True,
            start_new_session=True, env={**kept, "TERM": "dumb", **environment},
        )  # fmt: skip
        os.close(other)
        self.shown = ""

    def until(self, text: str) -> str:
        """Read until the terminal shows a text. Return what came since the last call."""
        while text not in self.shown:
            try:
                part = os.read(self.end, 4096).decode("utf-8", "replace")
            except OSError:
                raise AssertionError(f"{text!r} was not shown: {self.shown!r}") from None
            self.shown += re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", part).replace("\r", "")
        found, _, self.shown = self.shown.partition(text)
        return found

    def type(self, text: str) -> None:
        os.write(self.end, text.encode())

    def close(self) -> int:
        with suppress(OSError):
            while os.read(self.end, 4096):
                pass
        os.close(self.end)
        return self.process.wait(60)


@pytest.fixture
def terminal(running: Up, mdv: Callable, tmp_path: Path) -> Iterator[Terminal]:
    """The prompt, on a system with the paper's schema and the document of its Figure 1."""
    assert mdv("--data", running.folder, "schema", "put", SCHEMA).code == 0
    assert mdv("--data", running.folder, "register", SCHEMA.parent / "doc.rdf", "--uri", DOC).code == 0
    opened = Terminal("--data", str(running.folder), "real", XDG_STATE_HOME=str(tmp_path))
    yield opened
    opened.process.kill()
    opened.process.wait(60)


def test_programs_are_read_and_run_until_the_user_leaves(terminal: Terminal, tmp_path: Path) -> None:
    terminal.until("sandbox> ")
    terminal.type(":prefix ex=http://mdv.example/schema#\n")
    terminal.until("sandbox> ")
    terminal.type("ex:serverPort(?x, ?port) AND\n")
    terminal.until("| ")
    terminal.type("-ex:serverPort(?x, ?port)\n")
    shown = terminal.until("sandbox> ")
    assert f'?x = <{DOC}#host>  ?port = "5874"' in shown and f"Would change {DOC}:" in shown
    assert re.search(r"\n1  \?x = .*Would change: \d+ removed\.", shown, re.DOTALL)
    terminal.type(":mode read\n")
    terminal.until("read> ")
    terminal.type("TRUE AND -ex:serverPort(?, ?)\n")
    refused = terminal.until("read> ")
    assert "may only read" in refused and "\n             ^^^^^^^^^^^^^^^^^^^^" in refused, refused
    terminal.type("ex:serverPort(?x ?y) AND nonsense\n")
    assert "                 ^^\n" in terminal.until("read> ")
    terminal.type(":explain ex:serverPort(?x, ?y)\n")
    assert "all statements of the property" in terminal.until("read> ")
    terminal.type(":nothing\n")
    assert "There is no command :nothing" in terminal.until("read> ")
    terminal.type("\x04")
    assert terminal.close() == 0
    history = (tmp_path / "mdv" / "real_history").read_text("utf-8").splitlines()
    assert json.loads(history[1]) == "ex:serverPort(?x, ?port) AND\n-ex:serverPort(?x, ?port)"


def test_a_program_is_run_for_real(terminal: Terminal, mdv: Callable, running: Up) -> None:
    terminal.until("sandbox> ")
    terminal.type(":mode run\n")
    terminal.until("run> ")
    terminal.type(":into http://mdv.example/prompt\n")
    terminal.until("run> ")
    terminal.type("+rdfs:label(<urn:prompt:a>, 'b')\n")
    shown = terminal.until("run> ")
    assert "1  yes" in shown and "Committed at position" in shown and "Changed: 1 added." in shown
    assert "urn:prompt:a" in mdv("--data", running.folder, "export", "http://mdv.example/prompt").out
    terminal.type(":quit\n")
    assert terminal.close() == 0


def test_a_program_that_waits_is_ended_by_control_c(terminal: Terminal) -> None:
    terminal.until("sandbox> ")
    terminal.type("TRUE UNION WAIT rdfs:label(?x, 'never')\n")
    terminal.until("1  yes")
    terminal.process.send_signal(signal.SIGINT)
    assert "Ended." in terminal.until("sandbox> ")
    terminal.type(":quit\n")
    assert terminal.close() == 0


def test_without_a_terminal_the_help_is_shown(running: Up, mdv: Callable) -> None:
    ran = mdv("--data", running.folder, "real")
    assert ran.code == 0 and "mdv real run" in ran.out


def test_a_program_is_explained(running: Up, mdv: Callable) -> None:
    code = PREFIX + "ex:serverPort(?x, 5874) AND +ex:serverHost(?x, 'b')"
    ran = mdv("--data", running.folder, "real", "explain", "-e", code, "--into", DOC)
    assert ran.code == 0 and "search for one value" in ran.out
    assert f'  + <http://mdv.example/schema#serverHost>(?, "b")  in {DOC}' in ran.out
    found = json.loads(mdv("--data", running.folder, "real", "explain", "-e", code, "--json").out)
    assert found["complete"] and found["steps"][1]["operation"] == "read"
    assert mdv("--data", running.folder, "real", "explain", "-e", "TRUE AND").code == 1


def test_actions_are_listed(running: Up, mdv: Callable) -> None:
    assert mdv("--data", running.folder, "real", "actions").code == 0
    none = mdv("--data", running.folder, "real", "actions", "--holding", "none", "--json")
    assert json.loads(none.out) == {"items": [], "more": False}
