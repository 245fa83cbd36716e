"""Programs over HTTP: formats, modes, roles, limits, and hostile programs."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any

import httpx2
import pytest

from tests.support.eventually import eventually
from tests.support.server import ADMIN, PROBLEM, Api, V, WebAddress, turtle

NDJSON, EVENTS = "application/x-ndjson", "text/event-stream"
PREFIXES = {"": V}


def run(api: Api, code: str, accept: str = "application/json", **more: Any) -> httpx2.Response:
    body = {"code": code, "prefixes": PREFIXES} | more
    return api.http.post("/api/v1/real", json=body, headers={"Accept": accept})


def lines(answer: httpx2.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def host(doc: str) -> dict[str, str]:
    return {"type": "uri", "value": doc + "#host"}


@pytest.fixture
def stored(api: Api, doc: str) -> str:
    """A document with a provider and its information."""
    body = turtle("<#host> a ex:CycleProvider ; ex:serverHost 'a.example' ; ex:serverPort 5874 .")
    assert api.put(doc, body).status_code == 201
    return doc


def test_a_program_that_reads(api: Api, stored: str) -> None:
    code = f"IN <{stored}> {{ :serverHost(?x, ?host) AND :serverPort(?x, 5874.0) }}"
    answer = run(api, code, mode="read")
    assert answer.status_code == 200 and answer.headers["Vary"] == "Accept", answer.text
    found = answer.json()
    assert found["solutions"] == [{"x": host(stored), "host": {"type": "literal", "value": "a.example"}}]
    assert found["effects"] == {"added": 0, "removed": 0} and found["warnings"] == []
    assert found["position"] > 0 and "difference" not in found


def test_bindings_limits_and_the_schema_context(api: Api, stored: str) -> None:
    found = run(api, ":serverHost(?x, ?host)", mode="read", binding={"x": host(stored)}).json()
    assert [one["host"]["value"] for one in found["solutions"]] == ["a.example"]
    code = "IN <urn:mdv:schema> { rdfs:subClassOf(?c, :Provider) } AND !rdf:type(?x, :Provider)"
    some = run(api, code, mode="read", limit=2, binding={"x": host(stored)}).json()
    assert some["solutions"] == [{"c": {"type": "uri", "value": V + "CycleProvider"}, "x": host(stored)}]
    assert len(run(api, ":serverPort(?x, ?)", limit=1).json()["solutions"]) == 1


def test_a_sandbox_reports_its_changes_and_drops_them(api: Api, stored: str) -> None:
    code = (
        f'ON <{stored}> {{ -:serverPort(?x, ?port) AND +:serverPort(?x, 99) AND +:note(?x, "new")'
        ' AND -:note(?x, "new") AND :serverPort(?x, ?now) }'
    )
    found = run(api, code).json()
    assert found["solutions"][0]["now"]["value"] == "99"
    assert found["effects"] == {"added": 1, "removed": 1}
    integer = "http://www.w3.org/2001/XMLSchema#integer"
    port = [stored + "#host", V + "serverPort"]
    assert found["difference"] == [
        {
            "document": stored,
            "added": [[*port, {"type": "literal", "value": "99", "datatype": integer}]],
            "removed": [[*port, {"type": "literal", "value": "5874", "datatype": integer}]],
        }
    ]
    assert run(api, f"IN <{stored}> {{ :serverPort(?x, ?port) }}").json()["solutions"][0]["port"]["value"] == "5874"
    assert run(api, '{+:note(:a, "x")}').json()["difference"] == []


def test_a_change_that_the_schema_refuses_is_a_failure(api: Api, stored: str) -> None:
    code = f'ON <{stored}> {{ +:serverPort(<{stored}#host>, 1) OR +:nothing(:a, :b) OR +:cpu(:a, "x") }}'
    found = run(api, code).json()
    assert found["solutions"] == [] and found["effects"] == {"added": 0, "removed": 0}
    messages = [one["message"] for one in found["warnings"]]
    assert any("is not set-valued" in one for one in messages) and any("not declared" in one for one in messages)
    assert any("not an xsd:integer" in one for one in messages)
    assert {"start", "end", "line", "column"} == found["warnings"][0]["span"].keys()


def test_the_same_program_as_lines_and_as_events(api: Api, stored: str) -> None:
    code = f'IN <{stored}> {{ :serverHost(?x, ?) AND (+:note(?x, "a") UNION +:note(?x, "b")) }}'
    found = lines(run(api, code, NDJSON))
    assert [one["type"] for one in found] == ["effect", "solution", "effect", "solution", "end"]
    note = [stored + "#host", V + "note", {"type": "literal", "value": "a"}]
    assert found[0] == {"type": "effect", "change": "added", "document": stored, "statement": note}
    assert found[1] == {"type": "solution", "n": 1, "binding": {"x": host(stored)}}
    assert found[-1]["solutions"] == 2 and found[-1]["effects"] == {"added": 2, "removed": 0}
    sent = run(api, code, EVENTS)
    assert sent.headers["Content-Type"].startswith(EVENTS)
    events = [part.split("\ndata: ") for part in sent.text.strip().split("\n\n") if part[0] != ":"]
    assert [name.removeprefix("event: ") for name, _ in events] == [one["type"] for one in found]
    assert json.loads(events[1][1]) == {"n": 1, "binding": {"x": host(stored)}}
    assert run(api, code, "text/csv").status_code == 406


def test_an_error_has_its_place_and_what_was_done(api: Api, stored: str) -> None:
    code = f'ON <{stored}> {{ ++:note(:a, "b") AND (TRUE UNION\n +:note(:a, ?u)) }}'
    answer = run(api, code)
    assert answer.status_code == 422 and answer.headers["Content-Type"] == PROBLEM
    problem = answer.json()
    assert problem["type"] == "urn:mdv:problem:program-stopped" and "?u is not bound" in problem["detail"]
    assert problem["span"]["line"] == 2 and code[problem["span"]["start"] : problem["span"]["end"]].startswith("+:note")
    assert problem["solutions"] == 1 and problem["effects"] == {"added": 1, "removed": 0} and problem["position"] > 0
    assert [one["type"] for one in lines(run(api, code, NDJSON))][-2:] == ["solution", "error"]
    assert run(api, "+:note(:a, ?u)", NDJSON).status_code == 422  # before the first event
    refused = run(api, "+:note(:a, :b", NDJSON).json()
    assert (
        refused["status"] == 422
        and refused["type"] == "urn:mdv:problem:invalid-program"
        and refused["span"]["line"] == 1
    )
    for mode in ("read", "sandbox", "run"):
        unread = run(api, "+:note(:a, :b | en)", mode=mode).json()
        assert unread["effects"] == {"added": 0, "removed": 0} and unread["solutions"] == 0, mode
        assert unread["position"] >= problem["position"] and unread["span"]["start"] == 16
    assert run(api, '+:note(:a, "b")', mode="read").json()["span"]["start"] == 0


def test_the_effects_of_a_program_that_failed_are_net_numbers(api: Api, stored: str) -> None:
    port = f":serverPort(<{stored}#host>, 5874)"
    code = f'ON <{stored}> {{ +:note(:a, "b") AND -:note(:a, "b") AND -{port} AND +{port} AND +:note(:a, ?u) }}'
    assert run(api, code).json()["effects"] == {"added": 0, "removed": 0}
    assert run(api, code.replace(" AND -:note", " OR -:note")).json()["effects"] == {"added": 1, "removed": 0}


def test_an_engine_with_a_process_of_its_own(api: Api, stored: str) -> None:
    code = f"IN <{stored}> {{ engine:owlrl ! rdf:type(<{stored}#host>, :Provider) }}"
    for mode in ("read", "sandbox", "run"):
        assert run(api, code, mode=mode).json().get("solutions") == [{}], mode


def test_a_service_is_called_in_the_mode_run_alone(api: Api) -> None:
    problem = run(api, "TRUE AND CALL primitive:service(:x)").json()
    assert "in the mode run alone" in problem["detail"] and problem["span"]["start"] == 9


def test_a_sandbox_stops_no_process(api: Api) -> None:
    answer = api.http.post(
        "/api/v1/real", json={"code": "CALL primitive:sleep(60)", "mode": "run"}, headers={"Prefer": "respond-async"}
    )
    iri = answer.json()["process"]
    found = run(api, f"STOP <{iri}> UNION STOP <urn:none> UNION STOP <{iri}>").json()
    assert found["solutions"] == [{}] and "in the mode run alone" in found["warnings"][0]["message"]
    assert api.http.delete(answer.headers["Location"]).status_code == 202


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"mode": "other"}, 400),
        ({"into": "not a uri"}, 400),
        ({"limit": 0}, 400),
        ({"binding": {"x": {"type": "uri", "value": "b"}}}, 422),
        ({"binding": {"?x": {"type": "uri", "value": "urn:b"}}}, 422),
        ({"binding": {"x": {"type": "literal", "value": "\0"}}}, 422),
        ({"prefixes": {"": "no uri"}}, 422),
    ],
)
def test_bad_requests(api: Api, more: dict[str, Any], status: int) -> None:
    answer = run(api, "TRUE", **more)
    assert answer.status_code == status and answer.headers["Content-Type"] == PROBLEM


def test_checking_a_program(api: Api) -> None:
    def check(code: str, **more: Any) -> httpx2.Response:
        return api.http.post("/api/v1/real/check", json={"code": code, "prefixes": PREFIXES} | more)

    code = ":serverPort(?x, ?) AND +:note(?x, ?y) AND :nothing(?x, ?)"
    first, second = check(code).json()["warnings"]
    assert "?y is never bound" in first["message"] and code[first["span"]["start"] :].startswith("?y")
    assert "no property" in second["message"]
    assert len(check(code, inputs=["y"]).json()["warnings"]) == 1
    answer = check(":serverPort(?x, ?) AND")
    assert answer.status_code == 422 and answer.json()["errors"][0]["column"] > 1


def test_who_may_run_programs(
    api: Api, server: WebAddress, stored: str, make_token: Callable[..., tuple[str, int]]
) -> None:
    code = f'ON <{stored}> {{ +:note(<{stored}#host>, "x") }}'
    viewer = server.api(make_token("viewer")[0])
    found = run(viewer, code).json()
    assert found["effects"]["added"] == 1 and "may read only" in found["warnings"][0]["message"]
    limited = server.api(make_token("admin", ["http://other.example/"])[0])
    found = run(limited, code).json()
    assert found["effects"]["added"] == 1 and "may not write" in found["warnings"][0]["message"]
    assert run(viewer, ":serverPort(?x, ?)", mode="read").status_code == 200
    own = run(viewer, '+:note(:a, "x")').json()["difference"][0]["document"]
    assert own.startswith("urn:mdv:real:token")
    assert run(api, '+:note(:a, "x")', into="urn:mine").json()["difference"][0]["document"] == "urn:mine"
    token = api.http.post("/api/v1/lmrs", json={"name": "programs"}).json()["token"]
    assert run(server.api(token), "TRUE").status_code == 403
    assert run(server.api("unknown"), "TRUE").status_code == 401


# --- waiting ---


@pytest.mark.parametrize("form", ["{}", "[{}]", '+:note(:a, "before") AND [{}] AND :note(:a, ?note)'])
def test_a_program_waits_for_a_document(api: Api, doc: str, form: str) -> None:
    code = form.format(f"WAIT :serverPort(<{doc}#host>, ?port) AND :serverHost(<{doc}#host>, ?host)")
    found: list[httpx2.Response] = []
    waiting = threading.Thread(target=lambda: found.append(run(api, code)))
    waiting.start()
    api.put(doc, turtle("<#host> a ex:CycleProvider ; ex:serverHost 'b.example' ; ex:serverPort 7 ."))
    waiting.join(60)
    assert found[0].json()["solutions"][0]["host"]["value"] == "b.example"


def test_a_program_does_not_wait_for_ever(api: Api, small: WebAddress) -> None:
    assert run(api, "WAIT :serverPort(:none, ?) AT MOST 10 milliseconds OR TRUE").json()["solutions"] == [{}]
    assert run(api, "[WAIT :serverPort(:none, ?) AT MOST 10 milliseconds] OR TRUE").json()["solutions"] == [{}]
    assert run(api, "CALL primitive:sleep(0.01)").json()["solutions"] == [{}]
    problem = run(small.api(), "WAIT <urn:p>(<urn:a>, ?)", mode="read").json()
    assert problem["limit"] == "wait" and problem["status"] == 422


# --- hostile programs ---


def recursive(body: str, start: str) -> str:
    return f"+lrm:body(:f, :g) AND +real:code(:g, '{body}') AND {start}"


@pytest.mark.parametrize(
    ("code", "limit"),
    [
        (recursive(f"PREFIX : <{V}> CALL :f() AND TRUE", "CALL :f()"), "depth"),
        (recursive(f"PREFIX : <{V}> (TRUE UNION TRUE) AND CALL :f()", "CALL :f()"), "choices"),
    ],
)
def test_a_recursion_without_an_end_meets_a_limit(api: Api, code: str, limit: str) -> None:
    problem = run(api, code).json()
    assert problem["status"] == 422 and problem["limit"] == limit, problem


@pytest.mark.parametrize(
    "code", ["(" * 200 + "TRUE" + ")" * 200, "TRUE AND " * 20_000 + "TRUE", "x" * 70_000, "TRUE\0"]
)
def test_a_program_that_is_too_large_is_refused(api: Api, code: str) -> None:
    answer = run(api, code)
    assert answer.status_code == 422 and answer.json()["type"] == "urn:mdv:problem:invalid-program"


def test_a_body_that_is_too_large_is_refused(api: Api) -> None:
    assert run(api, "x" * 10_000_000).status_code == 413


def test_a_client_that_sends_all_of_a_large_body_gets_the_answer(server: WebAddress) -> None:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json", "Connection": "close"}
    connection.request("POST", "/api/v1/real", b"x" * 30_000_000, headers)  # sends everything before it reads
    answer = connection.getresponse()
    assert answer.status == 413 and json.load(answer)["type"] == "urn:mdv:problem:too-large"
    connection.close()


def open_stream(server: WebAddress, code: str, accept: str = NDJSON) -> socket.socket:
    """Return a connection on which the answer to a program arrives, and is not read."""
    body = json.dumps({"code": code, "prefixes": PREFIXES}).encode()
    head = (
        f"POST /api/v1/real HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\nContent-Type: application/json\r\n"
        f"Accept: {accept}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    url = httpx2.URL(server.url)
    connection = socket.create_connection((url.host, url.port or 80), timeout=60)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    connection.sendall(head.encode() + body)
    return connection


ENDLESS = recursive(f"PREFIX : <{V}> $x UNION CALL :f()", "CALL :f()")
CROSS = "IN <urn:mdv:schema> { ?a(?b, ?c) AND ?d(?e, ?f) AND ?g(?h, ?i) AND ?j(?k, ?l) }"


@pytest.mark.parametrize("code", [ENDLESS, CROSS])
def test_a_program_without_an_end_is_read_as_fast_as_its_client_reads(api: Api, server: WebAddress, code: str) -> None:
    opened = [open_stream(server, code) for _ in range(8)]
    try:
        for one in opened:
            assert one.recv(1000).startswith(b"HTTP/1.1 200")
        assert run(api, "TRUE").status_code == 429
        assert api.get("/documents", limit=1).status_code == 200
    finally:
        for one in opened:
            one.close()
    # Programs end with their connections, so their places are free again.
    eventually(lambda: run(api, "TRUE").status_code == 200, 60)


def test_a_waiting_program_ends_with_its_connection(api: Api, server: WebAddress) -> None:
    opened = [open_stream(server, "WAIT :serverPort(:none, ?)", EVENTS) for _ in range(8)]
    for one in opened:
        assert one.recv(1000).startswith(b"HTTP/1.1 200")
    assert run(api, "TRUE").status_code == 429
    for one in opened:
        one.close()
    eventually(lambda: run(api, "TRUE").status_code == 200, 60)


@pytest.mark.full
def test_too_many_solutions_for_json(api: Api) -> None:
    problem = run(api, CROSS, mode="read").json()
    assert problem["status"] == 422 and problem["limit"] == "solutions"
