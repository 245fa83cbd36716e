"""Bytes sent to a server as they are, valid HTTP or not."""

from __future__ import annotations

import socket
from contextlib import suppress


def send_raw(port: int, request: bytes, seconds: float = 60) -> bytes:
    """Return what the server sends until it closes the connection, or is silent for `seconds`.

    A server that refuses a request may close the connection while the client is still sending.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        with suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(request)
        answer = b""
        with suppress(TimeoutError, ConnectionResetError):
            while part := connection.recv(65536):
                answer += part
        return answer
