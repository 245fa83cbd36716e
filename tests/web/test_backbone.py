"""Three MDPs over HTTP: they converge, also when connections fail, and accept nothing from strangers."""

from __future__ import annotations

import itertools
import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mdv.cli.doctor_checks import judge_backbone
from mdv.replication.http_signatures import sign_request
from mdv.replication.keys import make_private_key
from tests.support.eventually import eventually
from tests.support.faulty_proxy import Faults, SeenRequest, send_request
from tests.support.http_backbone import (
    HttpBackbone,
    HttpMember,
    check_equal,
    content,
    has,
    http_backbone,
    partition,
)
from tests.support.local_http import local_client
from tests.support.page_visitor import Visitor
from tests.support.server import ADMIN, SCHEMA, provider, turtle

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"

FIRST = "http://docs.example/first.rdf"
MESSAGES = "/api/v1/backbone/messages"

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def backbone(new_database: Callable[[], str], new_queue: Callable[[], str]) -> Iterator[HttpBackbone]:
    """Three members. The schema and a document were put at the first before the others joined."""
    with http_backbone(new_database, new_queue) as backbone:
        first = backbone.found("m1")
        assert first.api.put_schema(SCHEMA).status_code == 200
        assert first.api.put(FIRST, provider()).status_code == 201
        backbone.join("m2")
        backbone.join("m3")
        yield backbone


@pytest.fixture
def uri() -> str:
    return f"http://docs.example/{next(_numbers)}"


# Convergence


def test_changes_of_each_member_reach_all(backbone: HttpBackbone) -> None:
    uris = [f"http://docs.example/by-{name}" for name in backbone.members]
    for (name, member), uri in zip(backbone.members.items(), uris, strict=True):
        assert member.api.put(uri, provider(name=name)).status_code == 201
    assert [status for status, _, _ in check_equal(backbone, FIRST, *uris)] == [200] * 4


def test_edits_and_deletions_are_replicated(backbone: HttpBackbone, uri: str) -> None:
    m1, m2, m3 = backbone.members.values()
    assert m1.api.put(uri, provider()).status_code == 201
    eventually(lambda: has(m2, uri))
    port = [f"{uri}#host", "http://mdv.example/schema#serverPort"]
    literal = {"type": "literal", "datatype": "http://www.w3.org/2001/XMLSchema#integer"}
    edit = {"remove": [[*port, literal | {"value": "1"}]], "add": [[*port, literal | {"value": "7"}]]}
    assert m2.api.patch(uri, edit).status_code == 200
    ((status, etag, lines),) = check_equal(backbone, uri)
    assert status == 200 and etag is not None and etag.startswith('"2-') and any('"7"' in line for line in lines)
    assert m3.api.delete(uri).status_code == 200
    ((status, _, _),) = check_equal(backbone, uri)
    assert status == 404


def test_the_feed_of_an_lmr_has_changes_of_other_members(backbone: HttpBackbone, uri: str) -> None:
    m1, m2, _ = backbone.members.values()
    m2.call("POST", "/lmrs", {"name": "cache"})
    rule = "search CycleProvider c register c where c.serverPort = 4711"
    m2.call("POST", "/lmrs/cache/subscriptions", {"rule": rule})
    cursor = m2.call("GET", "/lmrs/cache/feed")["cursor"]
    assert m1.api.put(uri, provider(4711)).status_code == 201
    page = m2.call("GET", "/lmrs/cache/feed", after=cursor, wait=60)
    events = [(event["event"], event.get("resource")) for event in page["events"]]
    assert ("put", f"{uri}#host") in events and ("match", f"{uri}#host") in events
    m2.call("DELETE", "/lmrs/cache")


def test_the_history_names_the_origin_of_a_version(backbone: HttpBackbone, uri: str) -> None:
    m1, m2, _ = backbone.members.values()
    assert m1.api.put(uri, provider()).status_code == 201
    eventually(lambda: has(m2, uri))
    (version,) = m2.call("GET", "/documents/history", uri=uri)["items"]
    assert version["cause"] == "replica" and version["version"] == 1
    assert version["origin"] == version["agent"] == "m1"
    (version,) = m1.call("GET", "/documents/history", uri=uri)["items"]
    assert version["origin"] == "m1" and version["agent"] is None


def test_concurrent_changes_are_merged_and_listed(backbone: HttpBackbone, uri: str) -> None:
    m1, m2, m3 = backbone.members.values()
    assert m1.api.put(uri, provider(1)).status_code == 201
    check_equal(backbone, uri)
    with partition(backbone):
        for port, member in enumerate((m1, m2, m3), 11):
            assert member.api.put(uri, provider(port)).status_code == 200
    ((_, etag, lines),) = check_equal(backbone, uri)
    assert etag is not None and etag.startswith('"4-')
    assert sum("serverPort" in line for line in lines) == 3
    found = [member.call("GET", "/backbone/conflicts", uri=uri)["items"] for member in (m1, m2, m3)]
    assert found[0] == found[1] == found[2]
    ((conflict,)) = found[0]
    assert conflict["kind"] == "values" and len(conflict["values"]) == 3
    assert m2.api.put(uri, provider(99)).status_code == 200
    check_equal(backbone, uri)
    assert [one["kind"] for one in m3.call("GET", "/backbone/conflicts", uri=uri)["items"]] == ["merged"]


def test_members_converge_over_connections_that_fail_in_every_way(backbone: HttpBackbone) -> None:
    uris = [f"http://docs.example/fault-{number}" for number in range(4)]
    chance = random.Random(7)
    for number, member in enumerate(backbone.members.values()):
        member.proxy.faults = Faults(
            lose_request=0.1, lose_answer=0.15, truncate=0.15, repeat=0.2, alter=0.1, delay=0.03, seed=number
        )
    for _ in range(24):
        member = chance.choice(list(backbone.members.values()))
        uri = chance.choice(uris)
        answer = member.api.delete(uri) if chance.random() < 0.2 else member.api.put(uri, provider(chance.randrange(9)))
        assert answer.status_code in (200, 201, 404), answer.text
    counts = [member.proxy.faults.counts for member in backbone.members.values()]
    eventually(lambda: all(sum(one.get(kind, 0) for one in counts) for kind in ("lose_answer", "truncate", "repeat")))
    for member in backbone.members.values():
        member.proxy.faults = Faults()
    check_equal(backbone, *uris)


def test_writes_at_all_members_at_once_converge(backbone: HttpBackbone) -> None:
    uris = [f"http://docs.example/storm-{number}" for number in range(3)]

    def write(member: HttpMember, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(12):
            body = turtle(f"<#x> a ex:CycleProvider ; ex:note 'n{chance.randrange(5)}', 'n{chance.randrange(5)}' .")
            assert member.api.put(chance.choice(uris), body).status_code in (200, 201)

    threads = [
        threading.Thread(target=write, args=(member, seed)) for seed, member in enumerate(backbone.members.values())
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check_equal(backbone, *uris)


# Pauses and relays


def test_nothing_is_pulled_from_a_paused_member(backbone: HttpBackbone, uri: str) -> None:
    m1, m2, _ = backbone.members.values()
    for name in ("m1", "m3"):
        assert m2.call("PATCH", f"/backbone/members/{name}", {"paused": True})["paused"] is True
    before = m2.backbone()["vector"]
    assert m1.api.put(uri, provider()).status_code == 201
    m2.stop_replication()
    m2.replicate()  # a pause survives a restart
    eventually(lambda: has(backbone["m3"], uri))
    eventually(lambda: m2.backbone()["replicating"])
    assert not has(m2, uri) and m2.backbone()["vector"] == before
    assert [one["paused"] for one in m2.backbone()["members"]] == [True, False, True]
    for name in ("m1", "m3"):
        m2.call("PATCH", f"/backbone/members/{name}", {"paused": False})
    eventually(lambda: has(m2, uri))
    check_equal(backbone, uri)


def test_changes_arrive_through_another_member(backbone: HttpBackbone, uri: str) -> None:
    """The link between m2 and m3 is down in both directions: a star with m1 in the centre."""
    m1, m2, m3 = backbone.members.values()
    m2.call("PATCH", "/backbone/members/m3", {"paused": True})
    m3.call("PATCH", "/backbone/members/m2", {"paused": True})
    assert m2.api.put(uri, provider()).status_code == 201
    eventually(lambda: has(m3, uri))
    assert m3.api.put(uri, provider(5)).status_code == 200
    ((_, etag, _),) = check_equal(backbone, uri)
    assert etag is not None and etag.startswith('"2-')
    m2.call("PATCH", "/backbone/members/m3", {"paused": False})
    m3.call("PATCH", "/backbone/members/m2", {"paused": False})
    assert m1.backbone()["lag"] == 0


def test_a_member_or_itself_that_cannot_be_paused(backbone: HttpBackbone) -> None:
    http = backbone["m1"].api.http
    for name, status in (("m9", 404), ("m1", 400)):
        answer = http.patch(f"/api/v1/backbone/members/{name}", json={"paused": True})
        assert answer.status_code == status and answer.headers["Content-Type"] == "application/problem+json"
    assert http.patch("/api/v1/backbone/members/m2", json={"paused": "yes"}).status_code == 400


# Reading one's own writes


def test_a_change_can_be_read_at_another_member_by_its_token(backbone: HttpBackbone, uri: str) -> None:
    m1, m2, _ = backbone.members.values()
    token = m1.api.put(uri, provider()).json()["token"]
    answer = m2.call("GET", "/status", after=token, wait=60)
    assert answer["reached"] is True and has(m2, uri)
    life, _, number = token.rpartition("-")
    assert m2.call("GET", "/status", after=f"{life}-{int(number) + 1000}")["reached"] is False
    deleted = m2.api.delete(uri).json()["token"]
    assert m1.call("GET", "/status", after=deleted, wait=60)["reached"] is True and not has(m1, uri)
    for malformed in ("7", "x-y", f"{life}-", f"{life}-x"):
        assert m1.api.get("/status", after=malformed).status_code == 400


def test_a_change_can_wait_for_replicas(backbone: HttpBackbone, uri: str) -> None:
    m1, m2, m3 = backbone.members.values()
    answer = m1.api.put(uri, provider(), wait=None, headers={"Prefer": "wait=60, replicas=2"})
    assert answer.status_code == 201 and answer.json()["replicas"] == 2
    assert has(m2, uri) and has(m3, uri)
    with partition(backbone):
        alone = m1.api.put(uri, provider(8), wait=None, headers={"Prefer": "wait=1, replicas=1"})
        assert alone.status_code == 200 and alone.json()["replicas"] == 0
    check_equal(backbone, uri)


# Members


def test_the_backbone_is_described(backbone: HttpBackbone) -> None:
    backbone.rest()
    found = backbone["m2"].backbone()
    assert {"id", "mode", "name", "life", "lead", "term", "members", "vector", "lag"} <= found.keys()
    assert (found["mode"], found["name"], found["lead"], found["term"], found["lag"]) == ("orset", "m2", "m1", 1, 0)
    assert [(one["name"], one["state"], one["paused"]) for one in found["members"]] == [
        (name, "active", False) for name in ("m1", "m2", "m3")
    ]
    lives = {one["life"] for one in found["members"]}
    # The vector also has lives that have ended.
    assert lives <= found["vector"].keys() and found["life"] in lives
    assert len({member.backbone()["id"] for member in backbone.members.values()}) == 1
    assert backbone["m2"].api.get("/backbone/").json()["id"] == found["id"]


def test_the_metrics_have_the_backbone(backbone: HttpBackbone, small: Any) -> None:
    m1 = backbone["m1"]
    backbone.rest()

    def metrics_of_all_peers() -> str | None:
        text = str(m1.api.http.get("/metrics").text)
        return (
            text if all(f'last_contact_timestamp_seconds{{peer="{peer}"}}' in text for peer in ("m2", "m3")) else None
        )

    found = eventually(metrics_of_all_peers)
    documented = set(re.findall(r"\bmdv_backbone_\w+", OPERATIONS.read_text("utf-8")))
    assert set(re.findall(r"^(mdv_backbone_\w+)[ {]", found, re.MULTILINE)) == documented
    for name in ("log_bytes", "marks", "conflicts", "waiting", "divergence_total"):
        assert re.search(rf"^mdv_backbone_{name} \d", found, re.MULTILINE), name
    assert len(re.findall(r"^mdv_backbone_lag_seconds{life=", found, re.MULTILINE)) == len(m1.backbone()["vector"])
    assert "mdv_backbone" not in small.api().http.get("/metrics").text


def test_the_doctor_judges_the_backbone(backbone: HttpBackbone) -> None:
    backbone.rest()
    found = backbone["m1"].backbone()
    assert judge_backbone(found, time.time()).verdict == "ok"
    assert judge_backbone(found, time.time() + 3600).verdict == "warning"
    other = found["members"][1]
    assert other["version"] == found["version"]
    for changed, verdict in (
        ({"forked": ["x"]}, "failure"),
        ({"replicating": False}, "failure"),
        ({"members": [other | {"error": "cut"}]}, "warning"),
        ({"members": [other | {"state": "lapsed"}]}, "warning"),
        ({"members": [other | {"clock_skew": -60.0}]}, "warning"),
        ({"state": "returning"}, "warning"),
        ({"log_bytes": 2**31}, "warning"),
        ({"members": [other | {"version": "9.9"}]}, "warning"),
    ):
        assert judge_backbone(found | changed, time.time()).verdict == verdict, changed


def test_only_the_lead_invites_removes_and_changes_the_schema(backbone: HttpBackbone) -> None:
    m2 = backbone["m2"]
    url = backbone["m1"].url
    for answer in (
        m2.api.http.post("/api/v1/backbone/invitations"),
        m2.api.http.delete("/api/v1/backbone/members/m3"),
        m2.api.put_schema(SCHEMA + "ex:extra a rdfs:Class ."),
    ):
        assert answer.status_code == 409, answer.text
        problem = answer.json()
        assert problem["type"] == "urn:mdv:problem:not-lead" and problem["url"] == url


def test_a_schema_of_the_lead_is_in_force_everywhere(backbone: HttpBackbone, uri: str) -> None:
    m1, m2, m3 = backbone.members.values()
    assert m1.api.put_schema(SCHEMA + "ex:Disk rdfs:subClassOf ex:ServerInformation .").status_code == 200
    eventually(lambda: all("Disk" in one.api.get("/schema").text for one in (m2, m3)))
    assert m3.api.put(uri, turtle("<#d> a ex:Disk .")).status_code == 201
    check_equal(backbone, uri)


def test_an_mdp_in_no_backbone_says_so(backbone: HttpBackbone, small: Any) -> None:
    api = small.api()
    for path in ("/backbone", "/backbone/log", "/backbone/checksum", "/backbone/conflicts"):
        answer = api.get(path)
        assert answer.status_code == 404 and "mdv peer found" in answer.json()["detail"], path


def test_who_may_do_what(backbone: HttpBackbone) -> None:
    m1 = backbone["m1"]
    reader = m1.call("POST", "/tokens", {"name": f"reader {next(_numbers)}", "role": "viewer"})["token"]
    http = m1.server.api(reader).http
    for path in ("", "/checksum", "/marks?uri=" + FIRST, "/conflicts"):
        assert http.get(f"/api/v1/backbone{path}").status_code == 200, path
    for method, path, body in (
        ("POST", "", {"name": "x", "url": "http://127.0.0.1:1"}),
        ("POST", "/invitations", None),
        ("POST", "/entry", {"name": "x", "url": "http://127.0.0.1:1", "code": "x"}),
        ("PATCH", "/members/m2", {"paused": True}),
        ("DELETE", "/members/m2", None),
        ("POST", "/exit", {}),
        ("GET", "/log", None),
        ("GET", "/state", None),
    ):
        assert http.request(method, f"/api/v1/backbone{path}", json=body).status_code == 403, path
        anonymous = m1.server.api(None).http.request(method, f"/api/v1/backbone{path}", json=body)
        assert anonymous.status_code == 401, path
    assert m1.server.api(ADMIN).http.post(MESSAGES, json={"messages": []}).status_code == 401


def test_the_log_is_a_line_of_json_for_each_operation(backbone: HttpBackbone, uri: str) -> None:
    m1, m2, _ = backbone.members.values()
    backbone.rest()
    with partition(backbone):  # so that the operation is not stable at once
        life, seq = m1.backbone()["life"], m1.backbone()["vector"][m1.backbone()["life"]]
        assert m1.api.put(uri, provider()).status_code == 201
        answer = m1.api.http.get("/api/v1/backbone/log", params={"have": f'{{"{life}": {seq}}}'})
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        first, operation = map(json.loads, answer.text.splitlines())
        assert first["up_to_date"] is True and first["vector"][life] == seq + 1
        assert (operation["life"], operation["seq"], operation["kind"]) == (life, seq + 1, "documents")
        assert operation["documents"][0]["uri"] == uri and operation["documents"][0]["version"] == 1
        assert operation["deps"][life] == seq and len(operation["signature"]) == 128
        other = m2.api.http.get("/api/v1/backbone/log", params={"of": "unknown"})
        assert other.text.count("\n") == 1
        assert m1.api.http.get("/api/v1/backbone/log", params={"have": "[]"}).status_code == 400
    backbone.rest()


# The page


def test_the_page_shows_members_vectors_and_conflicts(backbone: HttpBackbone, uri: str) -> None:
    m1, m2, _ = backbone.members.values()
    assert m1.api.put(uri, provider(1)).status_code == 201
    backbone.rest()
    with partition(backbone):
        assert m1.api.put(uri, provider(2)).status_code == 200
        assert m2.api.put(uri, provider(3)).status_code == 200
    backbone.rest()
    with local_client(base_url=m2.server.url, timeout=60, follow_redirects=True) as http:
        visitor = Visitor(http).sign_in(ADMIN)
        page = visitor.get("/backbone").answer.text
        assert (
            'href="/backbone"' in page
            and "<strong>m2</strong>, active" in page
            and "No operation is missing here." in page
        )
        assert page.count('<g class="member') == 3 and page.count("<line") == 2
        assert "several values" in page and uri in page
        changed = visitor.post("/backbone/members/m3", paused="true")
        assert changed.status == 200, changed.words
        shown = changed.answer.text
        assert 'class="tag warn">paused' in shown and '<line class="paused"' in shown
        assert visitor.post("/backbone/members/m3", csrf="wrong", paused="false").status == 403
        visitor.post("/backbone/members/m3", paused="false")
    assert not any(one["paused"] for one in m2.backbone()["members"])


def test_the_page_of_an_mdp_in_no_backbone_says_how_to_found_one(small: Any) -> None:
    page = local_client(base_url=small.url, timeout=60).get("/backbone").text
    assert "mdv up --mdps 3" in page and 'href="/backbone"' not in page


# Strangers


def captured(member: HttpMember) -> SeenRequest:
    """Return a request that another member has sent through the proxy of a member."""
    member.proxy.seen.clear()
    return eventually(lambda: next((one for one in list(member.proxy.seen) if one.path.startswith(MESSAGES)), None))  # type: ignore[no-any-return]


def test_a_captured_request_is_not_accepted_again(backbone: HttpBackbone) -> None:
    m1, m2, _ = backbone.members.values()
    request = captured(m1)
    port = m1.server.port
    eventually(
        lambda: send_request(port, request)[0] == 401
    )  # it was being answered, or is answered for the first time
    status, _, body = send_request(port, request)
    assert status == 401 and b"sent before" in body
    status, _, _ = send_request(m2.server.port, request)
    assert status == 401  # meant for another member


def test_a_changed_request_is_refused(backbone: HttpBackbone) -> None:
    m1 = backbone["m1"]
    request = captured(m1)
    for changed in (
        SeenRequest("POST", request.path, request.headers, request.body + b" "),
        SeenRequest("POST", MESSAGES + "?wait=7", request.headers, request.body),
        SeenRequest("POST", request.path, request.headers, request.body[: len(request.body) // 2]),
        SeenRequest("DELETE", "/api/v1/backbone/members/m3", request.headers, b""),
    ):
        headers = {name: value for name, value in changed.headers.items() if name.lower() != "content-length"}
        status, _, _ = send_request(m1.server.port, SeenRequest(changed.method, changed.path, headers, changed.body))
        assert status == 401, changed.path
    assert len(m1.backbone()["members"]) == 3


def test_a_key_of_no_member_opens_nothing(backbone: HttpBackbone) -> None:
    m1 = backbone["m1"]
    url = m1.url + MESSAGES
    for name in ("m2", "stranger"):
        headers = sign_request(
            make_private_key(), name, "POST", url, b"{}", int(time.time()), f"nonce-of-a-stranger-{name}"
        )
        answer = m1.api.http.post(MESSAGES, content=b"{}", headers=headers | {"Content-Type": "application/json"})
        assert answer.status_code == 401, answer.text


def test_an_invitation_is_for_one_new_member(backbone: HttpBackbone, uri: str) -> None:
    m1 = backbone["m1"]
    code = m1.call("POST", "/backbone/invitations")["code"]
    member = {
        "name": "x1",
        "url": "http://127.0.0.1:9",
        "key": "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik",
        "life": "x",
    }
    http = m1.server.api(None).http

    def join(**changed: Any) -> int:
        return http.post("/api/v1/backbone/members", json=member | {"code": code} | changed).status_code

    assert join(code="wrong") == 403
    assert join(name="m2") == 409
    assert join(url=m1.url) == 409
    assert join(key="short") == 400
    assert join(url="http://mdp.example") == 400
    assert join(documents=3) == 409
    assert http.post("/api/v1/backbone/members", json=member).status_code == 401
    assert len(m1.backbone()["members"]) == 3


def test_a_filled_store_joins_only_with_merge_and_a_removed_member_is_a_stranger(
    backbone: HttpBackbone, uri: str
) -> None:
    """A fourth member comes with documents, and is removed."""
    m1 = backbone["m1"]
    fourth = backbone.start("m4")
    del backbone.members["m4"]
    assert fourth.api.put_schema(SCHEMA).status_code == 200
    assert fourth.api.put(uri, provider(4)).status_code == 201
    code = m1.call("POST", "/backbone/invitations")["code"]
    entry = {"name": "m4", "url": fourth.url, "code": code}
    refused = fourth.api.http.post("/api/v1/backbone/entry", json=entry)
    assert refused.status_code == 409 and "1 documents" in refused.text
    assert fourth.api.get("/backbone").status_code == 404
    backbone.members["m4"] = fourth
    assert content(fourth, uri)[1] == '"1"'
    fourth.call("POST", "/backbone/entry", entry | {"merge": True})
    eventually(lambda: fourth.backbone()["state"] == "active", detail=fourth.backbone)
    assert [status for status, _, _ in check_equal(backbone, uri, FIRST)] == [200, 200]
    again = fourth.api.http.post("/api/v1/backbone/entry", json=entry)
    assert again.status_code == 409

    m1.call("DELETE", "/backbone/members/m4")
    del backbone.members["m4"]
    eventually(lambda: all(len(one.backbone()["members"]) == 3 for one in backbone.members.values()))
    failed = eventually(lambda: fourth.backbone()["members"][0]["error"])
    assert "not a member" in failed
    later = f"{uri}-later"
    assert m1.api.put(later, provider()).status_code == 201
    check_equal(backbone, later)
    assert not has(fourth, later)

    assert fourth.call("POST", "/backbone/exit", {"force": True})["name"] == "m4"
    assert fourth.api.get("/backbone").status_code == 404
    status, etag, _ = content(fourth, uri)
    assert status == 200 and etag is not None and "-" not in etag, "it goes on alone with what it had"


def test_a_member_leaves_once_the_others_have_its_changes(backbone: HttpBackbone, uri: str) -> None:
    """It goes on alone with all documents, and can join again under another name."""
    m1, m2, _ = backbone.members.values()
    refused = m1.api.http.post("/api/v1/backbone/exit", json={})
    assert refused.status_code == 409 and "lead" in refused.json()["detail"]
    fifth = backbone.start("m5")
    backbone.join("m5", start=False)
    for paused in ("m5", "m1", "m3"):
        m2.call("PATCH", f"/backbone/members/{paused}", {"paused": True})
    assert fifth.api.put(uri, provider(5)).status_code == 201
    refused = fifth.api.http.post("/api/v1/backbone/exit", json={})
    assert refused.status_code == 409 and refused.json()["type"].endswith("not-replicated")
    assert "m2" in refused.json()["members"]
    for paused in ("m5", "m1", "m3"):
        m2.call("PATCH", f"/backbone/members/{paused}", {"paused": False})
    leave(backbone, "m5")
    ((status, _, lines),) = check_equal(backbone, uri)
    assert status == 200 and content(fifth, uri)[2] == lines
    assert "token" not in fifth.api.put(uri, provider(6)).json()

    backbone.members["m6"] = fifth
    backbone.join("m6", merge=True, start=False)
    assert check_equal(backbone, uri)[0][2] != lines, "the document was changed at both"
    leave(backbone, "m6")


def leave(backbone: HttpBackbone, name: str) -> None:
    http = backbone[name].api.http
    eventually(lambda: http.post("/api/v1/backbone/exit", json={}).status_code == 200)
    del backbone.members[name]
    eventually(lambda: all(len(one.backbone()["members"]) == 3 for one in backbone.members.values()))
