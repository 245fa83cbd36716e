"""Start, supervise and stop child processes; and lock a folder.

Three guarantees:

- A child ends when its parent ends, even after kill -9: the kernel sends it a signal (Linux).
- A child has its own session, so that Ctrl-C in a terminal reaches only the supervisor.
- After `end(process)` no process of its process group is left.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Protocol

from mdv.errors import MdvError, NotStarted

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.02
MAX_LOG_BYTES = 16 * 1024 * 1024

# Looked up before any fork: as little as possible should happen between fork and exec.
_libc = ctypes.CDLL(None, use_errno=True)
_prctl: Callable[..., int] | None = getattr(_libc, "prctl", None)


def prctl(option: int, *arguments: int) -> None:
    """Call prctl(2). A failure is raised as an OSError."""
    values = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    if _prctl is None or _prctl(option, *values) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} failed")


def start_child(
    argv: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    death_signal: signal.Signals = signal.SIGTERM,
    become: Callable[[], None] | None = None,
) -> subprocess.Popen[bytes]:
    """Start `argv` with the guarantees above. Its output is appended to `log`.

    `become` can change the user of the child before the program is executed. Only the main thread may start children:
    the kernel treats the end of the thread that forked as the end of the parent.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("Start children from the main thread: they end with the thread that started them.")
    parent = os.getpid()

    def prepare() -> None:
        try:
            # A parent that runs in the background of a script ignores SIGINT, and children inherit ignored signals.
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            if become is not None:
                become()
            if sys.platform == "linux":
                # After `become`, because a change of user clears the death signal.
                prctl(PR_SET_PDEATHSIG, death_signal)
                if os.getppid() != parent:  # the parent ended before the signal was set
                    os._exit(1)
        except BaseException as error:
            os.write(2, f"{argv[0]} was not started: {error}\n".encode())
            raise

    output = _open_log(log)
    try:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=env,
            cwd=cwd,
            start_new_session=True,
            preexec_fn=prepare,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise MdvError(f"{argv[0]} could not be started: {error} Its log is {log}.") from error
    finally:
        os.close(output)


def _open_log(log: Path) -> int:
    """Open the log for appending. A large log is first renamed to `….1`."""
    with suppress(FileNotFoundError):
        if log.stat().st_size > MAX_LOG_BYTES:
            log.replace(log.with_name(log.name + ".1"))
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """True if the process has ended. It is not reaped, so its id stays reserved."""
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def stop_process(
    process: subprocess.Popen[bytes],
    stop_signals: Iterable[tuple[signal.Signals, float]],
    force: Callable[[], bool] = lambda: False,
) -> None:
    """Send each of `stop_signals` and wait its seconds for the process to end; then kill its process group.

    When `force` returns True, the process group is killed immediately.
    """
    for number, timeout in stop_signals:
        if has_ended(process):
            break
        os.kill(process.pid, number)
        deadline = time.monotonic() + timeout
        while not has_ended(process) and not force() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    if process.returncode is None:
        # The process is not reaped yet, so the id of the group still belongs to this child.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def describe_exit(process: subprocess.Popen[bytes]) -> str:
    """Describe how a process ended: `exit code 3`, `killed by SIGKILL`."""
    code = process.wait()
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


class Server(Protocol):
    """A process that a supervisor keeps alive, with its own way to stop it."""

    @property
    def process(self) -> subprocess.Popen[bytes]: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ChildProgram:
    """A child process that is stopped with one signal, and killed with its group after `grace` seconds."""

    process: subprocess.Popen[bytes]
    stop_signal: signal.Signals = signal.SIGTERM
    grace: float = 15.0
    force: Callable[[], bool] = lambda: False

    def stop(self) -> None:
        stop_process(self.process, [(self.stop_signal, self.grace)], self.force)


@dataclass(slots=True)
class _Supervised:
    """One entry of the supervisor: the running server, or None and the time of the next start."""

    name: str
    launch: Callable[[], Server]
    server: Server | None
    since: float
    pause: float
    due: float = 0.0


class Supervisor:
    """Starts servers in order, restarts them when they end, and stops them in reverse order.

        with Supervisor(report=print) as supervisor:
            supervisor.start("web", ["gunicorn", "…"], log=folder / "web.log")
            supervisor.wait()

    From the first start until `stop` is done, SIGINT, SIGTERM and SIGHUP request a stop. A further SIGINT forces it:
    the servers are killed.
    """

    def __init__(
        self,
        report: Callable[[str], None] = lambda message: None,
        *,
        grace: float = 15.0,
        pause: float = 0.5,
        max_pause: float = 10.0,
        stable_after: float = 60.0,
    ) -> None:
        """`grace`: seconds from the stop signal to the kill. A server that ends is restarted after `pause` seconds.
        The pause doubles up to `max_pause`, and is reset when the server has run for `stable_after` seconds."""
        self._report = report
        self._grace = grace
        self._pause = pause
        self._max_pause = max_pause
        self._stable_after = stable_after
        self._supervised: list[_Supervised] = []
        self._stop_signal: signal.Signals | None = None
        self._stop_forced = False
        self._stopping = False
        self._handlers: dict[signal.Signals, Any] = {}

    def start(
        self,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        log: Path,
        stop_signal: signal.Signals = signal.SIGTERM,
        cwd: Path | None = None,
    ) -> None:
        """Start a program and keep it running. If this process is killed, the program gets its stop signal."""

        def launch() -> ChildProgram:
            child = start_child(argv, env=env, log=log, cwd=cwd, death_signal=stop_signal)
            return ChildProgram(child, stop_signal, self._grace, lambda: self.stop_forced)

        self.keep(name, launch)

    def keep(self, name: str, launch: Callable[[], Server]) -> None:
        """Start a server with `launch`, and restart it with `launch` whenever it ends (after calling its `stop`)."""
        self._install_handlers()
        self._supervised.append(_Supervised(name, launch, launch(), time.monotonic(), self._pause))

    @property
    def stop_requested(self) -> bool:
        """True if a signal to stop has arrived."""
        return self._stop_signal is not None

    @property
    def stop_forced(self) -> bool:
        """True if a second SIGINT has arrived."""
        return self._stop_forced

    def wait(self, between: Callable[[], object] = lambda: None) -> signal.Signals:
        """Keep all servers running until a signal requests a stop. Return the signal. `between`: called all the time;
        it may start other servers."""
        self._install_handlers()
        while self._stop_signal is None:
            for entry in self._supervised:
                self._check(entry)
            between()
            time.sleep(POLL_SECONDS * 5)
        return self._stop_signal

    def stop(self) -> None:
        """Stop all servers in reverse order. No process of them is left afterwards."""
        self._stopping = True
        try:
            while self._supervised:
                server = self._supervised[-1].server
                if server is not None:
                    server.stop()
                self._supervised.pop()
        finally:
            self._stopping = False
            while self._handlers:
                signal.signal(*self._handlers.popitem())

    def _check(self, entry: _Supervised) -> None:
        now = time.monotonic()
        if entry.server is not None and has_ended(entry.server.process):
            dead, entry.server = entry.server, None
            dead.stop()
            if now - entry.since >= self._stable_after:
                entry.pause = self._pause
            self._schedule_restart(entry, "ended", describe_exit(dead.process))
        elif entry.server is None and now >= entry.due and self._stop_signal is None:
            try:
                entry.server, entry.since = entry.launch(), time.monotonic()
                self._report(f"{entry.name} is running again.")
            except MdvError as error:
                self._schedule_restart(entry, "did not start", error.detail)

    def _schedule_restart(self, entry: _Supervised, event: str, why: str) -> None:
        entry.due = time.monotonic() + entry.pause
        self._report(f"{entry.name} {event} and will be restarted in {entry.pause:g} s: {why}")
        entry.pause = min(2 * entry.pause, self._max_pause)

    def _install_handlers(self) -> None:
        if self._handlers:
            return
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # started with nohup: ignore the end of the terminal
            self._handlers[number] = signal.signal(number, self._handle_signal)

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and (self._stopping or self._stop_signal is not None):
            self._stop_forced = True
        if self._stop_signal is None:
            self._stop_signal = signal.Signals(number)

    def __enter__(self) -> Supervisor:
        self._install_handlers()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class FolderLock:
    """A lock that lets one process at a time use a folder: `with FolderLock(folder): …`.

    The kernel releases the lock when the process ends, and children do not inherit it. The file `lock` contains the id
    of the holder and is never removed: otherwise two processes could lock two files of the same name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file: int | None = None

    def acquire(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise NotStarted(
                f"{self.folder} cannot be used ({error.strerror}): choose another folder with --data."
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, 20).decode(errors="replace").strip()
            os.close(file)
            raise NotStarted(
                f"{self.folder} is in use by {f'process {holder}' if holder else 'another process'}: "
                "stop that process first, or choose another folder with --data."
            ) from None
        os.truncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            os.truncate(self._file, 0)
            os.close(self._file)
            self._file = None

    def __enter__(self) -> FolderLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
