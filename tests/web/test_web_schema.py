"""The schema over HTTP: put, read back in every syntax, refused where it contradicts itself or what is stored."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx
import pytest
import rdflib
from rdflib.compare import isomorphic
from running import JSON_LD, N_TRIPLES, PROBLEM, SCHEMA, TURTLE, XML, Api, Server, provider, turtle

from mdv.db.engine import make_engine
from mdv.mdp.work import Worker

RDFLIB = {XML: "xml", TURTLE: "turtle", N_TRIPLES: "nt", JSON_LD: "json-ld"}


@pytest.fixture
def other(small: Server, small_database: str) -> Iterator[Api]:
    """The admin of a system whose schema is free to change: limits are small, and this test is its worker."""
    engine, done = make_engine(small_database), threading.Event()
    worker = Worker(engine, 10**6)

    def work() -> None:
        while not done.wait(0.02):
            worker.work_rules()

    thread = threading.Thread(target=work)
    thread.start()
    yield small.api()
    done.set()
    thread.join()
    engine.dispose()


@pytest.fixture
def work(small_database: str) -> Iterator[Worker]:
    engine = make_engine(small_database)
    yield Worker(engine, 10**6)
    engine.dispose()


def test_a_schema_is_put_in_every_syntax_and_read_back_in_every_syntax(other: Api) -> None:
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


def test_a_change_takes_a_version_and_a_position_and_the_same_schema_takes_none(other: Api) -> None:
    first = other.put_schema(SCHEMA + "ex:one rdfs:range xsd:string .")
    second = other.put_schema(SCHEMA + "ex:two rdfs:range xsd:string .")
    again = other.put_schema(SCHEMA + "ex:two rdfs:range xsd:string .")
    assert [answer.status_code for answer in (first, second, again)] == [200, 200, 200]
    assert second.json()["version"] == first.json()["version"] + 1
    assert second.json()["position"] == first.json()["position"] + 1 and second.json()["changed"] is True
    nothing = {"changed": False, "changes": [], "counts": {}, "lmrs": 0}
    assert again.json() == second.json() | nothing and second.json()["counts"]["property"] == {"added": 1, "removed": 1}


def test_a_schema_that_contradicts_itself_is_refused_with_all_errors(other: Api) -> None:
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
def test_what_is_no_schema_is_refused(other: Api, body: str, media_type: str, status: int) -> None:
    answer = other.put_schema(body, media_type)
    assert answer.status_code == status and answer.headers["Content-Type"] == PROBLEM


def test_a_schema_is_replaced_only_at_the_version_asked_for(other: Api) -> None:
    version = other.put_schema(SCHEMA).json()["version"]
    assert other.put_schema(SCHEMA, **{"If-Match": f'"{version + 1}"'}).status_code == 412
    assert other.put_schema(SCHEMA, **{"If-Match": f'"{version}"'}).status_code == 200


# Tried out


def tried(api: Api, text: str, **headers: str) -> httpx.Response:
    given = {"Content-Type": TURTLE} | headers
    return api.http.put("/api/v1/schema", params={"dry_run": "true"}, content=text.encode(), headers=given)


def test_a_dry_run_tells_what_the_real_one_does_and_changes_nothing(other: Api, work: Worker, doc: str) -> None:
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
    """Leave nothing that the next test's schema would break."""
    assert api.delete(doc, wait=None).status_code == 202
    work.work()


def test_a_dry_run_is_refused_as_the_real_one_is(other: Api, work: Worker, doc: str) -> None:
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


def test_a_dry_run_spends_no_idempotency_key_and_knows_its_parameter(other: Api) -> None:
    key = {"Idempotency-Key": "once"}
    new = SCHEMA + "ex:Keyed a rdfs:Class ."
    assert tried(other, new, **key).json()["dry_run"] is True
    assert "dry_run" not in other.put_schema(new, **key).json()
    wrong = other.http.put("/api/v1/schema?dryrun=true", content=b"x", headers={"Content-Type": TURTLE})
    assert wrong.status_code == 400
