"""LMRs over HTTP: subscriptions, and feeds by long-poll and as server-sent events."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.support import local_http
from tests.support.server import Api, Server, V, provider, turtle

_numbers = itertools.count(1)


@dataclass
class Repository:
    """An LMR of the running system: for the administrator, and with its own token."""

    id: int
    name: str
    token: str
    own: Api

    def subscribe(self, rule: str, name: str | None = None) -> dict[str, Any]:
        answer = self.post("/lmrs/self/subscriptions", {"rule": rule, **({"name": name} if name else {})})
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def post(self, path: str, body: Any) -> httpx2.Response:
        return self.own.http.post("/api/v1" + path, json=body)

    def feed(self, after: str | None = None, **query: Any) -> dict[str, Any]:
        answer = self.own.get("/lmrs/self/feed", **({"after": after} if after else {}), **query)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


@pytest.fixture
def new_lmr(server: Server, api: Api) -> Callable[[], Repository]:
    def make() -> Repository:
        name = f"lmr-{next(_numbers)}"
        answer = api.http.post("/api/v1/lmrs", json={"name": name})
        assert answer.status_code == 201
        body = answer.json()
        return Repository(body["id"], name, body["token"], server.api(body["token"]))

    return make


@pytest.fixture
def lmr(new_lmr: Callable[[], Repository]) -> Repository:
    return new_lmr()


def rule(host: str) -> str:
    return f"search CycleProvider c register c where c.serverHost contains '{host}'"


def document(host: str, memory: int = 64) -> str:
    return turtle(
        f"<#host> a ex:CycleProvider ; ex:serverHost '{host}' ; ex:serverInformation <#info> .",
        f"<#info> a ex:ServerInformation ; ex:memory {memory} .",
    )


@pytest.fixture
def host() -> str:
    return f"host-{next(_numbers)}.example"


def kinds(page: dict[str, Any]) -> list[tuple[str, str]]:
    return [(event["event"], event.get("resource", "").partition("#")[2]) for event in page["events"]]


def test_a_snapshot_begins_with_the_schema_and_contains_the_closure(
    lmr: Repository, api: Api, doc: str, host: str
) -> None:
    assert api.put(doc, document(host)).status_code == 201
    lmr.subscribe(rule(host))
    page = lmr.feed()
    assert kinds(page) == [("schema", ""), ("put", "host"), ("put", "info"), ("match", "host")]
    assert page["snapshot"] is True
    assert page["up_to_date"] is True
    assert [event.get("last") for event in page["events"]] == [None, None, None, True]
    put = page["events"][1]
    assert put["classes"] == [V + "CycleProvider"]
    assert [V + "serverHost", {"type": "literal", "value": host}] in put["statements"]
    offsets = [event["offset"] for event in page["events"]]
    assert [event["prev"] for event in page["events"]] == [None, *offsets[:-1]]


def test_changes_follow_a_snapshot_without_a_gap(lmr: Repository, api: Api, doc: str, host: str) -> None:
    lmr.subscribe(rule(host))
    page = lmr.feed()
    last = page["events"][-1]["offset"]
    answer = api.put(doc, document(host)).json()
    assert answer["lmrs"] == 1
    page = lmr.feed(page["cursor"])
    assert kinds(page) == [("put", "host"), ("put", "info"), ("match", "host")]
    assert page["events"][0]["prev"] == last
    assert {event["tx"] for event in page["events"]} == {answer["position"]}
    assert page["position"] >= answer["position"]
    api.put(doc, document(host, memory=128))
    page = lmr.feed(page["cursor"])
    assert kinds(page) == [("put", "info")]
    api.delete(doc)
    page = lmr.feed(page["cursor"])
    assert kinds(page) == [("delete", "host"), ("delete", "info")]


def test_a_change_that_concerns_no_lmr_is_in_no_feed_and_advances_the_position(
    lmr: Repository, api: Api, doc: str, host: str
) -> None:
    lmr.subscribe(rule(host))
    page = lmr.feed()
    answer = api.put(doc, document("elsewhere.example")).json()
    assert answer["lmrs"] == 0
    page = lmr.feed(page["cursor"])
    assert page["events"] == []
    assert page["position"] >= answer["position"]


def test_a_long_poll_is_answered_when_an_event_arrives(
    lmr: Repository, new_lmr: Callable[[], Repository], api: Api, doc: str, host: str
) -> None:
    lmr.subscribe(rule(host))
    idle = new_lmr()
    with ThreadPoolExecutor(2) as pool:
        idle_poll = pool.submit(idle.feed, idle.feed()["cursor"], wait=60)
        poll = pool.submit(lmr.feed, lmr.feed()["cursor"], wait=60)
        api.put(doc, document(host))
        assert len(poll.result()["events"]) == 3
        assert not idle_poll.done(), "an earlier poll, without events, still waits"
        idle.subscribe(rule(host))
        assert len(idle_poll.result()["events"]) == 3


def test_a_long_poll_ends_without_events_after_its_wait(lmr: Repository) -> None:
    page = lmr.feed(lmr.feed()["cursor"], wait=1)
    assert page["events"] == []
    assert page["up_to_date"] is True


def read_stream(response: httpx2.Response) -> Iterator[dict[str, str]]:
    event: dict[str, str] = {}
    for line in response.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif event:
            yield event
            event = {}


def test_server_sent_events_resume_after_the_last_event(lmr: Repository, api: Api, doc: str, host: str) -> None:
    lmr.subscribe(rule(host))
    headers = {"Accept": "text/event-stream"}
    with lmr.own.http.stream("GET", "/api/v1/lmrs/self/feed", headers=headers) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        stream = read_stream(response)
        assert [next(stream)["event"] for _ in range(3)] == ["snapshot", "schema", "up-to-date"]
        api.put(doc, document(host))
        events = [next(stream) for _ in range(2)]
    assert [event["event"] for event in events] == ["put", "put"]
    assert json.loads(events[0]["data"])["resource"] == f"{doc}#host"
    again = {**headers, "Last-Event-ID": events[0]["id"]}
    with lmr.own.http.stream("GET", "/api/v1/lmrs/self/feed", headers=again) as response:
        stream = read_stream(response)
        assert json.loads(next(stream)["data"])["resource"] == f"{doc}#info"
        assert json.loads(next(stream)["data"])["last"] is True


def test_a_changed_rule_sends_only_the_difference(lmr: Repository, api: Api, doc: str, host: str) -> None:
    api.put(doc, document(f"one.{host}"))
    api.put(doc + "2", document(f"two.{host}"))
    subscription = lmr.subscribe(rule(f"one.{host}"))
    cursor = lmr.feed()["cursor"]
    path = f"/api/v1/lmrs/{lmr.name}/subscriptions/{subscription['id']}"
    changed = lmr.own.http.put(path, json={"rule": rule(host)})
    assert changed.status_code == 200
    page = lmr.feed(cursor)
    assert [(e["event"], e["resource"]) for e in page["events"]] == [
        ("put", f"{doc}2#host"), ("put", f"{doc}2#info"), ("match", f"{doc}2#host")
    ]  # fmt: skip
    ended = lmr.own.http.delete(path)
    assert ended.status_code == 200
    page = lmr.feed(page["cursor"])
    assert sorted(kinds(page)) == [("unmatch", "host"), ("unmatch", "host")]
    assert page["position"] >= ended.json()["position"]


def test_many_rules_are_subscribed_in_one_transaction_or_not_at_all(lmr: Repository) -> None:
    rules = [{"rule": rule(f"{n}.many.example"), "name": f"many{n}"} for n in range(30)]
    answer = lmr.post("/lmrs/self/subscriptions", rules)
    assert answer.status_code == 201
    items = answer.json()["items"]
    assert len({item["id"] for item in items}) == 30
    assert len({item["position"] for item in items}) == 1
    bad = lmr.post("/lmrs/self/subscriptions", [{"rule": rule("good")}, {"rule": "search Nothing n register n"}])
    assert bad.status_code == 422
    assert len(lmr.own.all("/lmrs/self/subscriptions", 7)) == 30
    assert lmr.post("/lmrs/self/subscriptions", []).status_code == 400
    assert lmr.post("/lmrs/self/subscriptions", {"rule": rule("x"), "name": "many1"}).status_code == 409


def test_the_token_of_an_lmr_allows_only_its_own_paths_and_reading(
    lmr: Repository, api: Api, server: Server, doc: str
) -> None:
    other = api.http.post("/api/v1/lmrs", json={"name": f"other-{lmr.name}"}).json()
    own = lmr.own
    for path in ("", "/feed", "/checksum", "/subscriptions"):
        assert own.get(f"/lmrs/{lmr.id}{path}").status_code == 200, path
        assert own.get(f"/lmrs/{lmr.name}{path}").status_code == 200, path
        assert own.get(f"/lmrs/{other['id']}{path}").status_code == 403, path
        assert server.api(None).get(f"/lmrs/{lmr.id}{path}").status_code == 401, path
    assert own.get("/schema").status_code == 200
    assert own.get("/resources", limit=1, **{"class": "CycleProvider"}).status_code == 200
    assert own.get("/explain", lmr="self", uri="http://nowhere.example/").status_code == 200
    assert own.get("/explain", lmr=other["name"], uri="http://nowhere.example/").status_code == 403
    assert own.http.post("/api/v1/rules/propose", json={"class": "CycleProvider"}).status_code == 200
    closed = [own.put(doc, provider()), own.put_schema("x"), own.get("/documents"), own.get("/lmrs"),
              own.http.post("/api/v1/lmrs", json={"name": "mine"}), own.http.delete(f"/api/v1/lmrs/{lmr.id}"),
              own.http.post(f"/api/v1/lmrs/{lmr.id}/token"),
              own.http.post("/api/v1/query", json={"query": rule("x")})]  # fmt: skip
    assert [answer.status_code for answer in closed] == [403] * len(closed)
    assert api.get("/lmrs/self").status_code == 404


def test_a_new_token_revokes_the_old_one(lmr: Repository, api: Api, server: Server) -> None:
    renewed = api.http.post(f"/api/v1/lmrs/{lmr.name}/token")
    assert renewed.status_code == 201
    assert lmr.own.get("/lmrs/self").status_code == 401
    assert server.api(renewed.json()["token"]).get("/lmrs/self").json()["name"] == lmr.name


def test_an_lmr_can_be_deleted(lmr: Repository, api: Api, doc: str, host: str) -> None:
    lmr.subscribe(rule(host))
    api.put(doc, document(host))
    assert api.get(f"/lmrs/{lmr.name}").json()["resources"] == 2
    assert api.http.delete(f"/api/v1/lmrs/{lmr.name}").status_code == 200
    assert api.get(f"/lmrs/{lmr.name}").status_code == 404
    assert lmr.own.get("/lmrs/self/feed").status_code == 401
    assert api.put(doc, document(host, memory=1)).json()["lmrs"] == 0


@pytest.mark.parametrize("name", ["", " x", "self", "17", ".", "..", "a/b", "a\nb", "x" * 200])
def test_reserved_and_invalid_names_are_refused(api: Api, name: str) -> None:
    assert api.http.post("/api/v1/lmrs", json={"name": name}).status_code == 400


def test_a_name_is_unique(lmr: Repository, api: Api) -> None:
    assert api.http.post("/api/v1/lmrs", json={"name": lmr.name}).status_code == 409


@pytest.mark.parametrize("cursor", ["x", "0123456789ab-7", "0123456789ab-7-7-s", "-1-1", "0123456789ab-٣-٣"])
def test_an_invalid_cursor_is_refused(lmr: Repository, cursor: str) -> None:
    assert lmr.own.get("/lmrs/self/feed", after=cursor).status_code == 400


def test_a_cursor_of_another_epoch_or_from_the_future_must_refetch(lmr: Repository) -> None:
    cursor = lmr.feed()["cursor"]
    epoch, offset, seen = cursor.split("-")
    other = "0" * 12 if epoch != "0" * 12 else "1" * 12
    for wrong in (f"{other}-{offset}-{seen}", f"{epoch}-{int(offset) + 10**9}-{seen}", f"{epoch}-0-0-s{10**9}"):
        answer = lmr.own.get("/lmrs/self/feed", after=wrong)
        assert answer.status_code == 410
        assert answer.json()["type"] == "urn:mdv:problem:must-refetch"


def test_pages_of_a_snapshot_are_consistent(lmr: Repository, api: Api, doc: str, host: str) -> None:
    for n in range(4):
        api.put(f"{doc}{n}", document(host))
    lmr.subscribe(rule(host))
    page = lmr.feed(limit=3)
    events = list(page["events"])
    tx = events[0]["tx"]
    api.put(f"{doc}0", document("gone.example"))
    api.put(f"{doc}9", document(host))
    while page["snapshot"] and not page["events"][-1].get("last"):
        page = lmr.feed(page["cursor"], limit=3)
        events += page["events"]
    assert {event["tx"] for event in events} == {tx}
    assert len([event for event in events if event["event"] == "put"]) == 8
    offsets = [event["offset"] for event in events]
    assert offsets == sorted(set(offsets))
    assert [event["prev"] for event in events][1:] == offsets[:-1]
    assert page["up_to_date"] is False
    page = lmr.feed(page["cursor"])
    assert {(e["event"], e["resource"]) for e in page["events"]} == {
        ("unmatch", f"{doc}0#host"), ("put", f"{doc}0#host"), ("put", f"{doc}9#host"), ("put", f"{doc}9#info"),
        ("match", f"{doc}9#host"),
    } - {("put", f"{doc}0#host")}  # fmt: skip


def test_a_transaction_larger_than_the_limit_continues_in_the_next_answer(
    lmr: Repository, api: Api, doc: str, host: str
) -> None:
    lmr.subscribe(rule(host))
    cursor = lmr.feed()["cursor"]
    lines = [f"<#h{n}> a ex:CycleProvider ; ex:serverHost '{host}' ." for n in range(10)]
    position = api.put(doc, turtle(*lines)).json()["position"]
    page = lmr.feed(cursor, limit=8)
    assert len(page["events"]) == 8
    assert not any(event.get("last") for event in page["events"])
    assert page["position"] < position
    page = lmr.feed(page["cursor"], limit=8)
    page = lmr.feed(page["cursor"], limit=8)
    assert page["events"][-1]["last"] is True
    assert page["position"] >= position


def test_a_dry_run_names_the_lmrs_concerned(lmr: Repository, api: Api, doc: str, host: str) -> None:
    lmr.subscribe(rule(host))
    cursor = lmr.feed()["cursor"]
    answer = api.put(doc, document(host), dry_run="true").json()
    assert answer["lmrs"] == 1
    assert answer["told"] == [lmr.name]
    assert lmr.feed(cursor)["events"] == []


def test_a_snapshot_of_some_buckets_contains_only_those(lmr: Repository, api: Api, doc: str, host: str) -> None:
    from mdv.feed import bucket_of

    api.put(doc, document(host))
    lmr.subscribe(rule(host))
    bucket = bucket_of(f"{doc}#host")
    page = lmr.feed(buckets=f"{bucket}")
    wanted = {f"{doc}#{name}" for name in ("host", "info") if bucket_of(f"{doc}#{name}") == bucket}
    assert {event["resource"] for event in page["events"] if event["event"] == "put"} == wanted
    for bad in ("", "256", "-1", "1,,2", "x"):
        assert lmr.own.get("/lmrs/self/feed", buckets=bad).status_code == 400


def test_explain_says_why_a_resource_is_at_an_lmr(lmr: Repository, api: Api, doc: str, host: str) -> None:
    api.put(doc, document(host))
    lmr.subscribe(rule(host))
    why = api.get("/explain", lmr=lmr.name, uri=f"{doc}#host").json()
    assert why["selected"] is True
    assert api.get("/explain", lmr=lmr.name, uri=f"{doc}#info").json()["chain"]
    assert api.get("/explain", lmr="nobody", uri=f"{doc}#info").status_code == 404


def test_proposals_can_be_subscribed(lmr: Repository, api: Api, doc: str, host: str) -> None:
    api.put(doc, document(host))
    answer = lmr.post("/rules/propose", {"resource": f"{doc}#host"})
    assert answer.status_code == 200
    proposals = answer.json()["items"]
    assert proposals
    lmr.subscribe(proposals[0]["rule"])
    assert f"{doc}#host" in {event.get("resource") for event in lmr.feed()["events"]}


def test_a_subscription_sent_twice_with_one_key_is_made_once(lmr: Repository, host: str) -> None:
    path, body = "/api/v1/lmrs/self/subscriptions", {"rule": rule(host)}
    answers = [lmr.own.http.post(path, json=body, headers={"Idempotency-Key": f"once-{host}"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    assert len(lmr.own.all("/lmrs/self/subscriptions", 10)) == 1
    other = lmr.own.http.post(path, json={"rule": rule("other")}, headers={"Idempotency-Key": f"once-{host}"})
    assert other.status_code == 422


def test_subscribing_very_many_rules_does_not_block_other_calls(lmr: Repository, api: Api, server: Server) -> None:
    rules = [{"rule": f"search CycleProvider c register c where c.serverPort = {n}"} for n in range(5000)]
    answered_meanwhile = 0
    with ThreadPoolExecutor(1) as pool:
        subscribing = pool.submit(lmr.post, "/lmrs/self/subscriptions", rules)
        while not subscribing.done():
            assert local_http.get(f"{server.url}/healthz", timeout=60).status_code == 200
            answered_meanwhile += not subscribing.done()
    assert answered_meanwhile >= 3
    answer = subscribing.result()
    assert answer.status_code == 201
    assert len(answer.json()["items"]) == 5000
    assert api.http.delete(f"/api/v1/lmrs/{lmr.id}").status_code == 200


def test_a_revoked_token_ends_polls_and_streams(lmr: Repository, api: Api, doc: str, host: str) -> None:
    lmr.subscribe(rule(host))
    cursor = lmr.feed()["cursor"]
    polled: list[int] = []

    def poll() -> None:
        answer = lmr.own.get("/lmrs/self/feed", after=cursor, wait=20)
        polled.append(answer.status_code)

    polling = threading.Thread(target=poll)
    headers = {"Accept": "text/event-stream"}
    with lmr.own.http.stream("GET", "/api/v1/lmrs/self/feed", params={"after": cursor}, headers=headers) as response:
        stream = read_stream(response)
        assert next(stream)["event"] == "up-to-date"
        polling.start()
        time.sleep(0.5)  # so that the poll most likely waits when its token is revoked; the answer is the same if not
        assert api.http.post(f"/api/v1/lmrs/{lmr.name}/token").status_code == 201
        api.put(doc, document(host))
        assert list(stream) == []
    polling.join()
    assert polled == [401]


def test_the_number_of_streams_per_lmr_is_limited(lmr: Repository, server: Server) -> None:
    from contextlib import ExitStack

    def stream() -> Any:
        own = server.api(lmr.token).http
        return own.stream("GET", "/api/v1/lmrs/self/feed", headers={"Accept": "text/event-stream"})

    with ExitStack() as stack:
        streams = []
        for _ in range(10):
            response = stack.enter_context(stream())
            assert response.status_code == 200
            streams.append(read_stream(response))
            next(streams[-1])
        refused = stack.enter_context(stream())
        assert refused.status_code == 429
        assert refused.headers["Retry-After"]


def test_a_snapshot_is_reused_while_it_is_current(lmr: Repository, api: Api, doc: str, host: str) -> None:
    api.put(doc, document(host))
    lmr.subscribe(rule(host))
    first, again = lmr.feed(), lmr.feed()
    assert again["events"] == first["events"]
    api.put(doc, document("elsewhere.example"))
    assert [event["event"] for event in lmr.feed()["events"]] == ["schema"]


def test_an_lmr_sees_only_its_own_jobs(lmr: Repository, api: Api, doc: str, host: str) -> None:
    foreign = api.put(doc, document(host), wait=None).json()["job"]
    assert lmr.own.get(f"/jobs/{foreign}").status_code == 404


@pytest.mark.parametrize("path", ["/lmrs/%00", "/lmrs/a%00b/feed", "/explain?lmr=%00&uri=http://a/"])
def test_nul_in_a_url_is_refused(api: Api, path: str) -> None:
    assert api.http.get("/api/v1" + path).status_code == 400


def test_digits_of_other_scripts_are_not_accepted_as_numbers(lmr: Repository, api: Api) -> None:
    arabic = str(lmr.id).translate(str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩"))
    assert api.get(f"/lmrs/{arabic}").status_code == 404
    assert api.get("/lmrs", after=arabic).status_code == 400
