"""Tokens over HTTP: created, listed, revoked, expired, with the time of last use."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import datetime

import pytest
import sqlalchemy

from mdv.db.engine import make_engine
from tests.support.eventually import eventually
from tests.support.server import PROBLEM, Server, provider

Make = Callable[..., tuple[str, int]]

_numbers = itertools.count(1)


@pytest.fixture
def name() -> str:
    return f"managed {next(_numbers)}"


@pytest.fixture
def change(system_database: str) -> Iterator[Callable[[str], None]]:
    """Run a statement on the database of the system."""
    engine = make_engine(system_database)

    def run(statement: str) -> None:
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(statement))

    yield run
    engine.dispose()


def test_a_token_is_created_used_and_revoked(server: Server, name: str, doc: str) -> None:
    admin = server.api()
    draft = {"name": name, "document_prefixes": ["http://docs.example/"], "expires": "90d"}
    made = admin.http.post("/api/v1/tokens", json=draft)
    assert made.status_code == 201, made.text
    token = made.json()
    secret = token.pop("token")
    assert secret.startswith("mdv_") and token["state"] == "valid" and token["used_at"] is None
    lifetime = datetime.fromisoformat(token["expires_at"]) - datetime.fromisoformat(token["created_at"])
    assert lifetime.days in (89, 90) and token["created_by"] == "token admin" and token["resource_prefixes"] is None
    path = f"/tokens/{token['id']}"
    shown = admin.get(path)
    assert shown.json() == token and secret not in shown.text
    own = server.api(secret)
    assert (
        own.put(doc, provider()).status_code == 201 and own.put("http://else.example/", provider()).status_code == 403
    )
    eventually(lambda: admin.get(path).json()["used_at"])
    assert admin.http.delete("/api/v1" + path).json()["state"] == "revoked"
    assert admin.http.delete("/api/v1" + path).status_code == 404
    assert own.get("/documents").status_code == 401


def test_tokens_are_listed_newest_first_in_pages(server: Server, name: str) -> None:
    admin = server.api()
    made = [admin.http.post("/api/v1/tokens", json={"name": name, "role": "viewer"}).json()["id"] for _ in range(3)]
    admin.http.delete(f"/api/v1/tokens/{made[1]}")
    assert [item["id"] for item in admin.get("/tokens", limit=3).json()["items"]] == made[::-1]
    assert [item["id"] for item in admin.get("/tokens", limit=2, state="valid").json()["items"]] == [made[2], made[0]]
    listed = [item["id"] for item in admin.all("/tokens", 2)]
    assert listed == sorted(listed, reverse=True) and set(made) <= set(listed)
    assert admin.get("/tokens", state="old").status_code == 400
    assert admin.get("/tokens", after="x").status_code == 400
    assert admin.get("/tokens", after=str(10**17)).status_code == 200, "also beyond the ids of the table"


def test_an_expired_token_is_401_with_the_time_of_expiry(
    server: Server, make_token: Make, change: Callable[[str], None]
) -> None:
    secret, number = make_token("viewer")
    assert server.api(secret).get("/documents").status_code == 200
    change(f"update tokens set expires_at = '2026-01-31T12:00Z' where id = {number}")
    refused = server.api(secret).get("/documents")
    assert refused.status_code == 401 and refused.headers["Content-Type"] == PROBLEM
    assert "The token expired on 2026-01-31 12:00 UTC." in refused.json()["detail"]
    assert refused.headers["WWW-Authenticate"].startswith("Bearer")
    assert server.api().get(f"/tokens/{number}").json()["state"] == "expired"


def test_an_expired_token_of_an_lmr_opens_its_feed_no_more(
    server: Server, name: str, change: Callable[[str], None]
) -> None:
    made = server.api().http.post("/api/v1/lmrs", json={"name": name}).json()
    own = server.api(made["token"])
    assert own.get("/lmrs/self/feed").status_code == 200
    (token,) = [item for item in server.api().all("/tokens", 100) if item["lmr"] == made["id"]]
    assert (token["name"], token["role"]) == (name, "lmr")
    change(f"update tokens set expires_at = now() where id = {token['id']}")
    assert "expired" in own.get("/lmrs/self/feed").json()["detail"]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"name": ""}, "1 to 100"),
        ({"name": "x" * 101}, "1 to 100"),
        ({"name": "a\nb"}, "printable"),
        ({"name": " a "}, "printable"),
        ({"name": "a", "role": "lmr"}, "role"),
        ({"name": "a", "role": "viewer", "document_prefixes": ["http://a/"]}, "nothing to limit"),
        ({"name": "a", "document_prefixes": ["not a uri"]}, "not the prefix of a URI"),
        ({"name": "a", "resource_prefixes": ["http://a/../b"]}, "segment"),
        ({"name": "a", "resource_prefixes": ["http://a/" + "x" * 3000]}, "maximum is 2048"),
        ({"name": "a", "document_prefixes": ["http://a/"] * 101}, "maximum is 100"),
        ({"name": "a", "expires": "2031-02-30"}, "is not an expiry"),
        ({"name": "a", "expires": "2001-01-01"}, "not in the future"),
        ({"name": "a", "expires": 90}, "expires"),
        ({"name": "a", "secret": "mine"}, "secret"),
        ({}, "name"),
    ],
)
def test_an_invalid_token_is_refused_with_a_reason(server: Server, wrong: dict, sentence: str) -> None:
    admin = server.api()
    newest = admin.get("/tokens", limit=1).json()["items"]
    refused = admin.http.post("/api/v1/tokens", json=wrong)
    assert refused.status_code == 400 and sentence in refused.json()["detail"], refused.text
    assert admin.get("/tokens", limit=1).json()["items"] == newest


@pytest.mark.parametrize("number", ["0", "4711000", "99999999999", "x", "-1", "1.5"])
def test_an_unknown_token_is_not_found(server: Server, number: str) -> None:
    admin = server.api()
    assert admin.get(f"/tokens/{number}").status_code == 404
    assert admin.http.delete(f"/api/v1/tokens/{number}").status_code == 404


def test_tokens_are_managed_by_unlimited_admins_only(server: Server, make_token: Make, name: str) -> None:
    lmr = server.api().http.post("/api/v1/lmrs", json={"name": name}).json()["token"]
    limited = make_token(documents=["http://mine.example/"])[0], make_token(resources=["http://mine.example/"])[0]
    _, number = make_token("viewer")
    for status, secret in ((401, None), (401, "wrong"), (403, make_token("viewer")[0]), (403, lmr),
                           *((403, secret) for secret in limited)):  # fmt: skip
        api = server.api(secret)
        for method, path in (("GET", "/tokens"), ("POST", "/tokens"), ("GET", f"/tokens/{number}"),
                             ("DELETE", f"/tokens/{number}")):  # fmt: skip
            answer = api.http.request(method, f"/api/v1{path}", json={"name": "x"} if method == "POST" else None)
            assert answer.status_code == status, (method, path, secret, answer.text)
    assert server.api().get(f"/tokens/{number}").json()["state"] == "valid"
