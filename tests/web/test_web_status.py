"""GET /status: the state of the MDP, answered fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

import mdv
from mdv.embedded import start_valkey
from tests.support.lmr_server import create, hosts, rule
from tests.support.server import SCHEMA, Api, Server, provider, start_server, start_worker, stopping, turtle


@pytest.fixture(scope="module")
def own_database(new_database: Callable[[], str]) -> str:
    return new_database()


@pytest.fixture(scope="module")
def own_queue(new_queue: Callable[[], str]) -> str:
    return new_queue()


@pytest.fixture(scope="module")
def own(folder: Path, own_database: str, own_queue: str) -> Iterator[Server]:
    """A system for this file, since all of it is counted."""
    worker = start_worker(folder, own_database, own_queue)
    with stopping(worker):
        server = start_server(folder, own_database, own_queue)
        with stopping(server):
            assert server.api().put_schema(SCHEMA).status_code == 200
            yield server


def status(api: Api) -> dict[str, Any]:
    answer = api.get("/status")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_the_resources_are_counted_that_browse_lists(own: Server) -> None:
    api = own.api()
    text = turtle("<#a> a ex:CycleProvider ; ex:serverInformation <http://not.described/> . <#b> ex:serverPort 1 .")
    assert api.put("http://status.example/described", text).status_code == 201
    listed = [
        item["uri"] for item in api.get("/resources", **{"class": "rdfs:Resource", "limit": 1000}).json()["items"]
    ]
    assert "http://status.example/described#b" in listed and "http://not.described/" not in listed
    assert status(api)["counts"]["resources"] == {"count": len(listed), "exact": True}


def test_the_status_has_position_epoch_and_counts(own: Server) -> None:
    api = own.api()
    before = status(api)
    put = api.put("http://status.example/1", hosts("status.example", 3)).json()
    gone = api.put("http://status.example/2", provider()).json()["position"]
    assert api.delete("http://status.example/2").json()["position"] == gone + 1
    found = status(api)
    assert (found["version"], found["epoch"]) == (mdv.__version__, before["epoch"])
    assert found["position"] == gone + 1 > put["position"]
    assert found["last_transaction"] > before["last_transaction"]
    assert found["counts"]["documents"] == {"count": before["counts"]["documents"]["count"] + 1, "exact": True}
    assert found["counts"]["statements"]["count"] == before["counts"]["statements"]["count"] + 3 * 7
    assert found["database_bytes"] > 1_000_000
    assert found["queue"] == {
        "waiting": 0, "more": False, "oldest_seconds": None, "by_kind": {}, "by_priority": {}, "dead": 0
    }  # fmt: skip


def test_the_status_counts_waiting_jobs_and_dead_letters(own: Server, own_database: str) -> None:
    add = "insert into jobs (kind, uri, caller, priority, state, created_at, not_before) values"
    later = "now() - interval '1 minute', now() + interval '1 hour'"
    with psycopg.connect(own_database, autocommit=True) as connection:
        connection.execute(f"{add} ('register', 'http://w/1', 'status', 3, 'queued', {later})")
        connection.execute(f"{add} ('register', 'http://w/2', 'status', 5, 'queued', {later})")
        connection.execute(f"{add} ('delete', 'http://w/3', 'status', 5, 'queued', {later})")
        connection.execute(f"{add} ('delete', 'http://w/4', 'status', 5, 'dead', {later})")
        queue = status(own.api())["queue"]
        connection.execute("delete from jobs where caller = 'status'")
    assert (queue["waiting"], queue["more"], queue["dead"]) == (3, False, 1)
    assert (queue["by_kind"], queue["by_priority"]) == ({"register": 2, "delete": 1}, {"3": 1, "5": 2})
    assert 60 <= queue["oldest_seconds"] < 600


def test_the_status_lists_lmrs_that_are_behind_furthest_first(own: Server, own_database: str) -> None:
    api = own.api()
    lmrs = {name: create(api, name) for name in ("first", "second", "idle")}
    for name in ("second", "first"):
        answer = api.http.post(f"/api/v1/lmrs/{name}/subscriptions", json={"rule": rule(f"behind.{name}")})
        assert answer.status_code == 201, answer.text
    cursors = {name: own.api(token).get("/lmrs/self/feed").json()["cursor"] for name, (_, token) in lmrs.items()}
    own.api(lmrs["first"][1]).get("/lmrs/self/feed", after=cursors["first"])
    with psycopg.connect(own_database, autocommit=True) as connection:
        connection.execute("update lmrs set cursor = (select last_offset from mdp_state)")
        assert status(api)["behind"] == []
        api.put("http://status.example/b", hosts("behind.first", 2))
        api.put("http://status.example/c", hosts("behind.second", 1))
        found = status(api)
        assert found["lmrs"] == 3
        assert [(lmr["name"], lmr["more"], lmr["must_refetch"]) for lmr in found["behind"]] == [
            ("first", False, False), ("second", False, False),
        ]  # fmt: skip
        # Two hosts with one information each, and the selected ones.
        assert [lmr["events"] for lmr in found["behind"]] == [6, 3]
        assert found["behind"][0]["since"] <= found["behind"][1]["since"]
        connection.execute("update lmrs set kept_after = cursor + 1 where name = 'second'")
        assert {lmr["name"]: lmr["must_refetch"] for lmr in status(api)["behind"]} == {"first": False, "second": True}


def test_the_status_estimates_large_counts_and_limits_the_count_of_events(own: Server, own_database: str) -> None:
    api = own.api()
    number, _ = create(api, "very slow")
    with psycopg.connect(own_database, autocommit=True) as connection:
        connection.execute(
            "insert into feed select %s, n, 1, 0 from generate_series(1000000, 1030000) n", [number]
        )  # fmt: skip
        connection.execute("insert into rules select n, 0, null, 'x', 1 from generate_series(1000000, 1030000) n")
        connection.execute("analyze rules")
        found = status(api)
        connection.execute("delete from rules where id >= 1000000")
    assert api.http.delete("/api/v1/lmrs/very slow").status_code == 200
    slow = next(lmr for lmr in found["behind"] if lmr["name"] == "very slow")
    assert (slow["events"], slow["more"]) == (10_000, True)
    assert not found["counts"]["rules"]["exact"]
    assert 25_000 < found["counts"]["rules"]["count"] < 35_000


def test_the_status_lists_live_workers(own: Server, own_queue: str) -> None:
    with redis.Redis.from_url(own_queue) as client:
        client.set("mdv:worker:atlas:7", '{"since": "2026-11-16T09:00:00+00:00", "processes": 4}', ex=15)
        client.set("mdv:worker:orion:8", "what?")
        workers = {worker["name"]: worker for worker in status(own.api())["workers"]}
        client.delete("mdv:worker:atlas:7", "mdv:worker:orion:8")
    assert 0 <= workers["atlas:7"].pop("heard_seconds_ago") <= 15
    assert workers["atlas:7"] == {"name": "atlas:7", "since": "2026-11-16T09:00:00+00:00", "processes": 4}
    assert (workers["orion:8"]["processes"], workers["orion:8"]["heard_seconds_ago"]) == (None, None)


def test_without_redis_the_status_has_no_workers_and_all_other_fields(
    own: Server, folder: Path, own_database: str, tmp_path: Path
) -> None:
    with start_valkey(tmp_path / "valkey") as gone:
        url = gone.url
    server = start_server(folder, own_database, url)
    with stopping(server):
        found = status(server.api())
    assert found["workers"] is None
    assert {name: found[name] for name in ("position", "epoch", "counts")} == {
        name: status(own.api())[name] for name in ("position", "epoch", "counts")
    }


def test_every_reader_may_get_the_status_except_lmrs(
    server: Server, make_token: Callable[..., tuple[str, int]]
) -> None:
    viewer, _ = make_token("viewer")
    assert server.api(viewer).get("/status").status_code == 200
    assert server.api(None).get("/status").status_code == 401
    assert server.api("wrong").get("/status").status_code == 401
    _, lmr = create(server.api(), "that asks for the status")
    assert server.api(lmr).get("/status").status_code == 403
    assert server.api(viewer).get("/status", more="1").status_code == 400
