"""The schema over HTTP: put, read back in every syntax, refused if it contradicts itself or stored data."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx2
import pytest
import rdflib
from rdflib.compare import isomorphic

from mdv.db.engine import make_engine
from mdv.mdp.worker import Worker
from tests.support.in_process_server import notify_callers
from tests.support.server import (
    JSON_LD,
    N_TRIPLES,
    PROBLEM,
    SCHEMA,
    TURTLE,
    XML,
    Api,
    Server,
    provider,
    start_server,
    stopping,
    turtle,
)
from web.services import make_redis

pytestmark = pytest.mark.full

RDFLIB = {XML: "xml", TURTLE: "turtle", N_TRIPLES: "nt", JSON_LD: "json-ld"}


@pytest.fixture(scope="module")
def other_database(new_database: Callable[[], str]) -> str:
    return new_database()


@pytest.fixture(scope="module")
def other_queue(new_queue: Callable[[], str]) -> str:
    return new_queue()


@pytest.fixture(scope="module")
def other_server(folder: Path, other_database: str, other_queue: str) -> Iterator[Server]:
    server = start_server(folder, other_database, other_queue)
    with stopping(server):
        yield server


@pytest.fixture
def other(other_server: Server, other_database: str, other_queue: str) -> Iterator[Api]:
    """The administrator of a system whose schema may change. This test is its worker."""
    engine, redis, done = make_engine(other_database), make_redis(other_queue), threading.Event()
    worker = Worker(engine, 10**6, partial(notify_callers, redis))

    def work() -> None:
        while not done.wait(0.02):
            worker.work_rules()

    thread = threading.Thread(target=work)
    thread.start()
    yield other_server.api()
    done.set()
    thread.join()
    engine.dispose()
    redis.close()


@pytest.fixture
def work(other_database: str) -> Iterator[Worker]:
    engine = make_engine(other_database)
    yield Worker(engine, 10**6)
    engine.dispose()


def test_a_schema_is_put_and_read_back_in_every_syntax(other: Api) -> None:
    source = rdflib.Graph().parse(data=SCHEMA, format="turtle")
    for sent, name in RDFLIB.items():
        put = other.put_schema(source.serialize(format=name), sent)
        assert put.status_code == 200, put.text
        for wanted, parser in RDFLIB.items():
            answer = other.get("/schema", headers={"Accept": wanted})
            assert answer.headers["Content-Type"].split(";")[0] == wanted
            assert answer.headers["ETag"] == f'"{put.json()["version"]}"'
            assert isomorphic(rdflib.Graph().parse(data=answer.text, format=parser), source)
    assert other.http.get("/api/v1/schema", headers={"Accept": "*/*"}).headers["Content-Type"].startswith(TURTLE)


def test_a_schema_change_takes_a_version_and_a_position_and_the_same_schema_takes_none(other: Api) -> None:
    first = other.put_schema(SCHEMA + "ex:one rdfs:range xsd:string .")
    second = other.put_schema(SCHEMA + "ex:two rdfs:range xsd:string .")
    again = other.put_schema(SCHEMA + "ex:two rdfs:range xsd:string .")
    assert [answer.status_code for answer in (first, second, again)] == [200, 200, 200]
    assert second.json()["version"] == first.json()["version"] + 1
    assert second.json()["position"] == first.json()["position"] + 1 and second.json()["changed"] is True
    nothing = {"changed": False, "changes": [], "counts": {}, "lmrs": 0}
    assert again.json() == second.json() | nothing and second.json()["counts"]["property"] == {"added": 1, "removed": 1}


def test_a_contradictory_schema_is_refused_with_all_errors(other: Api) -> None:
    assert other.put_schema(SCHEMA).status_code == 200
    before = other.get("/schema")
    bad = (
        SCHEMA
        + "ex:memory rdfs:range xsd:string, xsd:integer . ex:cpu mdv:reference mdv:maybe . ex:x mdv:setValued 7 ."
    )
    answer = other.put_schema(bad)
    assert answer.status_code == 422 and answer.headers["Content-Type"] == PROBLEM
    assert answer.json()["type"] == "urn:mdv:problem:invalid-schema" and len(answer.json()["errors"]) >= 2
    after = other.get("/schema")
    assert (after.text, after.headers["ETag"]) == (before.text, before.headers["ETag"])


def test_a_schema_that_would_break_stored_documents_is_refused_and_names_them(
    other: Api, work: Worker, doc: str
) -> None:
    assert other.put_schema(SCHEMA).status_code == 200
    assert other.put(doc, provider(5), wait=None).status_code == 202
    work.work()
    assert other.get("/documents", uri=doc).status_code == 200
    answer = other.put_schema(SCHEMA.replace("ex:serverHost rdfs:domain ex:CycleProvider ; rdfs:range xsd:string",
                                             "ex:serverHost rdfs:range xsd:date"))  # fmt: skip
    assert answer.status_code == 409 and answer.json()["type"] == "urn:mdv:problem:breaking-schema"
    assert any(doc in error["message"] for error in answer.json()["errors"])
    assert other.get("/documents", uri=doc).status_code == 200


@pytest.mark.parametrize(
    ("body", "media_type", "status"),
    [("", TURTLE, 400), ("<a", XML, 400), ("x", "text/plain", 415), ("{", JSON_LD, 400), ("[" * 500, JSON_LD, 400)],
)
def test_invalid_schema_bodies_are_refused(other: Api, body: str, media_type: str, status: int) -> None:
    answer = other.put_schema(body, media_type)
    assert answer.status_code == status and answer.headers["Content-Type"] == PROBLEM


def test_if_match_requires_the_current_schema_version(other: Api) -> None:
    version = other.put_schema(SCHEMA).json()["version"]
    assert other.put_schema(SCHEMA, **{"If-Match": f'"{version + 1}"'}).status_code == 412
    assert other.put_schema(SCHEMA, **{"If-Match": f'"{version}"'}).status_code == 200


# Dry runs


def tried(api: Api, text: str, **headers: str) -> httpx2.Response:
    given = {"Content-Type": TURTLE} | headers
    return api.http.put("/api/v1/schema", params={"dry_run": "true"}, content=text.encode(), headers=given)


def test_a_dry_run_returns_the_real_outcome_and_changes_nothing(other: Api, work: Worker, doc: str) -> None:
    plain = SCHEMA + "ex:Tower a rdfs:Class . ex:height rdfs:range xsd:string ."
    assert other.put_schema(plain).status_code == 200
    other.put(doc, turtle("<#t> a ex:Tower ; ex:height '70' ; ex:knows <#far> . <#far> ex:note 'x' ."), wait=None)
    work.work()
    name = doc.rpartition("/")[2].replace(".", "-")
    assert other.http.post("/api/v1/lmrs", json={"name": name}).status_code == 201
    subscribed = other.http.post(f"/api/v1/lmrs/{name}/subscriptions", json={"rule": "search Provider p register p"})
    assert subscribed.status_code == 201, subscribed.text
    feed = other.get(f"/lmrs/{name}/feed").json()
    before = other.get("/schema")
    changed = plain.replace("ex:Tower a rdfs:Class", "ex:Tower rdfs:subClassOf ex:Provider")
    new = changed.replace("ex:height rdfs:range xsd:string", "ex:height rdfs:range xsd:integer")
    new += "ex:knows mdv:reference mdv:strong ."
    would = tried(other, new)
    assert would.status_code == 200, would.text
    told = would.json()
    assert told["dry_run"] is True and told["version"] == int(before.headers["ETag"].strip('"')) + 1
    assert [(change["what"], change["name"], change["change"]) for change in told["changes"]] == [
        ("class", "ex:Tower", "changed"),
        ("property", "ex:height", "changed"),
        ("property", "ex:knows", "changed"),
    ]
    (mine,) = [one for one in told["concerned"] if one["lmr"] == name]
    assert mine == {"lmr": name, "matched": 1, "unmatched": 0, "sent": 2, "left": 0}
    after = other.get("/schema")
    assert (after.text, after.headers["ETag"]) == (before.text, before.headers["ETag"])
    assert other.get(f"/lmrs/{name}/feed", after=feed["cursor"]).json()["events"] == []
    assert tried(other, new).json() == told
    done = other.put_schema(new).json()
    assert done == {name: value for name, value in told.items() if name != "dry_run"}
    events = other.get(f"/lmrs/{name}/feed", after=feed["cursor"]).json()["events"]
    assert sorted(event["event"] for event in events) == ["match", "put", "put", "schema"]
    assert other.http.delete(f"/api/v1/lmrs/{name}").is_success
    forget(other, work, doc)


def forget(api: Api, work: Worker, doc: str) -> None:
    """Remove everything that the next test's schema would break."""
    assert api.delete(doc, wait=None).status_code == 202
    work.work()


def test_a_dry_run_is_refused_like_a_real_change(other: Api, work: Worker, doc: str) -> None:
    version = other.put_schema(SCHEMA + "ex:seen rdfs:range xsd:string .").json()["version"]
    assert other.put(doc, turtle("<#a> ex:seen 'x' ."), wait=None).status_code == 202
    work.work()
    for text, headers in [
        (SCHEMA + "ex:seen rdfs:range xsd:date .", {}),
        (SCHEMA + "ex:memory rdfs:range xsd:string .", {}),
        ("<a> <b>", {}),
        (SCHEMA, {"If-Match": f'"{version + 1}"'}),
    ]:
        would, real = tried(other, text, **headers), other.put_schema(text, **headers)
        assert would.status_code == real.status_code >= 400
        assert would.json() == real.json()
    assert any(doc in error["message"] for error in tried(other, SCHEMA).json()["errors"])
    assert other.get("/schema").headers["ETag"] == f'"{version}"'
    forget(other, work, doc)


def test_a_dry_run_consumes_no_idempotency_key_and_checks_its_parameter(other: Api) -> None:
    key = {"Idempotency-Key": "once"}
    new = SCHEMA + "ex:Keyed a rdfs:Class ."
    assert tried(other, new, **key).json()["dry_run"] is True
    assert "dry_run" not in other.put_schema(new, **key).json()
    wrong = other.http.put("/api/v1/schema?dryrun=true", content=b"x", headers={"Content-Type": TURTLE})
    assert wrong.status_code == 400


def test_a_document_is_not_a_schema(api: Api) -> None:
    refused = api.put_schema(turtle("<http://a/x> ex:note 'x' ; <http://www.w3.org/2000/01/rdf-schema#label> 'y' ."))
    assert refused.status_code == 422 and "it is not a schema" in refused.json()["detail"]
