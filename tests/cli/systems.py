"""Whole systems as real processes: started, ended in several ways, and looked at from outside."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mdv.system import LocalSystem, System, read_system

MDV = Path(sys.executable).with_name("mdv")
START_SECONDS = 120.0

SCHEMA = Path(__file__).parents[2] / "mdv" / "demo" / "schema.ttl"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(**more: str) -> dict[str, str]:
    """This one, without what would lead a command to another system."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("MDV_")}
    return own | {"MDV_UP_WORKERS": "1"} | more


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def eventually(holds: Callable[[], object], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def descendants(pid: int) -> list[int]:
    """All processes below `pid`."""
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
    """All processes that were started with `folder` in their line or environment, whoever is their parent now."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if str(folder).encode() in (process / "cmdline").read_bytes() + (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


@dataclass
class Up:
    """One `mdv up` on a folder: started, asked, ended in several ways."""

    folder: Path
    port: int = field(default_factory=free_port)
    lmr_port: int = field(default_factory=free_port)
    demo: bool = False
    process: subprocess.Popen[bytes] | None = None
    known: list[int] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def output(self) -> str:
        return self.folder.with_suffix(".out").read_text()

    @property
    def system(self) -> System:
        found = read_system(self.folder)
        assert found is not None, self.output
        return found

    @property
    def lmr_system(self) -> LocalSystem:
        return LocalSystem(self.system.lmr_url, self.system.token)

    def start(self) -> Up:
        began = time.monotonic()
        demo = "--demo" if self.demo else "--no-demo"
        argv = [str(MDV), "up", demo, "--port", str(self.port), "--lmr-port", str(self.lmr_port)]
        argv += ["--data", str(self.folder)]
        with self.folder.with_suffix(".out").open("wb") as out:
            self.process = subprocess.Popen(
                argv, stdout=out, stderr=out, env=environment(), cwd="/", start_new_session=True
            )
        ready = eventually(lambda: "Ctrl-C stops" in self.output or self.process.poll() is not None, START_SECONDS)
        assert ready and self.process.poll() is None, self.output
        self.seconds = time.monotonic() - began
        self.known = descendants(self.process.pid)
        return self

    def end(self, number: signal.Signals) -> int:
        """End it, by its own doing or, with SIGKILL, all of it at once; the exit code."""
        assert self.process is not None
        self.known = list({*self.known, *descendants(self.process.pid)})
        pids = [self.process.pid, *self.known] if number == signal.SIGKILL else [self.process.pid]
        for pid in pids:
            if alive(pid):
                os.kill(pid, number)
        return self.process.wait(60)

    @property
    def left(self) -> list[int]:
        """The processes of this system that still run."""
        return [pid for pid in self.known if alive(pid)]
