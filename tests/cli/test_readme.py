"""The README is correct: its commands are run, and its table is compared."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mdv.free_port import free_port
from tests.support.whole_system import MDV, SCHEMA, Up, environment

pytestmark = pytest.mark.full

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def shell(new_up: Callable[..., Up], tmp_path: Path) -> Callable[[str], str]:
    """A shell beside a system with the demo data, as a reader of the README has it."""
    up = new_up(".mdv", demo=True).start()
    shutil.copytree(
        SCHEMA.parent, tmp_path / "samples", ignore=shutil.ignore_patterns("schema*", "*.py", "*.rule", "__*")
    )

    def run(script: str) -> str:
        script = script.replace(".venv/bin/mdv", str(MDV))
        script = script.replace(":8080", f":{up.port}").replace(":8081", f":{up.lmr_port}")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, env=environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


def test_the_commands_of_the_readme_print_what_it_shows(shell: Callable[[str], str]) -> None:
    up_and_test, atoms, own, edited, http, schema, trace, rules, held, subscribed, fed, branch, local, many = BLOCKS
    assert re.findall(r"^make (\w+)", up_and_test, re.MULTILINE) == ["up", "test"]
    shown = re.search(r"Figure 4:\n\n```\n(.*?)```", README, re.DOTALL)
    assert shown is not None
    table = [re.split(r"\s{2,}", line) for line in shown[1].splitlines()]
    assert table[0] == ["uri_reference", "class", "property", "value"]
    assert [line.split("\t") for line in shell(atoms).splitlines()] == table[1:]
    told = shell(own)
    assert "http://mdv.example/mine.rdf#host" in told and "frigate.uni-passau.de" in told
    assert "is at version 2; resources: 1 updated" in shell(edited)
    answers_over_http = shell(http).replace(" ", "")
    assert '"version":3' in answers_over_http and '"version":4' in answers_over_http
    traced = re.search(r"```\n(Initial iteration\n.*?)```", README, re.DOTALL)
    assert traced is not None
    shown_rows = [re.split(r"\s{2,}", line) for line in traced[1].splitlines() if not line.startswith("uri_reference")]
    told_rows = [line.split("\t") for line in shell(trace).splitlines()]
    assert told_rows[: len(shown_rows)] == shown_rows
    answers = shell(rules)
    shown = re.search(r"```\n(<http://mdv.example/doc.rdf#info> is at the LMR.*?)```", README, re.DOTALL)
    assert shown is not None
    why = shell(held)
    assert shown[1] in why and "pirates.uni-passau.de" in why
    wanted = shell(subscribed)
    assert "http://mdv.example/orion.ttl#host" in wanted and "memory > 200" in wanted
    assert '"snapshot":true' in shell(fed)
    shell(branch.replace(":8082", f":{free_port()}").replace("--port 8082", f"--port {free_port()}"))
    assert '"created":true' in shell(local).replace(" ", "")
    assert shell(many).startswith("300 registered, 0 changed, 0 unchanged, 0 refused; ")
    assert "Dependency tree" in answers and "pirates.uni-passau.de" in answers
    assert "schema" in shell(schema).lower()
