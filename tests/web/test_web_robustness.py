"""Parts that fail and return: nothing is lost, nothing is done twice, and the system recovers on its own."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from mdv.db.engine import make_engine
from mdv.db.migrate import migrate
from mdv.embedded import Postgres, Valkey, start_postgres, start_valkey
from tests.support import local_http
from tests.support.eventually import eventually
from tests.support.server import PROBLEM, SCHEMA, Process, Server, provider, start_server, start_worker

pytestmark = pytest.mark.full

FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "shared_buffers": "64MB"}


@dataclass
class Whole:
    """A separate system, whose parts a test may stop and restart."""

    folder: Path
    postgres: Postgres
    valkey: Valkey
    server: Server
    worker: Process

    def restart_worker(self) -> None:
        self.worker = start_worker(self.folder, self.postgres.url, self.valkey.url)

    def restart_valkey(self) -> None:
        self.valkey = start_valkey(self.folder / "valkey", port=self.valkey.port)

    def restart_postgres(self) -> None:
        self.postgres = start_postgres(self.folder / "postgres", FAST, port=self.postgres.port)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    folder = tmp_path_factory.mktemp("whole")
    postgres = start_postgres(folder / "postgres", FAST)
    valkey = start_valkey(folder / "valkey")
    engine = make_engine(postgres.url)
    migrate(engine)
    engine.dispose()
    worker = start_worker(folder, postgres.url, valkey.url)
    server = start_server(folder, postgres.url, valkey.url, "--workers", "2")
    system = Whole(folder, postgres, valkey, server, worker)
    try:
        assert server.api().put_schema(SCHEMA).status_code == 200
        assert server.api().put("http://warm.example/", provider(), wait=20).status_code == 201
        yield system
    finally:
        system.server.stop()
        system.worker.stop()
        system.valkey.stop()
        system.postgres.stop()


def test_two_web_processes_serve_one_system(whole: Whole, doc: str) -> None:
    assert len(whole.server.children()) == 2

    def one(n: int) -> int:
        return whole.server.api().put(f"{doc}/{n}", provider(n), wait=20).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(one, range(24))) == {201}
    new = SCHEMA + "ex:extra rdfs:range xsd:string ."
    version = (
        whole.server.api().put_schema(new).headers.get("ETag") or whole.server.api().get("/schema").headers["ETag"]
    )
    # Every process knows the new schema.
    assert {whole.server.api().get("/schema").headers["ETag"] for _ in range(12)} == {version}


def test_registrations_continue_after_valkey_is_killed_and_waiting_callers_are_answered(whole: Whole, doc: str) -> None:
    stop = threading.Event()
    statuses: list[int] = []

    def load(n: int) -> None:
        for count in itertools.count():
            if stop.is_set():
                return
            statuses.append(whole.server.api().put(f"{doc}/{n}/{count}", provider(), wait=60).status_code)

    def goes_on() -> None:
        done = len(statuses)
        eventually(lambda: len(statuses) >= done + 8)

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(load, n) for n in range(4)]
        try:
            goes_on()
            os.kill(whole.valkey.process.pid, signal.SIGKILL)
            whole.valkey.stop()
            whole.restart_valkey()
            goes_on()
        finally:
            stop.set()
        for one in running:
            one.result()
    assert set(statuses) == {201}
    assert whole.server.api().put(doc, provider(), wait=60).status_code == 201


def test_without_valkey_a_change_is_queued_and_executed_later(whole: Whole, doc: str) -> None:
    whole.valkey.stop()
    answer = whole.server.api().put(doc, provider(), wait=None)
    assert answer.status_code == 202, "answered although Valkey is still down"
    ready = local_http.get(whole.server.url + "/readyz")
    assert (ready.status_code, ready.json()["redis"]) == (200, "away")
    whole.restart_valkey()
    assert whole.server.api().job(answer.json()["job"])["state"] == "done"


def test_calls_are_answered_while_valkey_is_frozen(whole: Whole, doc: str) -> None:
    os.kill(whole.valkey.process.pid, signal.SIGSTOP)
    try:
        answer = whole.server.api().put(doc, provider(), wait=1)
        assert answer.status_code == 202, "answered although Valkey is still frozen"
        assert local_http.get(whole.server.url + "/readyz", timeout=60).json()["redis"] == "away"
    finally:
        os.kill(whole.valkey.process.pid, signal.SIGCONT)
    assert whole.server.api().job(answer.json()["job"])["state"] == "done"


def test_a_job_of_a_killed_worker_is_executed_once_by_the_next(whole: Whole, doc: str) -> None:
    api = whole.server.api()
    with psycopg.connect(whole.postgres.url) as other:
        other.execute("select * from mdp_state for update")  # the job cannot continue past its registration
        job = api.put(doc, provider(), wait=None).json()["job"]
        eventually(lambda: api.get(f"/jobs/{job}").json()["state"] == "running")
        whole.worker.kill()
    eventually(lambda: api.get(f"/jobs/{job}").json()["state"] == "queued")
    whole.restart_worker()
    ended = api.job(job)
    assert ended["state"] == "done" and ended["result"]["version"] == 1
    assert [v["version"] for v in api.all("/documents/history", 10, uri=doc)] == [1]


def test_while_postgres_is_down_callers_get_503_and_the_system_recovers_on_its_own(whole: Whole, doc: str) -> None:
    api = whole.server.api()
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(psycopg.OperationalError), psycopg.connect(whole.postgres.url) as other:
            other.execute("select * from mdp_state for update")
            waiting = pool.submit(lambda: whole.server.api().put(doc, provider(), wait=3))
            eventually(lambda: other.execute("select 1 from jobs where uri = %s", (doc,)).fetchone())
            whole.postgres.stop()
            other.execute("select 1")
        for answer, changes in ((api.get("/documents"), False), (api.put(doc + "2", provider()), True)):
            assert answer.status_code == 503 and answer.headers["Content-Type"] == PROBLEM
            assert int(answer.headers["Retry-After"]) > 0
            assert ("Idempotency-Key" in answer.json()["detail"]) is changes
        assert local_http.get(whole.server.url + "/readyz").status_code == 503
        assert local_http.get(whole.server.url + "/healthz").status_code == 200
        assert local_http.get(whole.server.url + "/metrics").status_code == 200
        told = waiting.result()
    # The waiting caller gets its job's number, as the job was queued.
    assert told.status_code == 202, told.text
    whole.restart_postgres()
    eventually(lambda: api.get("/documents").status_code == 200)
    assert api.job(told.json()["job"])["state"] == "done"
    assert api.put(doc + "3", provider(), wait=20).status_code == 201
