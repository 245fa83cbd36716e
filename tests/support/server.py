"""A running MDV for tests: gunicorn and Celery as separate processes, used over HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2

import mdv
from mdv.cli.server_commands import web_command
from mdv.supervise import has_ended, start_child, stop_process
from tests.support import local_http
from tests.support.eventually import eventually
from tests.support.local_http import local_client
from tests.support.tiers import check_may_start

ROOT = Path(__file__).parents[2]
ADMIN = "test-admin-token-0123456789"
STOP_SECONDS = 10.0
START_SECONDS = 180.0
FAREWELL = ((signal.SIGTERM, STOP_SECONDS),)
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
    """A Turtle document of the test schema, one statement per line."""
    return "@prefix ex: <http://mdv.example/schema#> .\n" + "\n".join(lines)


def provider(port: int = 1, name: str = "host") -> str:
    return turtle(f"<#{name}> a ex:CycleProvider ; ex:serverHost 'h' ; ex:serverPort {port} .")


@dataclass
class Process:
    """A child process with its log; it ends with its parent, and its process group with it."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def children(self) -> list[int]:
        text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(word) for word in text.split()]

    def stop(self) -> None:
        stop_process(self.process, FAREWELL)

    def kill(self) -> None:
        """Kill it and its children, as by kill -9. A second call does nothing."""
        stop_process(self.process, ())

    def words(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass
class WebAddress:
    """A web server that is known by its URL."""

    url: str = field(default="", kw_only=True)

    def api(self, token: str | None = ADMIN) -> Api:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return Api(local_client(base_url=self.url, headers=headers, timeout=90))

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])


@dataclass
class Server(WebAddress, Process):
    """A web server that is a process."""

    def worker_pid(self) -> int:
        return self.children()[0]


@dataclass
class Api:
    """Return a client with some token."""

    http: httpx2.Client

    def get(self, path: str, headers: dict[str, str] | None = None, **query: Any) -> httpx2.Response:
        return self.http.get("/api/v1" + path, params=query, headers=headers or {})

    def put(
        self,
        uri: str,
        body: str | bytes,
        media_type: str | None = TURTLE,
        wait: float | str | None = 60,
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> httpx2.Response:
        given = {} if media_type is None else {"Content-Type": media_type}
        if wait is not None:
            given["Prefer"] = f"wait={wait}"
        text = body.encode() if isinstance(body, str) else body
        return self.http.put(
            "/api/v1/documents", params={"uri": uri} | query, content=text, headers=given | (headers or {})
        )

    def patch(
        self, uri: str, edits: Any, wait: int | None = 60, headers: dict[str, str] | None = None, **query: Any
    ) -> httpx2.Response:
        given = {"Content-Type": "application/json"} | ({} if wait is None else {"Prefer": f"wait={wait}"})
        body = edits if isinstance(edits, bytes) else json.dumps(edits).encode()
        return self.http.patch(
            "/api/v1/documents", params={"uri": uri} | query, content=body, headers=given | (headers or {})
        )

    def delete(
        self, uri: str, wait: int | None = 60, headers: dict[str, str] | None = None, **query: Any
    ) -> httpx2.Response:
        given = {} if wait is None else {"Prefer": f"wait={wait}"}
        return self.http.delete("/api/v1/documents", params={"uri": uri} | query, headers=given | (headers or {}))

    def put_schema(self, body: str, media_type: str = TURTLE, **headers: str) -> httpx2.Response:
        given = {"Content-Type": media_type} | headers
        return self.http.put("/api/v1/schema", content=body.encode(), headers=given)

    def job(self, number: str, seconds: float = 60) -> dict[str, Any]:
        """Return a job after it has ended."""

        def ended() -> dict[str, Any] | None:
            found = self.get(f"/jobs/{number}")
            assert found.status_code == 200, found.text
            body: dict[str, Any] = found.json()
            return body if body["state"] in ("done", "failed") else None

        return eventually(ended, seconds)  # type: ignore[no-any-return]

    def pages(self, path: str, limit: int, start: str | None = None, **query: Any) -> Iterator[list[Any]]:
        """All pages, or those after the cursor `start`."""
        after = {"after": start} if start else {}
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
    check_may_start("a web server")
    number = len(list(folder.glob("web-*.log")))
    log = folder / f"web-{number}.log"
    *program, application = web_command("127.0.0.1", port)
    argv = [*program, "--graceful-timeout", "2", *arguments, application]
    process = start_child(argv, log=log, env=environment(database_url, redis_url, **settings), cwd=ROOT)
    server = Server(process, log)

    def address() -> re.Match[str] | None:
        assert not has_ended(process), server.words()
        return re.search(r"Listening at: (http://[\d.]+:\d+)", server.words())

    try:
        server.url = eventually(address, START_SECONDS).group(1)
        if ready:
            eventually(lambda: _status(server.url + "/readyz") == 200, START_SECONDS)
    except BaseException:
        server.stop()
        raise
    return server


def _status(url: str) -> int:
    try:
        return local_http.get(url, timeout=60).status_code
    except httpx2.HTTPError:
        return 0


def start_worker(folder: Path, database_url: str, redis_url: str, concurrency: int = 2, **settings: str) -> Process:
    check_may_start("a Celery worker")
    number = len(list(folder.glob("worker-*.log")))
    log = folder / f"worker-{number}.log"
    argv = [sys.executable, "-m", "celery", "-A", "workers.app", "worker", "--concurrency", str(concurrency),
            "--loglevel", "warning", "--without-gossip", "--without-mingle"]  # fmt: skip
    return Process(start_child(argv, log=log, env=environment(database_url, redis_url, **settings), cwd=ROOT), log)


@contextmanager
def stopping(*processes: Process) -> Iterator[None]:
    """Kill processes at the end. Tests of a regular stop use `Process.stop`, or send the signal themselves."""
    try:
        yield
    finally:
        for one in processes:
            one.kill()


def path_of(uri: str) -> str:
    return "/api/v1/documents?uri=" + quote(uri, safe="")


def rss(pid: int) -> int:
    """Resident memory of a process, in MiB."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) // 1024 if found else 0


def peak(pid: int) -> int:
    """Return the peak memory of a process, in MiB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) // 1024 if found else 0
