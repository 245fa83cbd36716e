"""Calls of a site of a federation to its neighbours. Exchanges are signed; a new neighbour sends an invitation code."""

from __future__ import annotations

import json
from typing import Any

import httpx2

from mdv.client import is_loopback
from mdv.errors import Unavailable
from mdv.http_client import HttpClient
from mdv.replication.peer_client import CONNECT_SECONDS, TIMEOUT_SECONDS, SignedClient, problem_of

FEDERATION_API = "/api/v1/federation"


class FederationClient(SignedClient):
    """Calls one neighbour in a federation."""

    def __init__(self, url: str, name: str, private_key: bytes) -> None:
        super().__init__(url, name, private_key, FEDERATION_API)

    def exchange(self, body: str, wait: float = 0) -> bytes:
        """Send messages, and return those of the other side as JSON. `wait`: how long it may wait for some."""
        query = {"wait": f"{wait:g}"} if wait else {}
        return self._send("POST", "/exchange", query, body.encode(), TIMEOUT_SECONDS + wait).content


def send_new_neighbour(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Ask a superpeer to accept this MDP as a neighbour. Return its answer."""
    timeout = httpx2.Timeout(TIMEOUT_SECONDS, connect=CONNECT_SECONDS, pool=None)
    with HttpClient(timeout=timeout, follow_redirects=False, trust_env=not is_loopback(url)) as http:
        try:
            response = http.request(
                "POST", f"{url}{FEDERATION_API}/links", content=json.dumps(body).encode(),
                headers={"Content-Type": "application/json", "Accept": "application/json"},
            )  # fmt: skip
        except httpx2.HTTPError as error:
            raise Unavailable(f"{url} cannot be reached: {str(error).rstrip('.') or type(error).__name__}.") from error
    if not response.is_success:
        raise problem_of(response, url)
    answer: dict[str, Any] = response.json()
    return answer
