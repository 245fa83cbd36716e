"""Queries and the filter's trace over HTTP."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import rdflib

from mdv.db.engine import make_engine
from tests.support.mdp import Mdp
from tests.support.rule_schemas import GOLDEN
from tests.support.server import (
    FIGURE_1,
    N_TRIPLES,
    PROBLEM,
    SCHEMA,
    TURTLE,
    XML,
    Api,
    Server,
    V,
    start_server,
    stopping,
    turtle,
)

HOSTS = "search CycleProvider c where c.serverPort = 5874 and c = <{}#host> return c, c.serverHost"


EXAMPLE_1 = (GOLDEN / "demo" / "example_1.rule").read_text("utf-8")


def ask(api: Api, query: object, accept: str | None = None, **more: Any) -> httpx2.Response:
    headers = {"Accept": accept} if accept else {}
    return api.http.post("/api/v1/query", json={"query": query} | more, headers=headers)


def send(api: Api, body: bytes, media_type: str = "application/json") -> httpx2.Response:
    return api.http.post("/api/v1/query", content=body, headers={"Content-Type": media_type})


def test_a_query_with_return_gives_columns_and_rows(api: Api, doc: str) -> None:
    api.put(doc, FIGURE_1, XML)
    answer = ask(api, HOSTS.format(doc))
    assert answer.status_code == 200 and answer.headers["Vary"] == "Accept"
    host = {"type": "literal", "value": "pirates.uni-passau.de"}
    assert answer.json() == {
        "columns": ["c", "c.serverHost"],
        "rows": [[{"type": "uri", "value": doc + "#host"}, host]],
        "truncated": False,
    }
    missing = ask(api, f"search ServerInformation s where s = <{doc}#info> return s.note?, s.cpu")
    assert missing.json()["rows"] == [[None, {"type": "literal", "value": "600"}]]


def test_limits_of_the_body_and_of_the_text_truncate(api: Api, doc: str) -> None:
    api.put(doc, turtle(*(f"<#n{n}> ex:note 'n' ; ex:knows <{doc}> ." for n in range(9))))
    query = f"search rdfs:Resource r where r.knows? = <{doc}> return r order by r desc"
    assert len(ask(api, query).json()["rows"]) == 9
    cut = ask(api, query + " limit 5", limit=3).json()
    assert [row[0]["value"] for row in cut["rows"]] == [f"{doc}#n{n}" for n in (8, 7, 6)] and cut["truncated"]


def test_a_rule_returns_pages_of_resources(api: Api, doc: str) -> None:
    api.put(doc, turtle(*(f"<#n{n}> a ex:CycleProvider ; ex:serverHost '{doc}' ." for n in range(5))))
    rule = f"search Provider p register p where p.serverHost = '{doc}'"
    found, after = [], {}
    while True:
        body = ask(api, rule, limit=2, **after).json()
        found += body["items"]
        if body["next"] is None:
            break
        after = {"after": body["next"]}
    assert found == [{"uri": f"{doc}#n{n}", "classes": [V + "CycleProvider"]} for n in range(5)]


def test_results_are_available_as_csv(api: Api, doc: str) -> None:
    api.put(doc, turtle("<#a> a ex:CycleProvider ; ex:serverHost 'x, \"y\"\\nz' ; ex:note 'only' ."))
    query = f"search CycleProvider c where c = <{doc}#a> return c, c.serverHost, c.serverPort"
    answer = ask(api, query, "text/csv")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8; header=present"
    rows = list(csv.reader(io.StringIO(answer.text, newline="")))
    assert rows == [["c", "c.serverHost", "c.serverPort"], [doc + "#a", 'x, "y"\nz', ""]]
    assert "MDV-More" not in answer.headers
    resources = ask(api, "search CycleProvider c register c", "text/csv", limit=1)
    assert resources.text.startswith("uri,classes\r\n") and resources.headers["MDV-More"] == "true"


@pytest.mark.parametrize("media_type", [TURTLE, N_TRIPLES])
def test_resources_are_available_as_rdf_and_rows_are_not(api: Api, doc: str, media_type: str) -> None:
    api.put(doc, FIGURE_1, XML)
    rule = f"search CycleProvider c register c where c = <{doc}#host>"
    graph = rdflib.Graph().parse(data=ask(api, rule, media_type).text, format="turtle")
    assert len(graph) == 4 and set(graph.subjects()) == {rdflib.URIRef(doc + "#host")}
    refused = ask(api, HOSTS.format(doc), media_type)
    assert refused.status_code == 406 and refused.json()["offered"] == ["application/json", "text/csv"]


def test_an_error_in_a_query_is_reported_with_its_place(api: Api) -> None:
    answer = ask(api, "search CycleProvider c return c.serverHst")
    assert answer.status_code == 422 and answer.headers["Content-Type"] == PROBLEM
    problem = answer.json()
    assert problem["errors"] == [
        {
            "message": "unknown property 'serverHst'",
            "line": 1,
            "column": 33,
            "hint": "did you mean serverHost or serverPort?",
            "length": len("serverHst"),
        }
    ]
    assert problem["detail"].splitlines()[-1].strip() == "^" * len("serverHst")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'"search"', 400),
        (b"null", 400),
        (b"{}", 400),
        (b'{"query": null}', 400),
        (b'{"query": 5}', 400),
        (b'{"query": ["search"]}', 400),
        (b'{"query": "search", "more": 1}', 400),
        (b'{"query": "search CycleProvider c return c", "limit": 0}', 400),
        (b'{"query": "search CycleProvider c return c", "limit": -1}', 400),
        (b'{"query": "search CycleProvider c return c", "limit": 10001}', 400),
        (b'{"query": "search CycleProvider c return c", "limit": "5"}', 400),
        (b'{"query": "search CycleProvider c return c", "limit": 5.5}', 400),
        (b'{"query": "search CycleProvider c return c", "limit": true}', 400),
        (b'{"query": "search CycleProvider c return c", "limit": 1e999}', 400),
        (b'{"query": "search CycleProvider c return c", "after": "http://a/"}', 400),
        (b'{"query": "search CycleProvider c register c", "limit": 1001}', 400),
        (b'{"query": "search CycleProvider c register c", "after": "x"}', 400),
        (b'{"query": "search CycleProvider c register c", "after": "http://a/\\u0000"}', 400),
        (b'{"query": "search CycleProvider c register c", "after": "http://a/\\ud800"}', 400),
        (b'{"query": "search CycleProvider c register c", "after": 7}', 400),
        (b"\xff\xfe", 400),
        (b"[" * 50_000, 400),
        (b'{"query": ""}', 422),
        (b'{"query": "\\u0000"}', 422),
        (b'{"query": "\\ud800"}', 422),
        (b'{"query": "search CycleProvider c return c limit 99999"}', 422),
        (json.dumps({"query": "search CycleProvider c return c" + " " * 9000}).encode(), 422),
        (json.dumps({"query": "x" * 10_000_000}).encode(), 413),
    ],
)  # fmt: skip
def test_an_invalid_request_body_is_refused(api: Api, body: bytes, status: int) -> None:
    answer = send(api, body)
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, PROBLEM), answer.text[:500]


def test_a_query_must_be_sent_as_json(api: Api) -> None:
    assert send(api, b"search CycleProvider c return c", "text/plain").status_code == 415


def test_every_reader_may_query(api: Api, server: Server, small: Server, make_token: Any, doc: str) -> None:
    api.put(doc, FIGURE_1, XML)
    viewer = server.api(make_token("viewer")[0])
    assert ask(viewer, HOSTS.format(doc)).status_code == 200
    assert viewer.get("/filter/trace", document=doc).status_code == 200
    for stranger in (server.api(None), server.api("wrong")):
        assert ask(stranger, HOSTS.format(doc)).status_code == 401
        assert stranger.get("/filter/trace", document=doc).status_code == 401
    assert ask(small.api(None), "search rdfs:Resource r return r").json()["rows"] == []


@pytest.fixture
def paper(folder: Path, new_database: Callable[[], str], new_queue: Callable[[], str], doc: str) -> Iterator[Server]:
    """A web server on a database of its own, with Figure 1 and the rule of Example 1 of the paper and nothing else."""
    database = new_database()
    engine = make_engine(database)
    mdp = Mdp(engine)
    mdp.put_schema(SCHEMA)
    mdp.add_rules([EXAMPLE_1])
    mdp.put_one(
        doc,
        turtle(
            "<#host> a ex:CycleProvider ; ex:serverHost 'pirates.uni-passau.de' ; ex:serverPort 5874 ;",
            "ex:serverInformation <#info> . <#info> a ex:ServerInformation ; ex:memory 92 ; ex:cpu 600 .",
        ),
    )
    engine.dispose()
    server = start_server(folder, database, new_queue())
    with stopping(server):
        yield server


def test_the_trace_of_a_document_contains_its_iterations(paper: Server, doc: str) -> None:
    api = paper.api()
    body = api.get("/filter/trace", document=doc).json()
    memory = "search ex:ServerInformation s register s where s.ex:memory > 64"
    host = "search ex:CycleProvider c register c where c.ex:serverHost contains 'uni-passau.de'"
    join = (
        "search view(1, ex:ServerInformation) a, view(2, ex:CycleProvider) c register c"
        " where c.ex:serverInformation = a"
    )
    assert body == {
        "document": doc,
        "iterations": [
            [
                {"resource": f"{doc}#info", "rule": 1, "text": memory},
                {"resource": f"{doc}#host", "rule": 2, "text": host},
            ],
            [{"resource": f"{doc}#host", "rule": 3, "text": join}],
        ],
        "results": [{"resource": f"{doc}#host", "rule": 3}],
        "truncated": False,
    }
    assert api.get("/filter/trace", document=doc + "2").status_code == 404
    assert api.get("/filter/trace").status_code == 400
    assert api.get("/filter/trace", document=doc, limit=5).status_code == 400
