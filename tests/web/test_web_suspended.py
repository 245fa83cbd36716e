"""Suspended subscriptions over HTTP: a registration suspends a rule; MDP and LMR show it, and resume it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mdv.db.engine import make_engine
from mdv.mdp.provider import Provider
from mdv.mdp.rules.suspend import suspend_rules
from tests.support import local_http
from tests.support.eventually import eventually
from tests.support.lmr_server import Backbone, Lmr, create, start_lmr_server
from tests.support.local_http import local_client
from tests.support.page_visitor import Visitor
from tests.support.server import ADMIN, PROBLEM, V, start_server, start_worker, stopping

pytestmark = pytest.mark.full

SECONDS = 0.2
SCHEMA = """
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix mdv: <urn:mdv:schema#> .
@prefix ex: <http://mdv.example/schema#> .
ex:N a rdfs:Class . ex:M a rdfs:Class .
ex:txt rdfs:range xsd:string ; mdv:setValued true .
ex:num rdfs:range xsd:integer ; mdv:setValued true .
ex:other rdfs:range xsd:integer .
ex:part rdfs:range ex:M ; mdv:reference mdv:strong .
"""
EXPLOSIVE = (
    "search N a, N b, N c, N d register a"
    " where a.txt? = b.txt? and b.txt? = c.txt? and c.txt? = d.txt? and a.num? < d.other"
)
CHEAP = "search N a register a where a.num? = {}"
_numbers = itertools.count(1)


def content(number: int, other: int = -1) -> str:
    return (
        f"@prefix ex: <{V}> . <#n> a ex:N ; ex:txt 'same' ; ex:num {number} ; ex:other {other} ; ex:part <#m> ."
        f" <#m> a ex:M ."
    )


@pytest.fixture(scope="module")
def mdp(folder: Path, new_database: Callable[[], str], new_queue: Callable[[], str]) -> Iterator[Backbone]:
    """An MDP with a small time limit for rules in one transaction."""
    database, queue = new_database(), new_queue()
    worker = start_worker(folder, database, queue, MDV_RULE_SECONDS=str(SECONDS))
    with stopping(worker):
        server = start_server(folder, database, queue, MDV_RULE_SECONDS=str(SECONDS))
        backbone = Backbone(folder, database, queue, worker, server)
        try:
            assert backbone.api.put_schema(SCHEMA).status_code == 200
            yield backbone
        finally:
            backbone.server.stop()


@pytest.fixture(scope="module")
def lmr(mdp: Backbone, folder: Path) -> Iterator[Lmr]:
    number, token = create(mdp.api, "north")
    store = f"sqlite:///{folder / 'suspended.db'}"
    process = start_lmr_server(folder, mdp.server.url, token, store)
    with stopping(process):
        yield Lmr(number, "north", token, store, process)


@pytest.fixture
def cheap(mdp: Backbone, lmr: Lmr) -> Iterator[dict[str, Any]]:
    """A subscription with one match, suspended. The resource is `uri`."""
    number = 1_000_000 + next(_numbers)
    mdp.put(f"http://cheap/{number}", content(number))
    made = lmr.subscribe(CHEAP.format(number))
    position = suspend(mdp, made["id"])
    lmr.is_at(position)
    yield made | {"uri": f"http://cheap/{number}#n", "document": f"http://cheap/{number}", "suspended_at": position}
    assert lmr.call("DELETE", f"/subscriptions/{made['id']}").status_code in (200, 404)


def suspend(mdp: Backbone, *rules: int) -> int:
    """Suspend rules as a worker does; return the position."""
    engine = make_engine(mdp.database_url)
    try:
        with engine.begin() as connection:
            return suspend_rules(connection, rules, "It took 9 s.", 9.0, Provider(engine))
    finally:
        engine.dispose()


def shown(mdp: Backbone, lmr: Lmr, number: int) -> dict[str, Any]:
    answer = mdp.server.api(lmr.token).get(f"/lmrs/self/subscriptions/{number}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def resume(mdp: Backbone, token: str, lmr: str | int, number: int | str) -> httpx2.Response:
    return mdp.server.api(token).http.post(f"/api/v1/lmrs/{lmr}/subscriptions/{number}/resume")


def test_a_registration_suspends_a_rule_over_its_time_limit_and_mdp_and_lmr_report_it(mdp: Backbone, lmr: Lmr) -> None:
    mdp.put("http://d/first", content(0, other=1))
    made = lmr.subscribe(EXPLOSIVE)
    assert (made["state"], "suspended" in made) == ("active", False)
    number = made["id"]
    texts = "\n".join(content(n).replace("<#", f"<http://d/many/{n}#") for n in range(120))
    last = mdp.put("http://d/many", "\n".join(dict.fromkeys(texts.split("\n"))))
    one = shown(mdp, lmr, number)
    assert one["state"] == "suspended" and one["rule"] == EXPLOSIVE
    assert one["suspended"].keys() == {"reason", "seconds", "position", "at"}
    assert f"longer than {SECONDS:g} s" in one["suspended"]["reason"] and one["suspended"]["seconds"] == SECONDS
    assert one["suspended"]["position"] < last
    listed = mdp.api.get(f"/lmrs/{lmr.name}/subscriptions").json()["items"]
    assert one in listed
    # The LMR reports the same, and keeps it.
    status = lmr.is_at(last)
    assert status["suspended"] == [{"rule": number, "reason": one["suspended"]["reason"]}]
    assert status["suspended_count"] == 1
    assert one in lmr.get("/subscriptions").json()["items"]
    assert lmr.has("http://d/first#n")
    lmr.assert_like_the_mdp()
    figures = local_http.get(mdp.server.url + "/metrics").text
    assert "\nmdv_rules_suspended 1.0\n" in figures
    assert mdp.api.get("/status").json()["rules_suspended"] == 1
    # It still takes too long: it stays suspended, and the answer says so.
    why = mdp.api.get("/explain", lmr=lmr.name, uri="http://d/first#n").json()
    assert why["sentence"] == "<http://d/first#n> is at the LMR: only a suspended rule selects it."
    assert [(rule["id"], rule["selects"]) for rule in why["suspended"]] == [(number, True)]
    # With less data it can be resumed.
    mdp.api.delete("http://d/many")
    resumed = lmr.call("POST", f"/subscriptions/{number}/resume")
    assert resumed.status_code == 200, resumed.text
    assert (resumed.json()["id"], resumed.json()["state"]) == (number, "active")
    assert lmr.status()["suspended"] == []
    assert lmr.call("DELETE", f"/subscriptions/{number}").status_code == 200


def test_resuming_evaluates_again_and_sends_the_difference(mdp: Backbone, lmr: Lmr, cheap: dict[str, Any]) -> None:
    mdp.put(cheap["document"], content(7))
    assert lmr.has(cheap["uri"])
    answer = resume(mdp, lmr.token, "self", cheap["id"])
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["id"], body["rule"], body["state"]) == (cheap["id"], cheap["rule"], "active")
    assert "suspended" not in body and body["position"] > cheap["suspended_at"]
    status = lmr.is_at(body["position"])
    assert cheap["id"] not in [rule["rule"] for rule in status["suspended"]]
    assert not lmr.has(cheap["uri"])
    # A second call has no effect.
    again = resume(mdp, ADMIN, lmr.name, cheap["id"])
    assert (again.status_code, again.json()) == (200, body)


def test_a_changed_rule_is_active_again(mdp: Backbone, lmr: Lmr, cheap: dict[str, Any]) -> None:
    changed = lmr.call("PUT", f"/subscriptions/{cheap['id']}", {"rule": CHEAP.format(8)})
    assert (changed.status_code, changed.json()["state"]) == (200, "active")
    assert cheap["id"] not in [rule["rule"] for rule in lmr.status()["suspended"]]


def test_a_removed_subscription_is_no_longer_suspended(mdp: Backbone, lmr: Lmr, cheap: dict[str, Any]) -> None:
    assert cheap["id"] in [rule["rule"] for rule in lmr.status()["suspended"]]
    assert lmr.call("DELETE", f"/subscriptions/{cheap['id']}").status_code == 200
    assert cheap["id"] not in [rule["rule"] for rule in lmr.status()["suspended"]]


def test_other_tokens_cannot_resume_a_subscription(mdp: Backbone, lmr: Lmr, cheap: dict[str, Any]) -> None:
    _, other = create(mdp.api, f"other-{next(_numbers)}")
    assert resume(mdp, other, lmr.id, cheap["id"]).status_code == 403
    assert resume(mdp, "wrong", lmr.id, cheap["id"]).status_code == 401
    assert resume(mdp, other, "self", cheap["id"]).status_code == 404
    for number in (999_999_999, "x", "-1"):
        missing = resume(mdp, lmr.token, "self", number)
        assert (missing.status_code, missing.headers["Content-Type"]) == (404, PROBLEM), number
    assert shown(mdp, lmr, cheap["id"])["state"] == "suspended"


def test_the_lmr_reports_suspended_rules_while_the_mdp_is_unreachable(
    mdp: Backbone, lmr: Lmr, cheap: dict[str, Any]
) -> None:
    mdp.kill_web()
    try:
        eventually(lambda: lmr.status()["last_error"])
        assert cheap["id"] in [rule["rule"] for rule in lmr.status()["suspended"]]
        page = visit(lmr).get("/")
        assert "suspended" in page.words and "answers may be out of date" in page.words
        assert lmr.call("POST", f"/subscriptions/{cheap['id']}/resume").status_code == 503
    finally:
        mdp.start_web()
    eventually(lambda: lmr.status()["up_to_date"])


# Pages


def visit(server: Lmr | Backbone) -> Visitor:
    url = server.url if isinstance(server, Lmr) else server.server.url
    secret = server.token if isinstance(server, Lmr) else ADMIN
    return Visitor(local_client(base_url=url, timeout=60, follow_redirects=True)).sign_in(secret)


def test_pages_of_the_mdp_show_suspended_rules_and_resume_them(mdp: Backbone, lmr: Lmr, cheap: dict[str, Any]) -> None:
    visitor, number = visit(mdp), cheap["id"]
    path = f"/lmrs/{lmr.name}/subscriptions/{number}"
    page = visitor.get(f"/lmrs/{lmr.name}")
    assert "Suspended since position" in page.words and "It took 9 s." in page.words
    assert f"{path}/resume" in page.forms()
    assert "Suspended since position" in visitor.get(path).words
    assert f"Rule {number} of the LMR {lmr.name} has been suspended" in visitor.get("/").words
    assert "It is suspended" in visitor.get(f"{path}/end").words
    assert "suspended" in visitor.get("/rules", id=number).words
    assert [row[0] for row in visitor.get("/rules/registered", state="suspended").rows()] == [str(number)]
    assert "is suspended" in visitor.get("/rules/replay", document=cheap["document"], rule=number).words
    why = visitor.get(f"/lmrs/{lmr.name}/explain", uri=cheap["uri"])
    assert "only a suspended rule selects it" in why.words and "It took 9 s." in why.words
    held = visitor.get(f"/lmrs/{lmr.name}/explain", uri=cheap["uri"].replace("#n", "#m"))
    assert f"selected by rule {number}" in held.words
    assert visitor.post(f"{path}/resume", csrf="wrong").status == 403
    page = visitor.post(f"{path}/resume")
    assert "active again" in page.words and "Suspended since" not in page.words
    assert shown(mdp, lmr, number)["state"] == "active"


def test_the_drawing_of_all_rules_omits_suspended_ones(mdp: Backbone) -> None:
    _, token = create(mdp.api, "drawn")
    subscriptions = "/api/v1/lmrs/self/subscriptions"
    http = mdp.server.api(token).http
    ids = [http.post(subscriptions, json={"rule": CHEAP.format(n)}).json()["id"] for n in (1, 2, 3)]
    suspend(mdp, ids[0])
    page = visit(mdp).get("/rules/graph", lmr="drawn")
    assert "3 rules with" in page.words and "1 rule is suspended and not shown" in page.words
    suspend(mdp, *ids)
    page = visit(mdp).get("/rules/graph", lmr="drawn")
    assert "3 rules, and all are suspended" in page.words
    assert mdp.api.http.delete("/api/v1/lmrs/drawn").status_code == 200


def test_pages_of_the_lmr_show_suspended_rules_and_resume_them(mdp: Backbone, lmr: Lmr, cheap: dict[str, Any]) -> None:
    visitor, number = visit(lmr), cheap["id"]
    assert "answers may be out of date" in visitor.get("/").words
    asked = visitor.get("/query", q="search N a where a.num? = 1 return a")
    assert "this result may be out of date" in asked.words
    page = visitor.get("/subscriptions")
    assert "Suspended since position" in page.words and f"/subscriptions/{number}/resume" in page.forms()
    assert "Suspended since position" in visitor.get(f"/subscriptions/{number}").words
    here = visitor.get("/resource/why", uri=cheap["uri"], headers={"HX-Request": "true"})
    assert f"Subscription {number}" in here.words and "suspended" in here.words
    assert visitor.post(f"/subscriptions/{number}/resume", csrf="wrong").status == 403
    page = visitor.post(f"/subscriptions/{number}/resume")
    assert "was resumed" in page.words
    assert "answers may be out of date" not in visitor.get("/").words


def test_the_resume_call_is_documented(mdp: Backbone, lmr: Lmr) -> None:
    own = "/api/v1/lmrs/{lmr}/subscriptions/{number}/resume"
    for url, path in ((mdp.server.url, own), (lmr.url, "/api/v1/subscriptions/{number}/resume")):
        described = local_http.get(url + "/openapi.json").json()
        assert {"200", "404", "422"} <= described["paths"][path]["post"]["responses"].keys()
        shape = described["components"]["schemas"]["SubscriptionShown"]
        assert "state" in shape["required"] and "suspended" in shape["properties"]
