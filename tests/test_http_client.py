"""Clients recover from servers that close idle connections, and never repeat a request that may have been processed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from mdv.bench.http_connection import HttpConnection, HttpConnectionError
from mdv.cli.server_commands import lmr_command, web_command
from mdv.client import Client
from mdv.errors import Unavailable
from mdv.http_client import IDLE_SECONDS, HttpClient
from mdv.lmr.mdp_client import EVENTS_PER_PAGE, IncompleteResponse, MdpClient
from mdv.system import System
from mdv.webhooks.send import send
from tests.support.eventually import eventually
from tests.support.webhook_receiver import receiving

DONE = {"document": "http://a/d", "version": 1}
FEED = {"events": [], "cursor": "1", "position": 1, "up_to_date": True}


@dataclass
class ClosingServer:
    """A server that answers the first request of each connection. At the second it behaves like a server that closed
    the idle connection: it closes without a byte (`end`), or with a reset; or it closes in the middle of its answer
    (`cut`). `first`: the same at the first request."""

    closes_by: str = "end"
    at_first: bool = False
    answer: dict[str, object] = field(default_factory=dict)
    url: str = ""
    got: list[tuple[int, str]] = field(default_factory=list)
    """The number of the connection and the method of each request, in order."""

    @property
    def methods(self) -> list[str]:
        return [method for _, method in self.got]

    @property
    def connections(self) -> list[int]:
        return [number for number, _ in self.got]

    def serve(self, connection: socket.socket, number: int) -> None:
        with connection, connection.makefile("rb") as stream, suppress(OSError):
            count = 0
            while line := stream.readline():
                self.got.append((number, line.split()[0].decode()))
                count += 1
                length = 0
                while (header := stream.readline().strip()) != b"":
                    name, _, value = header.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                stream.read(length)
                body = json.dumps(self.answer).encode()
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nContent-Type: application/json\r\n\r\n"
                if count == 1 and not self.at_first:
                    connection.sendall(head.encode() + body)
                    continue
                if self.closes_by == "cut":
                    connection.sendall(head.encode() + body[:1])
                elif self.closes_by == "reset":
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return


@contextmanager
def closing(closes_by: str = "end", at_first: bool = False, **answer: object) -> Iterator[ClosingServer]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = ClosingServer(closes_by, at_first, answer, f"http://127.0.0.1:{listener.getsockname()[1]}")

        def accept() -> None:
            with suppress(OSError):
                for number in range(100):
                    connection, _ = listener.accept()
                    threading.Thread(target=server.serve, args=(connection, number), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)


def impatient(url: str) -> Client:
    """A client that fails instead of waiting before a retry."""

    def sleep(seconds: float) -> None:
        raise AssertionError(f"waited {seconds} s")

    return Client(System(url, "secret"), sleep=sleep)


REPEATABLE: dict[str, Callable[[Client], object]] = {
    "GET": lambda mdp: mdp.get("/documents"),
    "PUT": lambda mdp: mdp.register("http://a/d", b"x" * 300_000, "text/turtle"),
    "DELETE": lambda mdp: mdp.change("DELETE", "/lmrs/one"),
    "POST": lambda mdp: mdp.post("/query", {"query": "search A a return a"}),
}


@pytest.mark.parametrize("closes_by", ["end", "reset"])
@pytest.mark.parametrize("method", REPEATABLE)
def test_a_request_on_a_closing_connection_is_repeated_on_a_new_one(method: str, closes_by: str) -> None:
    with closing(closes_by, **DONE) as server, impatient(server.url) as mdp:
        mdp.get("/documents")
        assert REPEATABLE[method](mdp) == DONE
        assert server.got == [(0, "GET"), (0, method), (1, method)]


def test_a_change_without_a_key_never_reuses_a_connection() -> None:
    with closing(id=7) as server, impatient(server.url) as mdp:
        for _ in range(3):
            mdp.get("/lmrs")
            assert mdp.change("POST", "/lmrs", {"name": "one"}) == {"id": 7}
        assert server.methods.count("POST") == 3
        others = [number for number, method in server.got if method == "GET"]
        assert not {number for number, method in server.got if method == "POST"} & set(others)


@pytest.mark.parametrize("closes_by", ["end", "reset", "cut"])
def test_a_change_without_a_key_that_may_have_been_processed_is_sent_once(closes_by: str) -> None:
    with (
        closing(closes_by, at_first=True, **DONE) as server,
        impatient(server.url) as mdp,
        pytest.raises(Unavailable, match="check whether the change was made"),
    ):
        mdp.change("POST", "/lmrs", {"name": "one"})
    assert server.methods == ["POST"]


def test_an_incomplete_response_and_a_failure_on_a_new_connection_are_not_retried() -> None:
    with closing("cut", **DONE) as server, HttpClient(base_url=server.url) as http:
        http.get("/")
        with pytest.raises(httpx2.TransportError):
            http.get("/")
        assert server.got == [(0, "GET"), (0, "GET")]
    with closing("end", at_first=True) as server, HttpClient(base_url=server.url) as http:
        with pytest.raises(httpx2.TransportError):
            http.get("/")
        assert server.got == [(0, "GET")]


def test_all_requests_of_a_client_share_cookies() -> None:
    with receiving() as server, HttpClient(base_url=server.url) as http:
        server.answers = [lambda said: (said.send_response(204), said.send_header("Set-Cookie", "a=1"),
                                        said.end_headers())[0]]  # fmt: skip
        http.post("")
        http.get("")
        http.post("")
    assert [got.headers.get("cookie") for got in server.got] == [None, "a=1", "a=1"]


@pytest.mark.parametrize("closes_by", ["end", "reset"])
def test_an_lmr_repeats_feed_requests_and_subscribes_once(closes_by: str) -> None:
    with closing(closes_by, **FEED) as server, MdpClient(server.url, "token") as mdp:
        assert mdp.feed(None) == FEED
        assert mdp.feed("1") == FEED
        assert server.got == [(0, "GET"), (0, "GET"), (1, "GET")]
        assert mdp._page == EVENTS_PER_PAGE, "the size of the page is unchanged"
        mdp.subscribe("search A a register a")
        assert server.methods == ["GET"] * 3 + ["POST"] and server.connections[-1] == 2
    with closing(closes_by, at_first=True) as server, MdpClient(server.url, "token") as mdp:
        with pytest.raises(IncompleteResponse, match="The change may have been made"):
            mdp.subscribe("search A a register a")
        assert server.methods == ["POST"]


@pytest.mark.parametrize("closes_by", ["end", "reset"])
def test_the_load_generator_repeats_requests_that_may_be_repeated(closes_by: str) -> None:
    async def load(url: str) -> None:
        connection = HttpConnection(url, "token")
        for method in ("GET", "PUT", "POST", "POST"):
            assert (await connection.request(method, "/", b"x" * 300_000)).status == 200
        connection.close()

    with closing(closes_by) as server:
        asyncio.run(load(server.url))
        assert server.got == [(0, "GET"), (0, "PUT"), (1, "PUT"), (2, "POST"), (3, "POST")]
    with closing(closes_by, at_first=True) as server, pytest.raises(HttpConnectionError):
        asyncio.run(load(server.url))
    assert server.got == [(0, "GET")]


def test_each_webhook_message_uses_a_new_connection() -> None:
    with closing() as server:
        for number in range(3):
            assert send(server.url, b"{}", {"webhook-id": f"msg_{number}"}, private=True).is_success
        assert server.got == [(0, "POST"), (1, "POST"), (2, "POST")]


@pytest.mark.parametrize("program", [web_command, lmr_command])
def test_servers_keep_idle_connections_longer_than_clients(program: Callable[[str, int], list[str]]) -> None:
    arguments = program("127.0.0.1", 8080)
    assert arguments.count("--keep-alive") == 1
    assert int(arguments[arguments.index("--keep-alive") + 1]) > max(60, IDLE_SECONDS)


APPLICATION = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", "2")])
    return [b"{}"]
"""


@pytest.fixture
def gunicorn(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A gunicorn that closes idle connections after one second: its address, and the process that serves."""
    (tmp_path / "application.py").write_text(APPLICATION)
    log = tmp_path / "log"
    argv = [sys.executable, "-m", "gunicorn", "--worker-class", "gevent", "--keep-alive", "1", "--no-control-socket",
            "--bind", "127.0.0.1:0", "application:app"]  # fmt: skip
    with log.open("wb") as output, subprocess.Popen(argv, cwd=tmp_path, stderr=output) as process:
        try:
            eventually(lambda: "Booting worker with pid: " in log.read_text(), detail=log.read_text)
            text = log.read_text()
            worker = int(text.split("Booting worker with pid: ")[1].split()[0])
            yield text.split("Listening at: ")[1].split()[0], worker
        finally:
            process.terminate()


def test_a_request_that_arrives_just_when_gunicorn_closes_its_connection_is_answered(
    gunicorn: tuple[str, int],
) -> None:
    url, worker = gunicorn
    for change in (False, True):
        with impatient(url) as mdp:
            mdp.get("/documents")
            os.kill(worker, signal.SIGSTOP)  # the idle time-out passes while the request arrives
            answers: list[object] = []

            def ask(mdp: Client = mdp, change: bool = change, answers: list[object] = answers) -> None:
                answers.append(mdp.change("POST", "/lmrs", {}) if change else mdp.get("/documents"))

            asking = threading.Thread(target=ask)
            asking.start()
            time.sleep(1.5)
            os.kill(worker, signal.SIGCONT)
            asking.join(30)
            assert answers == [{}]
