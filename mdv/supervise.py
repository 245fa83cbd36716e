"""Child processes: start them, keep them alive, end them; and a lock on a folder.

Three laws:

- A child ends when its parent does, even by kill -9: the kernel then sends it a signal (Linux).
- A child has a session of its own, so that Ctrl-C in a terminal reaches the supervisor alone.
- After `end(process)` neither the process nor anything in its process group is left.
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
PULSE = 0.02
LARGEST_LOG = 16 * 1024 * 1024

# Looked up before any fork: between fork and exec there should be as little to do as possible.
_libc = ctypes.CDLL(None, use_errno=True)
_prctl: Callable[..., int] | None = getattr(_libc, "prctl", None)


def prctl(option: int, *arguments: int) -> None:
    """prctl(2), with its failure as an OSError."""
    words = [ctypes.c_ulong(word) for word in (*arguments, 0, 0, 0, 0)[:4]]
    if _prctl is None or _prctl(option, *words) != 0:
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
    """Start `argv` under the laws above, with its output at the end of `log`.

    `become` may change the child's user before the program is executed. Only the main thread may start
    children: the kernel takes the end of the thread that forked for the end of the parent.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("Start children from the main thread: they end with the thread that started them.")
    parent = os.getpid()

    def prepare() -> None:
        try:
            # A parent in the background of a script ignores SIGINT, and what is ignored would stay so.
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            if become is not None:
                become()
            if sys.platform == "linux":
                # After `become`: a change of user clears the death signal.
                prctl(PR_SET_PDEATHSIG, death_signal)
                if os.getppid() != parent:  # it died before the signal was asked for
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
    """The log, open at its end; one that has grown large makes room and is kept as `….1`."""
    with suppress(FileNotFoundError):
        if log.stat().st_size > LARGEST_LOG:
            log.replace(log.with_name(log.name + ".1"))
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process is over. Its number stays reserved: it is not reaped, so no other can get it."""
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def end(
    process: subprocess.Popen[bytes],
    farewell: Iterable[tuple[signal.Signals, float]],
    hurry: Callable[[], bool] = lambda: False,
) -> None:
    """Send each signal of `farewell` and wait its seconds; then kill what is left of the process group.

    Ends of itself as soon as the process has ended, and goes straight to the kill when `hurry` says so.
    """
    for number, patience in farewell:
        if has_ended(process):
            break
        os.kill(process.pid, number)
        deadline = time.monotonic() + patience
        while not has_ended(process) and not hurry() and time.monotonic() < deadline:
            time.sleep(PULSE)
    if process.returncode is None:
        # Not reaped yet, so the group's number is still this child's, whether it lives or not.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def how_it_ended(process: subprocess.Popen[bytes]) -> str:
    """The end of a process in words: `exit code 3`, `killed by SIGKILL`."""
    code = process.wait()
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


class Server(Protocol):
    """What a supervisor keeps alive: a process, and its own way to end it."""

    @property
    def process(self) -> subprocess.Popen[bytes]: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Program:
    """A plain child: asked to end with one signal, killed with its whole group after `grace` seconds."""

    process: subprocess.Popen[bytes]
    stop_signal: signal.Signals = signal.SIGTERM
    grace: float = 15.0
    hurry: Callable[[], bool] = lambda: False

    def stop(self) -> None:
        end(self.process, [(self.stop_signal, self.grace)], self.hurry)


@dataclass(slots=True)
class _Charge:
    """One place in the supervisor's list: who is in it now, or when the next one is due."""

    name: str
    launch: Callable[[], Server]
    server: Server | None
    since: float
    pause: float
    due: float = 0.0


class Supervisor:
    """Servers by name: started in order, started again when they die, stopped in reverse order.

        with Supervisor(tell=print) as supervisor:
            supervisor.start("web", ["gunicorn", "…"], log=folder / "web.log")
            supervisor.wait()

    From the first start until `stop` is done, SIGINT, SIGTERM and SIGHUP are taken as a wish to stop;
    a SIGINT after that makes the stop a kill.
    """

    def __init__(
        self,
        tell: Callable[[str], None] = lambda message: None,
        *,
        grace: float = 15.0,
        pause: float = 0.5,
        longest_pause: float = 10.0,
        steady: float = 60.0,
    ) -> None:
        """`grace`: seconds from the stop signal to the kill. A server that dies is started again after `pause`
        seconds, doubling up to `longest_pause`, and from the beginning once it has lived for `steady` seconds."""
        self._tell = tell
        self._grace = grace
        self._pause = pause
        self._longest_pause = longest_pause
        self._steady = steady
        self._charges: list[_Charge] = []
        self._wish: signal.Signals | None = None
        self._hurried = False
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
        """Start a program and keep it alive. Should this process be killed, the program gets its stop signal."""

        def launch() -> Program:
            child = start_child(argv, env=env, log=log, cwd=cwd, death_signal=stop_signal)
            return Program(child, stop_signal, self._grace, lambda: self.hurried)

        self.keep(name, launch)

    def keep(self, name: str, launch: Callable[[], Server]) -> None:
        """Start a server with `launch`, and again with `launch` whenever it dies (after its own `stop`)."""
        self._listen()
        self._charges.append(_Charge(name, launch, launch(), time.monotonic(), self._pause))

    @property
    def asked_to_stop(self) -> bool:
        """Whether a signal to stop has come."""
        return self._wish is not None

    @property
    def hurried(self) -> bool:
        """Whether somebody asked a second time."""
        return self._hurried

    def wait(self) -> signal.Signals:
        """Keep every server alive until this process is asked to stop; the signal that asked."""
        self._listen()
        while self._wish is None:
            for charge in self._charges:
                self._look_after(charge)
            time.sleep(PULSE * 5)
        return self._wish

    def stop(self) -> None:
        """Stop every server, the last started first. Nothing of them is left afterwards."""
        self._stopping = True
        try:
            while self._charges:
                server = self._charges[-1].server
                if server is not None:
                    server.stop()
                self._charges.pop()
        finally:
            self._stopping = False
            while self._handlers:
                signal.signal(*self._handlers.popitem())

    def _look_after(self, charge: _Charge) -> None:
        now = time.monotonic()
        if charge.server is not None and has_ended(charge.server.process):
            dead, charge.server = charge.server, None
            dead.stop()
            if now - charge.since >= self._steady:
                charge.pause = self._pause
            self._put_off(charge, "ended", how_it_ended(dead.process))
        elif charge.server is None and now >= charge.due and self._wish is None:
            try:
                charge.server, charge.since = charge.launch(), time.monotonic()
                self._tell(f"{charge.name} runs again.")
            except MdvError as error:
                self._put_off(charge, "did not start", error.detail)

    def _put_off(self, charge: _Charge, event: str, why: str) -> None:
        charge.due = time.monotonic() + charge.pause
        self._tell(f"{charge.name} {event}, and is started again in {charge.pause:g} s: {why}")
        charge.pause = min(2 * charge.pause, self._longest_pause)

    def _listen(self) -> None:
        if self._handlers:
            return
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # started under nohup: the end of the terminal is not to matter
            self._handlers[number] = signal.signal(number, self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and (self._stopping or self._wish is not None):
            self._hurried = True
        if self._wish is None:
            self._wish = signal.Signals(number)

    def __enter__(self) -> Supervisor:
        self._listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class FolderLock:
    """A folder for one process at a time: `with FolderLock(folder): …`.

    The kernel frees the lock with the process, however that ends, and children do not inherit it. The file
    `lock` names the holder and stays behind: removing it would let two processes lock two files of one name.
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
                "stop that one first, or choose another folder with --data."
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
