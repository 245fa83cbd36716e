"""A large resource from an MDP to an LMR, in separate processes: in many answers, over an unreliable network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mdv.embedded import Valkey
from tests.support.eventually import eventually
from tests.support.lmr_server import Proxy, create, rule, start_lmr_server
from tests.support.server import Api, Process, Server, start_server, stopping, turtle
from web.lmr import worker as worker_of_lmr

pytestmark = pytest.mark.full

SIZE, COUNT = 50, 1000
DOC = "http://pieces.example/doc"


@pytest.fixture(scope="module")
def mdp(worker: Process, server: Server, folder: Path, system_database: str, valkey: Valkey) -> Iterator[Server]:
    """A web server whose feeds have few statements per event, beside the shared one."""
    own = start_server(folder, system_database, valkey.url, MDV_FEED_EVENT_STATEMENTS=str(SIZE))
    with stopping(own):
        notes = ", ".join(f"'note {number}'" for number in range(COUNT))
        text = turtle(f"<#big> a ex:CycleProvider ; ex:serverHost 'pieces' ; ex:note {notes} .")
        assert own.api().put(DOC, text, wait=60).status_code in (200, 201)
        yield own


def notes(api: Api) -> set[str]:
    answer = api.get("/resources", uri=DOC + "#big")
    if answer.status_code != 200:
        return set()
    return {term["value"] for _, term in answer.json()["statements"] if term["value"].startswith("note ")}


def test_a_killed_lmr_on_an_unreliable_network_gets_a_large_resource_completely(mdp: Server, folder: Path) -> None:
    _, token = create(mdp.api(), "pieces")
    subscribed = mdp.api(token).http.post("/api/v1/lmrs/self/subscriptions", json={"rule": rule("pieces")})
    assert subscribed.status_code == 201, subscribed.text
    proxy = Proxy(mdp.port)
    store = f"sqlite:///{folder / 'pieces.db'}"
    try:
        proxy.cut_after([4000, 9000, 14000])
        first = start_lmr_server(folder, proxy.url, token, store, ready=False)
        try:
            eventually(lambda: "applied" in first.words())
            assert len(notes(first.api(token))) in (0, COUNT), "a part of it is visible"
        finally:
            first.kill()
        again = start_lmr_server(folder, proxy.url, token, store, ready=False)
        with stopping(again):
            eventually(lambda: len(notes(again.api(token))) == COUNT)
            verified = again.api(token).http.post("/api/v1/verify")
            assert (verified.status_code, verified.json().get("mended")) == (200, []), verified.text
    finally:
        proxy.close()


def test_server_sent_events_contain_the_pieces_and_resume_after_each(mdp: Server) -> None:
    _, token = create(mdp.api(), "pieces-by-events")
    api = mdp.api(token)
    assert api.http.post("/api/v1/lmrs/self/subscriptions", json={"rule": rule("pieces")}).status_code == 201
    headers = {"Accept": "text/event-stream"}
    said: list[Any] = []
    last: dict[str, str] = {}
    connections = 0
    while not said or said[-1].get("more"):
        connections += 1
        with api.http.stream("GET", "/api/v1/lmrs/self/feed", headers=headers | last) as answer:
            assert answer.status_code == 200
            identity = ""
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    identity = line.removeprefix("id: ")
                if line.startswith("data: ") and '"event":"put"' in line:
                    said.append(json.loads(line.removeprefix("data: ")))
                    last = {"Last-Event-ID": identity}
                    break  # each piece over a new connection
    assert connections == len(said) > COUNT / SIZE
    assert [event["from"] for event in said] == list(range(0, COUNT + 2, SIZE))
    assert len({json.dumps(pair) for event in said for pair in event["statements"]}) == COUNT + 2


def test_a_large_answer_of_an_lmr_is_buffered_in_a_file() -> None:
    few = [b"a" * 10, b"b"]
    assert worker_of_lmr._kept(iter(few)) == few
    many = [bytes([number % 256]) * 1000 for number in range(3000)]
    kept = worker_of_lmr._kept(iter(many))
    assert not isinstance(kept, list)
    pieces = list(kept)
    assert b"".join(pieces) == b"".join(many)
    assert max(map(len, pieces)) <= worker_of_lmr.CHUNK_BYTES
