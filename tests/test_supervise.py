"""Child processes end with their parent, are restarted, and leave nothing; a folder has one holder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mdv.errors import MdvError
from mdv.supervise import FolderLock, Supervisor, start_child, stop_process
from tests.support.eventually import eventually
from tests.support.whole_system import alive

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True));"
    " print('up', flush=True); time.sleep(3600)"
)
"""A child that ignores the stop signal."""


def pid_in(path: Path) -> int:
    """Return the number that a child writes into a file."""
    eventually(lambda: path.exists() and path.read_text().endswith("\n"), detail=lambda: f"nothing came to {path}")
    return int(path.read_text())


@contextmanager
def script(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A separate parent process, which can be signalled and killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


KEEPER = """
import sys
from pathlib import Path
from mdv.supervise import Supervisor

folder = Path(sys.argv[1])
with Supervisor(report=lambda message: print(message, flush=True), grace=float(sys.argv[2])) as supervisor:
    for number, code in enumerate(sys.argv[3:]):
        supervisor.start(f"child{number}", [sys.executable, "-c", code], log=folder / f"{number}.log")
    print("started", flush=True)
    print("asked by", supervisor.wait().name, flush=True)
print("stopped", flush=True)
"""


def writes_pid_then(rest: str, path: Path) -> str:
    return f"import os, time; open({str(path)!r}, 'w').write(f'{{os.getpid()}}\\n'); {rest}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_every_child_and_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    codes = [writes_pid_then("time.sleep(99)", tmp_path / name) for name in ("a", "b")]
    with script(KEEPER, tmp_path, 5, *codes) as keeper:
        pids = [pid_in(tmp_path / "a"), pid_in(tmp_path / "b")]
        assert said(keeper) == "started"
        keeper.send_signal(number)
        assert said(keeper) == f"asked by {number.name}"
        assert said(keeper) == "stopped"
        assert keeper.wait(60) == 0
        assert not any(map(alive, pids))


def test_children_stop_in_reverse_order(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "def bye(*_):\n    time.sleep(0.1); open({path!r}, 'a').write({name!r}); sys.exit()\n"
        "signal.signal(signal.SIGTERM, bye)\nprint('up', flush=True)\ntime.sleep(99)"
    )
    codes = [code.format(path=str(tmp_path / "order"), name=name) for name in "abc"]
    with script(KEEPER, tmp_path, 5, *codes) as keeper:
        eventually(lambda: all((tmp_path / f"{n}.log").exists() for n in range(3)))
        eventually(lambda: all("up" in (tmp_path / f"{n}.log").read_text() for n in range(3)))
        keeper.terminate()
        keeper.wait(60)
    assert (tmp_path / "order").read_text() == "cba"


def test_a_dead_child_is_restarted_and_reported(tmp_path: Path) -> None:
    with script(KEEPER, tmp_path, 5, writes_pid_then("time.sleep(99)", tmp_path / "pid")) as keeper:
        assert said(keeper) == "started"
        first = pid_in(tmp_path / "pid")
        (tmp_path / "pid").unlink()
        os.kill(first, signal.SIGKILL)
        assert said(keeper) == "child0 ended and will be restarted in 0.5 s: killed by SIGKILL"
        assert said(keeper) == "child0 is running again."
        second = pid_in(tmp_path / "pid")
        assert second != first
        assert alive(second)


def test_the_restart_delay_doubles_up_to_a_limit_and_resets_after_a_stable_run(tmp_path: Path) -> None:
    told: list[str] = []
    stable = iter([False, False, False, True, False])

    def tell(message: str) -> None:
        told.append(message)
        if len([line for line in told if "ended" in line]) == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    class Brief:
        def __init__(self) -> None:
            self.process = start_child(["sh", "-c", "exit 3"], log=tmp_path / "log")

        def stop(self) -> None:
            stop_process(self.process, ())
            if next(stable):  # as if it had been started an hour ago
                supervisor._supervised[0].since -= 3600

    with Supervisor(tell, pause=0.05, max_pause=0.1, stable_after=1800) as supervisor:
        supervisor.keep("brief", Brief)
        assert supervisor.wait() == signal.SIGTERM
    ended = [line for line in told if "ended" in line]
    assert ended[0] == "brief ended and will be restarted in 0.05 s: exit code 3"
    assert [line.split(" in ")[1].split(" s:")[0] for line in ended] == ["0.05", "0.1", "0.1", "0.05", "0.1"]


def test_a_failed_restart_is_retried(tmp_path: Path) -> None:
    told: list[str] = []
    launches = 0

    class Fleeting:
        def __init__(self) -> None:
            nonlocal launches
            launches += 1
            if launches == 2:
                raise MdvError("The disk is full.")
            if launches == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            self.process = start_child(["false"], log=tmp_path / "log")

        def stop(self) -> None:
            stop_process(self.process, ())

    with Supervisor(told.append, pause=0.01) as supervisor:
        supervisor.keep("fleeting", Fleeting)
        supervisor.wait()
    assert launches == 3
    assert "fleeting did not start and will be restarted in 0.02 s: The disk is full." in told


def test_a_missing_program_is_an_immediate_error(tmp_path: Path) -> None:
    with Supervisor() as supervisor, pytest.raises(MdvError, match="no-such-program could not be started"):
        supervisor.start("web", ["no-such-program"], log=tmp_path / "log")


def test_signal_handlers_are_restored(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Supervisor() as supervisor:
        supervisor.start("sleep", ["sleep", "99"], log=tmp_path / "log")
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_child_that_ignores_the_stop_signal_is_killed_after_the_grace_time(tmp_path: Path) -> None:
    with Supervisor(grace=2) as supervisor:
        supervisor.start("stubborn", [sys.executable, "-c", STUBBORN], log=tmp_path / "log")
        eventually(lambda: "up" in (tmp_path / "log").read_text())
        process = supervisor._supervised[0].server.process
        supervisor.stop()
    # It got the stop signal first, and ignored it.
    assert "asked" in (tmp_path / "log").read_text()
    assert process.returncode == -signal.SIGKILL


def test_a_second_ctrl_c_kills_immediately(tmp_path: Path) -> None:
    with script(KEEPER, tmp_path, 3600, STUBBORN) as keeper:
        eventually(lambda: (tmp_path / "0.log").exists() and "up" in (tmp_path / "0.log").read_text())
        assert said(keeper) == "started"
        keeper.send_signal(signal.SIGINT)
        assert said(keeper) == "asked by SIGINT"
        eventually(lambda: "asked" in (tmp_path / "0.log").read_text())
        assert keeper.poll() is None, "one Ctrl-C waits for the child"
        keeper.send_signal(signal.SIGINT)
        assert keeper.wait(60) == 0


@pytest.mark.parametrize("leader", ["sleep 99", "exit 0"], ids=["living", "dead"])
def test_stopping_a_child_stops_its_process_group(tmp_path: Path, leader: str) -> None:
    code = f"(trap '' TERM; exec sleep 98) & echo $! > {tmp_path}/pid; {leader}"
    child = start_child(["sh", "-c", code], log=tmp_path / "log")
    grandchild = pid_in(tmp_path / "pid")
    assert alive(grandchild)
    stop_process(child, [(signal.SIGTERM, 0.2)])
    eventually(lambda: not alive(grandchild))
    assert child.returncode is not None


def test_kill_9_of_the_supervisor_ends_its_children(tmp_path: Path) -> None:
    with script(KEEPER, tmp_path, 5, writes_pid_then("time.sleep(99)", tmp_path / "pid")) as keeper:
        child = pid_in(tmp_path / "pid")
        assert alive(child)
        keeper.kill()
        keeper.wait()
        eventually(lambda: not alive(child))


def test_a_child_has_its_own_session_and_default_signals(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a script
    try:
        child = start_child(["sleep", "99"], log=tmp_path / "log")
    finally:
        signal.signal(signal.SIGINT, before)
    assert os.getsid(child.pid) == child.pid
    stop_process(child, [(signal.SIGINT, 5)])
    assert child.returncode == -signal.SIGINT


def test_a_child_cannot_be_started_from_a_temporary_thread(tmp_path: Path) -> None:
    caught: list[BaseException] = []

    def attempt() -> None:
        try:
            stop_process(start_child(["true"], log=tmp_path / "log"), ())
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert "main thread" in str(caught[0])


def test_a_large_log_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.supervise.MAX_LOG_BYTES", 10)
    for word in ("first and long", "second"):
        child = start_child(["echo", word], log=tmp_path / "log")
        assert child.wait(60) == 0
    assert (tmp_path / "log.1").read_text() == "first and long\n"
    assert (tmp_path / "log").read_text() == "second\n"


HOLDER = """
import sys, time
from pathlib import Path
from mdv.supervise import FolderLock
with FolderLock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(99)
"""


def test_a_folder_has_one_holder_named_in_the_error_and_kill_9_releases_it(tmp_path: Path) -> None:
    with script(HOLDER, tmp_path / "new") as holder:
        assert said(holder) == "held"
        with pytest.raises(MdvError, match=f"is in use by process {holder.pid}:.*--data"), FolderLock(tmp_path / "new"):
            pass
        holder.kill()
        holder.wait()
        with FolderLock(tmp_path / "new"):
            assert (tmp_path / "new" / "lock").read_text() == f"{os.getpid()}\n"


def test_a_lock_is_released_at_the_end_of_the_block_even_if_a_child_lives(tmp_path: Path) -> None:
    with FolderLock(tmp_path):
        child = subprocess.Popen(["sleep", "99"], close_fds=False)
    try:
        with FolderLock(tmp_path), pytest.raises(MdvError, match=f"process {os.getpid()}"):
            FolderLock(tmp_path).acquire()
    finally:
        child.kill()
        child.wait()


def test_an_unusable_folder_is_an_error_with_a_message(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MdvError, match=r"cannot be used.*--data"):
        FolderLock(tmp_path / "file").acquire()
