"""Keeping a cache current over an unreliable network."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlalchemy import delete

from mdv.db.cache_tables import statements
from mdv.errors import Forbidden, MustRefetch, Unavailable
from mdv.lmr.cache import Cache
from mdv.lmr.mdp_client import MdpClient
from mdv.lmr.sync import Sync
from mdv.model import Term
from tests.support.cache_content import assert_cache_holds, content_of
from tests.support.eventually import eventually
from tests.support.naive_mdp import LABEL, URIS, Asked, NaiveMdp

Fault = Callable[["Handler"], None]


class Network:
    """The naive MDP behind HTTP. Each request consumes one fault; a long poll waits for an event."""

    def __init__(self, mdp: NaiveMdp) -> None:
        self.mdp = mdp
        self.asked = Asked(mdp, size=4)
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.token = "secret"
        self.ended = threading.Event()

    def answer(self, handler: Handler) -> None:
        self.requests.append(handler.path)
        if self.faults:
            self.faults.pop(0)(handler)
            return
        if handler.headers["Authorization"] != f"Bearer {self.token}":
            handler.problem(Forbidden())
            return
        parts = urlsplit(handler.path)
        query = {name: value for name, (value, *_) in parse_qs(parts.query).items()}
        if parts.path.endswith("/checksum"):
            handler.send(200, self.asked.checksum())
            return
        after = query.get("after")
        deadline = time.monotonic() + float(query["wait"])
        while after and after.isdigit() and int(after) >= len(self.mdp.log) and time.monotonic() < deadline:
            if self.ended.wait(0.02):
                break
        buckets = [int(number) for number in query["buckets"].split(",")] if "buckets" in query else None
        handler.send(200, self.asked.feed(after, buckets=buckets))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    network: Network

    def do_GET(self) -> None:
        self.network.answer(self)

    def send(self, status: int, body: Any, more: int = 0) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content) + more))
        self.end_headers()
        self.wfile.write(content)

    def problem(self, error: Any) -> None:
        self.send(error.status, error.problem())

    def log_message(self, *args: object) -> None:
        pass


def busy(handler: Handler) -> None:
    handler.send(503, {"title": "busy", "status": 503})


def cut(handler: Handler) -> None:
    handler.send(200, {"events": []}, more=1000)
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def nonsense(handler: Handler) -> None:
    handler.send(200, ["not", "a", "feed"])


def too_old(handler: Handler) -> None:
    handler.problem(MustRefetch())


@contextmanager
def served(mdp: NaiveMdp) -> Iterator[tuple[Network, MdpClient]]:
    network = Network(mdp)
    handler = type("Bound", (Handler,), {"network": network})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        with MdpClient(f"http://127.0.0.1:{server.server_port}", "secret") as client:
            yield network, client
    finally:
        network.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def running(sync: Sync) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=sync.run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


def world() -> NaiveMdp:
    return NaiveMdp({uri: frozenset({(LABEL, Term.literal(uri))}) for uri in URIS}, set(URIS[:6]))


def change(mdp: NaiveMdp, value: str) -> int:
    mdp.store[URIS[0]] = frozenset({(LABEL, Term.literal(value))})
    mdp.commit()
    return mdp.position


@pytest.fixture
def cache(sqlite_urls: Any) -> Iterator[Cache]:
    with sqlite_urls() as url, Cache.open(url) as cache:
        yield cache


def made(cache: Cache, client: MdpClient, **options: Any) -> Sync:
    return Sync(cache, client, **({"wait": 0.3, "min_pause": 0.01, "max_pause": 0.05} | options))


def test_cache_follows_the_mdp(cache: Cache) -> None:
    mdp = world()
    with served(mdp) as (_, client), running(sync := made(cache, client)):
        assert sync.wait_for(mdp.position, 60)
        assert_cache_holds(cache, mdp.states[-1], {})
        for value in "abc":
            assert sync.wait_for(change(mdp, value), 60)
            assert_cache_holds(cache, mdp.states[-1], {})
    assert sync.status.position == mdp.position
    assert sync.status.last_contact is not None
    assert not sync.status.taking_snapshot


@pytest.mark.parametrize("fault", [busy, cut, nonsense, too_old])
def test_the_cache_recovers_from_any_network_fault(cache: Cache, fault: Fault) -> None:
    mdp = world()
    with served(mdp) as (network, client), running(sync := made(cache, client)):
        network.faults = [fault, fault]
        assert sync.wait_for(mdp.position, 60)
        network.faults = [fault, fault, fault]
        assert sync.wait_for(change(mdp, "x"), 60)
        assert_cache_holds(cache, mdp.states[-1], {})


def test_the_first_request_after_a_fault_is_no_long_poll(cache: Cache) -> None:
    """With a long poll it would be unknown until its end whether the cache is up to date."""
    mdp = world()
    with served(mdp) as (network, client), running(sync := made(cache, client)):
        eventually(lambda: sync.status.up_to_date)  # `wait_for` would send requests of its own
        broken: list[int] = []

        def fault(handler: Handler) -> None:
            broken.append(len(network.requests))
            busy(handler)

        network.faults = [fault]
        eventually(lambda: broken and len(network.requests) > broken[0])
        assert float(parse_qs(urlsplit(network.requests[broken[0]]).query)["wait"][0]) == 0
        eventually(lambda: sync.status.up_to_date)


def test_an_unreachable_mdp_is_reported_and_the_cache_stays_readable(cache: Cache) -> None:
    mdp = world()
    with served(mdp) as (_, client):
        url = client.url
        with MdpClient(url, "secret") as present:
            sync = made(cache, present)
            while not sync.step().up_to_date:
                pass
            assert sync.status.up_to_date
    with MdpClient(url, "secret") as absent:
        sync = made(cache, absent)
        with pytest.raises(Unavailable):
            sync.step()
        assert not sync.status.up_to_date
        assert sync.status.last_error is not None
        assert not sync.wait_for(mdp.position + 1, 0.05)
    assert_cache_holds(cache, mdp.states[-1], {})


def test_the_old_state_is_served_until_the_snapshot_is_complete(cache: Cache) -> None:
    mdp = world()
    with served(mdp) as (network, client):
        sync = made(cache, client)
        while not sync.step().up_to_date:
            pass
        before = content_of(cache)
        change(mdp, "x")
        network.faults = [too_old]
        sync.step()
        assert sync.status.taking_snapshot
        pages = 0
        while sync.status.taking_snapshot:
            assert content_of(cache) == before
            sync.step()
            pages += 1
        assert pages > 1
        assert_cache_holds(cache, mdp.states[-1], {})


def test_lost_events_cause_a_snapshot(cache: Cache) -> None:
    mdp = world()
    with served(mdp) as (_, client):
        sync = made(cache, client)
        while not sync.step().up_to_date:
            pass
        for value in "ab":
            change(mdp, value)
        mdp.log[0] = mdp.log[0]._replace(prev=7)
        sync.step()
        assert sync.status.taking_snapshot
        while not sync.step().up_to_date:
            pass
        assert_cache_holds(cache, mdp.states[-1], {})


def test_a_refused_token_is_retried(cache: Cache) -> None:
    mdp = world()
    with served(mdp) as (network, client):
        network.token = "another"
        with running(sync := made(cache, client, not_allowed_pause=0.05)):
            assert not sync.wait_for(mdp.position, 0.3)
            assert "token" in (sync.status.last_error or "")
            network.token = "secret"
            assert sync.wait_for(mdp.position, 60)


def test_a_position_without_events_is_reached_before_the_long_poll_ends(cache: Cache) -> None:
    mdp = world()
    with served(mdp) as (network, client), running(sync := made(cache, client, wait=120)):
        assert sync.wait_for(mdp.position, 60)
        eventually(lambda: any("wait=120" in path and "after" in path for path in network.requests[-1:]))
        mdp.commit()  # changes nothing here
        assert sync.wait_for(mdp.position, 60), "it waited for the long poll"
        network.ended.set()


def test_many_threads_may_wait_for_a_position(cache: Cache) -> None:
    mdp = world()
    with served(mdp) as (_, client), running(sync := made(cache, client)):
        reached: list[bool] = []
        threads = [threading.Thread(target=lambda: reached.append(sync.wait_for(mdp.position, 60))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert reached == [True] * 8


def test_the_checksum_is_compared_periodically(cache: Cache) -> None:
    mdp = world()
    with served(mdp) as (network, client):
        sync = made(cache, client, wait=0.01, verify_seconds=0.05)
        while not sync.step().up_to_date:
            pass
        with cache.writing() as connection:
            connection.execute(delete(statements).where(statements.c.value == URIS[1]))
        with running(sync):
            eventually(lambda: sync.status.mended)
        assert sync.status.mended == 1
        assert any("buckets=" in path for path in network.requests)
        assert_cache_holds(cache, mdp.states[-1], {})
