"""A whole system of real processes whose parts can be damaged, and are restarted as a supervisor would."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import httpx2
import psycopg

from mdv.cli.server_commands import lmr_command
from mdv.db.engine import make_engine
from mdv.db.migrate import migrate
from mdv.embedded import NO_SETTINGS, start_postgres, start_valkey
from mdv.free_port import free_port
from mdv.supervise import has_ended, start_child, stop_process
from tests.support.eventually import eventually
from tests.support.feed_follower import Follower
from tests.support.ledger import Content, Ledger, Rule
from tests.support.lmr_server import Lmr, Proxy, create
from tests.support.retrying_writer import Careful, Writer
from tests.support.server import (
    ROOT,
    SCHEMA,
    TURTLE,
    Process,
    Server,
    environment,
    path_of,
    start_server,
    start_worker,
)

RULES = {"near": Rule("red"), "far": Rule(".example", over=64), "watcher": Rule(".example")}
"""By the names of LMRs. The far one has a network between itself and the MDP; the watcher is a plain client."""


class System:
    """Postgres that writes to the disk, Valkey, web servers, workers, two LMRs, and the acknowledged changes."""

    def __init__(self, folder: Path, cluster: Path | None = None, settings: Mapping[str, str] = NO_SETTINGS) -> None:
        self.folder = folder
        self.cluster = cluster or folder / "postgres"
        self.settings = settings
        self.ledger = Ledger()
        self.healthy = False
        self.proven: dict[str, int] = {}
        """The number of versions of a document at the last check."""
        self._loads = 0
        self._fresh = 0
        self._parts: list[Process] = []
        self.postgres = start_postgres(self.cluster, settings)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        engine = make_engine(self.postgres.url)
        migrate(engine)
        engine.dispose()
        self.valkey = start_valkey(self.folder / "valkey")
        self.workers = [self.new_worker()]
        self.webs = [self.new_web()]
        api = self.webs[0].api()
        eventually(lambda: api.put_schema(SCHEMA).status_code == 200)
        self.ids = {name: create(api, name) for name in RULES}
        client = Careful(self.urls, self.ledger)
        for name, rule in RULES.items():
            path = f"/api/v1/lmrs/{self.ids[name][0]}/subscriptions"
            answer = client.change("POST", path, f"first/{name}", None, json={"rule": rule.text})
            self.ledger.subscribed(name, answer["id"], rule)
        client.close()
        self.network = Proxy(self.webs[0].port)
        self.ports = {name: free_port() for name in ("near", "far")}
        self.lmrs = {name: self.new_lmr(name) for name in self.ports}
        self.follower = Follower(self.urls, self.ids["watcher"][1])
        self.healthy = True

    def urls(self) -> Sequence[str]:
        return [web.url for web in self.webs]

    def stop(self) -> None:
        """End every process, in any state."""
        if hasattr(self, "follower"):
            self.follower.stop()
        if hasattr(self, "network"):
            self.network.close()
        for part in reversed(self._parts):
            part.kill()
        if hasattr(self, "valkey"):
            stop_process(self.valkey.process, ())  # it may be frozen
            self.valkey.stop()
        self.postgres.stop()

    # Parts

    def new_worker(self, database_url: str | None = None, **settings: str) -> Process:
        worker = start_worker(self.folder, database_url or self.postgres.url, self.valkey.url, **settings)
        self._parts.append(worker)
        return worker

    def new_web(self, *arguments: str, port: int = 0, **settings: str) -> Server:
        web = start_server(
            self.folder, self.postgres.url, self.valkey.url, *arguments, port=port, ready=False, **settings
        )
        self._parts.append(web)
        return web

    def new_lmr(self, name: str, **settings: str) -> Lmr:
        """Start an LMR at its port without waiting for it."""
        number, token = self.ids[name]
        url = self.network.url if name == "far" else self.webs[0].url
        store = f"sqlite:///{self.folder / name}.db"
        env = environment("", "", MDV_URL=url, MDV_LMR_TOKEN=token, MDV_LMR_STORE=store, **settings)
        log = self.folder / f"{name}.log"
        process = start_child(lmr_command("127.0.0.1", self.ports[name]), log=log, env=env, cwd=ROOT)
        server = Server(process, log, url=f"http://127.0.0.1:{self.ports[name]}")
        self._parts.append(server)
        return Lmr(number, name, token, store, server)

    def kill_postgres(self) -> None:
        """Return its first process and its descendants: each of them leads a process group."""
        pid = self.postgres.process.pid
        every = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
        for each in every:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)

    def mend(self) -> None:
        """Restart ended processes in the order of their dependencies."""
        if has_ended(self.postgres.process):
            port = self.postgres.port
            self.postgres.stop()
            self.postgres = start_postgres(self.cluster, self.settings, port=port)
        if has_ended(self.valkey.process):
            self.valkey.stop()
            self.valkey = start_valkey(self.folder / "valkey", port=self.valkey.port)
        for n, worker in enumerate(self.workers):
            if has_ended(worker.process):
                worker.kill()
                self.workers[n] = self.new_worker()
        for n, web in enumerate(self.webs):
            if has_ended(web.process):
                web.kill()
                self.webs[n] = self.new_web(port=web.port)
        for name, lmr in self.lmrs.items():
            if has_ended(lmr.process.process):
                lmr.kill()
                self.lmrs[name] = self.new_lmr(name)

    # Operations

    def load(self, seed: str) -> Writer:
        self._loads += 1
        return Writer(self.urls, self.ledger, "near", self.ids["near"][0], f"{seed}/{self._loads}")

    def heals(self) -> None:
        """Wait until a new document is registered and has reached both LMRs."""
        self._fresh += 1
        uri = f"http://faults.example/fresh/{self._fresh}"
        content = Content("red", self._fresh, 100, f"{uri}#i")
        client = Careful(self.urls, self.ledger)
        body = {"content": content.text().encode(), "headers": {"Content-Type": TURTLE}}
        client.change("PUT", path_of(uri), f"fresh/{self._fresh}", 5, **body)
        client.close()
        self.ledger.note(uri, content)
        eventually(lambda: all(_has(lmr, f"{uri}#h") for lmr in self.lmrs.values()))

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.postgres.url) as connection:
            return connection.execute(sql).fetchall()  # type: ignore[call-overload,no-any-return]


def _has(lmr: Lmr, uri: str) -> bool:
    with suppress(httpx2.HTTPError):
        return lmr.has(uri)
    return False


def died(process: Process, count: int, seconds: float = 60) -> None:
    """Wait until `count` children of a process have died."""
    seen: set[int] = set()

    def enough() -> bool:
        now = set(process.children()) if not has_ended(process.process) else set()
        seen.update(now)
        return len(seen - now) >= count

    eventually(enough, seconds, interval=0.005)
