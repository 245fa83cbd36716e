"""Callers that mean harm or are broken: sizes, slowness, bombs, bytes that HTTP does not know."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from running import ADMIN, JSON_LD, PROBLEM, TURTLE, XML, Api, Process, Server, eventually, peak, provider, turtle

HEAD = f"Host: x\r\nAuthorization: Bearer {ADMIN}\r\nContent-Type: text/turtle\r\n"


def raw(server: Server, request: bytes, seconds: float = 10) -> bytes:
    """What the server says to these bytes before it closes, or falls silent after an answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as connection:
        connection.sendall(request)
        answer = b""
        try:
            while part := connection.recv(65536):
                answer += part
        except (TimeoutError, ConnectionResetError):
            pass
        return answer


def put_head(uri: str, *headers: str) -> bytes:
    lines = "".join(f"{line}\r\n" for line in headers)
    return f"PUT /api/v1/documents?uri={uri} HTTP/1.1\r\n{HEAD}Connection: close\r\n{lines}\r\n".encode()


def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_read(small: Server, doc: str) -> None:
    started = time.monotonic()
    answer = raw(small, put_head(doc, "Content-Length: 1000000000000"))
    assert answer.startswith(b"HTTP/1.1 413 ") and PROBLEM.encode() in answer and b"20,000 bytes" in answer
    assert time.monotonic() - started < 1.5  # no wait for a body that does not come


def test_a_chunked_body_over_the_limit_is_refused(small: Server, doc: str) -> None:
    chunk = b"%x\r\n%s\r\n" % (10_000, b"#" * 10_000)
    answer = raw(small, put_head(doc, "Transfer-Encoding: chunked") + chunk * 3 + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ") and PROBLEM.encode() in answer
    within = small.api().http.put(
        "/api/v1/documents", params={"uri": doc}, headers={"Content-Type": TURTLE},
        content=iter([provider().encode(), b"#" * 15_000]),
    )  # fmt: skip
    assert within.status_code == 202


def test_a_chunked_body_that_breaks_off_is_no_document(small: Server, doc: str) -> None:
    with socket.create_connection(("127.0.0.1", small.port), timeout=10) as connection:
        connection.sendall(put_head(doc, "Transfer-Encoding: chunked") + b"5\r\n<#a> \r\n")
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ") and b"before it was whole" in answer


def test_a_slow_body_ends_in_408_in_time_while_others_are_served(small: Server, doc: str) -> None:
    def crawl(uri: str) -> tuple[bytes, float]:
        started = time.monotonic()
        with socket.create_connection(("127.0.0.1", small.port), timeout=10) as connection:
            connection.sendall(put_head(uri, "Content-Length: 1000"))
            connection.settimeout(0.3)
            while time.monotonic() - started < 8:
                try:
                    connection.sendall(b"#")
                    if answer := connection.recv(65536):
                        seconds = time.monotonic() - started
                        return answer + b"".join(iter(lambda: connection.recv(65536), b"")), seconds
                except TimeoutError:
                    continue
        return b"", time.monotonic() - started

    with ThreadPoolExecutor(2) as pool:
        crawling = [pool.submit(crawl, doc + n) for n in "12"]
        served = 0
        while not all(crawler.done() for crawler in crawling):
            began = time.monotonic()
            assert small.api().get("/documents").status_code == 200
            assert time.monotonic() - began < 1.5
            served += 1
    assert served > 3
    for crawler in crawling:
        answer, seconds = crawler.result()
        assert answer.startswith(b"HTTP/1.1 408 ") and b"urn:mdv:problem:too-slow" in answer
        assert 1.8 < seconds < 4.5
    assert small.api().get("/documents/history", uri=doc + "1").status_code == 404


def test_a_caller_that_disconnects_leaves_no_document_and_no_harm(api: Api, server: Server, doc: str) -> None:
    for part in (b"PUT /api", put_head(doc, "Content-Length: 1000"), put_head(doc, "Content-Length: 1000") + b"<#a>"):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(part)
    assert api.put(doc, provider()).json()["version"] == 1
    assert "Traceback" not in server.words()


def test_a_caller_that_does_not_wait_for_its_answer_is_registered_all_the_same(
    api: Api, server: Server, doc: str
) -> None:
    body = provider().encode()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(put_head(doc, f"Content-Length: {len(body)}", "Prefer: wait=10") + body)
    eventually(lambda: api.get("/documents", uri=doc).status_code == 200)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /api/v1/schema HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\0b\r\n\r\n",
        b"GET /api/v1/schema\0 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /api/v1/documents?uri=http://a/" + b"x" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 1_000_000 + b"\r\n\r\n",
    ],
)
def test_bytes_that_are_no_request_are_refused_and_the_connection_ends(server: Server, request_bytes: bytes) -> None:
    answer = raw(server, request_bytes, 5)
    assert not answer or answer.split(b" ", 2)[1][:1] == b"4" or answer.startswith(b"HTTP/1.1 505"), answer[:200]
    assert server.api(None).http.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b"<#a> <http://mdv.example/schema#note> 'x\0y' .", TURTLE),
        (b"<#a> <http://mdv.example/schema#note> 'x\\u0000y' .", TURTLE),
        (b'{"@id": "http://a/", "http://mdv.example/schema#note": "x\\u0000y"}', JSON_LD),
        (b"<#a> <http://mdv.example/schema#note> '\xff' .", TURTLE),
        (b'{"http://mdv.example/schema#note": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", JSON_LD),
        (b'{"http://mdv.example/schema#knows":' * 50_000 + b"1" + b"}" * 50_000, JSON_LD),
        (b"<#a> <http://mdv.example/schema#knows> " + b"[<urn:p> " * 50_000, TURTLE),
        (b"(" * 200_000, TURTLE),
        (
            b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">'
            b'<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>'
            b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">&c;</rdf:RDF>', XML,
        ),
        (b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><x/>', XML),
        (b'{"@context": "http://127.0.0.1:9/context", "@id": "http://a/"}', JSON_LD),
    ],
)  # fmt: skip
def test_a_bomb_is_refused_soon_and_ends_no_worker(
    api: Api, worker: Process, doc: str, body: bytes, media_type: str
) -> None:
    before = worker.children()
    started = time.monotonic()
    answer = api.put(doc, body, media_type)
    assert answer.status_code in (400, 422), answer.text
    assert answer.headers["Content-Type"] == PROBLEM and time.monotonic() - started < 5
    assert worker.children() == before
    assert api.put(doc, provider()).status_code == 201


def test_a_document_of_30_mb_is_registered_and_read_within_bounded_memory(
    api: Api, server: Server, worker: Process, doc: str
) -> None:
    value = "x" * 100_000
    body = turtle(*(f"<#a> ex:note '{n}{value}' ." for n in range(300)))
    assert 30_000_000 < len(body) < 32 * 1024 * 1024
    answer = api.put(doc, body)
    assert answer.status_code == 201, answer.text
    assert len(api.get("/documents", uri=doc, headers={"Accept": TURTLE}).content) > 30_000_000
    assert api.delete(doc).status_code == 200
    used = {"web": peak(server.worker_pid()), "worker": max(peak(pid) for pid in worker.children())}
    assert used["web"] < 700 and used["worker"] < 900, used


@pytest.mark.parametrize("chunk", [b"-5\r\nabc\r\n", b"zz\r\nabc\r\n"])
def test_broken_chunks_are_refused(small: Server, doc: str, chunk: bytes) -> None:
    with socket.create_connection(("127.0.0.1", small.port), timeout=10) as connection:
        connection.sendall(put_head(doc, "Transfer-Encoding: chunked") + chunk)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400 "), answer[:200]
