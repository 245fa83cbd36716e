"""Hostile or broken callers: sizes, slow bodies, decompression bombs, invalid HTTP."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests.support.eventually import eventually
from tests.support.raw_http import send_raw
from tests.support.server import (
    ADMIN,
    JSON_LD,
    PROBLEM,
    TURTLE,
    XML,
    Api,
    Process,
    Server,
    peak,
    provider,
    turtle,
)

pytestmark = pytest.mark.full

HEAD = f"Host: x\r\nAuthorization: Bearer {ADMIN}\r\nContent-Type: text/turtle\r\n"


def cut(server: Server, sent: bytes) -> bytes:
    """Return the answer to a request whose client stops sending."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def put_head(uri: str, *headers: str) -> bytes:
    lines = "".join(f"{line}\r\n" for line in headers)
    return f"PUT /api/v1/documents?uri={uri} HTTP/1.1\r\n{HEAD}Connection: close\r\n{lines}\r\n".encode()


def test_a_content_length_over_the_limit_is_refused_before_the_body_is_read(small: Server, doc: str) -> None:
    answer = send_raw(small.port, put_head(doc, "Content-Length: 1000000000000"))
    # A server that waited for the body, which does not arrive, would answer 408.
    assert answer.startswith(b"HTTP/1.1 413 ") and PROBLEM.encode() in answer and b"20,000 bytes" in answer


def test_a_chunked_body_over_the_limit_is_refused(small: Server, doc: str) -> None:
    chunk = b"%x\r\n%s\r\n" % (10_000, b"#" * 10_000)
    answer = send_raw(small.port, put_head(doc, "Transfer-Encoding: chunked") + chunk * 3 + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ") and PROBLEM.encode() in answer
    within = small.api().http.put(
        "/api/v1/documents", params={"uri": doc}, headers={"Content-Type": TURTLE},
        content=iter([provider().encode(), b"#" * 15_000]),
    )  # fmt: skip
    assert within.status_code == 202


def test_a_truncated_chunked_body_is_refused(small: Server, doc: str) -> None:
    answer = cut(small, put_head(doc, "Transfer-Encoding: chunked") + b"5\r\n<#a> \r\n")
    assert answer.startswith(b"HTTP/1.1 400 ") and b"The body is incomplete" in answer


def test_a_body_shorter_than_its_content_length_is_refused(server: Server, api: Api, doc: str) -> None:
    body = provider().encode()
    for sent in (b"", body):
        answer = cut(server, put_head(doc, f"Content-Length: {len(body) + 1}", "Prefer: wait=60") + sent)
        assert answer.startswith(b"HTTP/1.1 400 ") and b"The body is incomplete" in answer, answer
    assert api.get("/documents", uri=doc).status_code == 404
    assert cut(server, put_head(doc, f"Content-Length: {len(body)}", "Prefer: wait=60") + body)[9:12] == b"201"


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("application/x-www-form-urlencoded", b"secret=" + ADMIN.encode()),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="secret"\r\n\r\n'),
    ],
)
def test_a_form_shorter_than_its_content_length_is_refused(server: Server, kind: str, form: bytes) -> None:
    head = f"POST /sign-in HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(form) + 1}\r\n\r\n"
    answer = cut(server, head.encode() + form)
    assert answer.startswith(b"HTTP/1.1 400 ") and b"The form is incomplete" in answer, answer


def test_a_slow_body_ends_in_408_while_others_are_served(small: Server, doc: str) -> None:
    def crawl(uri: str) -> bytes:
        """Send the body byte by byte; return the answer that comes before the body is complete."""
        with socket.create_connection(("127.0.0.1", small.port), timeout=60) as connection:
            connection.sendall(put_head(uri, "Content-Length: 1000"))
            connection.settimeout(0.3)
            for _ in range(999):
                with suppress(ConnectionError):  # the server has answered and closed
                    connection.sendall(b"#")
                try:
                    if answer := connection.recv(65536):
                        return answer + b"".join(iter(lambda: connection.recv(65536), b""))
                except TimeoutError:
                    continue
        return b""

    with ThreadPoolExecutor(2) as pool:
        crawling = [pool.submit(crawl, doc + n) for n in "12"]
        served = 0
        while not all(crawler.done() for crawler in crawling):
            assert small.api().get("/documents").status_code == 200
            served += not any(crawler.done() for crawler in crawling)
    assert served, "answered while both bodies were being sent"
    for crawler in crawling:
        answer = crawler.result()
        assert answer.startswith(b"HTTP/1.1 408 ") and b"urn:mdv:problem:too-slow" in answer
    assert small.api().get("/documents/history", uri=doc + "1").status_code == 404


def test_a_caller_that_disconnects_registers_nothing_and_does_no_harm(api: Api, server: Server, doc: str) -> None:
    for part in (b"PUT /api", put_head(doc, "Content-Length: 1000"), put_head(doc, "Content-Length: 1000") + b"<#a>"):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(part)
    assert api.put(doc, provider()).json()["version"] == 1
    assert "Traceback" not in server.words()


def test_a_document_is_registered_even_if_its_caller_does_not_wait(api: Api, server: Server, doc: str) -> None:
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
def test_bytes_that_are_no_http_request_are_refused_and_the_connection_is_closed(
    server: Server, request_bytes: bytes
) -> None:
    answer = send_raw(server.port, request_bytes, 5)
    assert not answer or answer.split(b" ", 2)[1][:1] == b"4" or answer.startswith(b"HTTP/1.1 505"), answer[:200]
    assert server.api(None).http.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("body", "media_type", "status"),
    [
        (b"<#a> <http://mdv.example/schema#note> 'x\0y' .", TURTLE, 400),
        (b"<#a> <http://mdv.example/schema#note> 'x\\u0000y' .", TURTLE, 422),
        (b'{"@id": "http://a/", "http://mdv.example/schema#note": "x\\u0000y"}', JSON_LD, 422),
        (b"<#a> <http://mdv.example/schema#note> '\xff' .", TURTLE, 400),
        (b'{"http://mdv.example/schema#note": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", JSON_LD, 400),
        (b'{"http://mdv.example/schema#knows":' * 50_000 + b"1" + b"}" * 50_000, JSON_LD, 400),
        (b"<#a> <http://mdv.example/schema#knows> " + b"[<urn:p> " * 50_000, TURTLE, 400),
        (b"(" * 200_000, TURTLE, 400),
        (
            b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">'
            b'<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>'
            b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">&c;</rdf:RDF>', XML, 400,
        ),
        (b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><x/>', XML, 400),
        (b'{"@context": "http://127.0.0.1:9/context", "@id": "http://a/"}', JSON_LD, 400),
    ],
)  # fmt: skip
def test_a_hostile_document_is_refused_and_kills_no_worker(
    api: Api, worker: Process, doc: str, body: bytes, media_type: str, status: int
) -> None:
    before = worker.children()
    answer = api.put(doc, body, media_type)
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == PROBLEM
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
    with socket.create_connection(("127.0.0.1", small.port), timeout=60) as connection:
        connection.sendall(put_head(doc, "Transfer-Encoding: chunked") + chunk)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400 "), answer[:200]
