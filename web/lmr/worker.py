"""The gunicorn worker of an LMR: greenlets read requests and send responses, threads run the application.

SQLite calls block, so each request in progress needs a thread. No thread waits for a client: a request is passed to a
thread when it has arrived completely, and its response is sent after the thread is released.
"""

from __future__ import annotations

import io
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from tempfile import TemporaryFile
from typing import Any

import gevent
from gevent.lock import BoundedSemaphore
from gevent.threadpool import ThreadPool
from gunicorn.http.errors import ParseException

from mdv.errors import BadRequest, MdvError, TooLarge, TooSlow, Unavailable
from web.bounded_worker import BoundedWorker, Environ
from web.connections import Connection
from web.lmr.services import REQUEST_THREADS, is_authenticated_request
from web.page_base import MAX_FORM_BYTES

MAX_LARGE_BODIES = 8
"""Concurrent request bodies that are larger than a form."""
LARGE_BODY_WAIT_SECONDS = 10.0
CHUNK_BYTES = 64 * 1024
MAX_ANSWER_IN_MEMORY = 1024 * 1024
"""Larger responses are kept in a temporary file until they are sent."""
SWITCH_SECONDS = 0.001
"""Maximum time that the connection thread waits for the interpreter lock."""


class LmrWorker(BoundedWorker):
    """Reads requests in greenlets and answers them in threads."""

    def patch(self) -> None:
        """Use gevent for connections only. The application runs in threads and uses the unpatched standard library."""
        self.sockets = [
            gevent.socket.socket(s.FAMILY, socket.SOCK_STREAM, fileno=s.sock.detach())
            for s in self.sockets  # type: ignore[has-type]
        ]

    def run(self) -> None:
        sys.setswitchinterval(SWITCH_SECONDS)
        self._threads = ThreadPool(REQUEST_THREADS)
        self._large_bodies = BoundedSemaphore(MAX_LARGE_BODIES)
        super().run()

    def handle_exit(self, sig: int, frame: Any) -> None:
        super().handle_exit(sig, frame)
        gevent.spawn(self.connections.close_between_requests)

    def run_application(self, environ: Environ, start_response: Any, connection: Connection) -> Iterable[bytes]:
        del environ["gunicorn.socket"]  # the socket belongs to this thread
        with self._whole_body(environ) as body:
            if connection.is_closed:  # the client is gone
                raise gevent.GreenletExit
            environ["wsgi.input"] = body
            connection.work()
            answer, error = self._threads.apply(_run, (self.application, environ))
        if error is not None:
            raise error
        status, headers, chunks = answer
        start_response(status, headers)
        return chunks  # type: ignore[no-any-return]

    @contextmanager
    def _whole_body(self, environ: Environ) -> Iterator[Any]:
        """Yield the request body in memory. Errors are raised when the application reads the body, so that a caller
        without a token learns only that the token is missing."""
        stream, length = environ["wsgi.input"], int(environ.get("CONTENT_LENGTH") or 0)
        is_chunked = "HTTP_TRANSFER_ENCODING" in environ
        if not length and not is_chunked:
            yield io.BytesIO()
            return
        config = self.application.extensions["mdv"].config
        is_large = (length > MAX_FORM_BYTES or is_chunked) and is_authenticated_request(self.application, environ)
        if is_large and not self._large_bodies.acquire(timeout=LARGE_BODY_WAIT_SECONDS):
            stream.failed = True
            yield _FailedBody(Unavailable("Too many large bodies are being received. Try again in a few seconds."))
            return
        try:
            yield _read(stream, length, config.max_document_bytes if is_large else MAX_FORM_BYTES, config.body_seconds)
        finally:
            if is_large:
                self._large_bodies.release()


class _FailedBody:
    """A body that could not be received: reading it raises the error."""

    def __init__(self, error: MdvError) -> None:
        self._error = error

    def read(self, size: int = -1) -> bytes:
        raise self._error

    readline = read


def _read(stream: Any, length: int, limit: int, seconds: float) -> io.BytesIO | _FailedBody:
    """Read a body of `length` bytes, or of unknown length if that is 0. If it fails, gunicorn closes the connection
    after the response, since the start of the next request is unknown."""
    body = bytearray()
    try:
        with gevent.Timeout(seconds, TooSlow(f"The body did not arrive within {seconds:g} s. Nothing was changed.")):
            while max(len(body), length) <= limit and (part := stream.read(CHUNK_BYTES)):
                body += part
        if max(len(body), length) > limit:
            raise TooLarge(f"The body is larger than the limit of {limit:,} bytes.")
        if len(body) < length:
            raise BadRequest("The body is incomplete. Nothing was changed.")
    except (OSError, ParseException):
        error: MdvError = BadRequest("The body is incomplete or its chunked encoding is invalid. Nothing was changed.")
    except MdvError as raised:
        error = raised
    else:
        return io.BytesIO(body)
    stream.failed = True
    return _FailedBody(error)


def _kept(chunks: Iterator[bytes]) -> Iterable[bytes]:
    """Return a response that is kept until it is sent: in memory or, if it is large, in an unnamed temporary file."""
    kept, size = [], 0
    for chunk in chunks:
        kept.append(chunk)
        size += len(chunk)
        if size > MAX_ANSWER_IN_MEMORY:
            break
    else:
        return kept
    file = TemporaryFile()  # noqa: SIM115 - closed with the iterator that reads it
    file.writelines(kept)
    file.writelines(chunks)
    file.seek(0)
    return iter(partial(file.read, CHUNK_BYTES), b"")


def _run(application: Any, environ: Environ) -> tuple[Any, Exception | None]:
    """Run the application in this thread. Returns (status, headers, chunks) and None, or None and the error."""
    began: list[Any] = []
    try:
        chunks = application(environ, lambda status, headers, failed=None: began.append((status, headers)))
        try:
            body = _kept(iter(chunks))
        finally:
            if hasattr(chunks, "close"):
                chunks.close()
        return (*began[-1], body), None
    except Exception as error:  # raised again in the greenlet; gevent would print it
        return None, error
