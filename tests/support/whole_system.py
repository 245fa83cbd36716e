"""Whole systems as real processes: started, stopped in several ways, and inspected from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from mdv.free_port import free_port
from mdv.system import LmrSystem, System, read_system
from tests.support.eventually import eventually
from tests.support.tiers import check_may_start

MDV = Path(sys.executable).with_name("mdv")
START_SECONDS = 120.0

SCHEMA = Path(__file__).parents[2] / "mdv" / "demo" / "schema.ttl"


def environment(**more: str) -> dict[str, str]:
    """Return this environment without variables that name another system."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("MDV_")}
    return own | {"MDV_UP_WORKERS": "1"} | more


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def command_line(pid: int) -> bytes:
    """Return the command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def descendants(pid: int) -> list[int]:
    """Return all processes below `pid`."""
    below: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        below.setdefault(parent, []).append(int(stat.parent.name))
    found, todo = [], [pid]
    while todo:
        children = below.get(todo.pop(), [])
        found += children
        todo += children
    return found


def at_work_in(folder: Path) -> list[int]:
    """Return all processes with `folder` in their command line or environment, whatever their parent."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if str(folder).encode() in (process / "cmdline").read_bytes() + (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


@dataclass
class Up:
    """One `mdv up` on a folder: started, called, stopped in several ways."""

    folder: Path
    port: int = field(default_factory=free_port)
    lmr_port: int = field(default_factory=free_port)
    demo: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    known: list[int] = field(default_factory=list)
    options: list[str] = field(default_factory=list)

    @property
    def output(self) -> str:
        return self.folder.with_suffix(".out").read_text()

    @property
    def system(self) -> System:
        found = read_system(self.folder)
        assert found is not None, self.output
        return found

    @property
    def lmr_system(self) -> LmrSystem:
        return LmrSystem(self.system.lmr_url, self.system.token)

    def start(self) -> Up:
        check_may_start("a whole system")
        demo = "--demo" if self.demo else "--no-demo"
        argv = [str(MDV), "up", demo, "--port", str(self.port), "--lmr-port", str(self.lmr_port)]
        argv += ["--data", str(self.folder), *self.options]
        with self.folder.with_suffix(".out").open("wb") as out:
            self.process = subprocess.Popen(
                argv, stdout=out, stderr=out, env=environment(**self.settings), cwd="/", start_new_session=True
            )
        eventually(
            lambda: "Ctrl-C to stop" in self.output or self.process.poll() is not None,
            START_SECONDS,
            detail=lambda: self.output,
        )
        assert self.process.poll() is None, self.output
        self.known = descendants(self.process.pid)
        return self

    def end(self, number: signal.Signals) -> int:
        """Stop it by signal or, with SIGKILL, all of it at once; return the exit code."""
        assert self.process is not None
        self.known = list({*self.known, *descendants(self.process.pid)})
        pids = [self.process.pid, *self.known] if number == signal.SIGKILL else [self.process.pid]
        for pid in pids:
            if alive(pid):
                os.kill(pid, number)
        return self.process.wait(60)

    @property
    def left(self) -> list[int]:
        """Return the processes of this system that still run."""
        return [pid for pid in self.known if alive(pid)]


@contextmanager
def started(up: Up) -> Iterator[Up]:
    """Start a system, and stop it at the end."""
    try:
        yield up.start()
        assert up.end(signal.SIGTERM) == 0, up.output
    finally:
        if up.process is not None and up.process.poll() is None:
            up.end(signal.SIGKILL)


def suspend(up: Up, *rules: int, reason: str = "It took 9 s.") -> int:
    """Suspend rules as a worker does; return the position."""
    from mdv.db.engine import make_engine
    from mdv.mdp.provider import Provider
    from mdv.mdp.rules.suspend import suspend_rules

    engine = make_engine(up.system.database_url)
    try:
        with engine.begin() as connection:
            return suspend_rules(connection, rules, reason, 9.0, Provider(engine))
    finally:
        engine.dispose()
