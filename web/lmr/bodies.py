"""Bodies that must arrive in time, where each request has a thread: one that is held is missing to others."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from mdv.errors import TooSlow

PULSE = 0.25
"""Seconds between two looks at who is late."""

Environ = dict[str, Any]
Application = Callable[[Environ, Any], Iterable[bytes]]


class Stream(Protocol):
    """What a body is read from."""

    def read(self, size: int = -1) -> bytes: ...

    def readline(self, size: int = -1) -> bytes: ...


class InTime:
    """A body that fails when it has not arrived whole in time."""

    def __init__(self, stream: Stream, connection: socket.socket, seconds: float, late: Late) -> None:
        self._stream = stream
        self._connection = connection
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._late = late

    def read(self, size: int = -1) -> bytes:
        return self._within(self._stream.read, size)

    def readline(self, size: int = -1) -> bytes:
        return self._within(self._stream.readline, size)

    def _within(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            with self._late.ending(self._connection, self._until):
                part = read(size)
        except Exception:
            # A broken chunk is one that did not come, if it is too late.
            self._refuse_late()
            raise
        if len(part) < size:
            self._refuse_late()
        return part

    def _refuse_late(self) -> None:
        if time.monotonic() >= self._until:
            raise TooSlow(f"The body did not arrive within {self._seconds:g} s; nothing was changed.")


class Late:
    """From who is late, nothing more is read: whoever sends a byte now and then would keep a thread for ever."""

    def __init__(self) -> None:
        self._reading: dict[int, tuple[float, socket.socket]] = {}
        self._started = threading.Lock()

    @contextmanager
    def ending(self, connection: socket.socket, until: float) -> Iterator[None]:
        """Let reading from a connection end at a time."""
        if self._started.acquire(blocking=False):  # the first time, and never released
            threading.Thread(target=self._watch, name="late bodies", daemon=True).start()
        me = threading.get_ident()
        self._reading[me] = (until, connection)
        try:
            yield
        finally:
            self._reading.pop(me, None)

    def _watch(self) -> None:
        while True:
            time.sleep(PULSE)
            now = time.monotonic()
            for until, connection in list(self._reading.values()):
                if until <= now:
                    with suppress(OSError):
                        connection.shutdown(socket.SHUT_RD)


class BodiesInTime:
    """An application whose callers have so many seconds for a body."""

    def __init__(self, application: Application, seconds: float) -> None:
        self._application = application
        self._seconds = seconds
        self._late = Late()

    def __call__(self, environ: Environ, start_response: Any) -> Iterable[bytes]:
        connection = environ.get("gunicorn.socket")
        if connection is not None:
            environ["wsgi.input"] = InTime(environ["wsgi.input"], connection, self._seconds, self._late)
        return self._application(environ, start_response)
