"""A minimal HTTP/1.1 client with one persistent connection, so that generating the load costs as little as possible.

    connection = HttpConnection("http://127.0.0.1:8080", token)
    response = await connection.request("GET", "/api/v1/documents?limit=1")

A kept connection that closes before an answer begins is opened again, and the request is sent again if that is safe
(`mdv.http_client`). Requests that must not be processed twice go over a new connection each.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from mdv.client import retry_delay
from mdv.http_client import IDLE_SECONDS, may_repeat

RESPONSE_TIMEOUT_SECONDS = 90.0


class HttpConnectionError(Exception):
    """The connection failed, or the server did not speak HTTP."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        try:
            found = json.loads(self.body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise HttpConnectionError(f"status {self.status} without a JSON object")
        return found

    @property
    def pause(self) -> float:
        """Seconds to wait before the next request."""
        return retry_delay(self.headers.get("retry-after"), 1)


class HttpConnection:
    """A connection to one server, with one token, for one request at a time."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._host, self._is_tls = parts.hostname or "", parts.scheme == "https"
        self._port = parts.port or (443 if self._is_tls else 80)
        self._path = parts.path.rstrip("/")
        self._common = f"Host: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._idle_since = 0.0

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: str = "", *, is_repeatable: bool = False
    ) -> HttpResponse:
        """Send a request and return the response. `headers` are complete lines. `is_repeatable`: by any method."""
        head = f"{method} {self._path}{path} HTTP/1.1\r\n{self._common}{headers}Content-Length: {len(body)}\r\n\r\n"
        is_repeatable |= may_repeat(method, (line.partition(":")[0] for line in headers.splitlines()))
        if not is_repeatable or time.monotonic() - self._idle_since > IDLE_SECONDS:
            self.close()
        is_reusable = False
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT_SECONDS):
                response = await self._exchange(head.encode() + body, is_repeatable)
            is_reusable = response.headers.get("connection") != "close"
            return response
        except TimeoutError:
            raise HttpConnectionError(f"no response within {RESPONSE_TIMEOUT_SECONDS:g} s") from None
        except asyncio.IncompleteReadError:
            raise HttpConnectionError("connection closed") from None
        except OSError as error:
            raise HttpConnectionError(error.strerror or type(error).__name__) from None
        finally:
            self._idle_since = time.monotonic()
            if not is_reusable:  # also when cancelled: the rest of the response would be taken for the next one
                self.close()

    async def _exchange(self, request: bytes, is_repeatable: bool) -> HttpResponse:
        was_kept = self._streams is not None
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port, ssl=self._is_tls or None)
        reader, writer = self._streams
        try:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, OSError) as error:
            if not (is_repeatable and was_kept) or (isinstance(error, asyncio.IncompleteReadError) and error.partial):
                raise
            self.close()
            return await self._exchange(request, is_repeatable)
        return await _answer(head, reader)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _answer(head: bytes, reader: asyncio.StreamReader) -> HttpResponse:
    first, *lines = head.decode("latin-1").split("\r\n")
    status = first.split(" ", 2)[1:2]
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = headers.get("content-length", "")
    if not status or not status[0].isdecimal() or not length.isdecimal():
        raise HttpConnectionError("the response is not from MDV")
    return HttpResponse(int(status[0]), headers, await reader.readexactly(int(length)))
