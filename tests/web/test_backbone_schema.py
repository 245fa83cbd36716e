"""One order of schemas and leads over HTTP: the lead asks all members, and only it decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.eventually import eventually
from tests.support.faulty_proxy import Faults
from tests.support.http_backbone import HttpBackbone, HttpMember, http_backbone
from tests.support.server import SCHEMA, provider

RENAMED = SCHEMA.replace("serverPort", "serverDoor")
MORE = SCHEMA + "\n<http://mdv.example/schema#{}> a <http://www.w3.org/1999/02/22-rdf-syntax-ns#Property> ."
DOCUMENT = "http://docs.example/schema.rdf"


@pytest.fixture(scope="module")
def backbone(new_database: Callable[[], str], new_queue: Callable[[], str]) -> Iterator[HttpBackbone]:
    with http_backbone(new_database, new_queue) as backbone:
        first = backbone.found("m1")
        assert first.api.put_schema(SCHEMA).status_code == 200
        backbone.join("m2")
        yield backbone


def put_schema(member: HttpMember, schema: str, query: str = "") -> tuple[int, dict[str, object]]:
    answer = member.api.http.put(
        f"/api/v1/schema{query}", content=schema.encode(), headers={"Content-Type": "text/turtle"}
    )
    return answer.status_code, answer.json()


def has_property(member: HttpMember, name: str) -> bool:
    return name in member.api.http.get("/api/v1/schema").text


def test_only_the_lead_replaces_the_schema(backbone: HttpBackbone) -> None:
    status, problem = put_schema(backbone["m2"], MORE.format("one"))
    assert status == 409 and str(problem["type"]).endswith("not-lead")
    assert problem["url"] == backbone["m1"].url and problem["lead"] == "m1"
    status, _ = put_schema(backbone["m1"], MORE.format("one"))
    assert status == 200
    eventually(lambda: has_property(backbone["m2"], "ex:one"))


def test_a_schema_that_a_member_refuses_is_not_put_in_force(backbone: HttpBackbone) -> None:
    """A rule of an LMR of the other member needs the property."""
    m1, m2 = backbone["m1"], backbone["m2"]
    m2.call("POST", "/lmrs", {"name": "needy"})
    m2.call("POST", "/lmrs/needy/subscriptions", {"rule": "search CycleProvider c register c where c.serverPort = 1"})
    for query in ("", "?dry_run=true", "?force=true"):
        status, problem = put_schema(m1, RENAMED, query)
        assert status == 409 and problem["members"] == ["m2"], problem
        assert "at m2: rule" in str(problem["errors"])
    assert has_property(m1, "serverPort") and has_property(m2, "serverPort")
    m2.call("DELETE", "/lmrs/needy")
    assert put_schema(m1, RENAMED, "?dry_run=true")[0] == 200
    assert has_property(m1, "serverPort")


def test_a_schema_waits_for_a_member_that_is_away_unless_forced(backbone: HttpBackbone) -> None:
    m1, m2 = backbone["m1"], backbone["m2"]
    m2.proxy.faults = Faults(is_down=True)
    try:
        status, problem = put_schema(m1, MORE.format("two"))
        assert (status, problem["members"]) == (503, ["m2"])
        assert not has_property(m1, "ex:two")
        assert put_schema(m1, MORE.format("two"), "?force=true")[0] == 200
    finally:
        m2.proxy.faults = Faults()
    eventually(lambda: has_property(m2, "ex:two"))


def test_the_lead_is_handed_over_and_taken(backbone: HttpBackbone) -> None:
    m1, m2 = backbone["m1"], backbone["m2"]
    answer = m2.api.http.put("/api/v1/backbone/lead", json={"member": "m2"})
    assert answer.status_code == 409 and answer.json()["type"].endswith("not-lead")
    made = m1.call("PUT", "/backbone/lead", {"member": "m2"})
    assert (made["lead"], made["term"]) == ("m2", 2)
    eventually(lambda: m2.backbone()["lead"] == "m2")
    assert put_schema(m1, SCHEMA)[0] == 409
    assert put_schema(m2, MORE.format("three"))[0] == 200
    eventually(lambda: has_property(m1, "ex:three"))
    made = m1.call("PUT", "/backbone/lead", {"member": "m1", "force": True})
    assert (made["lead"], made["term"]) == ("m1", 3)
    eventually(lambda: m2.backbone()["lead"] == "m1")
    assert m1.api.http.put("/api/v1/backbone/lead", json={"member": "m9"}).status_code == 404


def test_a_trial_needs_a_signature_or_an_administrator(backbone: HttpBackbone) -> None:
    m2 = backbone["m2"]
    assert m2.call("POST", "/backbone/schema/try", {"schema": SCHEMA, "hold": False}) == {"problem": None}
    stranger = m2.api.http.post(
        "/api/v1/backbone/schema/try", json={"schema": SCHEMA}, headers={"Authorization": "Bearer x"}
    )
    assert stranger.status_code == 401


def test_a_document_is_held_to_both_schemas_while_the_lead_asks(backbone: HttpBackbone) -> None:
    m2 = backbone["m2"]
    assert m2.call("POST", "/backbone/schema/try", {"schema": RENAMED, "hold": True}) == {"problem": None}
    answer = m2.api.put(DOCUMENT, provider())
    assert answer.status_code == 422 and "another schema in force" in answer.text


def test_event_rules_and_locks_reach_the_others(backbone: HttpBackbone) -> None:
    m1, m2 = backbone["m1"], backbone["m2"]
    rule = "RULE far ON INSERT (_, serverHost, _) IF TRUE DO INSERT ($delta, serverPort, 7)"
    m1.call("POST", "/eca/rules", {"text": rule})
    eventually(lambda: [one["name"] for one in m2.call("GET", "/eca/rules")["items"]] == ["far"])
    lock = m2.call("POST", "/real/locks", {"document_prefix": "http://locked.example/"})
    eventually(lambda: len(m1.call("GET", "/real/locks")["items"]) == 1)
    m2.call("DELETE", f"/real/locks/{lock['id']}")
    eventually(lambda: m1.call("GET", "/real/locks")["items"] == [])
    m2.call("DELETE", "/eca/rules/far")
    eventually(lambda: m1.call("GET", "/eca/rules")["items"] == [])
