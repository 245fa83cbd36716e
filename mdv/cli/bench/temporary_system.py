"""A temporary system for benchmarks: `mdv up` in a temporary folder, and more LMRs."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from mdv.bench.load import LoadTarget
from mdv.client import Client
from mdv.errors import MdvError
from mdv.free_port import free_port, free_ports
from mdv.mdp_places import PORT_DISTANCE, mdp_folder
from mdv.supervise import ChildProgram, has_ended, start_child
from mdv.system import System, read_system

START_TIMEOUT_SECONDS = 120.0
STOP_TIMEOUT_SECONDS = 60.0


@contextmanager
def temporary_system(lmrs: int) -> Iterator[LoadTarget]:
    """Start a system with `lmrs` LMRs. At the end, also after Ctrl-C, all its processes and files are removed."""
    with (
        _signals_as_ctrl_c(),
        tempfile.TemporaryDirectory(prefix="mdv-bench-") as name,
        _Children(Path(name)) as children,
    ):
        data = Path(name) / "data"
        ports = ["--port", str(free_port()), "--lmr-port", str(free_port())]
        children.start("up", ["up", "--no-demo", *ports, "--data", str(data)])
        children.wait_until(lambda: read_system(data) is not None)
        system = read_system(data)
        assert system is not None
        running = [replace(system, url=system.lmr_url)]
        with Client(system) as mdp:
            running += [_start_lmr(children, mdp, system, f"lmr-{number}") for number in range(2, lmrs + 1)]
        for lmr in running:
            with Client(lmr) as client:
                children.wait_until(client.is_ready)
        yield LoadTarget(system, tuple(running), tuple(children.pids))


@contextmanager
def temporary_backbone(mdps: int, crdt: str) -> Iterator[list[System]]:
    """Start several MDPs that replicate all documents. At the end, all processes and files are removed."""
    with (
        _signals_as_ctrl_c(),
        tempfile.TemporaryDirectory(prefix="mdv-bench-") as name,
        _Children(Path(name)) as children,
    ):
        data = Path(name) / "data"
        ports = ["--port", str(free_ports(mdps, PORT_DISTANCE)), "--lmr-port", str(free_ports(mdps, PORT_DISTANCE))]
        children.start("up", ["up", "--no-demo", "--mdps", str(mdps), "--crdt", crdt, *ports, "--data", str(data)])
        folders = [mdp_folder(data, number) for number in range(1, mdps + 1)]
        children.wait_until(lambda: all(read_system(folder) is not None for folder in folders))
        found = [system for folder in folders if (system := read_system(folder)) is not None]
        for system in found:
            with Client(system) as mdp:
                children.wait_until(mdp.is_ready)
        yield found


class _Children:
    """Child processes of one folder. They are stopped in reverse order of their start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._programs: dict[Path, ChildProgram] = {}
        self._stop = ExitStack()

    @property
    def pids(self) -> list[int]:
        return [program.process.pid for program in self._programs.values()]

    def start(self, name: str, line: list[str], **environment: str) -> None:
        """Start an `mdv` command. Its temporary files are in the folder."""
        argv, log = [sys.executable, "-m", "mdv.cli", *line], self.folder / f"{name}.log"
        env = {**os.environ, **environment, "TMPDIR": str(self.folder)}
        child = start_child(argv, log=log, env=env, cwd=self.folder)
        self._programs[log] = ChildProgram(child, grace=STOP_TIMEOUT_SECONDS)
        self._stop.callback(self._programs[log].stop)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while not condition():
            for log, program in self._programs.items():
                if has_ended(program.process) or time.monotonic() > deadline:
                    end = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
                    raise MdvError(f"The temporary system did not start. The end of its log:\n{end}")
            time.sleep(0.1)

    def __enter__(self) -> _Children:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.close()


def _start_lmr(children: _Children, mdp: Client, system: System, name: str) -> System:
    token, port = str(mdp.change("POST", "/lmrs", {"name": name})["token"]), free_port()
    store = f"sqlite:///{children.folder / name}.db"
    line = ["lmr", "serve", "--port", str(port), "--store", store]
    children.start(name, line, MDV_URL=system.url, MDV_LMR_TOKEN=token, MDV_ADMIN_TOKEN=system.token)
    return replace(system, url=f"http://127.0.0.1:{port}")


@contextmanager
def _signals_as_ctrl_c() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C, so that the system is stopped before this process ends."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
