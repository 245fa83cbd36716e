"""`mdv up`: start, supervise and stop a whole system on one machine."""

from __future__ import annotations

import errno
import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mdv.cli.command import ExampleCommand, data_folder, data_option
from mdv.cli.demo import load_demo
from mdv.cli.lmr import LOCAL_LMR
from mdv.cli.output import escape_controls, on_terminal
from mdv.cli.serve import METRICS_FOLDER_VARIABLE, upgrade_database
from mdv.cli.server_commands import lmr_command, web_command, worker_command
from mdv.config import Config
from mdv.errors import BadRequest, Conflict, MdvError, NotAllowed, NotStarted
from mdv.private_file import write_private_file
from mdv.supervise import ChildProgram, FolderLock, Server, Supervisor, has_ended, start_child
from mdv.system import DEFAULT_FOLDER, System, remove_system, write_system

if TYPE_CHECKING:
    from mdv.client import Client
    from mdv.embedded import Postgres, Valkey

READY_TIMEOUT_SECONDS = 60.0
WORKERS_VARIABLE, WEB_VARIABLE = "MDV_UP_WORKERS", "MDV_UP_WEB"
MAX_PROCESSES = 64
WORKER_GRACE_SECONDS = 5.0
"""Seconds that the worker has to stop. The next worker executes jobs that it has not committed by then."""


@click.command(cls=ExampleCommand, example="mdv up --port 8080 --data ./.mdv")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True, help="Port of the MDP.")
@click.option("--lmr-port", type=click.IntRange(1, 65535), default=8081, show_default=True, help="Port of the LMR.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--demo/--no-demo",
    default=True,
    show_default=True,
    help="Load a demo at the first start: the example of the paper and a catalogue of books.",
)
@data_option
def up(port: int, lmr_port: int, host: str, demo: bool) -> None:
    """Start a whole system: Postgres, Valkey, worker, web server and an LMR.

    The LMR is named `local`. Ctrl-C stops all servers. All state is in the folder of --data; the next start with the
    same folder uses it again.
    """
    from mdv.client import Client

    folder = (data_folder() or Path(os.environ.get("MDV_DATA", "").strip() or DEFAULT_FOLDER)).absolute()
    Config.from_environment()  # reports invalid settings before anything is started
    workers, web = _processes(WORKERS_VARIABLE, 2), _processes(WEB_VARIABLE, 1)
    _make_folder(folder)
    with FolderLock(folder):
        _check_port(host, port, "--port")
        if port == lmr_port:
            raise NotStarted(f"The MDP and the LMR cannot both use port {port}: choose another with --lmr-port.")
        _check_port(host, lmr_port, "--lmr-port")
        remove_system(folder)
        token = _admin_token(folder, os.environ)
        servers = _Servers(folder, print_status)
        with servers, suppress(_StopRequested):
            system = servers.start_all(host, port, token.secret, workers, web)
            mdp = Client(system)
            servers.until_ready(mdp, "web")
            with mdp:
                system = servers.start_lmr(host, lmr_port, system, _lmr_token(folder, system, mdp))
                with Client(replace(system, url=system.lmr_url)) as lmr, _system_file(folder, system):
                    servers.until_ready(lmr, "LMR")
                    if demo:
                        load_demo(folder, system, mdp, lmr, print_status)
                    servers.check()
                    _show_panel(folder, system, token)
                    servers.wait()
    print_status("All servers are stopped.")


def print_status(message: str) -> None:
    """Print a message. Errors are ignored: if the terminal is gone, the servers must still be stopped."""
    with suppress(OSError, ValueError):
        click.echo("\n".join(escape_controls(line) for line in message.splitlines()))
        sys.stdout.flush()


# Preparation


@dataclass(frozen=True, slots=True)
class _Token:
    secret: str
    is_new: bool
    place: str


def _make_folder(folder: Path) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / "logs").mkdir(exist_ok=True)
    except OSError as error:
        raise NotStarted(f"{folder} cannot be used ({error.strerror}): choose another folder with --data.") from error


def _check_port(host: str, port: int, option: str) -> None:
    """Check that the port is free, before the databases are started."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            why = f"Port {port} is in use by another program: stop that program, or choose another port with {option}."
        elif error.errno == errno.EACCES:
            why = f"This user may not use port {port}: choose a port above 1023 with {option}."
        else:
            why = f"This machine cannot listen on {host}, port {port} ({error.strerror}): choose another --host."
        raise NotStarted(why) from None


def _admin_token(folder: Path, environment: Mapping[str, str]) -> _Token:
    """Return the token in the environment, or the token in the folder, which is created at the first start."""
    given = environment.get("MDV_ADMIN_TOKEN", "").strip()
    if given:
        return _Token(given, False, "$MDV_ADMIN_TOKEN")
    path = folder / "admin.token"
    with suppress(FileNotFoundError):
        stored = path.read_text(encoding="utf-8").strip()
        if stored:
            return _Token(stored, False, str(path))
    made = secrets.token_urlsafe(32)
    write_private_file(path, made + "\n")
    return _Token(made, True, str(path))


def _lmr_token(folder: Path, system: System, mdp: Client) -> str:
    """Return the token of the LMR `local`, which is created at the first start and stored in the folder."""
    path = folder / "lmr.token"
    with suppress(FileNotFoundError):
        stored = path.read_text(encoding="utf-8").strip()
        if stored and _is_valid(system, stored):
            return stored
    try:
        made = mdp.change("POST", "/lmrs", {"name": LOCAL_LMR})
    except Conflict:  # the LMR exists, but its token is lost
        made = mdp.change("POST", f"/lmrs/{LOCAL_LMR}/token")
    write_private_file(path, made["token"] + "\n")
    return str(made["token"])


def _is_valid(system: System, token: str) -> bool:
    from mdv.client import Client

    try:
        with Client(replace(system, token=token)) as lmr:
            lmr.get("/lmrs/self")
    except NotAllowed:
        return False
    return True


def _processes(variable: str, default: int) -> int:
    text = os.environ.get(variable, "").strip() or str(default)
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MAX_PROCESSES):
        raise BadRequest(f"{variable} is {text!r}; it must be a number of processes from 1 to {MAX_PROCESSES}.")
    return int(text)


# The servers


class _StopRequested(Exception):
    """A signal to stop arrived before all servers were started."""


@dataclass(frozen=True, slots=True)
class _ReportedServer:
    """A server whose regular stop is reported. The supervisor reports unexpected ends."""

    name: str
    server: Server
    report: Callable[[str], None]

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self.server.process

    def stop(self) -> None:
        if not has_ended(self.process):
            self.report(f"Stopping {self.name}.")
        self.server.stop()


class _Servers(Supervisor):
    """The servers of one folder. They are stopped in the order LMR, web, worker, Valkey, Postgres."""

    def __init__(self, folder: Path, report: Callable[[str], None]) -> None:
        super().__init__(report)
        self.folder = folder
        self.report = report
        self.servers: dict[str, Server] = {}

    def keep(self, name: str, launch: Callable[[], Server]) -> None:
        def launch_reported() -> Server:
            self.servers[name] = server = _ReportedServer(name, launch(), self.report)
            return server

        super().keep(name, launch_reported)

    def check(self) -> None:
        """Raise `_StopRequested` if a signal to stop has arrived."""
        if self.stop_requested:
            raise _StopRequested

    def start_all(self, host: str, port: int, token: str, workers: int, web: int) -> System:
        """Start all servers in the order of their dependencies."""
        from mdv.embedded import start_postgres, start_valkey

        self.report(f"Starting Postgres, Valkey, worker, web and an LMR in {self.folder}.")
        postgres = _SamePort(lambda number: start_postgres(self.folder / "postgres", port=number))
        self.keep("Postgres", postgres)
        self.check()
        valkey = _SamePort(lambda number: start_valkey(self.folder / "valkey", port=number))
        self.keep("Valkey", valkey)
        self.check()
        upgrade_database(postgres.url)
        self.check()
        system = System(_address(host, port), token, postgres.url, valkey.url, os.getpid(), str(self.folder))
        environment = {
            **os.environ,
            "MDV_DATABASE_URL": system.database_url,
            "MDV_REDIS_URL": system.redis_url,
            "MDV_ADMIN_TOKEN": system.token,
            "PYTHONUNBUFFERED": "1",
            METRICS_FOLDER_VARIABLE: str(self._make_metrics_folder()),
        }
        logs = self.folder / "logs"

        def launch_worker() -> ChildProgram:
            child = start_child(worker_command(workers), env=environment, log=logs / "worker.log", cwd=logs)
            return ChildProgram(child, grace=WORKER_GRACE_SECONDS, force=lambda: self.stop_forced)

        self.keep("worker", launch_worker)
        self.start("web", web_command(host, port, web), environment, log=logs / "web.log", cwd=logs)
        return system

    def _make_metrics_folder(self) -> Path:
        """Create and return an empty folder for the metrics of the web server and the worker."""
        folder = self.folder / "figures"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def start_lmr(self, host: str, port: int, system: System, token: str) -> System:
        """Start the LMR. Return the system with the URL of the LMR."""
        logs, cache = self.folder / "logs", self.folder / "lmr"
        cache.mkdir(mode=0o700, exist_ok=True)
        environment = {
            **os.environ,
            "MDV_URL": system.url,
            "MDV_LMR_TOKEN": token,
            "MDV_LMR_STORE": f"sqlite:///{cache / 'cache.db'}",
            "MDV_ADMIN_TOKEN": system.token,
            "PYTHONUNBUFFERED": "1",
        }
        self.start("LMR", lmr_command(host, port), environment, log=logs / "LMR.log", cwd=logs)
        return replace(system, lmr_url=_address(host, port))

    def until_ready(self, server: Client, name: str) -> None:
        """Wait until a web server is ready. A server that ends before is not restarted."""
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        while not server.is_ready():
            self.check()
            ended = [name for name, server in self.servers.items() if has_ended(server.process)]
            if ended:
                raise self._failure(ended[0], "did not start")
            if time.monotonic() > deadline:
                raise self._failure(name, f"was not ready within {READY_TIMEOUT_SECONDS:g} s")
            time.sleep(0.05)

    def _failure(self, name: str, what: str) -> MdvError:
        log = self.folder / "logs" / f"{name}.log"
        end = ""
        with suppress(OSError):
            end = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
        return MdvError(f"{name} {what}. The end of its log, {log}:\n{end}")


def _address(host: str, port: int) -> str:
    """Return the URL of a server on this machine that listens on `host`.

    >>> _address("0.0.0.0", 8080), _address("::1", 8080)
    ('http://127.0.0.1:8080', 'http://[::1]:8080')
    """
    address = "127.0.0.1" if host == "0.0.0.0" else "::1" if host == "::" else host  # noqa: S104
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


class _SamePort:
    """Launches a server, and relaunches it on the same port, because other processes know its address."""

    def __init__(self, launch: Callable[[int | None], Postgres | Valkey]) -> None:
        self._launch = launch
        self._port: int | None = None
        self.url = ""

    def __call__(self) -> Postgres | Valkey:
        server = self._launch(self._port)
        self._port, self.url = server.port, server.url
        return server


# While the system runs


@contextmanager
def _system_file(folder: Path, system: System) -> Iterator[None]:
    """Keep system.json in the folder while the system runs, so that other commands find it."""
    write_system(folder, system)
    try:
        yield
    finally:
        remove_system(folder)


def _show_panel(folder: Path, system: System, token: _Token) -> None:
    own = shlex.quote(sys.argv[0]) if Path(sys.argv[0]).name == "mdv" and not shutil.which("mdv") else "mdv"
    data = "" if folder == Path.cwd() / DEFAULT_FOLDER else f" --data {shlex.quote(str(folder))}"
    facts = {
        "Web UI": f"{system.url}/ (sign in with the token)",
        "API": f"{system.url}/api/v1",
        "Docs": f"{system.url}/docs",
        "Token": f"{token.secret} (stored in {token.place})" if token.is_new else f"in {token.place}",
        "Register": f"{own} register FILE --uri http://mdv.example/NAME{data}",
        "List": f"{own} documents{data}",
        "LMR": f"`{LOCAL_LMR}`: {system.lmr_url}/ (web UI), {system.lmr_url}/api/v1 (API), with the same token",
        "Subscribe": f"{own} subscribe FILE{data}",
        "Logs": str(folder / "logs"),
    }
    if not on_terminal():
        print_status("\n".join(["MDV is ready.", *(f"{name}: {fact}" for name, fact in facts.items())]))
        print_status("Press Ctrl-C to stop all servers.")
        return
    from rich.console import Console
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, fact in facts.items():
        table.add_row(name, Text(escape_controls(fact)))
    with suppress(OSError, ValueError):
        Console(highlight=False).print(
            Panel(table, title="MDV is ready", subtitle="Press Ctrl-C to stop", expand=False)
        )
