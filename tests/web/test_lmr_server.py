"""The running LMR over HTTP: its API, its private data, and its resistance to network failures."""

from __future__ import annotations

import itertools
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from rdflib import Graph

from mdv.db.engine import make_engine
from mdv.db.feed import Feed
from mdv.feed import bucket_of
from mdv.free_port import free_port
from tests.support import local_http
from tests.support.eventually import eventually
from tests.support.lmr_server import (
    Backbone,
    Lmr,
    Proxy,
    StartLmr,
    create,
    hosts,
    rule,
    start_lmr_server,
    through_proxy,
)
from tests.support.raw_http import send_raw
from tests.support.server import (
    ADMIN,
    JSON_LD,
    N_TRIPLES,
    PROBLEM,
    SCHEMA,
    TURTLE,
    XML,
    V,
    provider,
    start_server,
    start_worker,
    stopping,
    turtle,
)

pytestmark = pytest.mark.full

LONG_POLL = 25.0
MARK = "never-sent-anywhere-7f3a"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def mdp(folder: Path, new_database: Callable[[], str], new_queue: Callable[[], str]) -> Iterator[Backbone]:
    """An MDP for this file, since it is stopped and restarted."""
    database, queue = new_database(), new_queue()
    worker = start_worker(folder, database, queue)
    with stopping(worker):
        backbone = Backbone(folder, database, queue, worker, start_server(folder, database, queue))
        try:
            assert backbone.api.put_schema(SCHEMA).status_code == 200
            yield backbone
        finally:
            backbone.server.stop()


@pytest.fixture(scope="module")
def start_lmr(mdp: Backbone, folder: Path) -> Iterator[StartLmr]:
    """Start a new LMR or, given one, restart that."""
    started: list[Lmr] = []

    def start(again: Lmr | None = None, *, url: str | None = None, store: str | None = None, **settings: str) -> Lmr:
        number = next(_numbers)
        if again is None:
            name = f"lmr-{number}"
            identity, token = create(mdp.api, name)
            kept = store or f"sqlite:///{folder / name}.db"
        else:
            identity, name, token, kept = again.id, again.name, again.token, again.store
            url, settings = url or again.settings.get("MDV_URL"), {**again.settings, **settings}
        settings["MDV_URL"] = url or mdp.server.url
        given = {variable: value for variable, value in settings.items() if variable != "MDV_URL"}
        process = start_lmr_server(folder, settings["MDV_URL"], token, kept, **given)
        started.append(Lmr(identity, name, token, kept, process, settings))
        return started[-1]

    yield start
    for lmr in started:
        lmr.kill()


@pytest.fixture(scope="module")
def lmr(start_lmr: StartLmr) -> Lmr:
    """The LMR of the tests that change no settings."""
    return start_lmr()


@pytest.fixture(scope="module")
def public(start_lmr: StartLmr) -> Lmr:
    """An LMR with public reading and a short time-out for bodies."""
    return start_lmr(MDV_PUBLIC_READ="true", MDV_BODY_SECONDS="2")


@pytest.fixture(scope="module")
def link(mdp: Backbone, start_lmr: StartLmr) -> Iterator[tuple[Proxy, Lmr]]:
    with through_proxy(mdp) as proxy:
        yield proxy, start_lmr(url=proxy.url)


@pytest.fixture
def linked(link: tuple[Proxy, Lmr]) -> tuple[Proxy, Lmr]:
    """An LMR without subscriptions, and the network between it and its MDP."""
    proxy, lmr = link
    for item in lmr.own.all("/subscriptions", 1000):
        assert lmr.call("DELETE", f"/subscriptions/{item['id']}").status_code == 200
    assert lmr.status()["resources"] == 0
    return proxy, lmr


@pytest.fixture
def lonely(start_lmr: StartLmr) -> Lmr:
    """An LMR whose MDP will be unreachable, and will refuse it in the end."""
    return start_lmr()


@pytest.fixture
def mark() -> str:
    return f"m{next(_numbers)}.example"


@pytest.fixture
def doc() -> str:
    return f"http://lmr-docs.example/{next(_numbers)}"


@pytest.fixture
def held(mdp: Backbone, lmr: Lmr, doc: str, mark: str) -> str:
    """A document of two providers that the LMR subscribes to."""
    mdp.put(doc, hosts(mark, 2))
    lmr.subscribe(rule(mark))
    return doc


# Access


def test_health_metrics_and_api_description_are_open(lmr: Lmr, mdp: Backbone) -> None:
    lmr.is_at(1)
    assert local_http.get(lmr.url + "/healthz").json() == {"status": "alive"}
    ready = local_http.get(lmr.url + "/readyz")
    assert (ready.status_code, ready.json()["cache"], ready.json()["mdp"]) == (200, "ready", "ready")
    figures = local_http.get(lmr.url + "/metrics").text
    own = {line.split()[2] for line in figures.splitlines() if line.startswith("# TYPE ")}
    assert "process_resident_memory_bytes" in own
    assert {name for name in own if name.startswith("mdv_")} == {
        "mdv_http_requests_total", "mdv_http_request_seconds", "mdv_lmr_position", "mdv_lmr_up_to_date",
        "mdv_lmr_last_contact_timestamp_seconds",
    }  # fmt: skip
    paths = local_http.get(lmr.url + "/openapi.json").json()["paths"]
    assert {"/api/v1/status", "/api/v1/subscriptions", "/api/v1/local/documents", "/api/v1/query"} <= paths.keys()
    assert "swagger" in local_http.get(lmr.url + "/docs").text


CALLS = [("GET", "/status"), ("GET", "/resources"), ("GET", "/subscriptions"), ("POST", "/subscriptions"),
         ("POST", "/query"), ("POST", "/verify"), ("POST", "/check"), ("GET", "/local/documents"),
         ("PUT", "/local/documents"), ("DELETE", "/local/documents"), ("DELETE", "/subscriptions/1"),
         ("PUT", "/subscriptions/1"), ("POST", "/subscriptions/1/resume")]  # fmt: skip


def test_without_a_valid_token_every_call_is_refused(lmr: Lmr) -> None:
    for method, path in CALLS:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {lmr.token}"},
                        {"Authorization": "Bearer"}, {"Authorization": "Bearer \xe4"}):  # fmt: skip
            query = {"uri": "http://a/"} if "local" in path else {}
            given = {name: value.encode("latin-1") for name, value in headers.items()}
            answer = local_http.request(method, lmr.url + "/api/v1" + path, params=query, headers=given)
            assert (answer.status_code, answer.headers["Content-Type"]) == (401, PROBLEM), (method, path, headers)
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_the_token_of_the_lmr_and_the_admin_token_are_accepted(lmr: Lmr, mdp: Backbone, doc: str) -> None:
    for token, status in ((lmr.token, 201), (ADMIN, 200)):
        api = lmr.process.api(token)
        assert api.get("/status").status_code == 200
        put = api.http.put("/api/v1/local/documents", params={"uri": doc}, content=provider(),
                           headers={"Content-Type": TURTLE})  # fmt: skip
        assert put.status_code == status
    _, other = create(mdp.api, f"other-{next(_numbers)}")
    assert lmr.process.api(other).get("/status").status_code == 401


def test_public_reading_allows_only_reading(public: Lmr) -> None:
    anyone = public.process.api(None)
    for path in ("/status", "/resources", "/local/documents", "/subscriptions"):
        assert anyone.get(path).status_code == 200, path
    assert anyone.http.post("/api/v1/query", json={"query": "search CycleProvider c return c"}).status_code == 200
    assert public.process.api("wrong").get("/status").status_code == 401
    for method, path in CALLS:
        if method != "GET" and path != "/query":
            assert anyone.http.request(method, "/api/v1" + path).status_code == 401, path


# Subscriptions


def test_the_matches_of_a_new_subscription_are_cached_when_it_is_answered(
    mdp: Backbone, lmr: Lmr, doc: str, mark: str
) -> None:
    mdp.put(doc, hosts(mark, 3))
    assert not lmr.has(f"{doc}#h0")
    made = lmr.call("POST", "/subscriptions", {"rule": rule(mark)})
    assert made.status_code == 201
    assert {"id", "rule", "position"} <= made.json().keys()
    assert made.json()["rule"] == rule(mark)
    for name in ("h0", "h2", "i0", "i2"):
        assert lmr.has(f"{doc}#{name}")
    number = made.json()["id"]

    changed = lmr.call("PUT", f"/subscriptions/{number}", {"rule": rule(f"1.{mark}")})
    assert (changed.status_code, changed.json()["rule"]) == (200, rule(f"1.{mark}"))
    assert [lmr.has(f"{doc}#{name}") for name in ("h0", "i0", "h1", "i1")] == [False, False, True, True]

    assert lmr.call("DELETE", f"/subscriptions/{number}").status_code == 200
    assert [lmr.has(f"{doc}#{name}") for name in ("h1", "i1")] == [False, False]


def test_subscriptions_are_paged(lmr: Lmr, mark: str) -> None:
    made = [lmr.subscribe(rule(f"{n}.{mark}"), f"page {n} of {mark}")["id"] for n in range(3)]
    found = lmr.own.all("/subscriptions", limit=2)
    assert [item["id"] for item in found if item["id"] in made] == made
    assert {item["name"] for item in found} >= {f"page {n} of {mark}" for n in range(3)}
    for number in made:
        lmr.call("DELETE", f"/subscriptions/{number}")
    assert not {item["id"] for item in lmr.own.all("/subscriptions", limit=1000)} & set(made)


def test_refusals_of_the_mdp_are_passed_on_unchanged(mdp: Backbone, lmr: Lmr, mark: str) -> None:
    wrong = {"rule": rule(mark).replace("serverHost", "serverHosd")}
    here = lmr.call("POST", "/subscriptions", wrong)
    there = mdp.server.api(lmr.token).http.post("/api/v1/lmrs/self/subscriptions", json=wrong)
    assert here.status_code == there.status_code == 422
    assert here.json() == there.json()
    assert "^" in here.text and here.json()["errors"][0]["line"] == 1 and "serverHost" in here.text
    named = lmr.subscribe(rule(mark), f"twice {mark}")["id"]
    twice = lmr.call("POST", "/subscriptions", {"rule": rule(mark), "name": f"twice {mark}"})
    assert (twice.status_code, twice.headers["Content-Type"]) == (409, PROBLEM)
    for unknown in ("999999999", "x", "0", "9" * 30):
        assert lmr.call("DELETE", f"/subscriptions/{unknown}").status_code == 404
        assert lmr.call("PUT", f"/subscriptions/{unknown}", {"rule": rule(mark)}).status_code == 404
    assert lmr.call("PUT", f"/subscriptions/{named}", wrong).status_code == 422
    outer = lmr.subscribe(f"search rdfs:Resource r register r where r = <http://{mark}/>")
    for body in ({}, {"rule": 7}, {"rule": rule(mark), "extra": 1}, [wrong]):
        assert lmr.call("POST", "/subscriptions", body).status_code == 400
    assert lmr.call("DELETE", f"/subscriptions/{outer['id']}").status_code == 200


# Positions


def test_the_status_shows_the_state_of_the_cache(mdp: Backbone, lmr: Lmr, held: str) -> None:
    status = lmr.is_at(1)
    assert {"mdp", "cursor", "position", "up_to_date", "resources", "roots", "strong", "local"} <= status.keys()
    assert status["mdp"] == mdp.server.url
    assert status["resources"] == status["roots"] + status["strong"]
    assert status["last_error"] is None
    known = mdp.api.get(f"/lmrs/{lmr.name}").json()
    assert (status["resources"], status["roots"]) == (known["resources"], known["roots"])


def test_a_client_reads_its_own_writes_whether_they_concern_the_lmr_or_not(
    mdp: Backbone, lmr: Lmr, held: str, mark: str
) -> None:
    for n in range(3):
        position = mdp.put(held, hosts(mark, 2, memory=100 + n))
        lmr.is_at(position)
        found = lmr.query(f"search ServerInformation i where i = <{held}#i1> return i.memory").json()["rows"]
        assert [row[0]["value"] for row in found] == [str(100 + n)]
        position = mdp.put(f"{held}/other", provider(n))
        assert lmr.is_at(position)["up_to_date"] is True


def test_a_position_that_is_not_reached_is_not_up_to_date(lmr: Lmr) -> None:
    assert lmr.status(after=10**12, wait=0.5)["up_to_date"] is False
    assert lmr.status(after=10**40, wait=0)["up_to_date"] is False
    for wrong in ({"after": -1}, {"after": "x"}, {"after": 1, "wait": -1}, {"wait": "nan"}, {"since": 1}):
        assert lmr.get("/status", **wrong).status_code == 400


# Resources


def test_a_resource_is_read_in_every_syntax(lmr: Lmr, held: str) -> None:
    uri = f"{held}#h0"
    answer = lmr.get("/resources", uri=uri)
    assert answer.headers["Content-Type"].startswith("application/json")
    assert (answer.json()["uri"], answer.json()["classes"]) == (uri, [f"{V}CycleProvider"])
    graphs = []
    for media_type, name in ((TURTLE, "turtle"), (XML, "xml"), (N_TRIPLES, "nt"), (JSON_LD, "json-ld")):
        answer = lmr.get("/resources", {"Accept": media_type}, uri=uri)
        assert answer.status_code == 200 and answer.headers["Content-Type"].startswith(media_type)
        graphs.append(set(Graph().parse(data=answer.text, format=name)))
    assert len(graphs[0]) == 4
    assert all(graph == graphs[0] for graph in graphs)
    assert lmr.get("/resources", {"Accept": "image/png"}, uri=uri).status_code == 406


def test_resources_are_paged(lmr: Lmr, held: str) -> None:
    def listed(limit: int, **query: Any) -> list[str]:
        return [item["uri"] for item in lmr.own.all("/resources", limit, **query)]

    providers = {f"{held}#h0", f"{held}#h1"}
    for name in ("CycleProvider", "ex:CycleProvider", f"{V}CycleProvider", "Provider"):  # a subclass's are the class's
        found = listed(1, **{"class": name})
        assert providers <= set(found) and len(found) == len(set(found))
        assert f"{held}#i0" not in found
    everything = listed(3)
    assert everything == listed(1000) and providers | {f"{held}#i0"} <= set(everything)
    assert set(listed(1000, **{"class": "rdfs:Resource"})) == set(everything)
    assert lmr.status()["resources"] <= len(everything)


def test_absent_resources_and_invalid_parameters_are_refused(lmr: Lmr) -> None:
    absent = lmr.get("/resources", uri="http://nowhere.example/x")
    assert absent.status_code == 404
    assert "not in this cache" in absent.json()["detail"] and "explain" in absent.json()["detail"]
    wrong = [{"uri": "http://a/", "class": "Provider"}, {"uri": "relative"}, {"after": "x"}, {"limit": 0},
             {"limit": 1001}, {"clas": "Provider"}, {"uri": "http://a/\0"}, {"class": "\0"}, {"after": "1\0"},
             {"after": "٣"}, {"after": "9" * 40}]  # fmt: skip
    for query in wrong:
        answer = lmr.get("/resources", **query)
        assert (answer.status_code, answer.headers["Content-Type"]) == (400, PROBLEM), query
    assert 400 <= lmr.get("/resources", **{"class": "Nonsense"}).status_code < 500
    assert lmr.get("/nowhere").status_code == 404
    assert lmr.call("PATCH", "/resources").status_code == 405


# Queries


def test_queries_are_answered_from_the_cache(lmr: Lmr, held: str, mark: str) -> None:
    text = (f"search CycleProvider c where c.serverHost contains '{mark}' and c.serverInformation.memory > 60"
            " return c.serverHost, c.serverInformation.cpu order by c.serverInformation.cpu desc")  # fmt: skip
    rows = lmr.query(text).json()
    assert [[cell["value"] for cell in row] for row in rows["rows"]] == [[f"1.{mark}", "1"], [f"0.{mark}", "0"]]
    assert len(rows["columns"]) == 2
    first = lmr.query(text + " limit 1").json()
    assert [row[0]["value"] for row in first["rows"]] == [f"1.{mark}"]
    table = lmr.query(text, "text/csv")
    assert table.headers["Content-Type"].startswith("text/csv")
    assert table.text.splitlines()[1:] == [f"1.{mark},1", f"0.{mark},0"]

    resources = lmr.query(rule(mark))
    assert {item["uri"] for item in resources.json()["items"]} == {f"{held}#h0", f"{held}#h1"}
    page = lmr.query(rule(mark), limit=1).json()
    rest = lmr.query(rule(mark), limit=1, after=page["next"]).json()
    assert [page["items"][0]["uri"], rest["items"][0]["uri"], rest["next"]] == [f"{held}#h0", f"{held}#h1", None]
    graph = Graph().parse(data=lmr.query(rule(mark), TURTLE).text, format="turtle")
    assert {str(subject) for subject in graph.subjects()} == {f"{held}#h0", f"{held}#h1"}

    joined = lmr.query(f"search CycleProvider c, ServerInformation i where c.serverInformation = i and i.cpu = 1"
                       f" and c.serverHost contains '{mark}' return c, i").json()["rows"]  # fmt: skip
    assert [[cell["value"] for cell in row] for row in joined] == [[f"{held}#h1", f"{held}#i1"]]


def test_an_invalid_query_is_reported_with_its_place(lmr: Lmr) -> None:
    wrong = lmr.query("search CycleProvider c\nwhere c.serverHosd = 'x'\nreturn c")
    assert (wrong.status_code, wrong.headers["Content-Type"]) == (422, PROBLEM)
    assert wrong.json()["errors"][0]["line"] == 2 and "^" in wrong.text and "serverHost" in wrong.text
    assert lmr.query("search").status_code == 422
    assert lmr.query("search CycleProvider c return c", TURTLE).status_code == 406
    assert lmr.query("search CycleProvider c return c where c.serverHost = 'a\0b'").status_code == 422
    assert lmr.call("POST", "/query", {"query": "x", "more": 1}).status_code == 400
    assert lmr.call("POST", "/query").status_code == 415


# Local metadata


def test_local_documents_are_put_read_listed_and_deleted(lmr: Lmr, doc: str) -> None:
    body = turtle("<#a> a ex:CycleProvider ; ex:serverHost 'here' ; ex:serverInformation [ ex:memory 7 ] .")
    made = lmr.put_local(doc, body)
    assert made.status_code == 201, made.text
    assert made.json() == {"document": doc, "created": True, "changed": True, "statements": 4}
    assert lmr.put_local(doc, body).json()["changed"] is False
    assert lmr.put_local(doc, body + "<#a> ex:note 'x' .").status_code == 200
    for media_type, name in ((TURTLE, "turtle"), (XML, "xml"), (N_TRIPLES, "nt"), (JSON_LD, "json-ld")):
        answer = lmr.get("/local/documents", {"Accept": media_type}, uri=doc)
        assert answer.status_code == 200 and len(Graph().parse(data=answer.text, format=name)) == 5
    lmr.put_local(doc + "/2", provider())
    uris = [item["uri"] for item in lmr.own.all("/local/documents", limit=1)]
    assert {doc, doc + "/2"} <= set(uris) and uris == sorted(set(uris))
    assert lmr.delete_local(doc).status_code == 200
    assert lmr.get("/local/documents", uri=doc).status_code == 404
    assert lmr.delete_local(doc).status_code == 404
    assert not lmr.has(f"{doc}#a")


def test_local_statements_are_joined_with_global_resources(
    lmr: Lmr, mdp: Backbone, held: str, doc: str, mark: str
) -> None:
    before = lmr.status()
    local = turtle(f"<{held}#h0> ex:note 'rated {mark}' .",
                   f"<{doc}#mine> a ex:CycleProvider ; ex:serverHost 'mine.{mark}' ;"
                   f" ex:serverInformation <{held}#i1> .")  # fmt: skip
    assert lmr.put_local(doc, local).status_code == 201
    found = lmr.query(f"search CycleProvider c where c.note? contains '{mark}' and c.serverInformation.memory = 64"
                      " return c.serverHost").json()["rows"]  # fmt: skip
    assert [row[0]["value"] for row in found] == [f"0.{mark}"]
    assert {item["uri"] for item in lmr.query(rule(mark)).json()["items"]} == {
        f"{held}#h0", f"{held}#h1", f"{doc}#mine"
    }  # fmt: skip
    said = lmr.get("/resources", uri=f"{held}#h0").json()["statements"]
    assert [f"{V}note", {"type": "literal", "value": f"rated {mark}"}] in said and len(said) == 5
    after = lmr.status()
    assert (after["resources"], after["roots"]) == (before["resources"], before["roots"])
    assert after["local"] == before["local"] + 2
    lmr.assert_like_the_mdp()
    # Deletions at the MDP apply here, except for local statements.
    mdp.api.delete(held)
    lmr.is_at(mdp.put(held + "/x", provider()))
    assert [said[0] for said in lmr.get("/resources", uri=f"{held}#h0").json()["statements"]] == [f"{V}note"]
    assert not lmr.has(f"{held}#i1")
    lmr.delete_local(doc)
    assert not lmr.has(f"{held}#h0")


@pytest.mark.parametrize(
    ("body", "media_type", "status", "has_errors"),
    [
        (turtle("<#a> a ex:CycleProvider ; ex:serverPort 'x' ; ex:unheard 1 ."), TURTLE, 422, True),
        (turtle("<#a> a ex:CycleProvider ; ex:serverPort 1, 2 ."), TURTLE, 422, True),
        ("<#a> <#b", TURTLE, 400, True),
        ("<rdf:RDF", XML, 400, True),
        ("", XML, 400, False),
        ('<!DOCTYPE x [<!ENTITY a "b">]><x/>', XML, 400, False),
        (turtle("<#a> ex:note 'x\0y' ."), TURTLE, 400, True),
        (provider(), "image/png", 415, False),
        (b"#" * (40 * 1024 * 1024), TURTLE, 413, False),
    ],
)
def test_an_invalid_local_document_is_refused_completely(
    lmr: Lmr, doc: str, body: str | bytes, media_type: str, status: int, has_errors: bool
) -> None:
    lmr.put_local(doc, provider(7, "kept"))
    answer = lmr.put_local(doc, body, media_type)
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, PROBLEM), answer.text
    assert lmr.has(f"{doc}#kept") and not lmr.has(f"{doc}#a")
    assert bool(answer.json().get("errors")) is has_errors


def test_an_invalid_document_uri_is_refused(lmr: Lmr) -> None:
    for uri in ("relative", "http://a/#b", "http://a/#_:b", "http://a/ b", "", "http://a/\0"):
        assert lmr.put_local(uri, provider()).status_code == 400, uri
    assert lmr.call("PUT", "/local/documents").status_code == 400


def test_local_metadata_is_never_sent_and_survives_restarts_and_snapshots(
    mdp: Backbone, start_lmr: StartLmr, doc: str, mark: str
) -> None:
    mdp.put(doc, hosts(mark, 5))
    with through_proxy(mdp) as proxy:
        lmr = start_lmr(url=proxy.url)
        lmr.subscribe(rule(mark))
        place = f"http://{MARK}.example/local"
        body = turtle(f"<{doc}#h1> ex:note '{MARK}' .", f"<#{MARK}> a ex:CycleProvider ; ex:serverHost '{MARK}' .")
        assert lmr.put_local(place, body).status_code == 201
        asked = f"search CycleProvider c where c.note? = '{MARK}' return c"

        def all_is_here() -> bool:
            rows = lmr.query(asked).json()["rows"]
            return [row[0]["value"] for row in rows] == [f"{doc}#h1"] and lmr.has(f"{place}#{MARK}")

        assert all_is_here()
        lmr.query(rule(MARK))
        lmr.subscribe(rule("something else"))
        assert lmr.put_local(place, body.replace(f"<{doc}#h1> ex:note '{MARK}' .", "")).status_code == 200
        assert lmr.put_local(place, body).status_code == 200
        mdp.api.put_schema(SCHEMA + "ex:rating rdfs:range xsd:integer .")
        lmr.is_at(mdp.put(doc, hosts(mark, 6)))
        lmr.assert_like_the_mdp()

        # A restart
        lmr.stop()
        lmr = start_lmr(lmr)
        assert all_is_here()
        # The MDP drops the feed while the LMR is down: the LMR takes a snapshot by itself.
        lmr.stop()
        cursor = lmr_state(lmr)["cursor"]
        position = mdp.put(doc, hosts(mark, 7))
        with closing_engine(mdp) as connection:
            assert Feed(connection).trim(lmr.id, 1e9, 0) > 0
        proxy.hold()
        lmr = start_lmr(lmr)
        assert all_is_here() and lmr.has(f"{doc}#i5")  # its old content is served meanwhile
        assert not lmr.has(f"{doc}#h6")
        proxy.flow()
        status = lmr.is_at(position)
        assert status["cursor"] != cursor and lmr.has(f"{doc}#h6") and all_is_here()
        lmr.assert_like_the_mdp()
        # A new epoch of the MDP, restored from a backup; the LMR is running.
        with psycopg.connect(mdp.database_url, autocommit=True) as database:
            database.execute("update mdp_state set epoch = gen_random_uuid()")
        position = mdp.put(doc, hosts(mark, 4))
        status = lmr.is_at(position)
        assert status["cursor"][:12] != cursor[:12]
        assert lmr.has(f"{doc}#h3") and not lmr.has(f"{doc}#h6") and all_is_here()
        lmr.assert_like_the_mdp()

        # Damage to the cache
        lmr.stop()
        damaged = damage(lmr, doc)
        lmr = start_lmr(lmr)
        verified = lmr.call("POST", "/verify")
        assert verified.status_code == 200, verified.text
        assert verified.json()["mended"] == sorted({bucket_of(uri) for uri in damaged})
        assert lmr.status()["mended"] == len(verified.json()["mended"])
        assert all_is_here() and lmr.has(f"{doc}#i2")
        lmr.assert_like_the_mdp()
        lmr.stop()
        assert MARK.encode() not in proxy.sent
        assert b"/feed?" in proxy.sent and b"/checksum" in proxy.sent and b"something else" in proxy.sent


def damage(lmr: Lmr, doc: str) -> list[str]:
    """Change a cache by hand; return the resources that are then wrong."""
    with closing(lmr.file()) as file:
        number = "(select id from resources where uri = ?)"
        file.execute(f"delete from statements where document_id = 0 and hash = (select min(hash) from statements where"
                     f" resource_id = {number} and value is not null and document_id = 0)", [f"{doc}#h0"])  # fmt: skip
        file.execute("update resources set selected = 1 - selected where uri = ?", [f"{doc}#h2"])
        file.execute(f"update statements set value = value || 'x', hash = hash + 1 where resource_id = {number}"
                     " and value is not null and document_id = 0", [f"{doc}#i3"])  # fmt: skip
        assert file.execute("select changes()").fetchone() == (2,)
    return [f"{doc}#h0", f"{doc}#h2", f"{doc}#i3"]


def lmr_state(lmr: Lmr) -> dict[str, Any]:
    with closing(lmr.file()) as file:
        row = file.execute("select * from lmr_state")
        return dict(zip([column[0] for column in row.description], row.fetchone(), strict=True))


class closing_engine:
    """A transaction at the MDP's database."""

    def __init__(self, mdp: Backbone) -> None:
        self._engine = make_engine(mdp.database_url)

    def __enter__(self) -> Any:
        self._begun = self._engine.begin()
        return self._begun.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._begun.__exit__(*error)
        self._engine.dispose()


# Failures


def test_an_lmr_works_without_its_mdp_and_catches_up_on_its_own(
    mdp: Backbone, lonely: Lmr, doc: str, mark: str
) -> None:
    lmr = lonely
    mdp.put(doc, hosts(mark, 2))
    subscribed = lmr.subscribe(rule(mark))["id"]
    mdp.kill_web()
    try:
        status = eventually(lambda: (s := lmr.status())["last_error"] and s)
        assert mdp.server.url in status["last_error"] and status["up_to_date"] is False
        assert status["resources"] == 4
        assert local_http.get(lmr.url + "/readyz").json()["mdp"] == "away"
        assert lmr.has(f"{doc}#i1")
        assert len(lmr.query(rule(mark)).json()["items"]) == 2
        assert lmr.put_local(doc + "/local", turtle(f"<{doc}#h0> ex:note 'alone' .")).status_code == 201
        assert len(lmr.query("search CycleProvider c where c.note? = 'alone' return c").json()["rows"]) == 1
        for method, path, body in (("POST", "/subscriptions", {"rule": rule("x")}), ("GET", "/subscriptions", None),
                                   ("PUT", f"/subscriptions/{subscribed}", {"rule": rule("x")}),
                                   ("DELETE", f"/subscriptions/{subscribed}", None),
                                   ("POST", "/verify", None)):  # fmt: skip
            away = lmr.call(method, path, body)
            assert (away.status_code, away.headers["Content-Type"]) == (503, PROBLEM)
            assert "cannot be reached" in away.json()["detail"]
        assert lmr.status(after=10**9, wait=1)["up_to_date"] is False
        assert "Traceback" not in lmr.process.words()
    finally:
        mdp.start_web()
    eventually(lambda: lmr.status()["up_to_date"])  # although nothing has changed
    assert lmr.status()["last_error"] is None
    position = mdp.put(doc, hosts(mark, 3))
    eventually(lambda: lmr.status()["position"] >= position)
    status = lmr.status()
    assert (status["last_error"], status["up_to_date"], status["resources"]) == (None, True, 6)
    lmr.assert_like_the_mdp()


@pytest.fixture(scope="module")
def bulk(mdp: Backbone) -> tuple[str, int]:
    """Register many documents; return the common part of their hosts, and the number of their resources."""
    each, documents = 150, 20
    mdp.put_many({f"http://bulk.example/{n}": hosts("bulk", each, memory=n) for n in range(documents)})
    return "bulk", 2 * each * documents


def test_an_lmr_killed_while_catching_up_resumes_at_its_cursor(
    mdp: Backbone, start_lmr: StartLmr, bulk: tuple[str, int]
) -> None:
    mark, count = bulk
    with through_proxy(mdp) as proxy:
        lmr = start_lmr(url=proxy.url)
        lmr.kill()
        mdp.server.api(lmr.token).http.post("/api/v1/lmrs/self/subscriptions", json={"rule": rule(mark)})
        for n in range(5):
            mdp.put(f"http://bulk.example/{n}", hosts(mark, 150, memory=1000 + n))
        for _ in range(2):
            lmr = start_lmr(lmr)
            seen = proxy.received
            eventually(lambda seen=seen: proxy.received > seen + 200_000)
            lmr.kill()
        with closing(lmr.file()) as file:
            assert file.execute("pragma integrity_check").fetchone() == ("ok",)
        lmr = start_lmr(lmr)
        position = mdp.put("http://bulk.example/0", hosts(mark, 150, memory=5000))
        status = lmr.is_at(position, 60)
        assert status["resources"] == count == mdp.api.get(f"/lmrs/{lmr.name}").json()["resources"]
        lmr.assert_like_the_mdp()
        # Many readers while all of it is fetched again
        lmr.kill()
        with closing_engine(mdp) as connection:
            assert Feed(connection).trim(lmr.id, 1e9, 0) > 0
        lmr = start_lmr(lmr)
        read_by_many(lmr, mark, lambda: lmr.status()["position"] >= position and lmr.status()["up_to_date"])
        assert lmr.status()["resources"] == count
        lmr.assert_like_the_mdp()


def read_by_many(lmr: Lmr, mark: str, until: Callable[[], bool]) -> None:
    """50 concurrent callers: each sees complete transactions and no failure."""
    ended = threading.Event()
    codes: list[int] = []

    def read(number: int) -> None:
        with lmr.own.http as http:
            while not ended.is_set():
                if number % 3 == 0:
                    answer = http.post("/api/v1/query", json={"query": f"{rule(mark)} and c.serverPort = {number}"})
                elif number % 3 == 1:
                    answer = http.get("/api/v1/resources", params={"class": "Provider", "limit": 20})
                else:
                    answer = http.get("/api/v1/status")
                codes.append(answer.status_code)
                time.sleep(0.1)

    with ThreadPoolExecutor(50) as pool:
        readers = [pool.submit(read, number) for number in range(50)]
        try:
            eventually(until, interval=0.2)
            time.sleep(0.3)
        finally:
            ended.set()
    for reader in readers:
        reader.result()
    assert len(codes) > 50 and set(codes) == {200}


def test_connections_cut_anywhere_do_not_change_the_result(
    mdp: Backbone, linked: tuple[Proxy, Lmr], bulk: tuple[str, int]
) -> None:
    (proxy, lmr), (mark, count) = linked, bulk
    chance = random.Random(7)
    proxy.cut_after([chance.choice([1, 17, 200, 1000, 30_000]) + chance.randrange(400) for _ in range(6)]
                    + [chance.randrange(100_000) for _ in range(3)])  # fmt: skip
    mdp.server.api(lmr.token).http.post("/api/v1/lmrs/self/subscriptions", json={"rule": rule(mark)})
    position = mdp.put("http://bulk.example/1", hosts(mark, 150, memory=6000))
    status = lmr.is_at(position, 60)
    assert proxy.cuts_left == 0
    assert status["resources"] == count
    proxy.cut_after([])
    lmr.assert_like_the_mdp()


def test_an_lmr_catches_up_over_a_link_that_carries_little_per_connection(
    mdp: Backbone, linked: tuple[Proxy, Lmr], bulk: tuple[str, int]
) -> None:
    """With answers of constant size, none would ever arrive."""
    (proxy, lmr), (mark, count) = linked, bulk
    proxy.cut_after([200_000] * 1000)
    own = mdp.server.api(lmr.token).http.post("/api/v1/lmrs/self/subscriptions", json={"rule": rule(mark)})
    status = lmr.is_at(own.json()["position"], 60)
    assert status["resources"] == count
    assert 0 < proxy.cuts_left < 1000
    proxy.cut_after([])
    lmr.assert_like_the_mdp()


def test_a_silent_mdp_blocks_no_caller_longer_than_its_wait(
    mdp: Backbone, linked: tuple[Proxy, Lmr], doc: str, mark: str
) -> None:
    proxy, lmr = linked
    lmr.subscribe(rule(mark))
    proxy.hold()
    position = mdp.put(doc, hosts(mark))
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(lmr.status, after=position, wait=1) for _ in range(4)]
        assert not any(waiter.result()["up_to_date"] for waiter in waiting)
    assert lmr.query(rule(mark)).status_code == 200
    proxy.flow()
    lmr.is_at(position)
    assert lmr.has(f"{doc}#i0")


def test_callers_waiting_for_a_silent_mdp_leave_threads_for_readers(linked: tuple[Proxy, Lmr]) -> None:
    proxy, lmr = linked
    proxy.hold()
    with ThreadPoolExecutor(40) as pool:
        asking = [pool.submit(lmr.get, "/subscriptions") for _ in range(40)]
        refused = eventually(lambda: [a for a in asking if a.done() and a.result().status_code == 503])
        assert "already waiting for it" in refused[0].result().json()["detail"]
        assert lmr.get("/resources").status_code == 200
        assert not all(a.done() for a in asking), "the first requests still wait"
        proxy.flow()
        assert {a.result().status_code for a in asking} == {200, 503}


def test_without_redis_the_feed_is_delivered(mdp: Backbone, start_lmr: StartLmr, doc: str, mark: str) -> None:
    silent = start_server(
        mdp.folder, mdp.database_url, "redis://127.0.0.1:1/0", ready=False, MDV_MAX_WAIT_SECONDS="3600"
    )
    with stopping(silent):
        eventually(lambda: local_http.get(silent.url + "/healthz").status_code == 200)
        lmr = start_lmr(url=silent.url)
        lmr.subscribe(rule(mark))
        reader = silent.api(lmr.token)
        with ThreadPoolExecutor(1) as pool:
            cursor = reader.get("/lmrs/self/feed").json()["cursor"]
            poll = pool.submit(reader.get, "/lmrs/self/feed", after=cursor, wait=3600)
            mdp.put(doc, hosts(mark))
            # The wait is an hour: the answer comes because of the event.
            assert f"{doc}#i0" in {event.get("resource") for event in poll.result().json()["events"]}
        eventually(lambda: lmr.has(f"{doc}#i0"))
        lmr.kill()


def test_an_lmr_with_a_revoked_token_keeps_serving_and_reports_it(
    mdp: Backbone, lonely: Lmr, doc: str, mark: str
) -> None:
    lmr = lonely
    mdp.put(doc, hosts(mark))
    lmr.subscribe(rule(mark))
    assert mdp.api.http.post(f"/api/v1/lmrs/{lmr.name}/token").status_code == 201
    status = lmr.status(after=10**9, wait=0.5)
    assert "revoked" in status["last_error"] and status["up_to_date"] is False
    assert lmr.has(f"{doc}#i0") and lmr.query(rule(mark)).status_code == 200
    # Its own caller made no mistake.
    for method, path, body in (("POST", "/subscriptions", {"rule": rule("x")}), ("GET", "/subscriptions", None),
                               ("POST", "/verify", None)):  # fmt: skip
        refused = lmr.call(method, path, body)
        assert refused.status_code == 503, refused.text
        assert "revoked" in refused.json()["detail"] and "MDP" in refused.json()["detail"]


def test_a_cache_in_postgres_follows_the_mdp(
    mdp: Backbone, start_lmr: StartLmr, postgres: Any, doc: str, mark: str
) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        name = f"lmr_cache_{next(_numbers)}"
        connection.execute(f"create database {name}")
    lmr = start_lmr(store=postgres.url.rsplit("/", 1)[0] + f"/{name}")
    mdp.put(doc, hosts(mark, 3))
    number = lmr.subscribe(rule(mark))["id"]
    assert lmr.has(f"{doc}#i2")
    lmr.put_local(doc + "/local", turtle(f"<{doc}#h2> ex:note 'local' ."))
    lmr.is_at(mdp.put(doc, hosts(mark, 3, memory=65)))
    rows = lmr.query("search CycleProvider c where c.note? = 'local' and c.serverInformation.memory = 65"
                     " return c.serverHost order by c.serverHost limit 5").json()["rows"]  # fmt: skip
    assert [row[0]["value"] for row in rows] == [f"2.{mark}"]
    lmr.assert_like_the_mdp()
    lmr.kill()
    position = mdp.put(doc, hosts(mark, 4))
    with closing_engine(mdp) as connection:
        Feed(connection).trim(lmr.id, 1e9, 0)
    lmr = start_lmr(lmr)
    status = lmr.is_at(position)
    assert (status["resources"], status["roots"], status["strong"], status["local"]) == (8, 4, 4, 1)
    assert {item["uri"] for item in lmr.own.all("/resources", 3, **{"class": "Provider"})} == {
        f"{doc}#h{n}" for n in range(4)
    }
    lmr.assert_like_the_mdp()
    assert lmr.call("DELETE", f"/subscriptions/{number}").status_code == 200
    assert [item["uri"] for item in lmr.own.all("/resources", 1000)] == [f"{doc}#h2"]  # local resources


# Programs


def serve(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    argv = [str(Path(sys.executable).with_name("mdv")), "lmr", "serve", *arguments]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MDV_")}
    return subprocess.run(argv, env=plain | settings, capture_output=True, text=True, timeout=60, check=False)


def test_an_lmr_without_its_settings_exits_with_a_message(tmp_path: Path) -> None:
    missing = serve()
    assert missing.returncode != 0 and "MDV_URL" in missing.stderr and "Traceback" not in missing.stderr
    missing = serve(MDV_URL="http://127.0.0.1:9")
    assert missing.returncode != 0 and "MDV_LMR_TOKEN" in missing.stderr and "Traceback" not in missing.stderr


@pytest.mark.parametrize(
    ("store", "said"), [("mysql://x/y", "sqlite:///path"), ("sqlite:////nowhere/at/all.db", "cannot be opened")]
)
def test_a_cache_that_cannot_be_opened_ends_the_lmr_with_a_message(store: str, said: str) -> None:
    ended = serve("--port", str(free_port()), "--store", store, MDV_URL="http://127.0.0.1:9", MDV_LMR_TOKEN="t")
    assert ended.returncode != 0
    assert said in ended.stderr and "Traceback" not in ended.stderr, ended.stderr


# Slow and hostile callers


def head(lmr: Lmr, *more: str) -> bytes:
    lines = ["PUT /api/v1/local/documents?uri=http://slow.example/ HTTP/1.1", "Host: x", "Content-Type: text/turtle",
             f"Authorization: Bearer {lmr.token}", "Connection: close", *more, "", ""]  # fmt: skip
    return "\r\n".join(lines).encode()


def test_a_body_that_does_not_arrive_ends_in_408(public: Lmr) -> None:
    for begun in (
        head(public, "Content-Length: 100") + b"<#a",
        head(public, "Transfer-Encoding: chunked") + b"5\r\n<#a",
    ):
        answer = send_raw(public.process.port, begun)
        assert answer.startswith(b"HTTP/1.1 408 ") and b"urn:mdv:problem:too-slow" in answer, answer
    assert send_raw(public.process.port, head(public, "Content-Length: 41943040")).startswith(b"HTTP/1.1 413 ")
    with socket.create_connection(("127.0.0.1", public.process.port)) as connection:
        connection.sendall(head(public, "Content-Length: 100") + b"<#a")
    assert public.get("/local/documents", uri="http://slow.example/").status_code == 404


def test_a_body_sent_byte_by_byte_is_refused_before_it_is_complete(public: Lmr) -> None:
    with socket.create_connection(("127.0.0.1", public.process.port), timeout=0.3) as connection:
        connection.sendall(head(public, "Content-Length: 1000"))
        answer = b""
        for _ in range(999):  # the body is never complete
            if answer:
                break
            with suppress(ConnectionError):  # the server has answered and closed
                connection.sendall(b"#")
            try:
                answer = connection.recv(65536)
            except TimeoutError:
                continue
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_waiting_callers_do_not_block_others(mdp: Backbone, public: Lmr, doc: str) -> None:
    next_position = mdp.api.get("/status").json()["position"] + 1
    with ThreadPoolExecutor(60) as pool:
        waiting = [pool.submit(public.status, after=next_position, wait=60) for _ in range(60)]
        time.sleep(0.5)  # so that most of them wait
        answers = [local_http.get(public.url + "/healthz"), public.get("/resources")]
        assert [answer.status_code for answer in answers] == [200, 200]
        still = [waiter for waiter in waiting if not waiter.done()]  # beyond a limit, callers do not wait
        assert still, "others were served only after these had ended"
        assert mdp.put(doc, provider()) == next_position
        assert all(waiter.result()["position"] >= next_position for waiter in still)


def test_an_lmr_without_a_first_snapshot_reports_it(folder: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        nobody = f"http://127.0.0.1:{listener.getsockname()[1]}"
    process = start_lmr_server(folder, nobody, "t", f"sqlite:///{folder}/never.db", ready=False)
    with stopping(process):
        api = process.api("t")
        ready = eventually(lambda: (answer := local_http.get(process.url + "/readyz")).status_code == 503 and answer)
        assert ready.json()["status"] == "not ready"
        eventually(lambda: api.get("/status").json()["last_error"])
        put = api.http.put("/api/v1/local/documents", params={"uri": "http://a/"}, content=provider(),
                           headers={"Content-Type": TURTLE})  # fmt: skip
        asked = api.http.post("/api/v1/query", json={"query": rule("x")})
        for answer in (put, asked, api.get("/resources")):
            assert (answer.status_code, answer.headers["Content-Type"]) == (503, PROBLEM)
            assert "first snapshot" in answer.json()["detail"] and nobody in answer.json()["detail"]
        process.kill()
