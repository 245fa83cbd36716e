"""A running MDP that can be stopped and restarted, LMRs of it, and a network between them that records and breaks."""

from __future__ import annotations

import re
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from mdv.cli.server_commands import lmr_command
from mdv.supervise import has_ended, start_child
from tests.support import local_http
from tests.support.eventually import eventually
from tests.support.server import ROOT, TURTLE, Api, Process, Server, environment, start_server, turtle
from tests.support.tiers import check_may_start


class Proxy:
    """A proxy that an LMR uses as its MDP. It records requests; it can limit the bytes of responses, or block them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._up = bytearray()
        self._down = 0
        self._limits: list[int] = []
        self._flows = threading.Event()
        self._flows.set()
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def sent(self) -> bytes:
        """Return all bytes sent to the MDP."""
        with self._lock:
            return bytes(self._up)

    @property
    def received(self) -> int:
        """Return the number of bytes received from the MDP."""
        with self._lock:
            return self._down

    def cut_after(self, limits: list[int]) -> None:
        """End the next connections after this number of bytes from the MDP each."""
        with self._lock:
            self._limits = list(limits)
        self.cut()

    @property
    def cuts_left(self) -> int:
        with self._lock:
            return len(self._limits)

    def hold(self) -> None:
        """Block responses from the MDP without closing connections."""
        self._flows.clear()

    def flow(self) -> None:
        self._flows.set()

    def cut(self) -> None:
        """Close all connections."""
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            _end(connection)

    def close(self) -> None:
        _end(self._listener)
        self._listener.close()
        self.flow()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                below, _ = self._listener.accept()
            except OSError:
                return
            try:
                above = socket.create_connection(("127.0.0.1", self._port), timeout=5)
            except OSError:
                below.close()
                continue
            above.settimeout(None)
            with self._lock:
                self.connections += 1
                self._open |= {below, above}
                limit = self._limits.pop(0) if self._limits else None
            threading.Thread(target=self._carry_up, args=(below, above), daemon=True).start()
            threading.Thread(target=self._carry_down, args=(above, below, limit), daemon=True).start()

    def _carry_up(self, below: socket.socket, above: socket.socket) -> None:
        with suppress(OSError):
            while part := below.recv(65536):
                with self._lock:
                    self._up += part
                above.sendall(part)
        self._both_end(below, above)

    def _carry_down(self, above: socket.socket, below: socket.socket, limit: int | None) -> None:
        with suppress(OSError):
            while part := above.recv(16384):
                self._flows.wait()
                if limit is not None:
                    part, limit = part[:limit], limit - len(part)
                with self._lock:
                    self._down += len(part)
                below.sendall(part)
                if limit is not None and limit <= 0:
                    break
        self._both_end(above, below)

    def _both_end(self, *connections: socket.socket) -> None:
        with self._lock:
            self._open -= set(connections)
        for connection in connections:
            _end(connection)
            connection.close()


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@dataclass
class Backbone:
    """An MDP whose web server can be stopped and restarted at the same port."""

    folder: Path
    database_url: str
    redis_url: str
    worker: Process
    server: Server

    @property
    def api(self) -> Api:
        return self.server.api()

    def kill_web(self) -> None:
        self.server.kill()

    def start_web(self) -> None:
        self.server = start_server(self.folder, self.database_url, self.redis_url, port=self.server.port)

    def put(self, uri: str, body: str) -> int:
        """Register a document; return its position."""
        answer = self.api.put(uri, body)
        assert answer.status_code in (200, 201), answer.text
        return int(answer.json()["position"])

    def put_many(self, documents: dict[str, str]) -> int:
        """Register documents concurrently; return the position after the last."""
        api = self.api
        jobs = [api.put(uri, body, wait=None).json()["job"] for uri, body in documents.items()]
        ended = [api.job(job, 60) for job in jobs]
        assert {job["state"] for job in ended} == {"done"}, ended
        return max(int(job["result"]["position"]) for job in ended)


@dataclass
class Lmr:
    """An LMR of the MDP: its web server, and clients of it."""

    id: int
    name: str
    token: str
    store: str
    process: Server
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.process.url

    @property
    def own(self) -> Api:
        return self.process.api(self.token)

    def get(self, path: str, headers: dict[str, str] | None = None, **query: Any) -> httpx2.Response:
        with self.own.http as http:
            return http.get("/api/v1" + path, params=query, headers=headers or {})

    def call(self, method: str, path: str, json: Any = None, headers: dict[str, str] | None = None) -> httpx2.Response:
        with self.own.http as http:
            return http.request(method, "/api/v1" + path, json=json, headers=headers or {})

    def query(self, text: str, accept: str = "application/json", **more: Any) -> httpx2.Response:
        return self.call("POST", "/query", {"query": text, **more}, {"Accept": accept})

    def subscribe(self, rule: str, name: str | None = None) -> dict[str, Any]:
        answer = self.call("POST", "/subscriptions", {"rule": rule} | ({"name": name} if name else {}))
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def put_local(self, uri: str, body: str | bytes, media_type: str = TURTLE) -> httpx2.Response:
        content = body.encode() if isinstance(body, str) else body
        with self.own.http as http:
            return http.put(
                "/api/v1/local/documents", params={"uri": uri}, content=content, headers={"Content-Type": media_type}
            )

    def delete_local(self, uri: str) -> httpx2.Response:
        with self.own.http as http:
            return http.delete("/api/v1/local/documents", params={"uri": uri})

    def status(self, **query: Any) -> dict[str, Any]:
        answer = self.get("/status", **query)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def is_at(self, position: int, wait: float = 60) -> dict[str, Any]:
        """Return its status after a position is applied."""
        status = self.status(after=position, wait=wait)
        assert status["position"] >= position, status
        return status

    def has(self, uri: str) -> bool:
        return self.get("/resources", uri=uri).status_code == 200

    def assert_like_the_mdp(self) -> None:
        """Check that its cache has the MDP's checksum and holds exactly the closure."""
        verified = self.call("POST", "/verify")
        assert (verified.status_code, verified.json().get("mended")) == (200, []), verified.text
        checked = self.call("POST", "/check")
        assert (checked.status_code, checked.json()) == (200, {"problems": []}), checked.text

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> None:
        self.process.stop()

    def file(self) -> sqlite3.Connection:
        """The cache itself, for tests that damage it."""
        return sqlite3.connect(self.store.removeprefix("sqlite:///"), isolation_level=None)


def start_lmr_server(
    folder: Path, mdp_url: str, token: str, store: str, *arguments: str, ready: bool = True, **settings: str
) -> Server:
    """Start an LMR as `mdv lmr serve` does, and wait until it can serve, or, without `ready`, until it listens."""
    check_may_start("the server of an LMR")
    log = folder / f"lmr-{len(list(folder.glob('lmr-*.log')))}.log"
    given = {"MDV_URL": mdp_url, "MDV_LMR_TOKEN": token, "MDV_LMR_STORE": store} | settings
    *program, application = lmr_command("127.0.0.1", 0)
    argv = [*program, *arguments, application]
    process = start_child(argv, log=log, env=environment("", "", **given), cwd=ROOT)
    server = Server(process, log)

    def address() -> re.Match[str] | None:
        assert not has_ended(process), server.words()
        return re.search(r"Listening at: (http://[\d.]+:\d+)", server.words())

    def answers() -> bool:
        assert not has_ended(process), server.words()
        with suppress(httpx2.HTTPError):
            return local_http.get(server.url + ("/readyz" if ready else "/healthz"), timeout=60).status_code == 200
        return False

    try:
        server.url = eventually(address).group(1)
        eventually(answers)
    except BaseException:
        server.stop()
        raise
    return server


def create(api: Api, name: str) -> tuple[int, str]:
    """Create an LMR at the MDP; return its number and its token."""
    answer = api.http.post("/api/v1/lmrs", json={"name": name})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"], answer.json()["token"]


@contextmanager
def through_proxy(mdp: Backbone) -> Iterator[Proxy]:
    proxy = Proxy(mdp.server.port)
    try:
        yield proxy
    finally:
        proxy.close()


StartLmr = Callable[..., Lmr]


def hosts(mark: str, count: int = 1, memory: int = 64) -> str:
    """A document of providers whose host names contain `mark`, each with its information."""
    return turtle(*(
        f"<#h{n}> a ex:CycleProvider ; ex:serverHost '{n}.{mark}' ; ex:serverPort {n} ; ex:serverInformation <#i{n}> ."
        f" <#i{n}> a ex:ServerInformation ; ex:memory {memory} ; ex:cpu {n} ."
        for n in range(count)
    ))  # fmt: skip


def rule(mark: str) -> str:
    return f"search CycleProvider c register c where c.serverHost contains '{mark}'"
