"""The schema over HTTP: put, read back in every syntax, refused where it contradicts itself or what is stored."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import rdflib
from rdflib.compare import isomorphic
from running import JSON_LD, N_TRIPLES, PROBLEM, SCHEMA, TURTLE, XML, Api, Server, provider

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
    assert again.json() == second.json() | {"changed": False}


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
