"""One kept-alive connection of HTTP/1.1, as bare as can be: the load must cost the machine next to nothing.

    wire = Wire("http://127.0.0.1:8080", token)
    answer = await wire.ask("GET", "/api/v1/documents?limit=1")

A connection that the server has closed meanwhile is opened again before something is sent, never after: what was sent
once is not sent twice.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from mdv.client import retry_after

LONGEST_ANSWER = 90.0


class WireError(Exception):
    """The connection broke, or what came over it was not HTTP."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        try:
            found = json.loads(self.body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise WireError(f"answered {self.status} with something else than JSON")
        return found

    @property
    def pause(self) -> float:
        """The seconds to wait before asking again."""
        return retry_after(self.headers.get("retry-after"), 1)


class Wire:
    """A connection to one server, with one token, for one request at a time."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._host, self._tls = parts.hostname or "", parts.scheme == "https"
        self._port = parts.port or (443 if self._tls else 80)
        self._path = parts.path.rstrip("/")
        self._common = f"Host: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes = b"", headers: str = "") -> Answer:
        """One request and its answer; `headers` are whole lines."""
        head = f"{method} {self._path}{path} HTTP/1.1\r\n{self._common}{headers}Content-Length: {len(body)}\r\n\r\n"
        whole = False
        try:
            async with asyncio.timeout(LONGEST_ANSWER):
                reader, writer = await self._open()
                writer.write(head.encode() + body)
                answer = await _read(reader)
            whole = answer.headers.get("connection") != "close"
            return answer
        except TimeoutError:
            raise WireError(f"no answer within {LONGEST_ANSWER:g} s") from None
        except asyncio.IncompleteReadError:
            raise WireError("cut off") from None
        except OSError as error:
            raise WireError(error.strerror or type(error).__name__) from None
        finally:
            if not whole:  # given up in the middle, too: what is still to come would be taken for the next answer
                self.close()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is not None and self._streams[0].at_eof():
            self.close()
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port, ssl=self._tls or None)
        return self._streams

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _read(reader: asyncio.StreamReader) -> Answer:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = first.split(" ", 2)[1:2]
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = headers.get("content-length", "")
    if not status or not status[0].isdecimal() or not length.isdecimal():
        raise WireError("not answered as an MDV does")
    return Answer(int(status[0]), headers, await reader.readexactly(int(length)))
