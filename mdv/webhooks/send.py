"""Send: one POST to a receiver, within a time, and what came of it in a sentence."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any

import httpcore
import httpx

import mdv
from mdv.errors import BadRequest
from mdv.webhooks.address import Resolve, Target, allowed_addresses, read_url, resolve

CONNECT_SECONDS = 5.0
SECONDS = 15.0
"""For the whole exchange, however many bytes come in between."""
MOST_BYTES = 64 * 1024
MOST_CHARACTERS = 200
MOST_ADDRESSES = 8

_FAILURES = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a message: the receiver's status, if it answered; a sentence, if it was not taken; and for how many
    seconds the receiver wants to be left alone."""

    status: int | None
    reason: str | None = None
    retry_after: float | None = None

    @property
    def is_success(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def send(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    private: bool = False,
    *,
    resolve: Resolve = resolve,
    seconds: float = SECONDS,
    context: ssl.SSLContext | None = None,
) -> Answer:
    """Post a JSON body. Redirects are not followed; no proxy, cookie or password is taken from anywhere."""
    ends = time.monotonic() + seconds
    try:
        target = read_url(url)
        backend = _Checked(allowed_addresses(target, private, resolve), ends)
    except BadRequest as error:
        return Answer(None, error.detail)
    try:
        with (
            httpcore.ConnectionPool(ssl_context=context or _context(), network_backend=backend) as pool,
            pool.stream(
                "POST",
                httpcore.URL(
                    scheme=target.scheme.encode(), host=target.host.encode(), port=target.port, target=target.path
                ),
                headers=_headers(target, headers),
                content=body,
                extensions={"timeout": {"connect": CONNECT_SECONDS}},
            ) as response,
        ):
            return _answer(response)
    except httpcore.ConnectTimeout:
        return Answer(None, f"No connection was made within {min(CONNECT_SECONDS, seconds):g} s.")
    except httpcore.TimeoutException:
        return Answer(None, f"No whole answer came within {seconds:g} s.")
    except (*_FAILURES, ValueError) as error:  # ValueError: a name that TLS cannot take
        return Answer(None, f"The exchange failed: {_printable(str(error)) or type(error).__name__}.")


def _headers(target: Target, more: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    own = {"Content-Type": "application/json", "User-Agent": f"mdv/{mdv.__version__}", "Connection": "close"}
    return [
        (b"Host", target.authority),
        *((name.encode(), value.encode()) for name, value in (own | dict(more)).items()),
    ]


def _answer(response: httpcore.Response) -> Answer:
    status = response.status
    if 200 <= status < 300:
        return Answer(status)
    headers = {name.lower(): value.decode("latin-1") for name, value in response.headers}
    if 300 <= status < 400:
        where = _printable(headers.get(b"location", ""))
        leads = f" to {where}" if where else ""
        return Answer(status, f"It answered {status}, a redirect{leads}, and redirects are not followed.")
    text = _read(response)
    after = retry_after(headers.get(b"retry-after")) if status in (429, 503) else None
    return Answer(status, f"It answered {status}" + (f": {text}" if text else "."), after)


def _read(response: httpcore.Response) -> str:
    """The beginning of an answer, as far as it came."""
    found = bytearray()
    try:
        for part in response.iter_stream():
            found += part
            if len(found) >= MOST_BYTES:
                break
    except _FAILURES:
        pass
    return _printable(found[:MOST_BYTES].decode("utf-8", "replace"))


def _printable(text: str) -> str:
    """The beginning of `text`, on one line.

    >>> _printable("down \\x1b[31m\\n for  today")
    'down [31m for today'
    """
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:MOST_CHARACTERS]


def retry_after(header: str | None, now: datetime | None = None) -> float | None:
    """The seconds that a `Retry-After` asks for, as a number or a date.

    >>> retry_after("90"), retry_after("soon"), retry_after(None)
    (90.0, None, None)
    >>> retry_after("Wed, 21 Oct 2026 07:28:00 GMT", datetime(2026, 10, 21, 7, 27, tzinfo=UTC))
    60.0
    """
    text = (header or "").strip()
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
        return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())
    except (ValueError, TypeError):
        return None


@cache
def _context() -> ssl.SSLContext:
    return httpx.create_ssl_context()


class _Checked(httpcore.NetworkBackend):
    """Connects to addresses that were looked at, wherever the name may lead by now; all of it ends at one moment."""

    def __init__(self, addresses: list[str], ends: float) -> None:
        self._addresses = addresses[:MOST_ADDRESSES]
        self._ends = ends
        self._plain = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        ends = min(self._ends, time.monotonic() + (timeout or CONNECT_SECONDS))
        error: Exception = httpcore.ConnectTimeout()
        for number, address in enumerate(self._addresses):
            # What is left of the time, shared among the addresses that are left.
            share = (ends - time.monotonic()) / (len(self._addresses) - number)
            if share <= 0:
                break
            try:
                stream = self._plain.connect_tcp(address, port, share, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as reason:
                error = reason
            else:
                return _Ending(stream, self._ends)
        raise error


class _Ending(httpcore.NetworkStream):
    """A stream that ends at a moment. A time limit for each read would begin anew with every byte."""

    def __init__(self, stream: httpcore.NetworkStream, ends: float) -> None:
        self._stream = stream
        self._ends = ends

    def _left(self, timeout: float | None, late: type[Exception]) -> float:
        left = self._ends - time.monotonic()
        if left <= 0:
            raise late("the time is up")
        return left if timeout is None else min(timeout, left)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = self._left(timeout, httpcore.ConnectTimeout)
        return _Ending(self._stream.start_tls(ssl_context, server_hostname, left), self._ends)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
