"""A receiver of webhooks: a real HTTP server on this machine that records requests and answers as configured."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Handler = BaseHTTPRequestHandler
Say = int | Callable[[Handler], None]
"""The answer: a status, or a function that writes it."""


@dataclass(frozen=True)
class Received:
    """A received request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def data(self) -> dict[str, Any]:
        return dict(json.loads(self.body)["data"])


@dataclass
class Receiver:
    """The received requests, and the answers to give next; 204 when none is left."""

    port: int = 0
    scheme: str = "http"
    got: list[Received] = field(default_factory=list)
    answers: list[Say] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.at("127.0.0.1")

    def at(self, host: str) -> str:
        return f"{self.scheme}://{host}:{self.port}/hook"

    def offsets(self) -> list[int]:
        return [received.data["offset"] for received in self.got]


class _Server(ThreadingHTTPServer):
    """A server that many senders may call at once: with the default backlog of 5, some connections are reset."""

    request_queue_size = 128


@contextmanager
def receiving(context: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """A running receiver."""
    receiver = Receiver(scheme="https" if context else "http")
    turn = threading.Lock()

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with turn:
                received = {name.lower(): value for name, value in self.headers.items()}
                receiver.got.append(Received(self.path, received, body))
                say = receiver.answers.pop(0) if receiver.answers else 204
            try:
                if callable(say):
                    say(self)
                else:
                    self.send_response(say)
                    self.end_headers()
            except OSError:
                return  # the sender closed the connection

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            pass

    server = _Server(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()


def saying(status: int, text: str = "", **headers: str) -> Callable[[Handler], None]:
    """An answer with a text; `_` in the name of a header stands for `-`."""

    def say(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(text.encode())))
        handler.end_headers()
        handler.wfile.write(text.encode())

    return say
