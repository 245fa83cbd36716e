"""Locks against programs over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.server import PROBLEM, Api, Server

V = "http://mdv.example/schema#"


def add(api: Api, **pattern: Any) -> Any:
    return api.http.post("/api/v1/real/locks", json=pattern)


def test_a_lock_is_added_listed_and_removed(api: Api, doc: str) -> None:
    term = {"type": "literal", "value": "1", "datatype": "http://www.w3.org/2001/XMLSchema#integer"}
    answer = add(api, document_prefix=doc, subject=doc + "#host", property=V + "serverPort", object=term)
    assert answer.status_code == 201, answer.text
    lock = answer.json()
    assert lock | {"id": 0, "created_at": ""} == {
        "id": 0, "document_prefix": doc, "subject": doc + "#host", "property": V + "serverPort", "object": term,
        "by": lock["by"], "created_at": "",
    }  # fmt: skip
    other = add(api, subject=doc).json()

    page = api.http.get("/api/v1/real/locks", params={"after": lock["id"] - 1, "limit": 1}).json()
    assert page == {"items": [lock], "next": str(lock["id"])}
    rest = api.http.get("/api/v1/real/locks", params={"after": page["next"]}).json()
    assert rest["items"][0]["id"] == other["id"] and rest["next"] is None

    for number in (lock["id"], other["id"]):
        assert api.http.delete(f"/api/v1/real/locks/{number}").json()["id"] == number
        gone = api.http.delete(f"/api/v1/real/locks/{number}")
        assert gone.status_code == 404 and gone.headers["Content-Type"] == PROBLEM


@pytest.mark.parametrize(
    "pattern",
    [
        {},
        {"document_prefix": "no uri"},
        {"subject": "relative"},
        {"property": "a b"},
        {"object": {"type": "uri", "value": "b"}},
        {"object": {"type": "blank", "value": "b"}},
        {"predicate": "http://a/b"},
        {"subject": "http://a/\0"},
        {"object": {"type": "literal", "value": "\0"}},
    ],
)
def test_a_lock_that_is_not_valid_is_refused(api: Api, pattern: Any) -> None:
    answer = add(api, **pattern)
    assert answer.status_code in (400, 422) and answer.headers["Content-Type"] == PROBLEM, answer.text
    assert api.http.get("/api/v1/real/locks").json()["items"] == []


@pytest.mark.parametrize("number", ["x", "-1", "99999999999999999999"])
def test_a_lock_without_a_valid_number_is_not_found(api: Api, number: str) -> None:
    assert api.http.delete(f"/api/v1/real/locks/{number}").status_code == 404


def test_only_an_unlimited_administrator_changes_locks(
    api: Api, doc: str, server: Server, make_token: Callable[..., tuple[str, int]]
) -> None:
    limited, viewer = server.api(make_token("admin", ["http://a/"])[0]), server.api(make_token("viewer")[0])
    lock = add(api, subject=doc).json()["id"]
    for other in (limited, viewer):
        assert add(other, subject=doc).status_code == 403
        assert other.http.delete(f"/api/v1/real/locks/{lock}").status_code == 403
    assert limited.http.get("/api/v1/real/locks").status_code == 200
    assert viewer.http.get("/api/v1/real/locks").status_code == 403
    assert api.http.delete(f"/api/v1/real/locks/{lock}").status_code == 200


def test_a_sandbox_warns_of_locks(api: Api, doc: str) -> None:
    lock = add(api, property=V + "serverPort").json()["id"]
    code = f"+<{V}serverPort>(<{doc}#host>, 80)"
    try:
        answer = api.http.post("/api/v1/real", json={"code": code, "mode": "sandbox"}).json()
    finally:
        api.http.delete(f"/api/v1/real/locks/{lock}")

    message = f"the lock {lock} does not allow programs to change this statement, so the mode run would refuse it"
    assert message in [warning["message"] for warning in answer["warnings"]]
    assert answer["effects"] == {"added": 1, "removed": 0}
