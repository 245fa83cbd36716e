"""The HTTP client of all parts of MDV. It gets over servers that close an idle connection.

A server may close a connection just when a request is sent over it. The client cannot tell from the closed connection
whether the request was processed. So:

- Requests that may be repeated go over kept connections. If a kept connection closes before an answer begins, the
  request is sent again, once, over a new connection.
- All other requests go over a new connection each, which no server closes for being idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http.cookiejar import CookieJar
from types import TracebackType
from typing import Any

import httpx2

IDLE_SECONDS = 5.0
"""How long a client keeps an idle connection. Servers keep theirs longer (`mdv.cli.server_commands`)."""
MAX_CONNECTIONS = 64
MAX_KEPT_CONNECTIONS = 16

REPEATABLE = "repeatable"
"""The extension of a request that may be repeated although its method is not idempotent, such as a query by POST."""

_IDEMPOTENT_METHODS = {"GET", "HEAD", "PUT", "DELETE"}


def may_repeat(method: str, header_names: Iterable[str] = ()) -> bool:
    """True if a request has the same effect when it is processed twice.

    >>> may_repeat("GET"), may_repeat("POST"), may_repeat("POST", ["Idempotency-Key"])
    (True, False, True)
    """
    return method.upper() in _IDEMPOTENT_METHODS or any(name.lower() == "idempotency-key" for name in header_names)


class HttpClient(httpx2.Client):
    """An `httpx2.Client` that may be used by several threads at once."""

    def __init__(self, *, trust_env: bool = True, **options: Any) -> None:
        shared = {
            **options,
            "trust_env": trust_env,
            "verify": httpx2.create_ssl_context(trust_env=trust_env),
            "cookies": CookieJar(),
        }
        super().__init__(
            limits=httpx2.Limits(
                max_connections=MAX_CONNECTIONS,
                max_keepalive_connections=MAX_KEPT_CONNECTIONS,
                keepalive_expiry=IDLE_SECONDS,
            ),
            **shared,
        )
        self._unkept = httpx2.Client(
            limits=httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=0), **shared
        )

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if not (request.extensions.get(REPEATABLE) or may_repeat(request.method, request.headers)):
            return self._unkept.send(request, **options)
        progress = _Progress()
        request.extensions = {**request.extensions, "trace": progress}
        try:
            return super().send(request, **options)
        except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
            if progress.is_new_connection or not progress.is_sent or progress.is_answered:
                raise
        return self._unkept.send(request, **options)

    def close(self) -> None:
        super().close()
        self._unkept.close()

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self._unkept.close()


class _Progress:
    """How far a request has come, as the connection pool traces it."""

    is_new_connection = False
    is_sent = False
    is_answered = False

    def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        if event.startswith("connection.connect_"):
            self.is_new_connection = True
        elif event == "http11.send_request_headers.started":
            self.is_sent = True
        elif event == "http11.receive_response_headers.complete":
            self.is_answered = True
