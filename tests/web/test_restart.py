"""Rolling restarts: web processes and workers are replaced without failures while changes and feeds continue."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest
import redis

from tests.support.eventually import eventually
from tests.support.local_http import local_client
from tests.support.server import ADMIN, SCHEMA, Api, Server, provider, start_server, start_worker, stopping
from web.booting_processes import BootingProcesses

pytestmark = pytest.mark.full

AUTHORIZED = {"Authorization": f"Bearer {ADMIN}"}


@dataclass
class Load:
    """Callers that register without a pause, each over its own connection, until they are stopped."""

    url: str
    documents: str
    """The start of the URIs of its documents."""
    answers: list[int] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def register(self, name: int) -> None:
        number = 0
        with local_client(base_url=self.url, headers=AUTHORIZED | {"Prefer": "wait=30"}, timeout=60) as http:
            while not self.stopped.wait(0.01):
                number += 1
                headers = {"Content-Type": "text/turtle", "Idempotency-Key": f"{self.documents}{name}-{number}"}
                uri = {"uri": f"{self.documents}{name}/{number}"}
                try:
                    answer = http.put("/api/v1/documents", params=uri, content=provider(), headers=headers)
                except httpx2.TransportError as error:
                    # A connection that was closed while idle; its request is repeated.
                    self.cut.append(repr(error))
                    answer = http.put("/api/v1/documents", params=uri, content=provider(), headers=headers)
                self.answers.append(answer.status_code)

    def __enter__(self) -> Load:
        self.threads = [threading.Thread(target=self.register, args=(name,)) for name in range(3)]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join(60)


@pytest.fixture(scope="module")
def place(folder: Path, new_database: Callable[[], str], new_queue: Callable[[], str]) -> tuple[Path, str, str]:
    return folder, new_database(), new_queue()


@pytest.fixture(scope="module")
def served(place: tuple[Path, str, str]) -> Iterator[Server]:
    options = ("--workers", "2", "--keep-alive", "30", "--graceful-timeout", "60")
    server = start_server(*place, *options, MDV_MAX_WAIT_SECONDS="3600")
    worker = start_worker(*place, concurrency=1)
    with stopping(server, worker):
        assert server.api().put_schema(SCHEMA).status_code == 200
        yield server


def documents(api: Api, load: Load) -> int:
    return sum(item["uri"].startswith(load.documents) for item in api.all("/documents", 1000))


def test_replacing_web_processes_fails_no_call(served: Server) -> None:
    api = served.api()
    lmr = served.api(api.http.post("/api/v1/lmrs", json={"name": "reader"}).json()["token"])
    cursor = lmr.get("/lmrs/self/feed").json()["cursor"]
    pages: list[httpx2.Response] = []
    reader = threading.Thread(target=lambda: pages.append(lmr.get("/lmrs/self/feed", after=cursor, wait=3600)))
    reader.start()
    idle = [served.api() for _ in range(4)]
    with Load(served.url, "http://restart.example/web/") as load:
        eventually(lambda: len(load.answers) > 5)
        assert {one.get("/schema").status_code for one in idle} == {200}
        old = served.children()
        os.kill(served.pid, signal.SIGHUP)
        eventually(lambda: len(served.children()) == 2 and not set(served.children()) & set(old))
        done = len(load.answers)
        eventually(lambda: len(load.answers) > done + 5)
    # The poll got a regular answer before its process ended: it was not cut, and its wait is an hour.
    reader.join(60)
    assert [page.status_code for page in pages] == [200]
    assert set(load.answers) == {201}
    assert len(load.cut) <= 3, load.cut
    assert documents(api, load) == len(load.answers)
    # No old process ended before all new ones served.
    words = served.words()
    serving = [words.index(f'"process": {pid}, "event": "serving"') for pid in served.children()]
    exiting = [words.index(f"Worker exiting (pid: {pid})") for pid in old]
    assert max(serving) < min(exiting), words
    # Idle connections did not delay the end of a process.
    assert "Worker graceful timeout" not in words
    assert {one.get("/schema").status_code for one in idle} == {200}


def heard(place: tuple[Path, str, str]) -> int:
    """Return the number of workers that report to be alive."""
    with redis.Redis.from_url(place[2]) as client:
        return len(list(client.scan_iter("mdv:worker:*")))


def test_replacing_a_worker_loses_no_change(served: Server, place: tuple[Path, str, str]) -> None:
    api = served.api()
    first = start_worker(*place, concurrency=1)
    with stopping(first), Load(served.url, "http://restart.example/worker/") as load:
        eventually(lambda: heard(place) == 2 and len(load.answers) > 5)
        second = start_worker(*place, concurrency=1)
        with stopping(second):
            eventually(lambda: heard(place) == 3)
            first.process.send_signal(signal.SIGTERM)
            assert first.process.wait(60) == 0
            assert heard(place) == 2
            done = len(load.answers)
            eventually(lambda: len(load.answers) > done + 5)
            load.stopped.set()
    assert set(load.answers) == {201} and load.cut == []
    assert documents(api, load) == len(load.answers)


def test_old_processes_wait_until_all_new_ones_serve() -> None:
    booting = BootingProcesses()
    for age in (1, 2, 3):
        booting.start(age)
    for age in (3, 1):
        booting.serve(age)
        assert booting.is_any, "the newest may serve before the others"
    booting.serve(2)
    assert not booting.is_any


def test_a_process_that_died_while_booting_is_not_waited_for() -> None:
    booting = BootingProcesses()
    booting.start(1)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        booting.boot(1, process.pid)
        assert booting.is_any
        process.kill()
    assert not booting.is_any
