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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mdv.cli.command import ExampleCommand, folder_option, named_folder
from mdv.cli.demo import load_demo
from mdv.cli.lmr import LOCAL_LMR
from mdv.cli.output import escape_controls, on_terminal
from mdv.cli.serve import METRICS_FOLDER_VARIABLE, upgrade_database
from mdv.cli.server_commands import federate_command, lmr_command, replicate_command, web_command, worker_command
from mdv.cli.up_backbone import connect_mdps, is_member, logical_settings, peer_databases
from mdv.cli.up_federation import FederationStarts
from mdv.config import Config
from mdv.errors import BadRequest, Conflict, MdvError, NotAllowed, NotStarted
from mdv.mdp_places import CRDTS, MAX_MDPS, MdpPlace, choose_mdps, list_places, write_mdps
from mdv.private_file import write_private_file
from mdv.supervise import ChildProgram, FolderLock, Server, Supervisor, has_ended, start_child
from mdv.system import DEFAULT_FOLDER, System, remove_system, write_system

if TYPE_CHECKING:
    from mdv.client import Client
    from mdv.embedded import Postgres, Valkey

READY_TIMEOUT_SECONDS = 60.0
WORKERS_VARIABLE, WEB_VARIABLE = "MDV_UP_WORKERS", "MDV_UP_WEB"
MAX_PROCESSES = 64
CONNECTIONS_PER_MDP = 150
"""Connections that Postgres accepts for each of several MDPs."""
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
@click.option("--mdps", type=click.IntRange(1, MAX_MDPS), metavar="N", help="Start N MDPs, which replicate all"
              " documents (a backbone). Their ports are 10 apart.  [default: as last time, else 1]")  # fmt: skip
@click.option("--crdt", type=click.Choice(CRDTS), help="Replicated set of a new backbone  [default: orset]")
@folder_option
def up(port: int, lmr_port: int, host: str, demo: bool, mdps: int | None, crdt: str | None) -> None:
    """Start a whole system: Postgres, Valkey, worker, web server and an LMR.

    The LMR is named `local`. Ctrl-C stops all servers. All state is in the folder of --data; the next start with the
    same folder uses it again.

    With --mdps 3, three MDPs named `m1`, `m2` and `m3` share Postgres and Valkey. Each has a database of its own, a
    worker, a web server and an LMR, and holds all documents. The option --mdp N of the other commands chooses one.
    """
    from mdv.client import Client

    folder = (named_folder() or Path(os.environ.get("MDV_DATA", "").strip() or DEFAULT_FOLDER)).absolute()
    Config.from_environment()  # reports invalid settings before anything is started
    processes = ProcessCounts(_processes(WORKERS_VARIABLE, 2), _processes(WEB_VARIABLE, 1))
    chosen = choose_mdps(folder, mdps, crdt)
    _make_folder(folder)
    places = list_places(folder, port, lmr_port, chosen.count)
    with FolderLock(folder):
        _check_ports(host, places)
        for place in places:
            _make_folder(place.folder)
            remove_system(place.folder)
        token = _admin_token(folder, os.environ)
        servers = _Servers(folder, print_status)
        with servers, suppress(_StopRequested), ExitStack() as stack:
            servers.report(f"Starting {_parts(len(places))} in {folder}.")
            databases = servers.start_databases(chosen.count)
            systems = [
                servers.start_mdp(host, place, database, token.secret, processes)
                for place, database in zip(places, databases, strict=True)
            ]
            write_mdps(folder, chosen)
            clients = [stack.enter_context(Client(system)) for system in systems]
            for place, mdp in zip(places, clients, strict=True):
                servers.until_ready(mdp, place.label("web"))
            if len(places) > 1:
                connect_mdps(places, systems, clients, chosen.crdt)
            systems = [
                servers.start_lmr(host, place, system, _lmr_token(place.folder, system, mdp), systems)
                for place, system, mdp in zip(places, systems, clients, strict=True)
            ]
            lmrs = [stack.enter_context(Client(replace(system, url=system.lmr_url))) for system in systems]
            for place, system in zip(places, systems, strict=True):
                stack.enter_context(_system_file(place.folder, system))
            for place, lmr in zip(places, lmrs, strict=True):
                servers.until_ready(lmr, place.label("LMR"))
            if demo:
                load_demo(folder, systems[0], clients[0], lmrs[0], print_status)
            servers.check()
            _show_panel(folder, places, systems, token)
            servers.wait(servers.federations.check)
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


def _parts(mdps: int) -> str:
    if mdps == 1:
        return "Postgres, Valkey, worker, web and an LMR"
    return f"Postgres, Valkey, and {mdps} MDPs with worker, web and an LMR each,"


def _check_ports(host: str, places: Sequence[MdpPlace]) -> None:
    """Check that all ports are different and free, before the databases are started."""
    ports: set[int] = set()
    for place in places:
        _check_port(host, place.port, "--port")
        if place.lmr_port in ports | {place.port}:
            raise NotStarted(
                f"The MDP and the LMR cannot both use port {place.lmr_port}: choose another with --lmr-port."
            )
        _check_port(host, place.lmr_port, "--lmr-port")
        ports |= {place.port, place.lmr_port}


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


@dataclass(frozen=True, slots=True)
class Databases:
    """The databases of one MDP, as URLs with passwords."""

    postgres: str = field(repr=False)
    valkey: str = field(repr=False)
    peers: str = field(default="", repr=False)
    """Those of the other MDPs, if their logs are replicated by Postgres."""


@dataclass(frozen=True, slots=True)
class ProcessCounts:
    """The number of processes of each MDP."""

    workers: int
    web: int


class _Servers(Supervisor):
    """The servers of one folder. They are stopped in the reverse order of their start: LMR, web, worker, Valkey,
    Postgres."""

    def __init__(self, folder: Path, report: Callable[[str], None]) -> None:
        super().__init__(report)
        self.folder = folder
        self.report = report
        self.servers: dict[str, Server] = {}
        self._logs: dict[str, Path] = {}
        self.federations = FederationStarts()

    def keep(self, name: str, launch: Callable[[], Server]) -> None:
        def launch_reported() -> Server:
            self.servers[name] = server = _ReportedServer(name, launch(), self.report)
            return server

        super().keep(name, launch_reported)

    def check(self) -> None:
        """Raise `_StopRequested` if a signal to stop has arrived."""
        if self.stop_requested:
            raise _StopRequested

    def start_databases(self, count: int) -> list[Databases]:
        """Start Postgres and Valkey, and migrate the databases. Return those of each MDP."""
        from mdv.embedded import ensure_database, start_postgres, start_valkey

        settings = {"max_connections": str(CONNECTIONS_PER_MDP * count)} if count > 1 else {}
        is_logical = count > 1 and Config.from_environment().backbone_transport == "postgres"
        settings |= logical_settings(count) if is_logical else {}
        postgres = _SamePort(lambda number: start_postgres(self.folder / "postgres", settings, port=number))
        self.keep("Postgres", postgres)
        self.check()
        valkey = _SamePort(lambda number: start_valkey(self.folder / "valkey", port=number))
        self.keep("Valkey", valkey)
        self.check()
        found = [Databases(postgres.url, valkey.url)]
        for number in range(2, count + 1):
            queue = f"{valkey.url.rpartition('/')[0]}/{number - 1}"
            found.append(Databases(ensure_database(postgres.url, f"mdv_m{number}"), queue))
        for databases in found:
            upgrade_database(databases.postgres)
            self.check()
        if is_logical:
            peers = peer_databases([databases.postgres for databases in found])
            found = [replace(databases, peers=text) for databases, text in zip(found, peers, strict=True)]
        return found

    def start_mdp(
        self, host: str, place: MdpPlace, databases: Databases, token: str, processes: ProcessCounts
    ) -> System:
        """Start the worker and the web server of an MDP."""
        system = System(
            _address(host, place.port), token, databases.postgres, databases.valkey, os.getpid(), str(place.folder)
        )  # fmt: skip
        environment = {
            **os.environ,
            "MDV_DATABASE_URL": system.database_url,
            "MDV_REDIS_URL": system.redis_url,
            "MDV_ADMIN_TOKEN": system.token,
            "PYTHONUNBUFFERED": "1",
            **({"MDV_BACKBONE_DATABASES": databases.peers} if databases.peers else {}),
            METRICS_FOLDER_VARIABLE: str(self._make_metrics_folder(place.folder)),
        }
        logs = place.folder / "logs"

        def launch_worker() -> ChildProgram:
            command = worker_command(processes.workers)
            child = start_child(command, env=environment, log=logs / "worker.log", cwd=logs)
            return ChildProgram(child, grace=WORKER_GRACE_SECONDS, force=lambda: self.stop_forced)

        self._logs[place.label("worker")] = logs / "worker.log"
        self.keep(place.label("worker"), launch_worker)
        self._start_program(place, "web", web_command(host, place.port, processes.web), environment)
        if place.name or is_member(databases.postgres):
            self._start_program(place, "replicate", replicate_command(), environment)
        self.federations.add(
            databases.postgres, lambda: self._start_program(place, "federation", federate_command(), environment)
        )
        return system

    def _start_program(self, place: MdpPlace, name: str, argv: list[str], environment: Mapping[str, str]) -> None:
        logs = place.folder / "logs"
        self._logs[place.label(name)] = logs / f"{name}.log"
        self.start(place.label(name), argv, environment, log=logs / f"{name}.log", cwd=logs)

    def _make_metrics_folder(self, parent: Path) -> Path:
        """Create and return an empty folder for the metrics of the web server and the worker."""
        folder = parent / "figures"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def start_lmr(self, host: str, place: MdpPlace, system: System, token: str, systems: Sequence[System]) -> System:
        """Start the LMR of an MDP, which also knows the other MDPs. Return the system with the URL of the LMR."""
        cache = place.folder / "lmr"
        cache.mkdir(mode=0o700, exist_ok=True)
        environment = {
            **os.environ,
            "MDV_URL": ",".join(dict.fromkeys([system.url, *(other.url for other in systems)])),
            "MDV_LMR_TOKEN": token,
            "MDV_LMR_STORE": f"sqlite:///{cache / 'cache.db'}",
            "MDV_ADMIN_TOKEN": system.token,
            "PYTHONUNBUFFERED": "1",
        }
        self._start_program(place, "LMR", lmr_command(host, place.lmr_port), environment)
        return replace(system, lmr_url=_address(host, place.lmr_port))

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
        log = self._logs.get(name, self.folder / "logs" / f"{name}.log")
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


def _show_panel(folder: Path, places: Sequence[MdpPlace], systems: Sequence[System], token: _Token) -> None:
    own = shlex.quote(sys.argv[0]) if Path(sys.argv[0]).name == "mdv" and not shutil.which("mdv") else "mdv"
    data = "" if folder == Path.cwd() / DEFAULT_FOLDER else f" --data {shlex.quote(str(folder))}"
    system = systems[0]
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
    for place, one in zip(places[1:], systems[1:], strict=True):
        facts[place.name] = f"{one.url}/, LMR {one.lmr_url}/, in commands --mdp {place.number}"
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
