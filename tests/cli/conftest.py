"""Whole systems for the commands to work on, and commands to run on them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from systems import Up

from mdv.cli import cli
from mdv.cli.failures import exit_code_of


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A system that all commands may use."""
    up = Up(tmp_path_factory.mktemp("up") / "data")
    try:
        yield up.start()
        assert up.end(signal.SIGTERM) == 0, up.output
    finally:
        if up.process is not None and up.process.poll() is None:
            up.end(signal.SIGKILL)


@pytest.fixture
def new_up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Systems of the test's own; none outlives it."""
    made: list[Up] = []

    def make(name: str, **options: object) -> Up:
        up = Up(tmp_path / name, **options)  # type: ignore[arg-type]
        made.append(up)
        return up

    yield make
    for up in made:
        if up.process is not None and up.process.poll() is None:
            up.end(signal.SIGKILL)


@dataclass
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def mdv(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """`mdv …`, in this process: the words it wrote and its exit code."""
    for name in list(os.environ):
        if name.startswith("MDV_"):
            monkeypatch.delenv(name)

    def run(*arguments: object) -> Ran:
        capfd.readouterr()
        code = exit_code_of(lambda: cli.main([str(a) for a in arguments], prog_name="mdv", standalone_mode=False))
        captured = capfd.readouterr()
        return Ran(code, captured.out, captured.err)

    return run
