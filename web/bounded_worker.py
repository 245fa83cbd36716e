"""A gevent worker with a bounded number of connections, shared by the web servers of MDPs and LMRs.

Greenlets read request headers and bodies, which is cheap while they wait. When the connection limit is reached,
connections that wait for their client are closed to make room (`web.connections`).
"""

from __future__ import annotations

import errno
import json
import resource
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import gevent
from gevent.event import Event
from gevent.pool import Pool
from gevent.server import StreamServer
from gunicorn.http.wsgi import FileWrapper
from gunicorn.sock import ssl_context
from gunicorn.workers.ggevent import GeventWorker

from mdv.errors import Unavailable
from mdv.gc_tuning import skip_final_collection
from web.client_address import client_address
from web.connections import Connection, Connections

Environ = dict[str, Any]

RESERVED_FILE_DESCRIPTORS = 256
"""File descriptors for everything but connections: logs, the database, libraries."""
SPARE_GREENLETS = 100
"""Greenlets beyond the limit of connections, for those that are just being closed or refused."""
NOTIFY_SECONDS = 1.0
"""How often a process tells gunicorn that it is alive."""
DRAIN_POLL_SECONDS = 0.02
"""How often an exiting process checks whether its last request is answered."""


class BoundedWorker(GeventWorker):
    """A gevent worker that accepts a new request unless it is working on all open ones."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        skip_final_collection()  # still in the parent, and so for all processes of the server
        # A request that waits for a job also uses a Redis connection.
        limit = max(1, min(self.cfg.worker_connections, (_raise_file_limit() - RESERVED_FILE_DESCRIPTORS) // 2))
        self.connections = Connections(limit)
        self.worker_connections = limit + SPARE_GREENLETS
        self._exit_requested = Event()

    def run(self) -> None:
        """Serve until the process has to exit, then answer the requests in progress.

        gunicorn's own method checks once per second whether it has to exit, and whether the last request is answered.
        This one reacts at once, so that servers stop without a delay.
        """
        servers = [self._start_server(listener) for listener in self.sockets]  # type: ignore[has-type]
        while self.alive:
            self.notify()
            self._exit_requested.wait(NOTIFY_SECONDS)
        for server in servers:
            server.close()  # accepts no more connections
        deadline = time.monotonic() + self.cfg.graceful_timeout
        while any(server.pool.free_count() != server.pool.size for server in servers):
            if time.monotonic() > deadline:
                self.log.warning("Worker graceful timeout (pid:%s)", self.pid)
                for server in servers:
                    server.stop(timeout=1)
                return
            self.notify()
            gevent.sleep(DRAIN_POLL_SECONDS)

    def _start_server(self, listener: Any) -> StreamServer:
        listener.setblocking(True)
        tls = {"ssl_context": ssl_context(self.cfg)} if self.cfg.is_ssl else {}
        server = StreamServer(listener, partial(self.handle, listener), spawn=Pool(self.worker_connections), **tls)
        if self.cfg.workers > 1:
            server.max_accept = 1  # leaves connections for the other processes
        server.start()
        return server

    def handle_exit(self, sig: int, frame: Any) -> None:
        super().handle_exit(sig, frame)
        self._exit_requested.set()

    def load_wsgi(self) -> None:
        super().load_wsgi()
        self.application: Any = self.wsgi  # type: ignore[has-type]
        self.wsgi = self.answer

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        address = addr[0] if isinstance(addr, tuple) else "unix"
        with self.connections.open(client, address) as has_room:
            if has_room:
                super().handle(listener, client, addr)
            else:
                _refuse(client)

    def answer(self, environ: Environ, start_response: Any) -> Iterable[bytes]:
        """Handle one request and track when its connection waits for the client."""
        connection = self.connections[environ["gunicorn.socket"]]
        if connection.is_closed:  # to make room, just when this request arrived
            raise ConnectionResetError(errno.ECONNRESET, "closed to make room for others")
        if proxies := self.application.extensions["mdv"].config.trusted_proxies:
            connection.assign_to_client(client_address(environ, proxies))
        chunks = self.run_application(environ, start_response, connection)
        if isinstance(chunks, FileWrapper):  # gunicorn sends files itself
            connection.finish_request()
            return chunks  # type: ignore[no-any-return]
        return TrackedResponse(chunks, connection)

    def run_application(self, environ: Environ, start_response: Any, connection: Connection) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        environ["wsgi.input"] = TrackedBody(environ["wsgi.input"], connection, length)
        connection.work()
        return self.application(environ, start_response)  # type: ignore[no-any-return]


class TrackedBody:
    """A request body of `length` bytes, or of unknown length if that is 0. While it is read, the connection waits for
    its client. A body that ends early raises an error: gunicorn would pass it on as if it were complete."""

    def __init__(self, body: Any, connection: Connection, length: int) -> None:
        self._body = body
        self._connection = connection
        self._missing = length

    def read(self, size: int = -1) -> bytes:
        part = self._read(self._body.read, size)
        self._check_end(len(part) < size or size < 0)
        return part

    def readline(self, size: int = -1) -> bytes:
        line = self._read(self._body.readline, size)
        self._check_end(not line and size != 0)
        return line

    def _read(self, read: Any, size: int) -> bytes:
        self._connection.wait_for_client()
        try:
            part = bytes(read(size))
        finally:
            self._connection.work()
            if self._connection.is_closed:  # the client is gone
                raise gevent.GreenletExit
        self._missing -= len(part)
        return part

    def _check_end(self, is_end: bool) -> None:
        if is_end and self._missing > 0:
            raise ConnectionResetError(errno.ECONNRESET, f"{self._missing} bytes of the body did not arrive")


class TrackedResponse:
    """A response body. While a chunk is sent, the connection waits for its client."""

    def __init__(self, chunks: Iterable[bytes], connection: Connection) -> None:
        self._chunks = chunks
        self._connection = connection

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self._connection.wait_for_client()
            yield chunk
            self._connection.work()

    def close(self) -> None:
        try:
            if hasattr(self._chunks, "close"):
                self._chunks.close()
        finally:
            self._connection.finish_request()


def _raise_file_limit() -> int:
    """Raise the file descriptor limit of this process to the hard limit, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft != resource.RLIM_INFINITY else 2**20


def _refuse(client: socket.socket) -> None:
    problem = Unavailable(
        "The server has reached its limit of concurrent requests. Try again in a few seconds."
    ).problem()
    body = json.dumps(problem).encode()
    lines = ("HTTP/1.1 503 Service Unavailable", "Content-Type: application/problem+json", "Retry-After: 2",
             f"Content-Length: {len(body)}", "Connection: close", "", "")  # fmt: skip
    with suppress(OSError):
        client.setblocking(False)  # it fits into the empty buffer of a new connection
        client.sendall("\r\n".join(lines).encode() + body)
    client.close()
