"""A proxy between a worker and Postgres that breaks between a COMMIT and its answer."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"
"""The message of Postgres's protocol: a simple query of eleven bytes."""
EVERY = 3


class CommitProxy:
    """Forwards everything; every third COMMIT is forwarded, executed by Postgres, and not answered."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._commits = 0
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                below, _ = self._listener.accept()
                above = socket.create_connection(("127.0.0.1", self._port), timeout=5)
            except OSError:
                return
            above.settimeout(None)
            cut = threading.Event()
            threading.Thread(target=self._carry_up, args=(below, above, cut), daemon=True).start()
            threading.Thread(target=self._carry_down, args=(above, below, cut), daemon=True).start()

    def _carry_up(self, below: socket.socket, above: socket.socket, cut: threading.Event) -> None:
        with suppress(OSError):
            while part := below.recv(65536):
                if COMMIT in part and self._is_due():
                    cut.set()
                above.sendall(part)
        _end(above)

    def _carry_down(self, above: socket.socket, below: socket.socket, cut: threading.Event) -> None:
        with suppress(OSError):
            while part := above.recv(65536):
                if cut.is_set():  # this is the answer to the COMMIT, which was executed
                    with self._lock:
                        self.cuts += 1
                    break
                below.sendall(part)
        _end(below)
        _end(above)

    def _is_due(self) -> bool:
        with self._lock:
            self._commits += 1
            return self._commits % EVERY == 0


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
