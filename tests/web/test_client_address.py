"""Behind proxies: the client's address, for limits and logs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from mdv.config import Config
from tests.support import local_http
from tests.support.lmr_server import start_lmr_server
from tests.support.server import ADMIN, Server, start_server, stopping

pytestmark = pytest.mark.full

PROXIES = {"MDV_TRUSTED_PROXIES": "127.0.0.1, 10.0.0.0/8"}
LIMITS = {"mdp": 10, "lmr": 20}
"""The number of failed sign-ins allowed from one address."""


@pytest.fixture(scope="module")
def servers(folder: Path, new_database: Callable[[], str], new_queue: Callable[[], str]) -> Iterator[dict[str, Server]]:
    """An MDP and an LMR behind a trusted proxy, and both without any."""
    database, queue = new_database(), new_queue()

    def lmr(name: str, **settings: str) -> Server:
        store = f"sqlite:///{folder}/{name}.db"
        return start_lmr_server(folder, "http://127.0.0.1:9", "a-token", store, ready=False, **settings)

    started = {
        "mdp": start_server(folder, database, queue, **PROXIES),
        "mdp alone": start_server(folder, database, queue),
        "lmr": lmr("proxied", **PROXIES),
        "lmr alone": lmr("not-proxied"),
    }
    with stopping(*started.values()):
        yield started


def attempts(server: Server, count: int, forwarded: str, address: str = "127.0.0.1") -> list[int]:
    """Try to sign in, over connections from `address`. Return the status codes."""
    transport = httpx2.HTTPTransport(verify=False, local_address=address)
    with httpx2.Client(base_url=server.url, headers={"X-Forwarded-For": forwarded}, transport=transport) as client:
        return [client.post("/sign-in", data={"secret": f"guess {n}"}).status_code for n in range(count)]


@pytest.mark.parametrize("kind", ["mdp", "lmr"])
def test_each_client_behind_a_trusted_proxy_has_its_own_sign_in_limit(kind: str, servers: dict[str, Server]) -> None:
    limit, server = LIMITS[kind], servers[kind]
    assert attempts(server, limit + 1, "192.0.2.1") == [401] * limit + [429]
    assert attempts(server, 1, "203.0.113.9, 192.0.2.1, 10.1.2.3") == [429], "earlier entries may be forged"
    assert attempts(server, 1, "192.0.2.2") == [401]


@pytest.mark.parametrize("kind", ["mdp", "lmr"])
def test_the_log_has_the_address_of_the_client(kind: str, servers: dict[str, Server]) -> None:
    for name, address in ((kind, "192.0.2.77"), (f"{kind} alone", "127.0.0.1")):
        headers = {"X-Forwarded-For": "192.0.2.77", "X-Request-ID": f"who-{kind}"}
        assert local_http.get(servers[name].url + "/healthz", headers=headers).status_code == 200
        lines = [json.loads(line) for line in servers[name].words().splitlines() if f'"who-{kind}"' in line]
        assert [line["address"] for line in lines if line["event"] == "answered"] == [address]


@pytest.mark.parametrize(
    ("name", "secret", "is_secure"),
    [("mdp", ADMIN, True), ("lmr", "a-token", True), ("mdp alone", ADMIN, False), ("lmr alone", "a-token", False)],
)
def test_only_a_trusted_proxy_may_declare_tls(
    name: str, secret: str, is_secure: bool, servers: dict[str, Server]
) -> None:
    headers = {"X-Forwarded-For": "192.0.2.88", "X-Forwarded-Proto": "https"}
    answer = local_http.post(servers[name].url + "/sign-in", data={"secret": secret}, headers=headers)
    assert answer.status_code == 303
    assert ("Secure" in answer.headers["Set-Cookie"]) is is_secure


def test_an_invalid_list_of_proxies_is_refused() -> None:
    with pytest.raises(
        SystemExit, match=r"MDV_TRUSTED_PROXIES is 'proxy\.example'; it must be a comma-separated list of IP addresses"
    ):
        Config.from_environment({"MDV_TRUSTED_PROXIES": "proxy.example"})


@pytest.mark.parametrize("kind", ["mdp", "lmr"])
def test_headers_from_an_untrusted_address_are_ignored(kind: str, servers: dict[str, Server]) -> None:
    limit, server = LIMITS[kind], servers[f"{kind} alone"]
    # From an address that no other test uses: its limit is used up.
    tried = [attempts(server, 1, f"198.51.100.{n}", address="127.0.0.66")[0] for n in range(limit + 1)]
    assert tried == [401] * limit + [429]
