"""Restarts that nobody notices: web processes and workers are replaced while changes come and feeds are read."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import redis
from running import ADMIN, SCHEMA, Api, Server, eventually, provider, start_server, start_worker, stopping

from mdv.embedded import Valkey

AUTHORIZED = {"Authorization": f"Bearer {ADMIN}"}


@dataclass
class Load:
    """Callers that register without a pause, each over a connection of its own, until they are stopped."""

    url: str
    answers: list[int] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def register(self, name: int) -> None:
        number = 0
        with httpx.Client(base_url=self.url, headers=AUTHORIZED | {"Prefer": "wait=30"}, timeout=60) as http:
            while not self.stopped.wait(0.01):
                number += 1
                headers = {"Content-Type": "text/turtle", "Idempotency-Key": f"{name}-{number}"}
                uri = {"uri": f"http://restart/{name}/{number}"}
                try:
                    answer = http.put("/api/v1/documents", params=uri, content=provider(), headers=headers)
                except httpx.TransportError as error:
                    # A connection that was closed while nothing was asked on it; what was asked then is asked again.
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


@pytest.fixture
def place(tmp_path: Path, new_database: Callable[[], str], valkey: Valkey) -> tuple[Path, str, str]:
    return tmp_path, new_database(), valkey.url.removesuffix("/0") + "/5"


@pytest.fixture
def served(place: tuple[Path, str, str]) -> Iterator[Server]:
    server = start_server(*place, "--workers", "2", "--keep-alive", "30")
    worker = start_worker(*place, concurrency=1)
    with stopping(server, worker):
        assert server.api().put_schema(SCHEMA).status_code == 200
        yield server


def documents(api: Api) -> int:
    count, after = 0, None
    while True:
        page = api.get("/documents", limit=1000, **({"after": after} if after else {})).json()
        count += len(page["items"])
        after = page["next"]
        if after is None:
            return count


def test_web_processes_are_replaced_and_no_call_fails(served: Server) -> None:
    api = served.api()
    lmr = served.api(api.http.post("/api/v1/lmrs", json={"name": "reader"}).json()["token"])
    cursor = lmr.get("/lmrs/self/feed").json()["cursor"]
    pages: list[httpx.Response] = []
    reader = threading.Thread(target=lambda: pages.append(lmr.get("/lmrs/self/feed", after=cursor, wait=60)))
    reader.start()
    with Load(served.url) as load:
        eventually(lambda: len(load.answers) > 5)
        old = served.children()
        os.kill(served.pid, signal.SIGHUP)
        began = time.monotonic()
        eventually(lambda: len(served.children()) == 2 and not set(served.children()) & set(old), 60)
        done = len(load.answers)
        eventually(lambda: len(load.answers) > done + 5)
    reader.join(60)
    # Who waited for the feed has had an answer in the usual form, long before its minute was over.
    assert [page.status_code for page in pages] == [200] and time.monotonic() - began < 45
    assert set(load.answers) == {201}
    assert len(load.cut) <= 3, load.cut
    assert documents(api) == len(load.answers)
    # No old process went before a new one served.
    words = served.words()
    serving = [words.index(f'"process": {pid}, "event": "serving"') for pid in served.children()]
    exiting = [words.index(f"Worker exiting (pid: {pid})") for pid in old]
    assert max(serving) < min(exiting), words


def heard(place: tuple[Path, str, str]) -> int:
    """How many workers tell that they live."""
    with redis.Redis.from_url(place[2]) as client:
        return len(list(client.scan_iter("mdv:worker:*")))


def test_a_worker_is_replaced_and_every_change_is_carried_out(served: Server, place: tuple[Path, str, str]) -> None:
    api = served.api()
    first = start_worker(*place, concurrency=1)
    with stopping(first), Load(served.url) as load:
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
    assert documents(api) == len(load.answers)
