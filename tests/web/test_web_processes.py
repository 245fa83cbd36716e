"""Programs that change documents, over HTTP: answers, streams, processes, permissions."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.support.eventually import eventually
from tests.support.server import Api, V, WebAddress, turtle

NDJSON, EVENTS = "application/x-ndjson", "text/event-stream"
PREFIXES = {"": V}


def run(api: Api, code: str, accept: str = "application/json", **more: Any) -> httpx2.Response:
    headers = {"Accept": accept} | more.pop("headers", {})
    body = {"code": named(code, more["into"]) if "into" in more else code, "prefixes": PREFIXES, "mode": "run"} | more
    return api.http.post("/api/v1/real", json=body, headers=headers)


def process(api: Api, location: str) -> dict[str, Any]:
    answer = api.http.get(location)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ended(api: Api, location: str) -> dict[str, Any]:
    return eventually(lambda: found if (found := process(api, location))["ended_at"] else None)  # type: ignore[no-any-return]


def text_of(api: Api, doc: str) -> str:
    answer = api.get("/documents", headers={"Accept": "application/n-triples"}, uri=doc)
    return answer.text if answer.status_code == 200 else ""


def named(code: str, doc: str) -> str:
    """Replace `:one` and the like by names that no other test uses."""
    number = doc.rpartition("/")[2].partition(".")[0]
    return re.sub(r":(one|two|later|never|gone)\b", rf":\1-{number}", code)


@pytest.fixture
def stored(api: Api, doc: str) -> str:
    body = turtle("<#host> a ex:CycleProvider ; ex:serverHost 'a.example' ; ex:serverPort 5874 .")
    assert api.put(doc, body).status_code == 201
    return doc


def test_a_program_changes_documents(api: Api, stored: str) -> None:
    code = f"ON <{stored}> {{ -:serverPort(?x, ?port) AND +:serverPort(?x, 99) }}"
    answer = run(api, code)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert set(found) == {"solutions", "effects", "position", "warnings"}
    assert [one["port"]["value"] for one in found["solutions"]] == ["5874"]
    assert found["effects"] == {"added": 1, "removed": 1} and found["warnings"] == []
    assert '"99"' in text_of(api, stored)
    newest = api.get("/documents/history", uri=stored).json()["items"][0]
    shown = process(api, answer.headers["Location"])
    assert (newest["cause"], newest["agent"], newest["by"]) == ("program", shown["process"], "token admin")
    assert newest["position"] == found["position"] == shown["position"]
    assert shown["state"] == "done" and shown["effects"] == found["effects"]


def test_an_error_keeps_the_effects_before_it(api: Api, doc: str) -> None:
    code = "+:note(:one, 'x') AND +:note(?nobody, 'y')"
    answer = run(api, code, into=doc)
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert problem["effects"] == {"added": 1, "removed": 0} and problem["solutions"] == 0
    assert problem["span"]["start"] == named(code, doc).rindex("+:note") and problem["position"] > 0
    assert "one" in text_of(api, doc)
    assert run(api, "+:note(", into=doc).status_code == 422


def test_a_refused_statement_is_a_failure_with_a_warning(api: Api, doc: str) -> None:
    found = run(api, "+:undeclared(:one, 'x') OR +:note(:one, 'instead')", into=doc).json()
    assert found["effects"] == {"added": 1, "removed": 0}
    assert any("is not declared" in warning["message"] for warning in found["warnings"])


def test_events_are_sent_as_lines(api: Api, doc: str) -> None:
    answer = run(api, "(+:note(:one, 'x') UNION +:note(:two, 'y'))", NDJSON, into=doc)
    assert answer.headers["Content-Type"].startswith(NDJSON)
    events = [json.loads(line) for line in answer.text.splitlines()]
    assert [event["type"] for event in events] == ["effect", "effect", "commit", "solution", "solution", "end"]
    assert events[-1]["effects"] == {"added": 2, "removed": 0} and events[-1]["solutions"] == 2
    assert events[2]["position"] == events[-1]["position"]


def test_server_sent_events_go_on_after_the_last_one(api: Api, doc: str) -> None:
    code = "(+:note(:one, 'x') UNION +:note(:two, 'y'))"
    answer = run(api, code, EVENTS, into=doc)
    ids = [line.removeprefix("id: ") for line in answer.text.splitlines() if line.startswith("id: ")]
    assert len(ids) == 2
    rest = run(api, code, EVENTS, into=doc, headers={"Last-Event-ID": ids[0]})
    kinds = [line.removeprefix("event: ") for line in rest.text.splitlines() if line.startswith("event: ")]
    assert kinds == ["solution", "end"]


def test_a_limit_ends_a_program_after_its_solution(api: Api, doc: str) -> None:
    found = run(api, "(+:note(:one, 'x') UNION +:note(:two, 'y'))", into=doc, limit=1).json()
    assert len(found["solutions"]) == 1 and found["effects"] == {"added": 1, "removed": 0}
    assert "two" not in text_of(api, doc)


def test_a_detached_program_is_followed_later(api: Api, doc: str) -> None:
    answer = run(api, "WAIT :note(:later, ?what)", into=doc, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202 and answer.json()["state"] == "ready"
    location = answer.headers["Location"]
    waiting = eventually(lambda: found if (found := process(api, location))["state"] == "waiting" else None)
    assert waiting["awaits"][0]["property"] == V + "note"
    listed = api.get("/real/processes", state="waiting").json()["items"]
    assert answer.json()["process"] in [one["process"] for one in listed]
    assert run(api, "+:note(:later, 'now')", into=doc).status_code == 200
    assert ended(api, location)["state"] == "done"
    solutions = api.http.get(f"{location}/solutions").json()
    assert [one["binding"]["what"]["value"] for one in solutions["items"]] == ["now"] and solutions["next"] is None
    iri = answer.json()["process"]
    whole = api.http.get("/api/v1/real/processes/" + iri.replace(":", "%3A").replace("/", "%2F") + "/solutions")
    assert whole.json() == solutions


def test_the_log_of_a_process(api: Api, doc: str) -> None:
    answer = run(api, "CALL primitive:log('begun') AND +:note(:one, 'x')", into=doc)
    entries = api.http.get(answer.headers["Location"] + "/log").json()["items"]
    assert [entry["kind"] for entry in entries] == ["log", "commit"]
    assert entries[0]["message"] == {"type": "literal", "value": "begun"}
    assert (entries[1]["added"], entries[1]["removed"]) == (1, 0)


def test_a_process_is_stopped(api: Api, doc: str) -> None:
    answer = run(api, "WAIT :note(:never, ?what)", into=doc, headers={"Prefer": "respond-async"})
    location = answer.headers["Location"]
    eventually(lambda: process(api, location)["state"] == "waiting")
    assert api.http.delete(location, params={"message": "enough"}).status_code == 202
    stopped = ended(api, location)
    assert stopped["state"] == "stopped" and stopped["message"]["value"] == "enough"
    assert api.http.delete(location).status_code == 404
    assert api.http.get("/api/v1/real/processes/nothing").status_code == 404


def test_a_client_that_goes_away_stops_its_program(server: WebAddress, api: Api, doc: str) -> None:
    body = json.dumps(
        {"code": named("WAIT :note(:gone, ?what)", doc), "prefixes": PREFIXES, "mode": "run", "into": doc}
    )
    request = (
        f"POST /api/v1/real HTTP/1.1\r\nHost: localhost\r\nAuthorization: {api.http.headers['Authorization']}\r\n"
        f"Accept: {NDJSON}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    )
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(request.encode())
        found = eventually(lambda: [
            one for one in api.get("/real/processes", state="waiting").json()["items"] if one["into"] == doc
        ])  # fmt: skip
    location = f"/api/v1/real/processes/{found[0]['id']}"
    assert ended(api, location)["state"] == "stopped"


def test_programs_act_within_the_permissions_of_their_token(
    server: WebAddress, make_token: Callable[..., tuple[str, int]], doc: str
) -> None:
    secret, _ = make_token(documents=[doc])
    limited = server.api(secret)
    assert run(limited, "+:note(:one, 'x')").status_code == 403
    assert run(limited, "+:note(:one, 'x')", into=doc).json()["effects"] == {"added": 1, "removed": 0}
    viewer, _ = make_token("viewer")
    assert run(server.api(viewer), ":note(:one, ?x)").status_code == 403
    iri = run(server.api(), "WAIT :note(:never, ?x)", into=doc, headers={"Prefer": "respond-async"}).json()["process"]
    stopped = run(limited, f"STOP <{iri}>", into=doc).json()
    assert stopped["solutions"] == [] and "its own processes alone" in stopped["warnings"][0]["message"]
    place = f"/real/processes/{iri.rpartition('/')[2]}"
    assert server.api(viewer).get(f"{place}/solutions", after="1000").status_code == 200
    assert server.api().http.delete(f"/api/v1{place}", params={"family": "true"}).status_code == 202
    assert run(server.api(viewer), ":note(:one, ?x)", mode="read").status_code == 200


def test_many_solutions_are_read_in_pages(api: Api, doc: str) -> None:
    lines = [f"<#r{number}> ex:note 'n{number}' ." for number in range(1200)]
    assert api.put(doc, turtle(*lines)).status_code == 201
    answer = run(api, f"IN <{doc}> {{ :note(?x, ?y) }}", NDJSON)
    events = [json.loads(line) for line in answer.text.splitlines()]
    numbers = [event["n"] for event in events if event["type"] == "solution"]
    assert numbers == list(range(1, 1201)) and events[-1]["type"] == "end"
    found = run(api, f"IN <{doc}> {{ :note(?x, ?y) }}").json()
    assert len(found["solutions"]) == 1200


def test_the_document_of_a_caller_is_read_edited_and_deleted(api: Api, doc: str) -> None:
    own = "urn:mdv:real:admin"
    code = named("+:note(:one, 'x')", doc)
    assert run(api, code).json()["effects"] == {"added": 1, "removed": 0}
    assert "one" in text_of(api, own)
    assert api.put(own, turtle("<urn:a> ex:note 'x' .")).status_code == 409
    assert api.delete(own).status_code == 200 and text_of(api, own) == ""


def test_a_sleeping_program_goes_on_at_its_time(api: Api, doc: str) -> None:
    answer = run(api, "CALL primitive:sleep(1) AND +:note(:one, 'slept')", into=doc)
    assert answer.json()["effects"] == {"added": 1, "removed": 0}
    waited = run(api, "WAIT :note(:never, ?x) AT MOST 1 seconds OR +:note(:two, 'late')", into=doc)
    assert waited.json()["effects"] == {"added": 1, "removed": 0}
