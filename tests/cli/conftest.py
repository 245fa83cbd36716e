"""Whole systems, and commands that run on them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mdv.cli import cli
from mdv.cli.errors import run_for_exit_code
from tests.support.command import Ran
from tests.support.whole_system import Up, started


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A system shared by all commands."""
    with started(Up(tmp_path_factory.mktemp("up") / "data")) as up:
        yield up


@pytest.fixture
def new_up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Systems for one test; all are stopped after it."""
    made: list[Up] = []

    def make(name: str, **options: object) -> Up:
        up = Up(tmp_path / name, **options)  # type: ignore[arg-type]
        made.append(up)
        return up

    yield make
    for up in made:
        if up.process is not None and up.process.poll() is None:
            up.end(signal.SIGKILL)


@pytest.fixture
def mdv(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run `mdv …` in this process; return its output and exit code."""
    for name in list(os.environ):
        if name.startswith("MDV_"):
            monkeypatch.delenv(name)

    def run(*arguments: object) -> Ran:
        capfd.readouterr()
        code = run_for_exit_code(lambda: cli.main([str(a) for a in arguments], prog_name="mdv", standalone_mode=False))
        captured = capfd.readouterr()
        return Ran(code, captured.out, captured.err)

    return run
