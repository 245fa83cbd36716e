"""The README and the pages in `docs` are correct: their commands are run, and the output that they show is compared."""

from __future__ import annotations

import doctest
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mdv.client import Client
from mdv.free_port import free_port
from tests.support.documentation import PAGES, ROOT, ShellExample, run_on_terminal, shell_examples
from tests.support.whole_system import MDV, Up, environment, started

pytestmark = pytest.mark.full

SHOWN = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NOT_RUN = {"docs/operations.md"}
"""Pages with commands that need containers or a production system."""
NO_DEMO = {"docs/tutorial.md", "docs/tutorial-rules.md"}
"""Pages that start with an empty system."""
TWO_SYSTEMS = {"docs/tutorial-federation.md": ("city", "school")}
"""Pages that start two empty systems, in folders with these names."""
EXAMPLES = {str(page.relative_to(ROOT)): shell_examples(page) for page in PAGES}
TWO_COMMANDS = EXAMPLES["README.md"].pop(0).script
RUN = [name for name, examples in EXAMPLES.items() if examples and name not in NOT_RUN]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A system with the demo data, shared by the pages."""
    settings = {"MDV_WEBHOOK_PRIVATE": "true"}
    with started(Up(tmp_path_factory.mktemp("demo") / ".mdv", demo=True, settings=settings)) as up:
        yield up


@pytest.mark.parametrize("name", RUN)
def test_examples_print_what_the_page_shows(
    name: str, request: pytest.FixtureRequest, new_up: Callable[..., Up], tmp_path: Path
) -> None:
    """As for a reader with an empty folder in which `mdv up` runs."""
    other = 0
    if name in TWO_SYSTEMS:
        up, second = (new_up(folder).start() for folder in TWO_SYSTEMS[name])
        other = second.port
    elif name in NO_DEMO:
        up = new_up(".mdv").start()
    else:
        up = request.getfixturevalue("demo")
        (tmp_path / ".mdv").symlink_to(up.folder)
    for program in ("follow.py", "receive.py"):
        shutil.copy(ROOT / "docs" / program, tmp_path)
    ports = {"8080": up.port, "8081": up.lmr_port, "8082": free_port(), "9000": free_port(), "8090": other}
    path = f"{MDV.parent}{os.pathsep}{os.environ['PATH']}"
    settings = environment(PATH=path, TERM="dumb", NO_COLOR="1")
    for example in EXAMPLES[name]:
        wait_for_lmr(up)
        _check(example, f"{name}:{example.line}", ports, tmp_path, settings)


def wait_for_lmr(up: Up) -> None:
    """Wait until the LMR has applied the changes of the examples before."""
    with Client(up.system) as mdp, Client(up.lmr_system) as lmr:
        lmr.get("/status", after=mdp.get("/status")["position"], wait=60)


def _check(example: ShellExample, where: str, ports: dict[str, int], folder: Path, settings: dict[str, str]) -> None:
    def own_ports(text: str) -> str:
        return re.sub(r"(?<=[: ])(8080|8081|8082|8090|9000)\b", lambda found: str(ports[found[0]]), text)

    script = own_ports(example.script).replace(".venv/bin/mdv", "mdv")
    code, output = run_on_terminal(script, folder, settings)
    assert code == 0, f"{where}\n{example.script}\n{output}"
    if example.output is not None:
        wanted = own_ports(example.output)
        assert doctest.OutputChecker().check_output(wanted, output, SHOWN), f"{where}\n{wanted}\nbut was\n{output}"


def test_the_readme_begins_with_the_two_commands() -> None:
    assert re.findall(r"^make (\w+)", TWO_COMMANDS, re.MULTILINE) == ["up", "test"]
