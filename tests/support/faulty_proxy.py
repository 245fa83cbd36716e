"""A proxy for HTTP/1.1 requests of one answer each. It can refuse, delay, repeat and cut."""

from __future__ import annotations

import http.client
import random
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


@dataclass
class Faults:
    """What the proxy does to requests, as probabilities. `is_down`: nothing is forwarded. `delay`: at most, in
    seconds."""

    is_down: bool = False
    lose_request: float = 0.0
    lose_answer: float = 0.0
    truncate: float = 0.0
    repeat: float = 0.0
    delay: float = 0.0
    alter: float = 0.0
    seed: int = 1
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._lock = threading.Lock()

    def hits(self, name: str) -> bool:
        with self._lock:
            if self._random.random() >= getattr(self, name):
                return False
            self.counts[name] = self.counts.get(name, 0) + 1
            return True

    def pause(self) -> float:
        with self._lock:
            return self._random.uniform(0, self.delay)


@dataclass
class SeenRequest:
    """A request as it went through, to be sent again by a test."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class FaultyProxy:
    """Forwards requests to a port of this machine. Threads serve it, so delayed requests overtake each other."""

    def __init__(self, port: int) -> None:
        self.faults = Faults()
        self.seen: list[SeenRequest] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(port))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(proxy, port: int) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                """The servers log."""

            def _forward(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = SeenRequest(self.command, self.path, dict(self.headers.items()), body)
                proxy.seen.append(request)
                del proxy.seen[:-50]
                if proxy.faults.is_down or proxy.faults.hits("lose_request"):
                    return self._cut()
                time.sleep(proxy.faults.pause())
                if proxy.faults.hits("alter") and body:
                    request = SeenRequest(request.method, request.path, request.headers, body[:-1] + b" ")
                if proxy.faults.hits("repeat"):
                    send_request(port, request)
                status, headers, answer = send_request(port, request)
                time.sleep(proxy.faults.pause())
                if proxy.faults.is_down or proxy.faults.hits("lose_answer"):
                    return self._cut()
                self.send_response(status)
                for name, value in headers:
                    if name.lower() not in ("connection", "content-length", "transfer-encoding", "date", "server"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                if proxy.faults.hits("truncate"):
                    self.wfile.write(answer[: len(answer) // 2])
                    return self._cut()
                self.wfile.write(answer)
                return None

            def _cut(self) -> None:
                self.close_connection = True
                self.wfile.flush()
                self.connection.close()

            do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = _forward

        return Handler


def send_request(port: int, request: SeenRequest) -> tuple[int, list[tuple[str, str]], bytes]:
    """Send a request to a port of this machine. Return the status, the headers and the body of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
    headers = {name: value for name, value in request.headers.items() if name.lower() not in ("host", "connection")}
    try:
        connection.request(request.method, request.path, request.body, headers)
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()
