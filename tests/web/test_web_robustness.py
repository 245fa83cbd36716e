"""Parts that go away and come back: nothing is lost, nothing is done twice, and it heals by itself."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg
import pytest
from running import PROBLEM, SCHEMA, Process, Server, eventually, provider, start_server, start_worker

from mdv.db.engine import make_engine
from mdv.db.migrate import migrate
from mdv.embedded import Postgres, Valkey, start_postgres, start_valkey

FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "shared_buffers": "64MB"}


@dataclass
class Whole:
    """A system of its own, whose parts a test may end and start again."""

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
    # Whichever process answers, it knows the new schema.
    assert {whole.server.api().get("/schema").headers["ETag"] for _ in range(12)} == {version}


def test_registrations_go_on_after_valkey_was_killed_and_waiting_callers_get_their_answer(
    whole: Whole, doc: str
) -> None:
    stop = time.monotonic() + 4

    def load(n: int) -> list[int]:
        found, count = [], 0
        while time.monotonic() < stop:
            count += 1
            found.append(whole.server.api().put(f"{doc}/{n}/{count}", provider(), wait=40).status_code)
        return found

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(load, n) for n in range(4)]
        time.sleep(0.5)
        os.kill(whole.valkey.process.pid, signal.SIGKILL)
        time.sleep(1)
        whole.valkey.stop()
        whole.restart_valkey()
        statuses = [status for one in running for status in one.result(timeout=60)]
    assert len(statuses) >= 8 and set(statuses) == {201}
    started = time.monotonic()
    assert whole.server.api().put(doc, provider(), wait=20).status_code == 201
    assert time.monotonic() - started < 7


def test_without_valkey_a_change_is_queued_soon_and_carried_out_when_it_is_back(whole: Whole, doc: str) -> None:
    whole.valkey.stop()
    started = time.monotonic()
    answer = whole.server.api().put(doc, provider(), wait=None)
    assert answer.status_code == 202 and time.monotonic() - started < 3
    ready = httpx.get(whole.server.url + "/readyz")
    assert (ready.status_code, ready.json()["redis"]) == (200, "away")
    whole.restart_valkey()
    assert whole.server.api().job(answer.json()["job"], 30)["state"] == "done"


def test_a_frozen_valkey_holds_nobody_for_long(whole: Whole, doc: str) -> None:
    os.kill(whole.valkey.process.pid, signal.SIGSTOP)
    try:
        started = time.monotonic()
        answer = whole.server.api().put(doc, provider(), wait=1)
        assert answer.status_code == 202 and time.monotonic() - started < 13
        assert httpx.get(whole.server.url + "/readyz", timeout=20).json()["redis"] == "away"
    finally:
        os.kill(whole.valkey.process.pid, signal.SIGCONT)
    assert whole.server.api().job(answer.json()["job"], 30)["state"] == "done"


def test_a_worker_killed_in_the_middle_of_a_job_leaves_it_to_the_next_and_it_is_done_once(
    whole: Whole, doc: str
) -> None:
    api = whole.server.api()
    with psycopg.connect(whole.postgres.url) as other:
        other.execute("select * from mdp_state for update")  # the job cannot get further than its registration
        job = api.put(doc, provider(), wait=None).json()["job"]
        eventually(lambda: api.get(f"/jobs/{job}").json()["state"] == "running")
        whole.worker.kill()
    eventually(lambda: api.get(f"/jobs/{job}").json()["state"] == "queued")
    whole.restart_worker()
    ended = api.job(job, 30)
    assert ended["state"] == "done" and ended["result"]["version"] == 1
    assert [v["version"] for v in api.all("/documents/history", 10, uri=doc)] == [1]


def test_while_postgres_is_away_callers_are_told_and_then_all_heals_by_itself(whole: Whole, doc: str) -> None:
    api = whole.server.api()
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(psycopg.OperationalError), psycopg.connect(whole.postgres.url) as other:
            other.execute("select * from mdp_state for update")
            waiting = pool.submit(lambda: whole.server.api().put(doc, provider(), wait=3))
            time.sleep(0.5)
            whole.postgres.stop()
            other.execute("select 1")
        for answer, changes in ((api.get("/documents"), False), (api.put(doc + "2", provider()), True)):
            assert answer.status_code == 503 and answer.headers["Content-Type"] == PROBLEM
            assert int(answer.headers["Retry-After"]) > 0
            assert ("Idempotency-Key" in answer.json()["detail"]) is changes
        assert httpx.get(whole.server.url + "/readyz").status_code == 503
        assert httpx.get(whole.server.url + "/healthz").status_code == 200
        assert httpx.get(whole.server.url + "/metrics").status_code == 200
        told = waiting.result()
    # The caller that was waiting learns its job's number: that was queued.
    assert told.status_code == 202, told.text
    whole.restart_postgres()
    assert eventually(lambda: api.get("/documents").status_code == 200)
    assert api.job(told.json()["job"], 30)["state"] == "done"
    assert api.put(doc + "3", provider(), wait=20).status_code == 201
