"""`mdv up`: a whole system on one machine, started, watched and stopped as one."""

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

from mdv.cli.demo import load_demo
from mdv.cli.frame import Verb, data_folder, data_option
from mdv.cli.lmr import LOCAL
from mdv.cli.output import clean, on_terminal
from mdv.cli.programs import lmr_program, web_program, worker_program
from mdv.cli.serve import FIGURES, bring_up_to_date
from mdv.config import Config
from mdv.errors import BadRequest, Conflict, MdvError, NotAllowed, NotStarted
from mdv.files import write_private
from mdv.supervise import FolderLock, Program, Server, Supervisor, has_ended, start_child
from mdv.system import DEFAULT_FOLDER, System, forget_system, write_system

if TYPE_CHECKING:
    from mdv.client import Client
    from mdv.embedded import Postgres, Valkey

READY_SECONDS = 60.0
WORKERS, WEB = "MDV_UP_WORKERS", "MDV_UP_WEB"
MOST_PROCESSES = 64
WORKER_GRACE = 5.0
"""Seconds for the worker to end by itself. What it has not committed by then the next one carries out."""


@click.command(cls=Verb, example="mdv up --port 8080 --data ./.mdv")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True, help="The MDP's port.")
@click.option("--lmr-port", type=click.IntRange(1, 65535), default=8081, show_default=True, help="The LMR's port.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--demo/--no-demo", default=True, show_default=True, help="Load the paper's example the first time.")
@data_option
def up(port: int, lmr_port: int, host: str, demo: bool) -> None:
    """Start everything (Postgres, Valkey, worker, web, an LMR called `local`) and stop it all on Ctrl-C.

    All state lives in the folder of --data; a second start there finds everything again.
    """
    from mdv.client import Client

    folder = (data_folder() or Path(os.environ.get("MDV_DATA", "").strip() or DEFAULT_FOLDER)).absolute()
    Config.from_environment()  # says which setting cannot be read, before anything starts
    workers, web = _processes(WORKERS, 2), _processes(WEB, 1)
    _make_folder(folder)
    with FolderLock(folder):
        _check_port(host, port, "--port")
        if port == lmr_port:
            raise NotStarted(f"The MDP and the LMR cannot both have port {port}: choose another with --lmr-port.")
        _check_port(host, lmr_port, "--lmr-port")
        forget_system(folder)
        token = _admin_token(folder, os.environ)
        household = _Household(folder, tell)
        with household, suppress(_AskedToStop):
            system = household.start_all(host, port, token.secret, workers, web)
            mdp = Client(system)
            household.until_ready(mdp, "web")
            with mdp:
                system = household.start_lmr(host, lmr_port, system, _lmr_token(folder, system, mdp))
                with Client(replace(system, url=system.lmr_url)) as lmr, _announced(folder, system):
                    household.until_ready(lmr, "LMR")
                    if demo:
                        load_demo(folder, system, mdp, lmr, tell)
                    household.check()
                    _show_panel(folder, system, token)
                    household.wait()
    tell("Everything is stopped.")


def tell(message: str) -> None:
    """A line for whoever watches. The terminal may be gone; that must not keep anything from being stopped."""
    with suppress(OSError, ValueError):
        click.echo("\n".join(clean(line) for line in message.splitlines()))
        sys.stdout.flush()


# Before anything is started


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
    """Whether the port is free, found out before the databases are started."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            why = f"Port {port} is taken by another program: stop that one, or choose another with {option}."
        elif error.errno == errno.EACCES:
            why = f"Port {port} is not for this user: choose one above 1023 with {option}."
        else:
            why = f"This machine cannot listen on {host}, port {port} ({error.strerror}): choose another --host."
        raise NotStarted(why) from None


def _admin_token(folder: Path, environment: Mapping[str, str]) -> _Token:
    """The token of the environment, or the folder's own, made at the first start."""
    given = environment.get("MDV_ADMIN_TOKEN", "").strip()
    if given:
        return _Token(given, False, "$MDV_ADMIN_TOKEN")
    path = folder / "admin.token"
    with suppress(FileNotFoundError):
        kept = path.read_text(encoding="utf-8").strip()
        if kept:
            return _Token(kept, False, str(path))
    made = secrets.token_urlsafe(32)
    write_private(path, made + "\n")
    return _Token(made, True, str(path))


def _lmr_token(folder: Path, system: System, mdp: Client) -> str:
    """The token of the LMR `local`, which is made at the first start and kept in the folder."""
    path = folder / "lmr.token"
    with suppress(FileNotFoundError):
        kept = path.read_text(encoding="utf-8").strip()
        if kept and _opens(system, kept):
            return kept
    try:
        made = mdp.change("POST", "/lmrs", {"name": LOCAL})
    except Conflict:  # its token is lost
        made = mdp.change("POST", f"/lmrs/{LOCAL}/token")
    write_private(path, made["token"] + "\n")
    return str(made["token"])


def _opens(system: System, token: str) -> bool:
    from mdv.client import Client

    try:
        with Client(replace(system, token=token)) as lmr:
            lmr.get("/lmrs/self")
    except NotAllowed:
        return False
    return True


def _processes(variable: str, default: int) -> int:
    text = os.environ.get(variable, "").strip() or str(default)
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MOST_PROCESSES):
        raise BadRequest(f"{variable} is {text!r}; it takes a number of processes, 1 to {MOST_PROCESSES}.")
    return int(text)


# The servers


class _AskedToStop(Exception):
    """Ctrl-C came before everything had started."""


@dataclass(frozen=True, slots=True)
class _Told:
    """A server whose stop is told; its end by accident the supervisor tells."""

    name: str
    server: Server
    tell: Callable[[str], None]

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self.server.process

    def stop(self) -> None:
        if not has_ended(self.process):
            self.tell(f"Stopping {self.name}.")
        self.server.stop()


class _Household(Supervisor):
    """The servers of one folder. They are stopped in the order LMR, web, worker, Valkey, Postgres."""

    def __init__(self, folder: Path, tell: Callable[[str], None]) -> None:
        super().__init__(tell)
        self.folder = folder
        self.tell = tell
        self.servers: dict[str, Server] = {}

    def keep(self, name: str, launch: Callable[[], Server]) -> None:
        def launch_told() -> Server:
            self.servers[name] = server = _Told(name, launch(), self.tell)
            return server

        super().keep(name, launch_told)

    def check(self) -> None:
        """Go no further when somebody has asked to stop."""
        if self.asked_to_stop:
            raise _AskedToStop

    def start_all(self, host: str, port: int, token: str, workers: int, web: int) -> System:
        """Start everything, each once what it leans on answers."""
        from mdv.embedded import start_postgres, start_valkey

        self.tell(f"Starting Postgres, Valkey, worker, web and an LMR in {self.folder}.")
        postgres = _SamePort(lambda number: start_postgres(self.folder / "postgres", port=number))
        self.keep("Postgres", postgres)
        self.check()
        valkey = _SamePort(lambda number: start_valkey(self.folder / "valkey", port=number))
        self.keep("Valkey", valkey)
        self.check()
        bring_up_to_date(postgres.url)
        self.check()
        system = System(_address(host, port), token, postgres.url, valkey.url, os.getpid(), str(self.folder))
        environment = {
            **os.environ,
            "MDV_DATABASE_URL": system.database_url,
            "MDV_REDIS_URL": system.redis_url,
            "MDV_ADMIN_TOKEN": system.token,
            "PYTHONUNBUFFERED": "1",
            FIGURES: str(self._figures()),
        }
        logs = self.folder / "logs"

        def launch_worker() -> Program:
            child = start_child(worker_program(workers), env=environment, log=logs / "worker.log", cwd=logs)
            return Program(child, grace=WORKER_GRACE, hurry=lambda: self.hurried)

        self.keep("worker", launch_worker)
        self.start("web", web_program(host, port, web), environment, log=logs / "web.log", cwd=logs)
        return system

    def _figures(self) -> Path:
        """Where web and worker keep their figures: they begin anew with each start."""
        folder = self.folder / "figures"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def start_lmr(self, host: str, port: int, system: System, token: str) -> System:
        """Start the LMR; the system with it."""
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
        self.start("LMR", lmr_program(host, port), environment, log=logs / "LMR.log", cwd=logs)
        return replace(system, lmr_url=_address(host, port))

    def until_ready(self, server: Client, name: str) -> None:
        """Wait until a web server can serve; one that ends before is not started again."""
        deadline = time.monotonic() + READY_SECONDS
        while not server.is_ready():
            self.check()
            ended = [name for name, server in self.servers.items() if has_ended(server.process)]
            if ended:
                raise self._failure(ended[0], "did not start")
            if time.monotonic() > deadline:
                raise self._failure(name, f"was not ready within {READY_SECONDS:g} s")
            time.sleep(0.05)

    def _failure(self, name: str, what: str) -> MdvError:
        log = self.folder / "logs" / f"{name}.log"
        end = ""
        with suppress(OSError):
            end = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
        return MdvError(f"{name} {what}. The end of its log, {log}:\n{end}")


def _address(host: str, port: int) -> str:
    """Where a server on this machine is reached that listens on `host`.

    >>> _address("0.0.0.0", 8080), _address("::1", 8080)
    ('http://127.0.0.1:8080', 'http://[::1]:8080')
    """
    address = "127.0.0.1" if host == "0.0.0.0" else "::1" if host == "::" else host  # noqa: S104
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


class _SamePort:
    """Launches a server, and again at the port that it had: its address is known to others."""

    def __init__(self, launch: Callable[[int | None], Postgres | Valkey]) -> None:
        self._launch = launch
        self._port: int | None = None
        self.url = ""

    def __call__(self) -> Postgres | Valkey:
        server = self._launch(self._port)
        self._port, self.url = server.port, server.url
        return server


# Once it runs


@contextmanager
def _announced(folder: Path, system: System) -> Iterator[None]:
    """Other commands find the system for as long as it runs."""
    write_system(folder, system)
    try:
        yield
    finally:
        forget_system(folder)


def _show_panel(folder: Path, system: System, token: _Token) -> None:
    own = shlex.quote(sys.argv[0]) if Path(sys.argv[0]).name == "mdv" and not shutil.which("mdv") else "mdv"
    data = "" if folder == Path.cwd() / DEFAULT_FOLDER else f" --data {shlex.quote(str(folder))}"
    facts = {
        "Pages": f"{system.url}/ in a browser; sign in with the token",
        "API": f"{system.url}/api/v1",
        "Docs": f"{system.url}/docs",
        "Token": f"{token.secret} (kept in {token.place})" if token.is_new else f"in {token.place}",
        "Register": f"{own} register FILE --uri http://mdv.example/NAME{data}",
        "See": f"{own} documents{data}",
        "LMR": f"{system.lmr_url}/ in a browser, {system.lmr_url}/api/v1 for programs: the repository `{LOCAL}`;"
        " the same token opens it",
        "Subscribe": f"{own} subscribe FILE{data}",
        "Logs": str(folder / "logs"),
    }
    if not on_terminal():
        tell("\n".join(["MDV is ready.", *(f"{name}: {fact}" for name, fact in facts.items())]))
        tell("Ctrl-C stops everything.")
        return
    from rich.console import Console
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, fact in facts.items():
        table.add_row(name, Text(clean(fact)))
    with suppress(OSError, ValueError):
        Console(highlight=False).print(
            Panel(table, title="MDV is ready", subtitle="Ctrl-C stops everything", expand=False)
        )
