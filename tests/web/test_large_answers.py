"""Large requests and answers are bounded and written in pieces, while other requests are served."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pyoxigraph
import pytest
from flask import Flask

from mdv.errors import BadRequest, NotAcceptable, TooLarge, TooMany
from tests.support.server import ADMIN, JSON_LD, N_TRIPLES, TURTLE, XML, Api, Server, turtle
from web import streams
from web.json_bodies import MAX_ITEM_BYTES, MAX_ITEMS_PER_REQUEST, parse_items
from web.models import NewRule
from web.streams import STREAM_CHUNK_ITEMS, STREAM_THRESHOLD_STATEMENTS

pytestmark = pytest.mark.full

V = "http://mdv.example/schema#"
COUNT = STREAM_THRESHOLD_STATEMENTS + 2 * STREAM_CHUNK_ITEMS + 7


@pytest.fixture(scope="module")
def big(api: Api) -> str:
    """A document about one resource with very many values, and some others."""
    uri = "http://large.example/doc"
    values = ", ".join(f"'value {number:05d}'" for number in range(COUNT))
    text = turtle(
        f"<#big> a ex:CycleProvider ; ex:note {values} , 'é < & ]]> \\n \\r'@de ; ex:knows [ ex:note 'b' ] .",
        "<#small> a ex:CycleProvider ; ex:serverPort 1 .",
    )
    answer = api.put(uri, text, wait=60)
    assert answer.status_code in (200, 201), answer.text
    return uri


class Chunked:
    """An answer whose chunks are read one by one, as they are sent."""

    def __init__(self, server: Server, path: str, accept: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self._connection.request("GET", path, headers={"Accept": accept, "Authorization": f"Bearer {ADMIN}"})
        self.response = self._connection.getresponse()
        self._stream: Any = self.response.fp

    def chunks(self) -> Iterator[bytes]:
        while size := int(self._stream.readline(), 16):
            yield self._stream.read(size)
            self._stream.readline()
        self._connection.close()


def graph(text: bytes, media_type: str) -> set[str]:
    """The statements of a text in canonical form, so that labels of blank nodes do not matter."""
    found = pyoxigraph.Dataset(
        pyoxigraph.Quad(t.subject, t.predicate, t.object)
        for t in pyoxigraph.parse(text, format=pyoxigraph.RdfFormat.from_media_type(media_type), base_iri="http://x/")
    )
    found.canonicalize(pyoxigraph.CanonicalizationAlgorithm.UNSTABLE)
    return {str(quad) for quad in found}


# -- answers


@pytest.mark.parametrize("media_type", [XML, TURTLE, N_TRIPLES, JSON_LD])
@pytest.mark.parametrize(
    "what", ["documents?uri=http://large.example/doc", "resources?uri=http://large.example/doc%23big"]
)
def test_large_rdf_is_streamed_and_reads_back_the_same(server: Server, big: str, media_type: str, what: str) -> None:
    answer = Chunked(server, f"/api/v1/{what}", media_type)
    assert answer.response.status == 200
    assert answer.response.getheader("Transfer-Encoding") == "chunked"
    assert (answer.response.getheader("Content-Type") or "").startswith(media_type)
    pieces = list(answer.chunks())
    assert len(pieces) > COUNT / STREAM_CHUNK_ITEMS
    assert max(map(len, pieces)) < 2 * sum(map(len, pieces)) * STREAM_CHUNK_ITEMS / COUNT
    plain = b"".join(Chunked(server, f"/api/v1/{what}", N_TRIPLES).chunks())
    found = graph(b"".join(pieces), media_type)
    assert found == graph(plain, N_TRIPLES)
    assert len(found) >= COUNT + 3


def test_a_large_resource_as_json_is_streamed(server: Server, big: str) -> None:
    answer = Chunked(server, "/api/v1/resources?uri=http://large.example/doc%23big", "application/json")
    pieces = list(answer.chunks())
    assert len(pieces) > COUNT / STREAM_CHUNK_ITEMS
    body = json.loads(b"".join(pieces))
    assert body["uri"] == big + "#big"
    assert body["classes"] == [V + "CycleProvider"]
    assert body["documents"] == [big]
    assert len(body["statements"]) == COUNT + 3
    assert [V + "note", {"type": "literal", "value": "value 00000"}] in body["statements"]
    assert len({json.dumps(pair) for pair in body["statements"]}) == COUNT + 3


def test_other_requests_are_answered_while_a_large_answer_is_sent(server: Server, api: Api, big: str) -> None:
    answer = Chunked(server, "/api/v1/documents?uri=http://large.example/doc", N_TRIPLES)
    chunks = answer.chunks()
    next(chunks)
    assert api.http.get("/healthz").status_code == 200
    assert api.get("/resources", uri=big + "#small").status_code == 200
    assert len(b"".join(chunks).splitlines()) > COUNT - STREAM_CHUNK_ITEMS, "the rest came after the other answers"


def test_a_client_with_the_current_version_gets_304(api: Api, big: str) -> None:
    version = api.get("/documents", {"Accept": N_TRIPLES}, uri=big)
    again = api.get("/documents", {"Accept": N_TRIPLES, "If-None-Match": version.headers["ETag"]}, uri=big)
    assert (again.status_code, again.content) == (304, b"")


def test_values_that_rdf_xml_cannot_write_are_refused_before_streaming(api: Api, doc: str) -> None:
    values = ", ".join(f"'{number}'" for number in range(STREAM_THRESHOLD_STATEMENTS))
    text = turtle(f"<#a> a ex:CycleProvider ; ex:note {values} , '\\\\u0007' .").replace("\\\\u", "\\u")
    assert api.put(doc, text, wait=60).status_code == 201
    answer = api.get("/documents", {"Accept": XML}, uri=doc)
    assert answer.status_code == 406
    assert answer.json()["detail"] == (
        f"RDF/XML cannot write a control character in a value of <{doc}#a>. Request text/turtle."
    )
    assert api.get("/documents", {"Accept": TURTLE}, uri=doc).status_code == 200


def test_the_number_of_concurrent_large_answers_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "WAIT_SECONDS", 0)
    closed: list[int] = []

    @contextmanager
    def reading() -> Iterator[Any]:
        yield None
        closed.append(1)

    def pieces(_: object) -> Generator[bytes]:
        yield from (b"a", b"", b"b")

    with Flask("test").test_request_context():
        begun = [streams.stream(reading, pieces, "text/plain") for _ in range(streams.MAX_LARGE_ANSWERS)]
        with pytest.raises(TooMany, match="4 large responses are already being sent"):
            streams.stream(reading, pieces, "text/plain")
        assert closed == []
        begun[0].close()
        assert closed == [1], "its connection is returned, although nothing of it was sent"
        another = streams.stream(reading, pieces, "text/plain")
        assert list(another.response) == [b"a", b"b"], "an empty piece would end the answer"
        for response in (*begun[1:], another):
            response.close()
        assert len(closed) == streams.MAX_LARGE_ANSWERS + 1


def test_a_failure_before_the_first_chunk_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def pieces(_: object) -> Generator[bytes]:
        raise NotAcceptable("no")
        yield b""

    with Flask("test").test_request_context():
        for _ in range(2 * streams.MAX_LARGE_ANSWERS):
            with pytest.raises(NotAcceptable):
                streams.stream(nullcontext, pieces, "text/plain")  # type: ignore[arg-type]


# -- requests


def test_a_list_of_too_many_items_is_refused_naming_the_limit(server: Server, api: Api) -> None:
    body = b"[" + b",".join([b'{"rule":"x"}'] * (MAX_ITEMS_PER_REQUEST + 1)) + b"]"
    _, token = _lmr(api, "too-many-items")
    headers = {"Content-Type": "application/json"}
    answer = server.api(token).http.post("/api/v1/lmrs/self/subscriptions", content=body, headers=headers, timeout=60)
    assert answer.status_code == 413
    assert answer.json()["detail"] == (
        "The list has more than 100,000 items, the limit of one call. Send it in several calls."
    )


def test_a_list_of_exactly_the_limit_is_parsed() -> None:
    body = b"[" + b", \n".join([b'{"rule":"x"}'] * MAX_ITEMS_PER_REQUEST) + b" ] "
    assert len(parse_items(body, NewRule)) == MAX_ITEMS_PER_REQUEST


def test_nothing_beyond_the_limit_is_parsed() -> None:
    body = b'[{"rule": "x"}, {"rule": "y"}, {"rule": "z"}, this is not JSON'
    with pytest.raises(TooLarge, match="more than 2 items"):
        parse_items(body, NewRule, 2)


def test_an_item_that_is_too_large_is_refused_with_its_place() -> None:
    nested = b'[{"rule": "x"},\n {"rule": [' + b"[]," * 1_000_000 + b"[]]}]"
    with pytest.raises(TooLarge, match=r"item at line 2, column 2 is larger than the limit of 65,536 characters"):
        parse_items(nested, NewRule)
    long = json.dumps([{"rule": "x" * (MAX_ITEM_BYTES + 1)}]).encode()
    with pytest.raises(TooLarge, match="line 1, column 2"):
        parse_items(long, NewRule)


def test_items_are_found_across_all_chunk_boundaries() -> None:
    rules = ["x" * (997 * n % 60_000) + 'é"\\\n' for n in range(60)]
    for indent in (None, 1):
        body = json.dumps([{"rule": rule} for rule in rules], indent=indent, ensure_ascii=bool(indent)).encode()
        assert [item.rule for item in parse_items(body, NewRule)] == rules


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[", "line 1, column 2: Expecting value"),
        (b'[{"rule": "x"}', "line 1, column 15: Expecting ',' delimiter"),
        (b'[{"rule": "x"},]', "line 1, column 16: Expecting value"),
        (b'[{"rule": "x"}] x', "line 1, column 17: Extra data"),
        (b'[{"rule": "x"},\n{"rule" "x"}]', "line 2, column 9: Expecting ':' delimiter"),
        (b'[{"rule": "x"}, {"rule": 1}]', "item 2: rule: Input should be a valid string"),
        (b'[{"rule": "x"}, 7]', "item 2: body: Input should be"),
        (b'["\xff"]', "byte 3 is not UTF-8"),
        (b"[" * 100_000, "nested too deep"),
    ],
)  # fmt: skip
def test_an_invalid_list_is_refused_with_its_place(body: bytes, words: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_items(body, NewRule)
    assert words in refused.value.detail


def test_other_requests_are_served_while_a_large_list_is_parsed(server: Server, api: Api) -> None:
    """Every answer of /healthz between the last byte of the list and its answer did not wait for the list."""
    _, token = _lmr(api, "large-list")
    body = json.dumps([{"rule": f"search CycleProvider c register c where c.serverPort = {n}"} for n in range(60_000)])
    body = body[:-1] + ', {"rule": "no rule"}]'
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", "/api/v1/lmrs/self/subscriptions", body.encode(), headers)
    answers: list[int] = []
    done = threading.Event()

    def answer() -> None:
        answers.append(connection.getresponse().status)
        done.set()

    waiting = threading.Thread(target=answer)
    waiting.start()
    served = 0
    while not done.is_set():
        assert api.http.get("/healthz").status_code == 200
        served += 0 if done.is_set() else 1
    waiting.join()
    assert answers == [422]
    assert served > 1


def _lmr(api: Api, name: str) -> tuple[int, str]:
    answer = api.http.post("/api/v1/lmrs", json={"name": name})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"], answer.json()["token"]
