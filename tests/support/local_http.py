"""HTTP clients for servers on this machine. They share one TLS context: making one takes longer than a request.

Time limits only guard against a hang.
"""

from __future__ import annotations

from functools import cache
from ssl import SSLContext
from typing import Any

import httpx2


@cache
def _tls() -> SSLContext:
    return httpx2.create_ssl_context()


MAX_SECONDS = 60


def local_client(**options: Any) -> httpx2.Client:
    return httpx2.Client(**{"verify": _tls(), "timeout": MAX_SECONDS, **options})


def request(method: str, url: str, **options: Any) -> httpx2.Response:
    """Send one request over a connection of its own."""
    return httpx2.request(method, url, **{"verify": _tls(), "timeout": MAX_SECONDS, **options})


def get(url: str, **options: Any) -> httpx2.Response:
    return request("GET", url, **options)


def post(url: str, **options: Any) -> httpx2.Response:
    return request("POST", url, **options)


def put(url: str, **options: Any) -> httpx2.Response:
    return request("PUT", url, **options)
