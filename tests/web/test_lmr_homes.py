"""LMRs in a backbone: another member becomes the home of an LMR when the present one does not answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mdv.backbone.etag import parse_token
from tests.support.eventually import eventually
from tests.support.faulty_proxy import Faults
from tests.support.http_backbone import HttpBackbone, HttpMember, http_backbone
from tests.support.roaming_lmr import KnownDocuments, RoamingLmr
from tests.support.server import SCHEMA, V, provider

XSD = "http://www.w3.org/2001/XMLSchema#"

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def backbone(new_database: Callable[[], str], new_queue: Callable[[], str]) -> Iterator[HttpBackbone]:
    with http_backbone(new_database, new_queue) as backbone:
        assert backbone.found("m1").api.put_schema(SCHEMA).status_code == 200
        backbone.join("m2")
        backbone.join("m3")
        backbone.rest()
        yield backbone


class Roaming:
    """A fresh LMR at home at m1, with its documents."""

    def __init__(self, backbone: HttpBackbone, folder: Path, stack: ExitStack) -> None:
        self.backbone, self.folder, self.stack = backbone, folder, stack
        self.m1, self.m2, self.m3 = backbone.members.values()
        self.name = f"roaming-{next(_numbers)}"
        made = self.m1.call("POST", "/lmrs", {"name": self.name})
        self.token = made["token"]
        self.documents = KnownDocuments(self.name)
        self.ports: dict[int, int] = {}
        """The ports that its rules select, by subscription."""

    def lmr(self, *members: HttpMember, **seconds: float) -> RoamingLmr:
        """An LMR with these MDPs."""
        made = RoamingLmr(self.folder, self.name, self.token, members, **seconds)
        self.stack.callback(made.close)
        return made

    def at(self, member: HttpMember) -> Any:
        """A client of a member with the token of the LMR."""
        return member.server.api(self.token)

    def subscribe(self, member: HttpMember, port: int) -> dict[str, Any]:
        answer = self.at(member).http.post("/api/v1/lmrs/self/subscriptions", json={"rule": self.documents.rule(port)})
        assert answer.status_code == 201, answer.text
        self.ports[answer.json()["id"]] = port
        return dict(answer.json())

    def unsubscribe(self, member: HttpMember, number: int) -> None:
        answer = self.at(member).http.delete(f"/api/v1/lmrs/self/subscriptions/{number}")
        assert answer.status_code == 200, answer.text
        del self.ports[number]

    def rules_at(self, member: HttpMember) -> dict[int, str]:
        answer = self.at(member).get("/lmrs/self/subscriptions").json()
        return {item["id"]: item["rule"] for item in answer["items"]}

    def home_of(self, member: HttpMember) -> str | None:
        """Where a member thinks the LMR is at home."""
        home: str | None = self.at(member).get("/lmrs/self").json().get("home", "unknown")
        return home

    def knows(self, member: HttpMember, home: str) -> bool:
        answer = self.at(member).get("/lmrs/self")
        return answer.status_code == 200 and answer.json()["home"] == (None if member.name == home else home)

    def until_known(self, home: str, *members: HttpMember) -> None:
        for member in members or tuple(self.backbone.members.values()):
            eventually(lambda member=member: self.knows(member, home), detail=lambda: self.backbone.members)  # type: ignore[misc]

    def until_exact(self, lmr: RoamingLmr) -> None:
        expected = self.documents.expected(self.ports.values())
        eventually(lambda: lmr.content() == expected, detail=lambda: (lmr.content(), expected, lmr.sync.status))


@pytest.fixture
def roaming(backbone: HttpBackbone, tmp_path: Path) -> Iterator[Roaming]:
    with ExitStack() as stack:
        yield Roaming(backbone, tmp_path, stack)
        for member in backbone.members.values():
            member.proxy.faults = Faults()


def cut(member: HttpMember) -> None:
    """Let a member answer no other process, and pull nothing."""
    member.stop_replication()
    member.proxy.faults = Faults(is_down=True)


def reconnect(member: HttpMember) -> None:
    member.proxy.faults = Faults()
    member.replicate()


def test_another_member_becomes_the_home_and_all_stays_exact(roaming: Roaming) -> None:
    m1, m2, m3 = roaming.m1, roaming.m2, roaming.m3
    roaming.until_known("m1")
    first = roaming.subscribe(m1, 1)
    second = roaming.subscribe(m1, 2)
    uris = [roaming.documents.put(member, port) for member in (m1, m2, m3) for port in (1, 2, 3)]
    lmr = roaming.lmr(m1, m2, m3).start()
    roaming.until_exact(lmr)
    assert lmr.home is None and not lmr.adoptions()
    roaming.backbone.rest()
    cut(m1)
    roaming.documents.put(m2, 3, uris[0])
    roaming.documents.put(m3, 1)
    lmr.lose_home()
    roaming.until_exact(lmr)
    home = m2 if lmr.home == m2.url else m3
    assert len(lmr.adoptions()) == 1 and lmr.adoptions()[0]["buckets"] < 40
    # subscriptions over the LMR, with their lasting IDs
    assert roaming.rules_at(home).keys() == {first["id"], second["id"]}
    why = roaming.at(home).get("/explain", lmr="self", uri=f"{uris[3]}#host").json()
    assert [rule["id"] for rule in why["rules"]] == [first["id"]]
    third = lmr.homes.current.subscribe(roaming.documents.rule(3))
    roaming.ports[third["id"]] = 3
    roaming.unsubscribe(home, second["id"])
    roaming.until_exact(lmr)
    # the old home comes back: its copy becomes dormant
    reconnect(m1)
    roaming.until_known(home.name)
    answer = roaming.at(m1).get("/lmrs/self/feed")
    assert answer.status_code == 409 and answer.json()["type"] == "urn:mdv:problem:not-home"
    assert answer.json()["url"] == home.url
    shown = roaming.at(m1).get("/lmrs/self").json()
    assert (shown["subscriptions"], shown["resources"], shown["events"]) == (0, 0, 0)
    roaming.documents.delete(m1, roaming.documents.put(m1, 1))
    roaming.documents.put(m1, 3)
    roaming.until_exact(lmr)
    assert lmr.home == home.url and lmr.sync.verify() is not None and lmr.sync.status.mended == 0


def test_a_member_that_lacks_changes_is_accepted_only_after_a_while(roaming: Roaming) -> None:
    m1, m2 = roaming.m1, roaming.m2
    roaming.until_known("m1")
    roaming.subscribe(m1, 1)
    roaming.backbone.rest()
    m2.stop_replication()
    roaming.documents.put(m1, 1)
    lmr = roaming.lmr(m1, m2).start()
    roaming.until_exact(lmr)
    cut(m1)
    assert not lmr.sync.change_home(None, accept_older=False)
    assert lmr.home is None and lmr.content() == roaming.documents.expected([1])
    lmr.lose_home(accept_older=True)
    assert lmr.home == m2.url and lmr.content() == {}
    reconnect(m1)
    m2.replicate()
    roaming.until_exact(lmr)


def test_an_lmr_waits_before_it_changes_its_home(roaming: Roaming) -> None:
    """Which member is the home depends on the load of the machine; the content does not."""
    m1, m2, m3 = roaming.m1, roaming.m2, roaming.m3
    roaming.subscribe(m1, 1)
    roaming.documents.put(m1, 1)
    roaming.backbone.rest()
    roaming.until_known("m1")
    lmr = roaming.lmr(m1, m2, m3, home_seconds=2, patience=4).start()
    roaming.until_exact(lmr)
    cut(m1)
    eventually(lambda: lmr.home in (m2.url, m3.url), detail=lambda: lmr.sync.status)
    roaming.documents.put(m2, 1)
    roaming.until_exact(lmr)
    reconnect(m1)


def test_the_later_adoption_wins(roaming: Roaming) -> None:
    m1, m2, m3 = roaming.m1, roaming.m2, roaming.m3
    roaming.subscribe(m1, 1)
    roaming.documents.put(m1, 1)
    lmr = roaming.lmr(m1, m2, m3)
    lmr.sync.step()
    roaming.backbone.rest()
    roaming.until_known("m1")
    for member in (m2, m3):
        member.stop_replication()
    lmr.close()
    first, then = roaming.lmr(m1, m2), roaming.lmr(m1, m3)  # of the first one, the answer is lost
    for one, member in ((first, m2), (then, m3)):
        client = one.homes.candidates(None)[0]
        assert client.url == member.url
        adopted = client.adopt(one.cache.next_term(), {}, [0] * 256)
        assert adopted["home"] == member.name and roaming.knows(member, member.name)
        roaming.subscribe(member, 5)
    for member in (m2, m3):
        member.replicate()
    roaming.until_known("m3")
    roaming.documents.put(m2, 5)
    roaming_lmr = roaming.lmr(m3).start()
    roaming.until_exact(roaming_lmr)
    assert len(roaming.rules_at(m3)) == 3  # that of m2 is not lost


def test_rules_that_the_old_home_accepted_while_it_was_cut_off_are_kept(roaming: Roaming) -> None:
    m1, m2, m3 = roaming.m1, roaming.m2, roaming.m3
    roaming.until_known("m1")
    first, second = roaming.subscribe(m1, 1), roaming.subscribe(m1, 2)
    roaming.documents.put(m2, 4)
    roaming.backbone.rest()
    lmr = roaming.lmr(m1, m2, m3).start()
    roaming.until_exact(lmr)
    cut(m1)
    lmr.lose_home()
    roaming.subscribe(m1, 4)
    roaming.unsubscribe(m1, second["id"])
    roaming.documents.put(m3, 2)
    reconnect(m1)
    roaming.until_known("m2" if lmr.home == m2.url else "m3")
    roaming.until_exact(lmr)
    assert first["id"] in roaming.rules_at(m2 if lmr.home == m2.url else m3)


def test_an_lmr_that_is_deleted_is_deleted_everywhere(roaming: Roaming) -> None:
    roaming.until_known("m1")
    roaming.subscribe(roaming.m1, 1)
    roaming.m3.call("DELETE", f"/lmrs/{roaming.name}@m1")
    for member in roaming.backbone.members.values():
        eventually(lambda member=member: roaming.at(member).get("/lmrs/self").status_code == 401)  # type: ignore[misc]


def test_a_new_token_is_valid_at_all_members(roaming: Roaming) -> None:
    roaming.until_known("m1")
    old, roaming.token = roaming.token, roaming.m1.call("POST", f"/lmrs/{roaming.name}/token")["token"]
    roaming.until_known("m1")
    for member in roaming.backbone.members.values():
        eventually(lambda member=member: member.server.api(old).get("/lmrs/self").status_code == 401)  # type: ignore[misc]


def test_every_change_has_a_token_that_an_lmr_waits_for(roaming: Roaming) -> None:
    m1, m2, m3 = roaming.m1, roaming.m2, roaming.m3
    roaming.until_known("m1")
    tokens = [roaming.subscribe(m1, 1)["token"]]
    lmr = roaming.lmr(m1).start()
    uri = roaming.documents.put(m2, 1)
    tokens.append(m2.api.put(uri, provider(2)).json()["token"])
    subject, name = f"{uri}#host", f"{V}serverPort"
    old, new = ({"type": "literal", "datatype": f"{XSD}integer", "value": value} for value in ("2", "3"))
    edit = {"remove": [[subject, name, old]], "add": [[subject, name, new]]}
    tokens.append(m2.api.patch(uri, edit).json()["token"])
    tokens.append(m2.api.delete(uri).json()["token"])
    tokens.append(m1.api.put_schema(SCHEMA + "ex:more rdfs:range xsd:string .").json()["token"])
    del roaming.documents.ports[uri]
    for token in tokens:
        assert lmr.sync.wait_for_token(parse_token(token), 60), token
        for member in (m1, m2, m3):
            status = member.call("GET", "/status", after=token, wait=60)
            assert status["reached"] is True
    life, _, number = tokens[-1].rpartition("-")
    assert not lmr.sync.wait_for_token((life, int(number) + 1000), 0.1)
    roaming.until_exact(lmr)
