"""A federation of MDPs over HTTP: each with a database, a web server and a worker in the test process, and the process
of its federation as a thread, or as a process that can be killed."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mdv.config import Config
from mdv.db.engine import make_engine
from mdv.db.epoch import update_epoch
from mdv.mdp.federation.runner import FederationRunner
from mdv.mdp.provider import Provider
from mdv.supervise import has_ended, start_child
from tests.support.eventually import eventually
from tests.support.in_process_server import serve_in_process
from tests.support.server import ROOT, Api, Process, WebAddress, environment
from tests.support.tiers import check_may_start
from web.services import make_redis
from workers.federate import watch_commits
from workers.messages import PUBLISHED_CHANNEL

OPEN = {"items": [{"kind": "prefix", "name": "", "privilege": "read-write"}]}


@dataclass
class HttpSite:
    """One MDP."""

    name: str
    database_url: str
    redis_url: str
    server: WebAddress
    logs: Path | None = None
    runner: FederationRunner | None = None
    threads: list[threading.Thread] = field(default_factory=list)
    process: Process | None = None
    kills: int = 0

    @property
    def api(self) -> Api:
        return self.server.api()

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Send a request. Return the JSON of a successful answer."""
        answer = self.api.http.request(method, f"/api/v1{path}", json=body, params=query)
        assert answer.is_success, answer.text
        return answer.json()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", "/federation")
        return found

    def transactions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("GET", "/federation/transactions", limit=1000)["items"]
        return found

    # The process of the federation

    def run_thread(self) -> None:
        config = Config.from_environment(environment(self.database_url, self.redis_url))
        engine, redis = make_engine(self.database_url, pool_size=8), make_redis(self.redis_url)
        provider = Provider.configured(engine, config)
        self.runner = FederationRunner(provider, lambda: redis.publish(PUBLISHED_CHANNEL, b"1"), False, 2.0)
        for target, arguments in ((self.runner.run, ()), (watch_commits, (self.redis_url, self.runner))):
            thread = threading.Thread(target=target, args=arguments, daemon=True)
            thread.start()
            self.threads.append(thread)

    def start_process(self, die_at: str | None = None) -> None:
        """Start the process. `die_at`: a failpoint with a count, where it is killed."""
        check_may_start("the process of a federation")
        assert self.logs is not None
        settings = {} if die_at is None else {"MDV_DIE_AT": die_at}
        log = self.logs / f"federate-{self.name}-{self.kills}.log"
        argv = [sys.executable, "-m", "workers.federate"]
        child = start_child(argv, log=log, env=environment(self.database_url, self.redis_url, **settings), cwd=ROOT)
        self.process = Process(child, log)

    @property
    def has_died(self) -> bool:
        return self.process is not None and has_ended(self.process.process)

    def kill(self) -> None:
        """Kill the process of the federation, as by kill -9."""
        assert self.process is not None
        self.process.kill()
        self.kills += 1

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
        if self.runner is not None:
            self.runner.stop()
            for thread in self.threads:
                thread.join(30)
            self.runner.engine.dispose()


class HttpFederation:
    """The MDPs, by name. `logs`: a folder; then each federation process is a process of its own."""

    def __init__(self, new_database: Callable[[], str], new_queue: Callable[[], str], logs: Path | None = None) -> None:
        self.sites: dict[str, HttpSite] = {}
        self._new_database, self._new_queue, self._logs = new_database, new_queue, logs
        self._stack = ExitStack()

    def __getitem__(self, name: str) -> HttpSite:
        return self.sites[name]

    def start(self, name: str, schema: str, documents: dict[str, str], running: bool = True) -> HttpSite:
        """Start an MDP that is in no federation yet."""
        database_url, redis_url = self._new_database(), self._new_queue()
        engine = make_engine(database_url)
        with engine.begin() as connection:
            update_epoch(connection, restored=True)  # copies of a template have the same
        engine.dispose()
        server = self._stack.enter_context(serve_in_process(database_url, redis_url))
        site = self.sites[name] = HttpSite(name, database_url, redis_url, server, self._logs)
        self._stack.callback(site.stop)
        assert site.api.put_schema(schema).status_code == 200
        for uri, text in documents.items():
            assert site.api.put(uri, text).status_code == 201
        if running:
            site.run_thread() if self._logs is None else site.start_process()
        return site

    def superpeer(
        self, name: str, schema: str, documents: dict[str, str], neighbours: Sequence[str] = (), running: bool = True
    ) -> HttpSite:
        """Start a superpeer that is connected with others."""
        site = self.start(name, schema, documents, running)
        site.call("POST", "/federation", {"name": name})
        site.call("PUT", "/federation/privileges", OPEN)
        for other in neighbours:
            self.connect(name, other)
        return site

    def connect(self, name: str, other: str) -> None:
        code = self[other].call("POST", "/federation/invitations")["code"]
        self[name].call("POST", "/federation/entry", {"url": self[other].server.url, "code": code})

    def peer(self, name: str, superpeer: str, schema: str, documents: dict[str, str], running: bool = True) -> HttpSite:
        """Start a peer of a superpeer."""
        site = self.start(name, schema, documents, running)
        code = self[superpeer].call("POST", "/federation/invitations")["code"]
        site.call("POST", "/federation/entry", {"url": self[superpeer].server.url, "code": code, "name": name})
        return site

    def is_at_rest(self) -> bool:
        """True if no message waits, and no transaction runs."""
        for site in self.sites.values():
            found = site.status()
            if found["waiting"] or any(link["waiting"] for link in found["links"]):
                return False
            if any(one["state"] in ("running", "compensating") for one in site.transactions()):
                return False
        return True

    def rest(self, seconds: float = 90) -> None:
        eventually(self.is_at_rest, seconds, detail=lambda: [one.status() for one in self.sites.values()])

    def kill_at_random(self, rng: random.Random, rounds: int, points: Sequence[str]) -> int:
        """Let processes die at failpoints, again and again. Start them again. Return how many have died."""
        died = 0
        for _ in range(rounds):
            site = self[rng.choice([*self.sites])]
            if not site.has_died:
                site.kill()
            died += 1
            site.start_process(f"{rng.choice(points)}:{rng.randrange(1, 4)}")
        return died

    def revive(self) -> int:
        """Start the processes that have died again. Return how many that were."""
        died = [site for site in self.sites.values() if site.has_died]
        for site in died:
            site.kills += 1
            site.start_process()
        return len(died)

    def close(self) -> None:
        self._stack.close()


@contextmanager
def http_federation(
    new_database: Callable[[], str], new_queue: Callable[[], str], logs: Path | None = None
) -> Iterator[HttpFederation]:
    federation = HttpFederation(new_database, new_queue, logs)
    try:
        yield federation
    finally:
        federation.close()
