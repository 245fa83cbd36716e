"""/rules/explain over HTTP: open to every reader, as described, with problems for all other requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.support.server import ADMIN, PROBLEM, Api, Server, turtle

EXPLAIN = "/api/v1/rules/explain"
RULE = (
    "search CycleProvider c register c where c.serverHost contains 'uni-passau.de' and c.serverInformation.memory > 64"
)
JSON = {"Content-Type": "application/json"}


def ask(api: Api, body: Any = None, **options: Any) -> httpx2.Response:
    return api.http.post(EXPLAIN, json={"rule": RULE} if body is None else body, **options)


def send(api: Api, content: bytes, media_type: str = "application/json") -> httpx2.Response:
    return api.http.post(EXPLAIN, content=content, headers={"Content-Type": media_type})


def test_a_rule_is_explained(api: Api, doc: str) -> None:
    before = ask(api).json()["matches"]
    api.put(doc, turtle("<#a> a ex:CycleProvider ; ex:serverHost 'x.uni-passau.de' ; ex:serverInformation <#i> .",
                        "<#i> a ex:ServerInformation ; ex:memory 92 ."))  # fmt: skip
    answer = ask(api)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert list(body) == ["rule", "normal", "conjunctions", "matches", "cost"]
    assert body["rule"] == RULE and body["normal"].startswith("search    ex:CycleProvider c, ex:ServerInformation s\n")
    cost = body["cost"]
    assert body["matches"] == before + 1 and (cost["bounded"], cost["worst"], cost["scans"]) == (True, 0, [])
    assert cost["sample"] > 0 and cost["milliseconds"] <= cost["worst_milliseconds"]
    assert (cost["limit_milliseconds"], cost["stopped"], cost["would_be_suspended"]) == (2000, False, False)
    (part,) = body["conjunctions"]
    assert part["normal"] == body["normal"] and "sql" not in part
    assert [rule["kind"] for rule in part["atomic_rules"]] == ["triggering", "triggering", "join"]
    assert part["atomic_rules"][-1] == {
        "id": "C",
        "text": "search view(A, ex:ServerInformation) a, view(B, ex:CycleProvider) c register c"
        " where c.ex:serverInformation = a",
        "class": "http://mdv.example/schema#CycleProvider",
        "kind": "join",
        "exists": False,
        "uses": 0,
        "inputs": ["A", "B"],
        "filter_rule": None,
    }
    assert part["tree"].splitlines()[1].startswith("├── A  search ex:ServerInformation s")
    assert part["groups"][0]["id"] is None and part["groups"][0]["rules"] == ["C"]
    assert part["whole_group"]["driver"]["table"].startswith("filter_rules_")
    assert api.delete(doc).status_code == 200
    assert ask(api).json()["matches"] == before


def test_sql_is_shown_on_request(api: Api) -> None:
    (part,) = ask(api, {"rule": RULE, "sql": True}).json()["conjunctions"]
    assert part["sql"]["evaluation"].startswith("SELECT DISTINCT") and ":node1" in part["sql"]["filter"]


def test_every_reader_may_explain_a_rule(
    server: Server, small: Server, make_token: Callable[..., tuple[str, int]]
) -> None:
    assert ask(server.api(make_token("viewer")[0])).status_code == 200
    for stranger in (server.api(None), server.api("nonsense")):
        refused = ask(stranger)
        assert refused.status_code == 401 and refused.headers["Content-Type"] == PROBLEM
    everything = {"rule": "search rdfs:Resource r register r"}
    assert ask(small.api(None), everything).status_code == 200, "reading is public there"


@pytest.mark.parametrize(
    ("rule", "word"),
    [("", "expected 'search'"), ("search CycleProvidr c register c", "CycleProvider"), ("search \0", "NUL"),
     ("\ud800", "surrogate"), ("search CycleProvider c register c where c.serverHost = 5", "serverHost"),
     ("x" * 9000, "8,192 bytes")],
)  # fmt: skip
def test_invalid_rules_are_refused_with_their_place(api: Api, rule: str, word: str) -> None:
    answer = send(api, json.dumps({"rule": rule}).encode())
    assert answer.status_code == 422 and answer.headers["Content-Type"] == PROBLEM
    problem = answer.json()
    assert problem["type"] == "urn:mdv:problem:invalid-rule" and word in problem["detail"]
    assert problem["errors"][0]["line"] == 1 and problem["errors"][0]["column"] >= 1


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"rule", b"[]", b"null", b"{}", b'{"rule": 5}', b'{"rule": null}', b'{"rule": ["a"]}', b"\xff",
     b'{"rule": "search rdfs:Resource r register r", "sql": "yes"}',
     b'{"rule": "search rdfs:Resource r register r", "sql": 1}',
     b'{"rule": "search rdfs:Resource r register r", "sqll": true}',
     b'{"rule": ' + b"[" * 30_000 + b"}", b'{"rule": ' + b"9" * 10_000 + b"}"],
    ids=lambda body: body[:30].decode("latin1"),
)  # fmt: skip
def test_an_invalid_request_body_is_a_bad_request(api: Api, body: bytes) -> None:
    answer = send(api, body)
    assert answer.status_code == 400, answer.text
    assert answer.headers["Content-Type"] == PROBLEM and answer.json()["detail"]


def test_other_media_types_and_oversized_bodies_are_refused(api: Api, small: Server) -> None:
    question = json.dumps({"rule": RULE}).encode()
    for media_type in ("text/plain", "application/x-www-form-urlencoded", "application/rdf+xml", ""):
        refused = send(api, question, media_type)
        assert refused.status_code == 415 and "application/json" in refused.json()["detail"]
    assert send(api, question, "application/json; charset=utf-8").status_code == 200
    large = json.dumps({"rule": " " * 70_000}).encode()
    assert send(api, large).status_code == 413
    chunked = api.http.post(EXPLAIN, content=iter([large[:50], large[50:]]), headers=JSON)
    assert chunked.status_code == 413
    packed = api.http.post(EXPLAIN, content=question, headers=JSON | {"Content-Encoding": "gzip"})
    assert packed.status_code == 415
    assert ask(api, params={"x": 1}).status_code == 400
    assert api.http.get(EXPLAIN).status_code == 405
    assert api.http.post(EXPLAIN, content=question, headers={"Authorization": f"Basic {ADMIN}"}).status_code == 401


def test_the_call_is_documented_with_a_working_example(api: Api) -> None:
    described = api.http.get("/openapi.json").json()
    call = described["paths"]["/api/v1/rules/explain"]["post"]
    example = call["requestBody"]["content"]["application/json"]["example"]
    answer = ask(api, example)
    assert answer.status_code == 200, answer.text
    shape = described["components"]["schemas"]
    assert call["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith("/RuleExplained")
    assert set(shape["RuleExplained"]["required"]) == set(answer.json())
    (part,) = answer.json()["conjunctions"]
    assert set(shape["AtomicRule"]["required"]) == set(part["atomic_rules"][0])
    assert set(shape["RuleConjunction"]["required"]) - {"sql"} == set(part)
