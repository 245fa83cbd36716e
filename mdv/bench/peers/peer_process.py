"""Run a peer in a process of its own: start it, send batches, limit its time, and stop it.

The communication is not timed. A separate process shows the memory of a peer, can be killed if it is too slow, and may
use another environment: packages that conflict with ours are in the environment `peers` inside ours, which `make peers`
creates.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mdv.bench.peers import PeerKind, PeerResult, StatementBatch
from mdv.bench.rule_types import RuleType

BUILD_TIMEOUT_SECONDS = 600.0


class PeerTimeout(Exception):
    """A peer did not respond in time and was killed."""


class PeerProcess:
    """A running peer. `peak_mib` is the peak memory of its process."""

    def __init__(self, kind: PeerKind, rule_type: RuleType, rules: int) -> None:
        python = python_for(kind)
        if python is None:
            raise ModuleNotFoundError(not_installed_message(kind))
        self._kind = kind
        self._connection, child_end = Pipe()
        self._process = _start(python, child_end)
        self.peak_mib = 0.0
        self._connection.send((kind.home, rule_type, rules))
        self._receive(BUILD_TIMEOUT_SECONDS)

    def take(self, batch: StatementBatch, max_batch_seconds: float) -> PeerResult:
        """Return the result of a batch. Raise PeerTimeout if it takes longer than `max_batch_seconds`."""
        self._connection.send(batch)
        taken: PeerResult
        taken, self.peak_mib = self._receive(max_batch_seconds)
        return taken

    def close(self) -> None:
        self._connection.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _receive(self, max_batch_seconds: float) -> Any:
        if not self._connection.poll(max_batch_seconds):
            self._process.kill()
            raise PeerTimeout
        try:
            return self._connection.recv()
        except EOFError:
            ended = self._process.wait()
            raise RuntimeError(f"{self._kind.title} ended unexpectedly with exit code {ended}.") from None


def _start(python: Path, child_end: Connection) -> subprocess.Popen[bytes]:
    command = [str(python), "-m", "mdv.bench.peers.peer_main", str(child_end.fileno())]
    process = subprocess.Popen(
        command, pass_fds=(child_end.fileno(),), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    child_end.close()
    return process


def python_for(kind: PeerKind) -> Path | None:
    """Return the interpreter that has the peer's package, or None."""
    if find_spec(kind.package) is not None:
        return Path(sys.executable)
    environment = Path(sys.prefix) / "peers"
    package = next(environment.glob(f"lib/python*/site-packages/{kind.package}/__init__.py"), None)
    return environment / "bin" / "python" if package is not None else None


def not_installed_message(kind: PeerKind) -> str:
    """Return the message for a peer that is not installed."""
    return f"{kind.title} is not installed. {kind.install}"
