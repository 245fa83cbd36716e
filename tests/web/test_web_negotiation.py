"""Content negotiation and conditional requests."""

from __future__ import annotations

import pytest

from tests.support.server import FIGURE_1, JSON_LD, N_TRIPLES, PROBLEM, TURTLE, XML, Api


@pytest.fixture(scope="module")
def known(api: Api) -> str:
    uri = "http://negotiation.example/doc.rdf"
    assert api.put(uri, FIGURE_1, XML).status_code == 201
    return uri


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, XML),
        ("*/*", XML),
        ("text/*", TURTLE),
        (TURTLE, TURTLE),
        (f"{XML};q=0.5, {TURTLE};q=0.6", TURTLE),
        (f"{XML};q=0.5, {TURTLE};q=0.4, */*;q=0.1", XML),
        (f"{XML};q=0, */*;q=0.5", TURTLE),
        (f"*/*, {N_TRIPLES};q=0.2, {XML};q=0, {TURTLE};q=0", JSON_LD),
        ("text/turtle; charset=utf-8", TURTLE),
        ('application/ld+json; profile="http://www.w3.org/ns/json-ld#compacted"; q=0.9, text/html', JSON_LD),
        ("text/html, application/xhtml+xml, */*;q=0.8", XML),
        ("TEXT/TURTLE", TURTLE),
        (f"text/turtle;q=0.2, {JSON_LD};q=1.0;foo=bar", JSON_LD),
    ],
)
def test_the_preferred_representation_is_returned(api: Api, known: str, accept: str | None, chosen: str) -> None:
    request = api.http.build_request("GET", "/api/v1/documents", params={"uri": known})
    request.headers.pop("Accept")
    if accept is not None:
        request.headers["Accept"] = accept
    answer = api.http.send(request)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"].split(";")[0] == chosen
    assert answer.headers["Vary"] == "Accept"


@pytest.mark.parametrize(
    "accept", ["text/html", "image/*", "garbage", "a/b/c;;q=x", f"{XML};q=0", "*/*;q=0", "/", ";", "*/turtle"]
)
def test_an_unavailable_representation_is_406_with_the_offered_ones(api: Api, known: str, accept: str) -> None:
    answer = api.get("/documents", uri=known, headers={"Accept": accept})
    assert answer.status_code == 406, answer.text
    assert answer.headers["Content-Type"] == PROBLEM
    assert set(answer.json()["offered"]) == {XML, TURTLE, N_TRIPLES, JSON_LD}


def test_lists_are_available_only_as_json(api: Api) -> None:
    for path in ("/documents", "/resources"):
        assert api.get(path, headers={"Accept": TURTLE}).json()["offered"] == ["application/json"]
        assert api.get(path, headers={"Accept": "text/html, application/json;q=0.1"}).status_code == 200


def test_a_client_with_the_current_version_gets_304_without_a_body(api: Api, known: str) -> None:
    etag = api.get("/documents", uri=known).headers["ETag"]
    same = api.get("/documents", uri=known, headers={"If-None-Match": etag})
    assert (same.status_code, same.content, same.headers["ETag"]) == (304, b"", etag)
    assert same.headers["Vary"] == "Accept"
    assert api.get("/documents", uri=known, headers={"If-None-Match": '"99"'}).status_code == 200
    version = api.get("/schema").headers["ETag"]
    assert api.get("/schema", headers={"If-None-Match": version}).status_code == 304


def test_head_has_the_headers_of_get_and_no_body(api: Api, known: str) -> None:
    for path, query in (("/documents", {"uri": known}), ("/schema", {}), ("/resources", {"uri": known + "#host"})):
        full = api.get(path, **query)
        head = api.http.head("/api/v1" + path, params=query)
        assert head.status_code == 200 and head.content == b""
        for name in ("Content-Type", "Content-Length", "ETag", "Vary"):
            assert head.headers.get(name) == full.headers.get(name)
    assert api.http.head("/api/v1/documents", params={"uri": known + "x"}).status_code == 404
