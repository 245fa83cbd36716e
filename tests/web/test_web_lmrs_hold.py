"""Pausing LMRs and refetching: a paused LMR gets no events, a resumed one all of them; a refetch changes nothing."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mdv.errors import Conflict
from mdv.lmr.cache import Cache
from mdv.lmr.checksum import verify
from mdv.lmr.mdp_client import MdpClient
from mdv.lmr.sync import Sync
from tests.support.eventually import eventually
from tests.support.server import Api, Server, turtle

pytestmark = pytest.mark.full

_numbers = itertools.count(1)


@dataclass
class Repository:
    """An LMR of the running system, and a host that its rule selects."""

    name: str
    token: str
    host: str
    own: Api
    admin: Api

    def feed(self, after: str | None = None, **query: Any) -> dict[str, Any]:
        answer = self.own.get("/lmrs/self/feed", **({"after": after} if after else {}), **query)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def tell(self, what: str) -> dict[str, Any]:
        """Pause, resume, refetch."""
        answer = self.admin.http.post(f"/api/v1/lmrs/{self.name}/{what}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def put(self, doc: str, memory: int = 64) -> int:
        text = turtle(
            f"<#host> a ex:CycleProvider ; ex:serverHost '{self.host}' ; ex:serverInformation <#info> .",
            f"<#info> a ex:ServerInformation ; ex:memory {memory} .",
        )
        answer = self.admin.put(doc, text)
        assert answer.status_code in (200, 201), answer.text
        return int(answer.json()["position"])


@pytest.fixture
def lmr(server: Server, api: Api) -> Repository:
    number = next(_numbers)
    made = api.http.post("/api/v1/lmrs", json={"name": f"held-{number}"}).json()
    found = Repository(made["name"], made["token"], f"held-{number}.example", server.api(made["token"]), api)
    rule = f"search CycleProvider c register c where c.serverHost contains '{found.host}'"
    assert found.own.http.post("/api/v1/lmrs/self/subscriptions", json={"rule": rule}).status_code == 201
    return found


def kinds(page: dict[str, Any]) -> list[tuple[str, str]]:
    return [(event["event"], event.get("resource", "").partition("#")[2]) for event in page["events"]]


def test_a_paused_lmr_gets_no_events_and_a_resumed_one_gets_all(lmr: Repository, doc: str) -> None:
    cursor = lmr.feed()["cursor"]
    assert lmr.tell("pause")["paused"] is True
    first, second = lmr.put(doc), lmr.put(doc, memory=128)
    page = lmr.feed(cursor)
    assert page["events"] == []
    assert (page["up_to_date"], page["paused"], page["cursor"]) == (True, True, cursor)
    assert page["position"] < first
    assert lmr.admin.get(f"/lmrs/{lmr.name}").json()["behind"] == 4
    assert lmr.tell("resume")["paused"] is False
    page = lmr.feed(page["cursor"])
    assert kinds(page) == [("put", "host"), ("put", "info"), ("match", "host"), ("put", "info")]
    assert page["position"] >= second
    assert "paused" not in page


def test_a_paused_lmr_without_pending_events_advances(lmr: Repository, doc: str) -> None:
    cursor = lmr.feed()["cursor"]
    lmr.tell("pause")
    elsewhere = lmr.admin.put(doc, turtle("<#a> a ex:CycleProvider ; ex:serverHost 'elsewhere' .")).json()["position"]
    page = lmr.feed(cursor)
    assert page["position"] >= elsewhere
    assert "paused" not in page


def test_a_long_poll_returns_when_the_feed_resumes(lmr: Repository, doc: str) -> None:
    cursor = lmr.feed()["cursor"]
    lmr.tell("pause")
    lmr.put(doc)
    assert lmr.feed(cursor, wait=2)["events"] == []
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(lmr.feed, cursor, wait=30)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=1.5)
        lmr.tell("resume")
        assert len(waiting.result(timeout=60)["events"]) == 3


def test_a_snapshot_begins_when_the_feed_is_resumed(lmr: Repository, doc: str) -> None:
    lmr.put(doc)
    lmr.tell("pause")
    page = lmr.feed()
    assert (page["events"], page["position"], page["up_to_date"]) == ([], 0, True)
    page = lmr.feed(page["cursor"])
    assert page["events"] == []
    assert lmr.own.get("/lmrs/self/feed", buckets="1,2").status_code == 409
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(lmr.feed, page["cursor"], wait=30)
        lmr.tell("resume")
        page = waiting.result(timeout=60)
    assert page["snapshot"] is True
    assert kinds(page) == [("schema", ""), ("put", "host"), ("put", "info"), ("match", "host")]
    assert lmr.feed(page["cursor"])["events"] == []


def test_a_snapshot_in_progress_is_completed_during_a_pause(lmr: Repository, doc: str) -> None:
    lmr.put(doc)
    page = lmr.feed(limit=1)
    lmr.tell("pause")
    lmr.put(doc, memory=128)
    found = kinds(page)
    while page.get("snapshot") and not page["events"][-1].get("last"):
        page = lmr.feed(page["cursor"], limit=2)
        found += kinds(page)
    assert found == [("schema", ""), ("put", "host"), ("put", "info"), ("match", "host")]
    assert lmr.feed(page["cursor"])["events"] == []
    lmr.tell("resume")
    assert kinds(lmr.feed(page["cursor"])) == [("put", "info")]


def test_a_pause_within_a_transaction_loses_none_of_its_events(lmr: Repository, doc: str) -> None:
    cursor = lmr.feed()["cursor"]
    position = lmr.put(doc)
    begun = lmr.feed(cursor, limit=2)
    lmr.tell("pause")
    held = lmr.feed(begun["cursor"], limit=2)
    assert (held["events"], held["cursor"]) == ([], begun["cursor"])
    assert held["position"] < position
    lmr.tell("resume")
    assert kinds(lmr.feed(held["cursor"], limit=2)) == [("match", "host")]


def events_of(response: httpx2.Response) -> Iterator[tuple[str, str]]:
    name = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, line.removeprefix("data: ")


def test_a_stream_sends_nothing_while_the_feed_is_paused(lmr: Repository, doc: str) -> None:
    heard: list[str] = []
    headers = {"Accept": "text/event-stream"}
    with lmr.own.http.stream("GET", "/api/v1/lmrs/self/feed", headers=headers) as response:

        def listen() -> None:
            for name, data in events_of(response):
                heard.append(name)
                if json.loads(data).get("last") and name == "match":
                    return

        listener = threading.Thread(target=listen)
        listener.start()
        eventually(lambda: heard == ["snapshot", "schema", "up-to-date"])
        lmr.tell("pause")
        lmr.put(doc)
        listener.join(timeout=2.5)
        assert heard == ["snapshot", "schema", "up-to-date"]
        lmr.tell("resume")
        listener.join(timeout=60)
        assert heard[3:] == ["put", "put", "match"]


def test_a_refetch_invalidates_all_cursors_and_the_new_snapshot_is_the_same(lmr: Repository, doc: str) -> None:
    lmr.put(doc)
    before = lmr.feed()
    partly = lmr.feed(limit=1)["cursor"]
    present = lmr.feed(before["cursor"])["cursor"]
    shown = lmr.tell("refetch")
    assert (shown["events"], shown["behind"], shown["resources"]) == (0, 0, 2)
    for cursor in (before["cursor"], partly, present):
        answer = lmr.own.get("/lmrs/self/feed", after=cursor)
        assert answer.status_code == 410
        assert answer.json()["type"] == "urn:mdv:problem:must-refetch"
    again = lmr.feed()

    def told(page: dict[str, Any]) -> list[Any]:
        return [(e["event"], e.get("resource"), e.get("statements")) for e in page["events"]]

    assert told(again) == told(before)
    lmr.put(doc, memory=128)
    page = lmr.feed(again["cursor"])
    assert kinds(page) == [("put", "info")]
    assert page["events"][0]["prev"] == again["events"][-1]["offset"]


@pytest.fixture
def follow(server: Server, tmp_path: Path) -> Iterator[Callable[[Repository], tuple[Cache, MdpClient, Sync]]]:
    """A cache that follows an LMR's feed, by the same code as `mdv lmr serve`."""
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def start(lmr: Repository) -> tuple[Cache, MdpClient, Sync]:
        cache = Cache.open(f"sqlite:///{tmp_path / 'cache.db'}")
        mdp = MdpClient(server.url, lmr.token)
        sync = Sync(cache, mdp, wait=2, max_pause=0.5)
        threads.append(threading.Thread(target=sync.run, args=(stop,), daemon=True))
        threads[-1].start()
        return cache, mdp, sync

    yield start
    stop.set()
    for thread in threads:
        thread.join(timeout=60)


def holds(cache: Cache, mdp: MdpClient) -> bool:
    found = verify(cache, mdp)
    return found is not None and found.mended == ()


def test_a_cache_is_unchanged_during_a_pause_and_then_catches_up(
    lmr: Repository, doc: str, follow: Callable[[Repository], tuple[Cache, MdpClient, Sync]]
) -> None:
    lmr.tell("pause")
    cache, mdp, sync = follow(lmr)
    first = lmr.put(doc)
    assert not sync.wait_for(first, 2)
    lmr.tell("resume")
    assert sync.wait_for(first, 60)
    lmr.tell("pause")
    second = lmr.put(doc, memory=128)
    assert not sync.wait_for(second, 2)
    assert sync.status.position >= first
    with pytest.raises(Conflict, match="paused"):
        sync.verify()
    lmr.tell("resume")
    assert sync.wait_for(second, 60)
    assert holds(cache, mdp)


def test_a_cache_is_the_same_after_a_refetch(
    lmr: Repository, doc: str, follow: Callable[[Repository], tuple[Cache, MdpClient, Sync]]
) -> None:
    cache, mdp, sync = follow(lmr)
    assert sync.wait_for(lmr.put(doc), 60)
    before = cache.state().cursor
    lmr.tell("refetch")
    position = lmr.put(doc + "2")
    assert sync.wait_for(position, 60)
    assert cache.state().cursor != before
    eventually(lambda: not sync.status.taking_snapshot)
    assert holds(cache, mdp)
    assert lmr.admin.get(f"/lmrs/{lmr.name}").json()["resources"] == 4


@pytest.mark.parametrize("what", ["pause", "resume", "refetch"])
def test_only_an_unlimited_administrator_may_pause_resume_or_refetch(
    lmr: Repository, server: Server, make_token: Callable[..., tuple[str, int]], what: str
) -> None:
    path = f"/api/v1/lmrs/{lmr.name}/{what}"
    viewer, limited = make_token("viewer")[0], make_token("admin", documents=["http://a.example/"])[0]
    for token, status in ((lmr.token, 403), (viewer, 403), (limited, 403), (None, 401)):
        assert server.api(token).http.post(path).status_code == status
    assert lmr.admin.http.post(f"/api/v1/lmrs/nobody-{lmr.name}/{what}").status_code == 404
    assert lmr.admin.get(f"/lmrs/{lmr.name}").json()["paused"] is False
