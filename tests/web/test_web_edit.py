"""Edits over HTTP: PATCH of a document, its answers, its limits, and who is named in histories."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest

from tests.support.server import JSON_LD, PROBLEM, TURTLE, Api, Server, V, turtle

Make = Callable[..., tuple[str, int]]
_numbers = count(1)


def said(subject: str, name: str, text: str, **more: str) -> list[Any]:
    return [subject, V + name, {"type": "literal", "value": text} | more]


def history(api: Api, uri: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = api.get("/documents/history", uri=uri).json()["items"]
    return items


@pytest.fixture
def lmr(api: Api) -> dict[str, Any]:
    answer = api.http.post("/api/v1/lmrs", json={"name": f"edits-{next(_numbers)}"})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_an_edit_changes_single_statements_and_answers_as_a_registration(api: Api, doc: str) -> None:
    api.put(doc, turtle("<#a> ex:note 'x' , 'kept' . <#b> ex:note 'y' ."))
    edits = {"remove": [said(doc + "#a", "note", "x")], "add": [said(doc + "#c", "note", "z")]}
    tried = api.patch(doc, edits, dry_run="true")
    assert (
        tried.status_code == 200 and tried.json()["dry_run"] and api.get("/documents", uri=doc).headers["ETag"] == '"1"'
    )
    done = api.patch(doc, edits)
    assert done.status_code == 200, done.text
    counts = {"document": doc, "version": 2, "inserted": 1, "updated": 1, "deleted": 0, "created": False}
    assert counts.items() <= done.json().items()
    assert counts.items() <= tried.json().items() and done.json()["position"] == tried.json()["position"]
    assert done.headers["ETag"] == '"2"' and done.headers["Preference-Applied"] == "wait=60"
    text = api.get("/documents", {"Accept": "application/n-triples"}, uri=doc).text
    assert [value in text for value in ('"x"', '"kept"', '"y"', '"z"')] == [False, True, True, True]
    again = api.patch(doc, edits)
    assert again.status_code == 200 and again.json()["position"] == done.json()["position"]
    assert again.json()["version"] == 2


def test_without_prefer_an_edit_is_a_job_that_runs_in_order_with_registrations(api: Api, doc: str) -> None:
    jobs = [api.put(doc, turtle("<#a> ex:note '0' ."), wait=None).json()["job"]]
    for number in range(5):
        answer = api.patch(doc, {"add": [said(doc + "#a", "note", str(number + 1))]}, wait=None)
        assert answer.status_code == 202 and answer.json()["document"] == doc
        jobs.append(answer.json()["job"])
    ended = [api.job(job) for job in jobs]
    assert [job["kind"] for job in ended] == ["register"] + ["edit"] * 5
    assert [job["result"]["version"] for job in ended] == [1, 2, 3, 4, 5, 6]


def test_many_edits_of_many_documents_are_all_made(api: Api, doc: str) -> None:
    documents = [f"{doc}/{number}" for number in range(80)]
    with ThreadPoolExecutor(8) as pool:
        for answer in pool.map(lambda uri: api.put(uri, turtle("<#a> ex:note '0' .")), documents):
            assert answer.status_code == 201
        edits = pool.map(
            lambda uri: api.patch(uri, {"add": [said(uri + "#a", "note", "1")]}, wait=None).json()["job"], documents
        )
        ended = list(pool.map(api.job, edits))
    assert {job["state"] for job in ended} == {"done"}
    assert {job["result"]["version"] for job in ended} == {2}
    assert len({job["result"]["position"] for job in ended}) == 80


def test_conditions_and_keys_hold_for_edits(api: Api, doc: str) -> None:
    edits = {"add": [said(doc + "#a", "note", "x")]}
    missing = api.patch(doc, edits)
    assert missing.status_code == 404 and missing.headers["Content-Type"] == PROBLEM
    api.put(doc, turtle("<#a> ex:note 'y' ."))
    assert api.patch(doc, edits, headers={"If-Match": '"7"'}).status_code == 412
    key = {"Idempotency-Key": f"edit {doc}", "If-Match": '"1"'}
    first, second = (api.patch(doc, edits, headers=key) for _ in range(2))
    assert first.status_code == second.status_code == 200 and first.json() == second.json()
    assert first.json()["version"] == 2
    other = api.patch(doc, {"remove": edits["add"]}, headers=key)
    assert other.status_code == 422 and api.get("/documents", uri=doc).headers["ETag"] == '"2"'


@pytest.mark.parametrize(
    ("edits", "status", "words"),
    [
        (b"{", 400, "not JSON"),
        (b"\xff", 400, "not JSON"),
        ({}, 400, "must be an object"),
        ({"add": [["a", "b", {"type": "literal", "value": "x"}]]}, 400, "add[0]: 'a' is not an absolute URI"),
        ({"add": [["http://a#_:b", V + "note", {"type": "literal", "value": "x"}]]}, 422, "is a blank node"),
        ({"add": [["http://a", "http://v/undeclared", {"type": "literal", "value": "x"}]]}, 422, "not declared"),
        ({"add": [["http://a", V + "serverPort", {"type": "literal", "value": "high"}]]}, 422, "high"),
    ],
)
def test_bad_edits_are_refused_whole(api: Api, doc: str, edits: Any, status: int, words: str) -> None:
    api.put(doc, turtle("<#a> ex:note 'x' ."))
    answer = api.patch(doc, edits)
    assert answer.status_code == status and answer.headers["Content-Type"] == PROBLEM, answer.text
    assert words in answer.text.replace('\\"', '"')
    assert api.get("/documents", uri=doc).headers["ETag"] == '"1"'


def test_large_bodies_are_refused_before_they_are_parsed(api: Api, doc: str) -> None:
    api.put(doc, turtle("<#a> ex:note 'x' ."))
    answer = api.patch(doc, b'{"add": [' + b"[]," * 1_500_000 + b"[]]}")
    assert answer.status_code == 413 and "4,194,304 bytes" in answer.json()["detail"]


def test_an_edit_is_json(api: Api, doc: str) -> None:
    api.put(doc, turtle("<#a> ex:note 'x' ."))
    for media_type in (TURTLE, JSON_LD, ""):
        assert api.patch(doc, b"{}", headers={"Content-Type": media_type}).status_code == 415


def test_a_document_that_loses_its_last_statement_is_absent_until_it_is_registered_again(api: Api, doc: str) -> None:
    api.put(doc, turtle("<#a> ex:note 'x' ."))
    done = api.patch(doc, {"remove": [said(doc + "#a", "note", "x")]})
    assert done.status_code == 200 and done.json()["deleted"] == 1 and done.json()["present"] is False
    assert api.get("/documents", uri=doc).status_code == 404
    refused = api.patch(doc, {"add": [said(doc + "#a", "note", "x")]})
    assert refused.status_code == 404 and "was deleted in version 2" in refused.json()["detail"]
    assert [(one["version"], one["present"]) for one in history(api, doc)] == [(2, False), (1, True)]
    assert api.put(doc, turtle("<#a> ex:note 'x' .")).json()["version"] == 3


def test_an_lmr_gets_the_net_change_of_an_edit_once(api: Api, doc: str, lmr: dict[str, Any]) -> None:
    base = f"/lmrs/{lmr['id']}"
    rule = f"search CycleProvider c register c where c.serverHost = '{doc}'"
    assert api.http.post(f"/api/v1{base}/subscriptions", json={"rule": rule}).status_code == 201
    api.put(doc, turtle("<#a> a ex:CycleProvider ; ex:serverHost 'other' ; ex:note 'n' ."))
    cursor = api.get(base + "/feed").json()["cursor"]
    edits = {"remove": [said(doc + "#a", "serverHost", "other")], "add": [said(doc + "#a", "serverHost", doc)]}
    done = api.patch(doc, edits).json()
    assert (done["matched"], done["lmrs"]) == (1, 1)
    events = api.get(base + "/feed", after=cursor).json()["events"]
    assert [(event["event"], event["resource"]) for event in events] == [("put", doc + "#a"), ("match", doc + "#a")]


def test_limited_tokens_edit_only_what_they_may_describe(server: Server, api: Api, make_token: Make, doc: str) -> None:
    api.put(doc, turtle("<http://mine.example/a> ex:note 'x' . <http://other.example/b> ex:note 'x' ."))
    own = server.api(make_token(resources=["http://mine.example/"])[0])
    foreign = said("http://other.example/b", "note", "x")
    for edits in ({"remove": [foreign]}, {"add": [said("http://other.example/b", "note", "y")]}):
        for query in ({}, {"dry_run": "true"}):
            answer = own.patch(doc, edits, **query)
            assert answer.status_code == 403 and "http://other.example/b" in answer.json()["detail"]
    assert own.patch(doc, {"add": [said("http://mine.example/a", "note", "y")]}).json()["version"] == 2
    elsewhere = server.api(make_token(documents=["http://mine.example/"])[0])
    assert elsewhere.patch(doc, {"add": [said("http://mine.example/a", "note", "z")]}).status_code == 403
    viewer = server.api(make_token(role="viewer")[0])
    assert viewer.patch(doc, {"add": [said("http://mine.example/a", "note", "z")]}).status_code == 403


def test_the_history_names_causes_and_callers(server: Server, api: Api, make_token: Make, doc: str) -> None:
    secret, number = make_token()
    own = server.api(secret)
    api.put(doc, turtle("<#a> ex:note 'x' ."))
    own.patch(doc, {"add": [said(doc + "#a", "note", "y")]})
    own.delete(doc)
    found = [(one["cause"], one["agent"], one["by"]) for one in history(api, doc)]
    assert [(cause, agent) for cause, agent, _ in found] == [
        ("registration", None),
        ("update", None),
        ("registration", None),
    ]
    deleted, edited, registered = (by for _, _, by in found)
    assert registered == "token admin"
    assert deleted == edited and edited.startswith("token token ") and edited.endswith(f"#{number}")


def test_subscriptions_and_lmrs_name_their_authors(server: Server, api: Api, lmr: dict[str, Any]) -> None:
    base = f"/api/v1/lmrs/{lmr['id']}"
    assert api.http.get(base).json()["by"] == "token admin"
    own = server.api(lmr["token"])
    made = own.http.post(base + "/subscriptions", json={"rule": "search CycleProvider c register c"}).json()
    assert made["by"] == f"lmr {api.http.get(base).json()['name']}"
    one = f"{base}/subscriptions/{made['id']}"
    assert own.http.get(one).json()["by"] == made["by"]
    changed = api.http.put(one, json={"rule": "search ServerInformation s register s"}).json()
    assert changed["by"] == api.http.get(one).json()["by"] == "token admin"
    same = own.http.put(one, json={"rule": "search ServerInformation s register s"}).json()
    assert same["by"] == api.http.get(one).json()["by"] == "token admin", "the text did not change"


def test_documents_of_mdv_itself_are_not_registered(api: Api) -> None:
    own = "urn:mdv:eca:nothing"
    refused = api.put(own, turtle("<#a> ex:note 'x' ."))
    assert refused.status_code == 409 and "urn:mdv:" in refused.json()["detail"]
    for answer in (
        api.get("/documents", uri=own),
        api.delete(own),
        api.patch(own, {"add": [said("http://a", "note", "x")]}),
    ):
        assert answer.status_code == 404
