"""A peer in its own process, as the benchmark sees it: fed, watched and ended.

The way to the process is not timed. A process of its own shows what memory a peer takes, lets one that is too slow be
ended, and may belong to another environment: what does not go together with our packages is looked for in the
environment `peers` within ours, which `make peers` makes.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mdv.bench.peers import Batch, Kind, Taken
from mdv.bench.rulebase import RuleType

BUILD_SECONDS = 600.0


class TooSlow(Exception):
    """A peer did not end in time, and was ended."""


class Hosted:
    """A peer that runs; `peak_mib` is the most memory that its process has had."""

    def __init__(self, kind: Kind, rule_type: RuleType, rules: int) -> None:
        python = python_for(kind)
        if python is None:
            raise ModuleNotFoundError(missing(kind))
        self._kind = kind
        self._wire, theirs = Pipe()
        self._process = _start(python, theirs)
        self.peak_mib = 0.0
        self._wire.send((kind.home, rule_type, rules))
        self._receive(BUILD_SECONDS)

    def take(self, batch: Batch, most_seconds: float) -> Taken:
        """What it did with a batch; TooSlow if it takes longer."""
        self._wire.send(batch)
        taken: Taken
        taken, self.peak_mib = self._receive(most_seconds)
        return taken

    def close(self) -> None:
        self._wire.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _receive(self, most_seconds: float) -> Any:
        if not self._wire.poll(most_seconds):
            self._process.kill()
            raise TooSlow
        try:
            return self._wire.recv()
        except EOFError:
            ended = self._process.wait()
            raise RuntimeError(f"{self._kind.title} ended by itself, with {ended}.") from None


def _start(python: Path, theirs: Connection) -> subprocess.Popen[bytes]:
    command = [str(python), "-m", "mdv.bench.peers.child", str(theirs.fileno())]
    process = subprocess.Popen(
        command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    theirs.close()
    return process


def python_for(kind: Kind) -> Path | None:
    """The interpreter that has the peer's package, if there is one."""
    if find_spec(kind.package) is not None:
        return Path(sys.executable)
    apart = Path(sys.prefix) / "peers"
    there = next(apart.glob(f"lib/python*/site-packages/{kind.package}/__init__.py"), None)
    return apart / "bin" / "python" if there is not None else None


def missing(kind: Kind) -> str:
    """What to say of a peer that is not installed."""
    return f"{kind.title} is not installed: {kind.install}"
