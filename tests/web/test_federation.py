"""A federation over HTTP: two superpeers and a peer, the calls of `/federation`, and its commands."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mdv.replication.http_signatures import sign_request
from mdv.replication.keys import make_private_key
from tests.support.eventually import eventually
from tests.support.http_federation import HttpFederation, HttpSite, http_federation
from tests.support.local_http import local_client
from tests.support.page_visitor import Visitor
from tests.support.server import ADMIN, turtle

SCHEMA = """
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix mdv: <urn:mdv:schema#> .
@prefix ex: <http://mdv.example/schema#> .
ex:Book a rdfs:Class . ex:Reader a rdfs:Class .
ex:subject rdfs:range xsd:string ; mdv:setValued true .
ex:interest rdfs:range xsd:string ; mdv:setValued true .
ex:new mdv:setValued true .
"""
EX = "http://mdv.example/schema#"
ANN = "http://b.example/ann"
RULE = (
    "RULE tell ABORT Independent ON INSERT resource() AS INSTANCE OF Book"
    f" IF $delta/target(subject) = resource({ANN})/target(interest) DO INSERT (resource({ANN}), new, $delta)"
)

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def federation(new_database: Callable[[], str], new_queue: Callable[[], str]) -> Iterator[HttpFederation]:
    """lib-a has books, its peer `p` too; lib-b has readers. lib-b calls lib-a, and `p` calls lib-a."""
    with http_federation(new_database, new_queue) as federation:
        federation.superpeer("lib-a", SCHEMA, {"http://a.example/d": turtle("<http://a.example/1> a ex:Book .")})
        reader = turtle(f"<{ANN}> a ex:Reader ; ex:interest 'Law' ; ex:new <http://b.example/2> .")
        federation.superpeer("lib-b", SCHEMA, {"http://b.example/d": reader}, ["lib-a"])
        federation.peer("p", "lib-a", SCHEMA, {"http://p.example/d": turtle("<http://p.example/1> a ex:Book .")})
        federation.rest()
        added = federation["lib-b"].call("POST", "/eca/rules", {"text": RULE})
        assert added["id"] == "lib-b.1"
        federation.rest()
        yield federation


def news(site: HttpSite) -> set[str]:
    found = site.api.get("/resources", uri=ANN, headers={"Accept": "application/json"}).json()
    return {term["value"] for name, term in found["statements"] if name == EX + "new"}


def new_book(site: HttpSite, subject: str = "Law") -> str:
    uri = f"http://{site.name}.example/book-{next(_numbers)}"
    answer = site.api.put(uri, turtle(f"<{uri}> a ex:Book ; ex:subject '{subject}' ."))
    assert answer.status_code == 201, answer.text
    return uri


def test_new_books_of_a_superpeer_and_of_its_peer_reach_a_reader_at_the_other(federation: HttpFederation) -> None:
    law = {new_book(federation["lib-a"]), new_book(federation["p"])}
    art = new_book(federation["p"], "Art")
    eventually(lambda: law <= news(federation["lib-b"]), 60)
    federation.rest()
    assert art not in news(federation["lib-b"])
    history = federation["lib-b"].api.get("/documents/history", uri="urn:mdv:federation:lib-a").json()["items"]
    assert {one["cause"] for one in history} == {"rule"}


def test_the_rule_is_listed_where_it_is_relevant(federation: HttpFederation) -> None:
    at = {name: federation[name].call("GET", "/federation/rules")["items"] for name in ("lib-a", "lib-b", "p")}
    assert [(one["id"], one["event"], one["actions"]) for one in at["lib-a"]] == [("lib-b.1", ["0", "p"], [])]
    assert [(one["id"], one["condition"], one["actions"]) for one in at["lib-b"]] == [("lib-b.1", ["0"], ["0"])]
    assert at["p"] == []
    links = federation["lib-a"].status()["links"]
    assert [(one["name"], one["kind"], one["url"]) for one in links] == [
        ("lib-b", "superpeer", None), ("p", "peer", None)
    ]  # fmt: skip


def test_a_transaction_is_shown_as_a_tree_over_the_superpeers(federation: HttpFederation) -> None:
    uri = new_book(federation["p"])
    eventually(lambda: uri in news(federation["lib-b"]), 60)
    federation.rest()
    own = next(one for one in federation["lib-a"].transactions() if one["peer"] == "p" and one["rule"] is None)
    found = federation["lib-a"].api.get("/federation/transactions/" + own["id"].replace("#", "%23")).json()
    (copy,) = found["copies"]
    assert (copy["rule"], copy["delta"]) == ("lib-b.1", uri)
    (child,) = copy["transactions"]
    assert (child["superpeer"], child["outcome"]) == ("lib-b", "done")
    there = federation["lib-b"].call("GET", f"/federation/transactions/{child['id']}")
    assert there["parent"] == own["id"]
    assert [(one["added"], one["statement"][0]) for one in there["changes"]] == [(True, ANN)]


def test_privileges_are_listed_and_replaced(federation: HttpFederation) -> None:
    site = federation["lib-a"]
    items = [{"kind": "class", "name": "Book", "privilege": "read-only"}]
    before = site.call("GET", "/federation/privileges")
    site.call("PUT", "/federation/privileges", {"items": items})
    shown = site.call("GET", "/federation/privileges")["items"]
    assert shown == [{"kind": "class", "name": EX + "Book", "privilege": "read-only"}]
    site.call("PUT", "/federation/privileges", before)
    refused = federation["p"].api.http.put("/api/v1/federation/privileges", json=before)
    assert refused.status_code == 409 and "are set at lib-a" in refused.text


def test_a_rule_is_ended_at_its_origin_only(federation: HttpFederation) -> None:
    added = federation["lib-b"].call("POST", "/eca/rules", {"text": RULE.replace("RULE tell", "RULE other")})
    eventually(lambda: added["id"] in ids(federation["lib-a"]), 60)
    refused = federation["lib-a"].api.http.delete(f"/api/v1/eca/rules/{added['id']}")
    assert refused.status_code == 409 and "End it there" in refused.text
    federation["lib-b"].call("DELETE", f"/eca/rules/{added['id']}")
    eventually(lambda: added["id"] not in ids(federation["lib-a"]) | ids(federation["lib-b"]), 60)


def ids(site: HttpSite) -> set[str]:
    return {one["id"] for one in site.call("GET", "/federation/rules")["items"]}


def test_an_exchange_must_be_signed_by_a_neighbour(federation: HttpFederation) -> None:
    site = federation["lib-a"]
    body: dict[str, Any] = {
        "sender": "p", "epoch": "e", "peer_epoch": None, "first": 1, "messages": ['{"Leave":[]}'], "have": 0
    }  # fmt: skip
    content = json.dumps(body).encode()
    url = site.server.url + "/api/v1/federation/exchange"
    plain = site.api.http.post(url, content=content)
    assert plain.status_code == 401
    headers = sign_request(make_private_key(), "p", "POST", url, content, int(time.time()), "n" * 20)
    stranger = site.server.api(None).http.post(url, content=content, headers=headers)
    assert stranger.status_code == 401
    assert {one["name"] for one in site.status()["links"]} == {"lib-b", "p"}


def test_an_invitation_can_be_used_once(federation: HttpFederation) -> None:
    site = federation["lib-a"]
    refused = federation["p"].api.http.post(
        "/api/v1/federation/links", json={"name": "x", "key": "A" * 43, "code": "wrong"}
    )
    assert refused.status_code in (400, 403)
    joined = federation["p"].api.http.post(
        "/api/v1/federation/entry", json={"url": site.server.url, "code": "x", "name": "p2"}
    )
    assert joined.status_code == 409 and "is p in a federation already" in joined.text


def test_a_peer_that_leaves_is_forgotten(federation: HttpFederation) -> None:
    documents = {"http://q.example/d": turtle("<http://q.example/1> a ex:Book .")}
    peer = federation.peer("q", "lib-a", SCHEMA, documents)
    federation.rest()
    assert "q" in {one["name"] for one in federation["lib-a"].status()["peers"]}
    assert peer.api.http.delete("/api/v1/federation").status_code == 202
    eventually(lambda: peer.api.get("/federation").status_code == 404, 60)
    eventually(lambda: "q" not in {one["name"] for one in federation["lib-a"].status()["peers"]}, 60)
    del federation.sites["q"]
    assert peer.api.get("/documents", uri="http://q.example/d").status_code == 200


def test_the_pages_show_the_federation_a_transaction_and_change_privileges(federation: HttpFederation) -> None:
    site = federation["lib-a"]
    uri = new_book(site)
    eventually(lambda: uri in news(federation["lib-b"]), 60)
    federation.rest()
    with local_client(base_url=site.server.url, timeout=60, follow_redirects=True) as http:
        visitor = Visitor(http).sign_in(ADMIN)
        page = visitor.get("/federation")
        assert "This MDP is the superpeer lib-a" in page.words
        assert len(page.tree.xpath("//*[local-name()='svg']//*[local-name()='rect']")) == 2
        assert "lib-b.1" in page.words and "it calls this MDP" in page.words
        (link,) = {one for one in page.links() if "id=lib-a%23" in one and tree_of(visitor, one, uri)}
        shown = visitor.get(link)
        assert "rule lib-b.1" in shown.words and "at lib-b" in shown.words
        before = page.form("/federation/privileges")["privileges"]
        assert before == "prefix * read-write"
        refused = visitor.post("/federation/privileges", privileges="class Nothing read-only")
        assert refused.status == 400 and "Nothing" in refused.words
        visitor.post("/federation/privileges", privileges=before + "\nclass Reader private")
        items = site.call("GET", "/federation/privileges")["items"]
        assert items[1] == {"kind": "class", "name": EX + "Reader", "privilege": "private"}
        visitor.post("/federation/privileges", privileges=before)


def tree_of(visitor: Visitor, link: str, uri: str) -> bool:
    return uri in visitor.get(link).words
