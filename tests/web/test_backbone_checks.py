"""Checks and repair of a backbone over HTTP: rows that SQL has changed behind the MDP are found, and mended alone."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import text

from mdv.cli.doctor_checks import judge_backbone
from mdv.db.engine import make_engine
from tests.support.eventually import eventually
from tests.support.http_backbone import HttpBackbone, HttpMember, check_equal, http_backbone, partition
from tests.support.local_http import local_client
from tests.support.page_visitor import Visitor
from tests.support.server import ADMIN, SCHEMA, provider

_numbers = itertools.count(1)
RULE = "search CycleProvider c register c where c.serverPort > 100"
PORT = "(select id from vocabulary where uri like '%serverPort')"


@pytest.fixture(scope="module")
def backbone(new_database: Callable[[], str], new_queue: Callable[[], str]) -> Iterator[HttpBackbone]:
    """Three members that check nothing by themselves. At m2, an LMR subscribes to large ports."""
    with http_backbone(new_database, new_queue, MDV_BACKBONE_CHECK_SECONDS="0") as backbone:
        first = backbone.found("m1")
        assert first.api.put_schema(SCHEMA).status_code == 200
        backbone.join("m2")
        backbone.join("m3")
        backbone["m2"].call("POST", "/lmrs", {"name": "cache"})
        backbone["m2"].call("POST", "/lmrs/cache/subscriptions", {"rule": RULE})
        yield backbone


@pytest.fixture
def uris(backbone: HttpBackbone) -> list[str]:
    """Ten documents that all members have."""
    number = next(_numbers)
    uris = [f"http://docs.example/check-{number}-{one}" for one in range(10)]
    for one, uri in enumerate(uris):
        assert backbone["m1"].api.put(uri, provider(200 + one)).status_code == 201
    backbone.rest()
    return uris


def execute(member: HttpMember, sql: str, **values: Any) -> int:
    """Change the database of a member from outside. Return the number of rows."""
    engine = make_engine(member.database_url)
    with engine.begin() as connection:
        rows = connection.execute(text(sql), values).rowcount
    engine.dispose()
    return int(rows)


def query(member: HttpMember, sql: str) -> list[Any]:
    engine = make_engine(member.database_url)
    with engine.connect() as connection:
        rows = list(connection.execute(text(sql)))
    engine.dispose()
    return rows


def damage(member: HttpMember, uri: str, change: str, rows: str = "true") -> None:
    where = f"document_id = (select id from documents where uri = :uri) and {rows}"
    assert execute(member, f"{change} where {where}", uri=uri) >= 1


def run(member: HttpMember, kind: str, **body: Any) -> dict[str, Any]:
    """Run a check or a repair. Return the result of its job."""
    answer = member.api.http.post(f"/api/v1/backbone/{kind}", json=body)
    assert answer.status_code == 202, answer.text
    job = answer.json()["job"]

    def ended() -> dict[str, Any] | None:
        found = member.call("GET", f"/jobs/{job}")
        return found if found["state"] in ("done", "failed") else None

    found: dict[str, Any] = eventually(ended)
    assert found["state"] == "done", found
    result: dict[str, Any] = found["result"]
    return result


def content(member: HttpMember, uri: str) -> str:
    answer = member.api.get("/documents", uri=uri, headers={"Accept": "application/n-triples"})
    return "\n".join(sorted(answer.text.splitlines()))


def selected(member: HttpMember) -> set[str]:
    """Return the resources that a snapshot for the LMR of a member would select."""
    events = member.call("GET", "/lmrs/cache/feed")["events"]
    return {event["resource"] for event in events if event["event"] == "match"}


def test_equal_members_have_no_differences(backbone: HttpBackbone, uris: list[str]) -> None:
    for body in ({"peer": "m2"}, {"peer": "m3", "deep": True}, {}):
        found = run(backbone["m1"], "verify", **body)
        assert (found["differing"], found["pending"], found["unreachable"]) == (0, 0, {}), found
    for body in ({"peer": "m9"}, {"peer": "m1"}):
        assert backbone["m1"].api.http.post("/api/v1/backbone/verify", json=body).status_code == 404
    assert backbone["m1"].api.http.post("/api/v1/backbone/repair", json={}).status_code == 400


def test_rows_changed_from_outside_are_found_and_mended_and_nothing_else(
    backbone: HttpBackbone, uris: list[str]
) -> None:
    m1, m2, _ = backbone.members.values()
    before = [content(m1, uri) for uri in uris]
    positions = [m2.call("GET", "/documents/history", uri=uri)["items"][0]["position"] for uri in uris]
    matched = selected(m2)
    damage(m2, uris[0], "update filter_data set value = '7', number = 7", f"property_id = {PORT}")
    damage(m2, uris[1], "delete from filter_data", f"property_id = {PORT}")
    damage(m2, uris[2], "delete from filter_data")
    columns = "document_id, resource_id, target_id, hash, position, property_id, datatype_id, shows, value, number"
    damage(m2, uris[3], f"insert into filter_data ({columns}) select {columns} from filter_data")
    assert execute(m2, "update documents set version = 9, digest = digest + 1 where uri = :uri", uri=uris[4]) == 1
    assert [content(m2, uri) == was for uri, was in zip(uris, before, strict=True)][:3] == [False] * 3

    assert run(m2, "verify", peer="m1")["differing"] == 1  # without a look at the rows
    found = run(m2, "verify", peer="m1", deep=True)
    assert {one["uri"] for one in found["documents"] if one["damaged"]} == set(uris[:5])
    assert content(m2, uris[0]) != before[0]  # a check changes nothing

    repaired = run(m2, "repair", **{"from": "m1"})
    assert sorted(repaired["repaired"]) == sorted(uris[:5]) and repaired["undecided"] == []
    assert [content(m2, uri) for uri in uris] == before
    check_equal(backbone, *uris)
    assert run(m2, "verify", deep=True)["differing"] == 0
    after = [m2.call("GET", "/documents/history", uri=uri)["items"][0]["position"] for uri in uris]
    assert after[5:] == positions[5:] and selected(m2) == matched
    # Rules are exact, and changes of a mended document go on.
    assert m1.api.put(uris[0], provider(1)).status_code == 200
    check_equal(backbone, *uris)
    assert selected(m2) == matched - {f"{uris[0]}#host"}


def test_documents_that_differ_are_replaced_and_lmrs_are_notified(backbone: HttpBackbone, uris: list[str]) -> None:
    """The content of two documents differs at m2, with digests that fit, as if operations had been applied wrongly."""
    _, m2, _ = backbone.members.values()
    with partition(backbone):
        ((replica,),) = query(m2, "select replica::text from mdp_state")
        life, seq = m2.backbone()["life"], m2.backbone()["vector"][m2.backbone()["life"]]
        for uri in uris[:2]:
            assert m2.api.put(uri, provider(50)).status_code == 200
        # The operations vanish, but not what they did.
        execute(m2, "update documents set version = 1 where uri = any (:uris)", uris=uris[:2])
        execute(m2, "delete from replica_log where life = :life and seq > :seq", life=life, seq=seq)
        execute(m2, "update mdp_state set replica = cast(:replica as jsonb)", replica=replica)
    found = run(m2, "verify", peer="m1", deep=True)
    assert {one["uri"] for one in found["documents"]} == set(uris[:2]), found
    assert not any(one["damaged"] for one in found["documents"])
    assert f"{uris[0]}#host" not in selected(m2)
    assert run(m2, "repair", **{"from": "m1", "documents": [uris[0]]})["repaired"] == [uris[0]]
    assert f"{uris[0]}#host" in selected(m2) and f"{uris[1]}#host" not in selected(m2)
    assert m2.backbone()["diverged"] == [uris[1]]
    assert run(m2, "repair", **{"from": "m1"})["repaired"] == [uris[1]]
    assert m2.backbone()["diverged"] == []
    assert {f"{uri}#host" for uri in uris} <= selected(m2)


def test_a_member_mends_itself_within_a_check(backbone: HttpBackbone, uris: list[str]) -> None:
    m1, _, m3 = backbone.members.values()
    before = [content(m1, uri) for uri in uris]
    for number, uri in enumerate(uris):
        damage(m3, uri, f"update filter_data set value = 'x{number}'", f"property_id = {PORT}")
    count = m3.metric("mdv_backbone_divergence_total")
    m3.stop_replication()
    m3.settings["MDV_BACKBONE_CHECK_SECONDS"] = "1"
    m3.replicate()
    eventually(lambda: [content(m3, uri) for uri in uris] == before)
    assert m3.metric("mdv_backbone_divergence_total") == count + 10
    eventually(lambda: m3.backbone()["diverged"] == [])
    assert judge_backbone(m3.backbone() | {"diverged": ["urn:d"]}, time.time()).verdict == "failure"
    results = [one["result"] or {} for one in m3.call("GET", "/jobs")["items"] if one["kind"] == "verify"]
    assert [one["repairs"] for one in results if one.get("repairs")] == [10]
    m3.stop_replication()
    m3.settings["MDV_BACKBONE_CHECK_SECONDS"] = "0"
    m3.replicate()
    check_equal(backbone, *uris)


def test_the_page_and_the_command_show_checks(backbone: HttpBackbone, uris: list[str]) -> None:
    m1, *_ = backbone.members.values()
    with local_client(base_url=m1.server.url, timeout=60, follow_redirects=True) as http:
        visitor = Visitor(http).sign_in(ADMIN)
        page = visitor.post("/backbone/checks", peer="m2", deep="true")
        assert page.status == 200 and "Checks" in page.words
        eventually(lambda: "no differences" in visitor.get("/backbone/checks").words)
        damage(m1, uris[0], "update filter_data set value = 'x'", f"property_id = {PORT}")
        visitor.post("/backbone/checks", peer="m2", deep="true")
        eventually(lambda: uris[0] in visitor.get("/backbone/checks").words)
        visitor.post("/backbone/repairs", peer="m2")
        eventually(lambda: "1 document repaired" in visitor.get("/backbone/checks").words)
    check_equal(backbone, *uris)
