"""A running MDV for tests: gunicorn and Celery as processes of their own, spoken to over HTTP."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

import mdv
from mdv.supervise import end, has_ended, start_child

ROOT = Path(__file__).parents[2]
ADMIN = "test-admin-token-0123456789"
FAREWELL = ((signal.SIGTERM, 10.0),)
V = "http://mdv.example/schema#"

SCHEMA = """
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix mdv: <urn:mdv:schema#> .
@prefix ex: <http://mdv.example/schema#> .
ex:Provider a rdfs:Class .
ex:CycleProvider rdfs:subClassOf ex:Provider .
ex:ServerInformation a rdfs:Class .
ex:serverHost rdfs:domain ex:CycleProvider ; rdfs:range xsd:string .
ex:serverPort rdfs:domain ex:CycleProvider ; rdfs:range xsd:integer .
ex:serverInformation rdfs:domain ex:CycleProvider ; rdfs:range ex:ServerInformation ; mdv:reference mdv:strong .
ex:memory rdfs:domain ex:ServerInformation ; rdfs:range xsd:integer .
ex:cpu rdfs:domain ex:ServerInformation ; rdfs:range xsd:integer .
ex:note rdfs:range xsd:string ; mdv:setValued true .
ex:knows mdv:setValued true .
"""

FIGURE_1 = (Path(mdv.__file__).parent / "demo" / "doc.rdf").read_text("utf-8")

XML, TURTLE, N_TRIPLES, JSON_LD = "application/rdf+xml", "text/turtle", "application/n-triples", "application/ld+json"
PROBLEM = "application/problem+json"


def turtle(*lines: str) -> str:
    """A Turtle document of the test schema, one statement a line."""
    return "@prefix ex: <http://mdv.example/schema#> .\n" + "\n".join(lines)


def provider(port: int = 1, name: str = "host") -> str:
    return turtle(f"<#{name}> a ex:CycleProvider ; ex:serverHost 'h' ; ex:serverPort {port} .")


def eventually(holds: Callable[[], Any], seconds: float = 15.0, pulse: float = 0.02) -> Any:
    """The first true answer of `holds`; a failure after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        answer = holds()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"still not so after {seconds} s: {holds}")
        time.sleep(pulse)


@dataclass
class Process:
    """A child with its log; it ends with its parent, and its group with it."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def children(self) -> list[int]:
        text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(word) for word in text.split()]

    def stop(self) -> None:
        end(self.process, FAREWELL)

    def kill(self) -> None:
        """As by kill -9, children and all. A second call does nothing."""
        end(self.process, ())

    def words(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass
class Server(Process):
    """A web server, and a client of it that has the admin's token."""

    url: str = ""
    client: httpx.Client = field(default_factory=httpx.Client)

    def api(self, token: str | None = ADMIN) -> Api:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return Api(httpx.Client(base_url=self.url, headers=headers, timeout=60))

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def worker_pid(self) -> int:
        return self.children()[0]


@dataclass
class Api:
    """What a caller with some token says."""

    http: httpx.Client

    def get(self, path: str, headers: dict[str, str] | None = None, **query: Any) -> httpx.Response:
        return self.http.get("/api/v1" + path, params=query, headers=headers or {})

    def put(
        self,
        uri: str,
        body: str | bytes,
        media_type: str | None = TURTLE,
        wait: float | str | None = 10,
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> httpx.Response:
        given = {} if media_type is None else {"Content-Type": media_type}
        if wait is not None:
            given["Prefer"] = f"wait={wait}"
        text = body.encode() if isinstance(body, str) else body
        return self.http.put(
            "/api/v1/documents", params={"uri": uri} | query, content=text, headers=given | (headers or {})
        )

    def delete(
        self, uri: str, wait: int | None = 10, headers: dict[str, str] | None = None, **query: Any
    ) -> httpx.Response:
        given = {} if wait is None else {"Prefer": f"wait={wait}"}
        return self.http.delete("/api/v1/documents", params={"uri": uri} | query, headers=given | (headers or {}))

    def put_schema(self, body: str, media_type: str = TURTLE, **headers: str) -> httpx.Response:
        given = {"Content-Type": media_type} | headers
        return self.http.put("/api/v1/schema", content=body.encode(), headers=given)

    def job(self, number: str, seconds: float = 20) -> dict[str, Any]:
        """A job, once it has ended."""

        def ended() -> dict[str, Any] | None:
            found = self.get(f"/jobs/{number}")
            assert found.status_code == 200, found.text
            body: dict[str, Any] = found.json()
            return body if body["state"] in ("done", "failed") else None

        return eventually(ended, seconds)  # type: ignore[no-any-return]

    def pages(self, path: str, limit: int, **query: Any) -> Iterator[list[Any]]:
        after: dict[str, str] = {}
        while True:
            answer = self.get(path, limit=limit, **query, **after)
            assert answer.status_code == 200, answer.text
            body = answer.json()
            yield body["items"]
            if body["next"] is None:
                return
            after = {"after": body["next"]}

    def all(self, path: str, limit: int, **query: Any) -> list[Any]:
        return [item for page in self.pages(path, limit, **query) for item in page]


def environment(database_url: str, redis_url: str, **settings: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MDV_", "GUNICORN_", "CELERY_"))}
    own = {"MDV_DATABASE_URL": database_url, "MDV_REDIS_URL": redis_url, "MDV_ADMIN_TOKEN": ADMIN}
    return plain | own | {"PYTHONUNBUFFERED": "1"} | settings


def start_server(
    folder: Path, database_url: str, redis_url: str, *arguments: str, port: int = 0, ready: bool = True, **settings: str
) -> Server:
    """Start gunicorn with gevent on a free port, and wait until it listens."""
    number = len(list(folder.glob("web-*.log")))
    log = folder / f"web-{number}.log"
    argv = [sys.executable, "-m", "gunicorn", "--no-control-socket", "-k", "web.worker.WebWorker",
            "--logger-class", "web.log.JsonLogger",
            "-b", f"127.0.0.1:{port}", "--graceful-timeout", "2", *arguments, "web.wsgi:app"]  # fmt: skip
    process = start_child(argv, log=log, env=environment(database_url, redis_url, **settings), cwd=ROOT)
    server = Server(process, log)

    def address() -> re.Match[str] | None:
        assert not has_ended(process), server.words()
        return re.search(r"Listening at: (http://[\d.]+:\d+)", server.words())

    try:
        server.url = eventually(address).group(1)
        if ready:
            eventually(lambda: _status(server.url + "/readyz") == 200)
    except BaseException:
        server.stop()
        raise
    return server


def _status(url: str) -> int:
    try:
        return httpx.get(url, timeout=10).status_code
    except httpx.HTTPError:
        return 0


def start_worker(folder: Path, database_url: str, redis_url: str, concurrency: int = 2, **settings: str) -> Process:
    number = len(list(folder.glob("worker-*.log")))
    log = folder / f"worker-{number}.log"
    argv = [sys.executable, "-m", "celery", "-A", "workers.app", "worker", "--concurrency", str(concurrency),
            "--loglevel", "warning", "--without-gossip", "--without-mingle"]  # fmt: skip
    return Process(start_child(argv, log=log, env=environment(database_url, redis_url, **settings), cwd=ROOT), log)


@contextmanager
def stopping(*processes: Process) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.stop()


def path_of(uri: str) -> str:
    return "/api/v1/documents?uri=" + quote(uri, safe="")


def rss(pid: int) -> int:
    """Resident memory of a process, in MiB."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) // 1024 if found else 0


def peak(pid: int) -> int:
    """The most memory that a process has had, in MiB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) // 1024 if found else 0
