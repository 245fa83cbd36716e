"""Permissions: no token, wrong tokens, viewers, admins limited to prefixes, public reading."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest

from mdv.db.engine import make_engine
from mdv.db.tokens import revoke_token
from tests.support.server import ADMIN, PROBLEM, SCHEMA, Api, Process, Server, provider, turtle

Make = Callable[..., tuple[str, int]]


def calls(api: Api, doc: str) -> dict[str, int]:
    """Return the status of one call of each kind."""
    return {
        "read": api.get("/documents").status_code,
        "job": api.get("/jobs/00000000-0000-0000-0000-000000000000").status_code,
        "schema": api.get("/schema").status_code,
        "put": api.put(doc, provider()).status_code,
        "delete": api.delete(doc).status_code,
        "put schema": api.put_schema(SCHEMA).status_code,
    }


@pytest.mark.parametrize("header", [None, "", "Bearer", "Basic YWRtaW46", ADMIN, "Bearer wrong", "Bearer \xff"])
def test_without_a_valid_token_every_call_is_401_with_www_authenticate(
    server: Server, doc: str, header: str | None
) -> None:
    api = server.api(None)
    if header is not None:
        api.http.headers = httpx2.Headers([(b"Authorization", header.encode("latin-1"))], encoding="latin-1")
    assert set(calls(api, doc).values()) == {401}
    answer = api.get("/documents")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer") and answer.headers["Content-Type"] == PROBLEM


def test_a_revoked_token_is_refused_immediately(server: Server, make_token: Make, system_database: str) -> None:
    secret, number = make_token()
    assert server.api(secret).get("/documents").status_code == 200
    engine = make_engine(system_database)
    with engine.begin() as connection:
        assert revoke_token(connection, number)
    engine.dispose()
    answer = server.api(secret).get("/documents")
    assert answer.status_code == 401 and "revoked" in answer.json()["detail"]


def test_the_bearer_scheme_is_case_insensitive(server: Server) -> None:
    api = server.api(None)
    api.http.headers["Authorization"] = f"bearer  {ADMIN}"
    assert api.get("/documents").status_code == 200


def test_a_viewer_can_read_and_not_write(server: Server, make_token: Make, doc: str) -> None:
    found = calls(server.api(make_token("viewer")[0]), doc)
    assert found == {"read": 200, "job": 404, "schema": 200, "put": 403, "delete": 403, "put schema": 403}


def test_an_admin_token_with_document_prefixes_writes_only_below_them(server: Server, make_token: Make) -> None:
    own = server.api(make_token(documents=["http://mine.example"])[0])
    assert own.put("http://mine.example/a.rdf", provider()).status_code == 201
    assert own.delete("http://mine.example/a.rdf").status_code == 200
    for uri in ("http://mine.example.evil/a", "http://mine.exampleevil/a", "http://mine.example:80/a",
                "http://mine.example@evil/a", "https://mine.example/a", "http://other.example/a"):  # fmt: skip
        for answer in (own.put(uri, provider()), own.delete(uri)):
            assert answer.status_code == 403, uri
            assert answer.headers["Content-Type"] == PROBLEM and "http://mine.example" in answer.json()["detail"]
    assert own.put_schema(SCHEMA).status_code == 403
    assert own.get("/documents").status_code == 200


def test_an_admin_token_with_resource_prefixes_describes_only_those_and_its_blank_nodes(
    server: Server, make_token: Make, doc: str
) -> None:
    own = server.api(make_token(resources=["http://mine.example/"])[0])
    good = turtle("<http://mine.example/a> ex:knows [ ex:note 'blank' ], <http://other.example/b> .")
    assert own.put(doc, good).status_code == 201
    for subject in ("http://mine.example.evil/a", "http://other.example/b", doc + "#a"):
        answer = own.put(doc, turtle(f"<http://mine.example/a> ex:note 'x' . <{subject}> ex:note 'y' ."))
        assert answer.status_code == 403 and subject in answer.json()["detail"]
    assert own.get("/documents", uri=doc).headers["ETag"] == '"1"'
    assert own.put_schema(SCHEMA).status_code == 403


def test_an_admin_token_with_resource_prefixes_removes_nothing_about_other_resources(
    server: Server, api: Api, make_token: Make, doc: str
) -> None:
    own_part = "<http://mine.example/a> ex:note 'x' ; ex:knows [ ex:note 'blank' ] ."
    assert api.put(doc, turtle(own_part, "<http://other.example/b> ex:note 'y' .")).status_code == 201
    own = server.api(make_token(resources=["http://mine.example/"])[0])
    mine = turtle("<http://mine.example/a> ex:note 'z' .")
    for query in ({}, {"dry_run": "true"}):
        for answer in (own.delete(doc, **query), own.put(doc, mine, **query)):
            assert answer.status_code == 403 and "http://other.example/b" in answer.json()["detail"]
    queued = api.job(own.delete(doc, wait=None).json()["job"])
    assert queued["state"] == "failed" and queued["problem"]["status"] == 403
    assert api.get("/documents", uri=doc).headers["ETag"] == '"1"'
    assert api.put(doc, turtle(own_part)).status_code == 200
    assert own.delete(doc).status_code == 200


@pytest.mark.parametrize("segment", ["..", "%2e%2e", "%2E.", "."])
def test_limited_tokens_cannot_write_uris_with_dot_segments(
    server: Server, api: Api, make_token: Make, segment: str
) -> None:
    uri = f"http://mine.example/x/{segment}/secret"
    for limits in ({"documents": ["http://mine.example/x/"]}, {"resources": ["http://mine.example/"]}):
        own = server.api(make_token(**limits)[0])
        for answer in (own.put(uri, provider()), own.delete(uri)):
            assert answer.status_code == 403 and "'.' or '..' segment" in answer.json()["detail"]
    described = server.api(make_token(resources=["http://mine.example/x/"])[0])
    answer = described.put("http://anywhere.example/", turtle(f"<{uri}> ex:note 'x' ."))
    assert answer.status_code == 403 and "'.' or '..' segment" in answer.json()["detail"]
    assert api.put(uri, provider()).status_code in (200, 201), "a token without limits may"


def test_public_reading_allows_only_reading(small: Server, doc: str) -> None:
    found = calls(small.api(None), doc)
    assert found == {"read": 200, "job": 404, "schema": 200, "put": 401, "delete": 401, "put schema": 401}
    assert small.api("wrong").get("/documents").status_code == 401


def test_health_and_metrics_need_no_token(server: Server) -> None:
    http = server.api(None).http
    assert http.get("/healthz").json() == {"status": "alive"}
    assert http.get("/readyz").json() == {"status": "ready", "database": "ready", "redis": "ready"}
    figures = http.get("/metrics").text
    assert "mdv_position" in figures and 'mdv_http_requests_total{call="/healthz",method="GET",status="200"}' in figures


def test_tokens_and_passwords_are_never_logged(
    server: Server, worker: Process, make_token: Make, doc: str, system_database: str
) -> None:
    secret, _ = make_token("viewer")
    for token in (secret, "a-wrong-token-of-somebody", ADMIN):
        api = server.api(token)
        calls(api, doc)
        api.get("/documents", uri="\x00")
    password = system_database.split(":")[2].split("@")[0]
    for words in (server.words(), worker.words()):
        for secret_word in (secret, "a-wrong-token-of-somebody", ADMIN, password):
            assert secret_word not in words
    assert '"event": "answered"' in server.words()


@pytest.mark.parametrize("path", ["/schema?uri=x", "/documents?bogus=1", "/jobs/x", "/resources?limit=0"])
def test_without_a_token_invalid_requests_are_also_401(server: Server, path: str) -> None:
    assert server.api(None).http.get("/api/v1" + path).status_code == 401
