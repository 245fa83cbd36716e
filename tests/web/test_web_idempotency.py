"""A request that is repeated with its Idempotency-Key is executed once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.server import Api, Server, provider


def test_the_same_key_and_request_give_the_same_job_and_answer(api: Api, doc: str) -> None:
    key = {"Idempotency-Key": f"once {doc}"}
    first = api.put(doc, provider(1), headers=key)
    assert first.status_code == 201
    api.put(doc, provider(2))
    again = api.put(doc, provider(1), headers=key)
    assert (again.status_code, again.json()) == (201, first.json())
    assert api.get("/documents", uri=doc).headers["ETag"] == '"2"'
    jobs = {
        api.put(doc, provider(3), wait=None, headers={"Idempotency-Key": "k" + doc}).json().get("job") for _ in "12"
    }
    ended = api.put(doc, provider(3), headers={"Idempotency-Key": "k" + doc})
    assert len(jobs - {None}) == 1 and ended.json()["version"] == 3


@pytest.mark.parametrize("change", ["body", "uri", "media_type", "if_match", "method"])
def test_the_same_key_for_another_request_is_refused(api: Api, doc: str, change: str) -> None:
    key = {"Idempotency-Key": f"{change} {doc}"}
    assert api.put(doc, provider(1), headers=key).status_code == 201
    if change == "body":
        answer = api.put(doc, provider(2), headers=key)
    elif change == "uri":
        answer = api.put(doc + "x", provider(1), headers=key)
    elif change == "media_type":
        answer = api.put(doc, provider(1), "application/n-triples", headers=key)
    elif change == "if_match":
        answer = api.put(doc, provider(1), headers=key | {"If-Match": '"1"'})
    else:
        answer = api.delete(doc, headers=key)
    assert answer.status_code == 422
    assert answer.json()["type"] == "urn:mdv:problem:idempotency-key-reused"
    assert api.get("/documents", uri=doc).headers["ETag"] == '"1"'


def test_the_answer_of_a_failed_job_is_repeated(api: Api, doc: str) -> None:
    key = {"Idempotency-Key": f"fails {doc}", "If-Match": "*"}
    first = api.put(doc, provider(), headers=key)
    assert first.status_code == 412
    api.put(doc, provider(7))
    again = api.put(doc, provider(), headers=key)
    assert (again.status_code, again.json()) == (412, first.json())


def test_concurrent_duplicates_are_one_registration(server: Server, api: Api, doc: str) -> None:
    def send(_: int) -> dict[str, object]:
        answer = server.api().put(doc, provider(), headers={"Idempotency-Key": f"twins {doc}"})
        assert answer.status_code == 201, answer.text
        return answer.json()  # type: ignore[no-any-return]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(8)))
    assert all(answer == answers[0] for answer in answers)
    assert [v["version"] for v in api.all("/documents/history", 10, uri=doc)] == [1]


def test_a_key_belongs_to_its_caller(server: Server, api: Api, doc: str, make_token) -> None:  # type: ignore[no-untyped-def]
    key = {"Idempotency-Key": f"shared {doc}"}
    assert api.put(doc, provider(1), headers=key).status_code == 201
    other = server.api(make_token()[0])
    assert other.put(doc, provider(2), headers=key).json()["version"] == 2


@pytest.mark.parametrize("key", [b"", b"x" * 256, b"\xc3\xa9", b"a\tb"])
def test_an_invalid_key_is_refused(api: Api, doc: str, key: bytes) -> None:
    headers = [("Content-Type", "text/turtle"), ("Idempotency-Key", key)]
    answer = api.http.put("/api/v1/documents", params={"uri": doc}, content=provider().encode(), headers=headers)
    assert answer.status_code == 400 and "Idempotency-Key" in answer.json()["detail"]
