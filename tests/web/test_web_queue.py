"""The queue over HTTP: priority, backpressure, dead letters, and one request ID for a change in every log."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from mdv.db.engine import make_engine
from mdv.db.jobs import add_job
from mdv.embedded import start_valkey
from mdv.errors import TooMany
from mdv.free_port import free_port
from mdv.mdp.worker import Worker
from tests.support import local_http
from tests.support.eventually import eventually
from tests.support.server import (
    SCHEMA,
    Api,
    Process,
    Server,
    provider,
    start_server,
    start_worker,
    stopping,
)

pytestmark = pytest.mark.full


@pytest.fixture
def idle_database(new_database: Callable[[], str]) -> str:
    return new_database()


@pytest.fixture
def idle(folder: Path, idle_database: str, new_queue: Callable[[], str]) -> Iterator[Api]:
    """The administrator of a system with at most six waiting jobs, no schema, and no worker except the test.

    Each test has its own: a web process caches for a second how many jobs wait.
    """
    server = start_server(folder, idle_database, new_queue(), MDV_MAX_WAITING="6", MDV_MAX_WAIT_SECONDS="1")
    with stopping(server):
        yield server.api()


@pytest.fixture
def work(idle_database: str) -> Iterator[Worker]:
    engine = make_engine(idle_database)
    yield Worker(engine, 10**6)
    engine.dispose()


def run(database: str, sql: str, **values: Any) -> None:
    engine = make_engine(database)
    with engine.begin() as connection:
        connection.execute(text(sql), values)
    engine.dispose()


def test_when_the_queue_is_full_changes_are_refused_with_retry_after(idle: Api, work: Worker) -> None:
    for number in range(3):
        assert idle.put(f"http://d/{number}", provider(), wait=None).status_code == 202
    # One caller may use half of the queue, whatever priority it claims.
    for headers in ({}, {"Priority": "u=0"}):
        refused = idle.put("http://d/3", provider(), wait=None, headers=headers)
        assert (refused.status_code, refused.json()["type"]) == (429, "urn:mdv:problem:too-many")
        assert 1 <= int(refused.headers["Retry-After"]) <= 60
        assert "3 changes are already waiting" in refused.json()["detail"]
    # Interactive requests may use more of it, but not without limit.
    waited = [idle.put(f"http://d/{number}", provider(), wait=1).status_code for number in range(3, 7)]
    assert waited == [202] * 3 + [429]
    assert work.work() == 6
    eventually(lambda: idle.put("http://d/3", provider(), wait=None).status_code == 202)


def test_the_number_of_waiting_changes_per_document_is_limited(idle: Api, idle_database: str) -> None:
    run(idle_database, "insert into jobs (kind, uri, caller) select 'delete', 'http://d/1', n::text"
                       " from generate_series(1, 100) n")  # fmt: skip
    engine = make_engine(idle_database)
    with engine.begin() as connection, pytest.raises(TooMany, match="100 changes of http://d/1 are already waiting"):
        add_job(connection, "delete", "http://d/1", "me")
    with engine.begin() as connection:
        assert add_job(connection, "delete", "http://d/2", "me")
    engine.dispose()


def test_a_known_idempotency_key_is_answered_even_if_the_queue_is_full(idle: Api) -> None:
    first = idle.put("http://d/0", provider(), wait=None, headers={"Idempotency-Key": "one"})
    for number in range(1, 3):
        idle.put(f"http://d/{number}", provider(), wait=None)
    assert idle.put("http://d/9", provider(), wait=None).status_code == 429
    again = idle.put("http://d/0", provider(), wait=None, headers={"Idempotency-Key": "one"})
    assert again.json()["job"] == first.json()["job"]


def test_interactive_requests_have_priority_and_a_header_overrides_it(idle: Api) -> None:
    jobs = [
        idle.put("http://d/1", provider(), wait=None).json()["job"],
        idle.put("http://d/2", provider(), wait=1).json()["job"],
        idle.put("http://d/3", provider(), wait=None, headers={"Priority": "u=1, i"}).json()["job"],
    ]
    assert [idle.get(f"/jobs/{job}").json()["priority"] for job in jobs] == [5, 3, 1]


def test_jobs_are_listed_in_pages_and_by_state(idle: Api, work: Worker) -> None:
    assert idle.get("/jobs").json() == {"items": [], "next": None}
    jobs = [idle.put(f"http://d/{number}", provider(), wait=None).json()["job"] for number in range(3)]
    first = idle.get("/jobs", limit=2).json()
    assert [item["id"] for item in first["items"]] == [jobs[2], jobs[1]]
    second = idle.get("/jobs", limit=2, after=first["next"]).json()
    assert ([item["id"] for item in second["items"]], second["next"]) == ([jobs[0]], None)
    assert idle.get("/jobs", state="done").json()["items"] == []
    work.work()
    assert len(idle.get("/jobs", state="failed").json()["items"]) == 3  # there is no schema yet
    assert idle.get("/jobs", state="dead").json()["items"] == []
    assert idle.get("/jobs", state="lost").status_code == 400
    assert idle.get("/jobs", after="x").status_code == 400


def test_a_dead_letter_can_be_retried_unless_its_document_has_changed(
    idle: Api, idle_database: str, work: Worker
) -> None:
    jobs = [
        idle.put(f"http://d/{number}", "<http://d/x> <http://d/y> 1 .", wait=None).json()["job"] for number in (1, 2)
    ]
    run(
        idle_database, "update jobs set state = 'dead', ended_at = now(), attempts = 5, problem = '{\"detail\": \"x\"}'"
    )
    shown = idle.get(f"/jobs/{jobs[0]}").json()
    assert (shown["state"], shown["dead"], shown["attempts"]) == ("failed", True, 5)
    assert [item["id"] for item in idle.get("/jobs", state="dead").json()["items"]] == [jobs[1], jobs[0]]
    again = idle.http.post(f"/api/v1/jobs/{jobs[0]}/retry")
    assert (again.status_code, again.json()["state"], again.json()["attempts"]) == (200, "queued", 0)
    assert idle.http.post(f"/api/v1/jobs/{jobs[0]}/retry").status_code == 409
    newer = idle.put("http://d/2", "<http://d/x> <http://d/y> 2 .", wait=None)
    refused = idle.http.post(f"/api/v1/jobs/{jobs[1]}/retry")
    assert (newer.status_code, refused.status_code) == (202, 409)
    assert "was changed since" in refused.json()["detail"]
    assert work.work() == 2
    assert idle.http.post("/api/v1/jobs/00000000-0000-0000-0000-000000000000/retry").status_code == 404
    assert idle.http.post("/api/v1/jobs/x/retry").status_code == 404


def lines(process: Process, event: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in process.words().splitlines() if line.startswith('{"')]
    return [line for line in found if line.get("event") == event]


def test_a_change_keeps_its_request_id_from_the_request_to_the_feed(
    api: Api, server: Server, worker: Process, doc: str
) -> None:
    created = api.http.post("/api/v1/lmrs", json={"name": "traced"}).json()
    lmr = server.api(created["token"])
    rule = {"rule": "search CycleProvider c register c where c.serverHost contains 'traced.example'"}
    assert lmr.http.post("/api/v1/lmrs/self/subscriptions", json=rule).status_code == 201
    cursor = lmr.get("/lmrs/self/feed").json()["cursor"]
    body = provider().replace("'h'", "'traced.example'")
    answer = api.put(doc, body, headers={"X-Request-ID": "walk-through-7"})
    position = answer.json()["position"]
    (done,) = eventually(lambda: [x for x in lines(worker, "job ended") if x["request"] == "walk-through-7"])
    assert (done["position"], done["state"], done["uri"]) == (position, "done", doc)
    page = lmr.get("/lmrs/self/feed", after=cursor, wait=5).json()
    assert page["position"] == position
    delivered = lines(server, "feed events delivered")
    assert any(line["lmr"] == "traced" and line["position"] == position for line in delivered)
    assert api.get(f"/jobs/{done['job']}").json()["request"] == "walk-through-7"


def figure(server: Server, name: str) -> float:
    words = local_http.get(server.url + "/metrics").text
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", words, re.MULTILINE))


def test_every_web_process_exports_the_metrics_of_all(
    tmp_path: Path, new_database: Callable[[], str], new_queue: Callable[[], str]
) -> None:
    """Two web processes and a worker, each with its own metrics."""
    database, queue, figures = new_database(), new_queue(), tmp_path / "figures"
    figures.mkdir()
    port = free_port()
    shared = {"PROMETHEUS_MULTIPROC_DIR": str(figures)}
    worker = start_worker(tmp_path, database, queue, MDV_WORKER_METRICS=f"127.0.0.1:{port}", **shared)
    server = start_server(tmp_path, database, queue, "--workers", "2", **shared)
    with stopping(server, worker):
        api = server.api()
        assert api.put_schema(SCHEMA).status_code == 200
        assert api.http.post("/api/v1/lmrs", json={"name": "slow"}).status_code == 201
        rule = {"rule": "search CycleProvider c register c where c.serverPort > 1"}
        assert api.http.post("/api/v1/lmrs/slow/subscriptions", json=rule).status_code == 201
        for number in range(6):
            assert api.put(f"http://d/{number}", provider(number)).status_code == 201
        eventually(lambda: figure(server, "mdv_batch_documents_sum") == 6)
        assert figure(server, "mdv_jobs_ended_total") == 8
        assert figure(server, "mdv_matched_total") == 4
        assert figure(server, "mdv_candidates_per_document_count") == 6
        assert figure(server, "mdv_jobs_waiting") == figure(server, "mdv_dead_letters") == 0
        assert figure(server, "mdv_database_up") == 1 and figure(server, "mdv_position") == 8
        assert figure(server, "mdv_feed_lag_seconds") > 0
        for stage in ("claim", "prepare", "turn", "store", "filter", "publish", "rules"):
            assert figure(server, f'mdv_stage_seconds_count{{stage="{stage}"}}'.replace("{", r"\{")) >= 1, stage
        puts = r'mdv_http_requests_total\{call="/api/v1/documents",method="PUT",status="201"\}'
        assert figure(server, puts) == 6
        own = local_http.get(f"http://127.0.0.1:{port}/metrics").text  # the worker's
        assert "mdv_batch_documents_sum 6.0" in own


def test_a_worker_with_an_invalid_metrics_address_does_not_start(
    tmp_path: Path, new_database: Callable[[], str], new_queue: Callable[[], str]
) -> None:
    worker = start_worker(tmp_path, new_database(), new_queue(), MDV_WORKER_METRICS="nowhere")
    with stopping(worker):
        assert worker.process.wait(60) != 0
        assert "MDV_WORKER_METRICS is 'nowhere'" in worker.words() and "0.0.0.0:9464" in worker.words()


def test_without_redis_changes_are_executed(tmp_path: Path, new_database: Callable[[], str]) -> None:
    database = new_database()
    with start_valkey(tmp_path / "valkey") as own:
        worker = start_worker(tmp_path, database, own.url, concurrency=1)
        server = start_server(tmp_path, database, own.url)
        with stopping(server, worker):
            assert server.api().put_schema(SCHEMA).status_code == 200
            own.process.send_signal(signal.SIGSTOP)
            try:
                hung = server.api().put("http://d/1", provider(), wait=50)
            finally:
                own.process.send_signal(signal.SIGCONT)
            assert hung.status_code == 201
            own.stop()
            api = server.api()
            rule = {"rule": "search CycleProvider c register c where c.serverPort > 1"}
            assert api.http.post("/api/v1/lmrs", json={"name": "alone"}).status_code == 201
            assert api.http.post("/api/v1/lmrs/alone/subscriptions", json=rule).status_code == 201
            assert api.put("http://d/2", provider(2), wait=50).status_code == 201
