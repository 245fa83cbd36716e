"""Send one POST request to a webhook receiver, with a total timeout."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any

import httpcore2
import httpx2

import mdv
from mdv.errors import BadRequest
from mdv.webhooks.address import Resolve, Target, allowed_addresses, parse_url, resolve

CONNECT_TIMEOUT_SECONDS = 5.0
REQUEST_TIMEOUT_SECONDS = 15.0
"""Total timeout of connection, request and response."""
MAX_RESPONSE_BYTES = 64 * 1024
MAX_REASON_CHARACTERS = 200
MAX_ADDRESSES_TRIED = 8

_FAILURES = (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError)


@dataclass(frozen=True, slots=True)
class WebhookResponse:
    """The result of a message: the HTTP status, if the receiver answered; the reason, if it was not accepted; and the
    seconds in `Retry-After`. `body`: the answer, if it was asked for, of the type `media_type`."""

    status: int | None
    reason: str | None = None
    retry_after: float | None = None
    body: bytes | None = None
    media_type: str | None = None

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
    seconds: float = REQUEST_TIMEOUT_SECONDS,
    context: ssl.SSLContext | None = None,
    most_read: int | None = None,
) -> WebhookResponse:
    """Send a JSON body. Redirects are not followed; proxies, cookies and passwords of the environment are not used.
    `most_read`: return the body of the answer, of at most this many bytes."""
    deadline = time.monotonic() + seconds
    try:
        target = parse_url(url)
        backend = _CheckedBackend(allowed_addresses(target, private, resolve), deadline)
    except BadRequest as error:
        return WebhookResponse(None, error.detail)
    try:
        with (
            httpcore2.ConnectionPool(ssl_context=context or _context(), network_backend=backend) as pool,
            pool.stream(
                "POST",
                httpcore2.URL(
                    scheme=target.scheme.encode(), host=target.host.encode(), port=target.port, target=target.path
                ),
                headers=_headers(target, headers),
                content=body,
                extensions={"timeout": {"connect": CONNECT_TIMEOUT_SECONDS}},
            ) as response,
        ):
            return _answer(response, most_read)
    except httpcore2.ConnectTimeout:
        return WebhookResponse(None, f"The connection timed out after {min(CONNECT_TIMEOUT_SECONDS, seconds):g} s.")
    except httpcore2.TimeoutException:
        return WebhookResponse(None, f"The response was not complete after {seconds:g} s.")
    except (*_FAILURES, ValueError) as error:  # ValueError: a host name that TLS does not accept
        return WebhookResponse(None, f"The request failed: {_printable(str(error)) or type(error).__name__}.")


def _headers(target: Target, more: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    own = {"Content-Type": "application/json", "User-Agent": f"mdv/{mdv.__version__}", "Connection": "close"}
    return [
        (b"Host", target.authority),
        *((name.encode(), value.encode()) for name, value in (own | dict(more)).items()),
    ]


def _answer(response: httpcore2.Response, most_read: int | None) -> WebhookResponse:
    status = response.status
    headers = {name.lower(): value.decode("latin-1") for name, value in response.headers}
    if 200 <= status < 300:
        return WebhookResponse(status) if most_read is None else _whole(response, headers, most_read)
    if 300 <= status < 400:
        where = _printable(headers.get(b"location", ""))
        leads = f" to {where}" if where else ""
        return WebhookResponse(status, f"It answered {status}, a redirect{leads}, and redirects are not followed.")
    text = _read(response)
    after = retry_after(headers.get(b"retry-after")) if status in (429, 503) else None
    return WebhookResponse(status, f"It answered {status}" + (f": {text}" if text else "."), after)


def _whole(response: httpcore2.Response, headers: Mapping[bytes, str], most: int) -> WebhookResponse:
    """Return an answer with its body. Raise an error of the connection if it does not arrive whole."""
    found = bytearray()
    for part in response.iter_stream():
        found += part
        if len(found) > most:
            return WebhookResponse(response.status, f"The answer has more than {most:,} bytes.")
    return WebhookResponse(response.status, body=bytes(found), media_type=headers.get(b"content-type"))


def _read(response: httpcore2.Response) -> str:
    """Return the beginning of the response body, as far as it arrived."""
    found = bytearray()
    try:
        for part in response.iter_stream():
            found += part
            if len(found) >= MAX_RESPONSE_BYTES:
                break
    except _FAILURES:
        pass
    return _printable(found[:MAX_RESPONSE_BYTES].decode("utf-8", "replace"))


def _printable(text: str) -> str:
    """Return the beginning of `text` on one line, without control characters.

    >>> _printable("down \\x1b[31m\\n for  today")
    'down [31m for today'
    """
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:MAX_REASON_CHARACTERS]


def retry_after(header: str | None, now: datetime | None = None) -> float | None:
    """Return the seconds in a `Retry-After` header, given as a number or a date; None if it is invalid.

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
    return httpx2.create_ssl_context()


class _CheckedBackend(httpcore2.NetworkBackend):
    """Connects only to the checked addresses, also if the name resolves to others by now. All I/O has one deadline."""

    def __init__(self, addresses: list[str], deadline: float) -> None:
        self._addresses = addresses[:MAX_ADDRESSES_TRIED]
        self._deadline = deadline
        self._plain = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        deadline = min(self._deadline, time.monotonic() + (timeout or CONNECT_TIMEOUT_SECONDS))
        error: Exception = httpcore2.ConnectTimeout()
        for number, address in enumerate(self._addresses):
            # The remaining time is shared among the remaining addresses.
            share = (deadline - time.monotonic()) / (len(self._addresses) - number)
            if share <= 0:
                break
            try:
                stream = self._plain.connect_tcp(address, port, share, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as reason:
                error = reason
            else:
                return _DeadlineStream(stream, self._deadline)
        raise error


class _DeadlineStream(httpcore2.NetworkStream):
    """A stream with a deadline. A timeout for each read would restart with every byte."""

    def __init__(self, stream: httpcore2.NetworkStream, deadline: float) -> None:
        self._stream = stream
        self._deadline = deadline

    def _remaining(self, timeout: float | None, timeout_error: type[Exception]) -> float:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise timeout_error("the deadline has passed")
        return remaining if timeout is None else min(timeout, remaining)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._remaining(timeout, httpcore2.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._remaining(timeout, httpcore2.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        remaining = self._remaining(timeout, httpcore2.ConnectTimeout)
        return _DeadlineStream(self._stream.start_tls(ssl_context, server_hostname, remaining), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
