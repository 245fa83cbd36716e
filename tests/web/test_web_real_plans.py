"""Plans of programs, and the list of actions, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.support.server import TURTLE, Api, V

PREFIXES = {"": V}
LRM, REAL = "http://xrce.xerox.com/LRM#", "http://xrce.xerox.com/ReAL#"
INTO = "http://plans.example/into"


def explain(api: Api, code: str, **more: Any) -> httpx2.Response:
    return api.http.post("/api/v1/real/explain", json={"code": code, "prefixes": PREFIXES, "into": INTO} | more)


def uri(value: str) -> dict[str, str]:
    return {"type": "uri", "value": value}


def action_turtle(name: str, code: str, inputs: str = "", outputs: str = "") -> str:
    """Return the statements of an action, as Turtle."""
    signatures = "".join(
        f' ; <{LRM}{kind}-signature> "{names}"' for kind, names in (("input", inputs), ("output", outputs)) if names
    )
    return (
        f'<{name}> a <{LRM}Action> ; <http://www.w3.org/2000/01/rdf-schema#label> "label of {name[-1]}"{signatures} ;'
        f' <{LRM}body> [ <{REAL}code> """{code}""" ] .\n'
    )


@pytest.fixture(scope="module")
def actions(api: Api) -> Iterator[str]:
    """A document with actions. Returns the prefix of their names."""
    prefix = "http://actions.example/"
    text = (
        f"@prefix : <{V}> .\n"
        + action_turtle(f"{prefix}a", ":serverPort(?x, ?port) AND +:note(?x, ?text)", "x, text", "port")
        + action_turtle(f"{prefix}b", f"CALL <{prefix}a>(?x, 'b') AND CALL <{prefix}b>(?x)", "x")
        + action_turtle(f"{prefix}c", "TRUE AND")
    )
    answer = api.put(prefix + "doc", text, TURTLE)
    assert answer.status_code == 201, answer.text
    yield prefix
    assert api.delete(prefix + "doc").status_code == 200


def test_the_plan_of_a_program(api: Api, doc: str) -> None:
    code = f"rdf:type(?x, :Thing) AND :serverPort(?x, ?port)\nAND IN <{doc}> {{ -:serverPort(?x, 80) }}"
    found = explain(api, code).json()
    steps = found["steps"]
    assert [(step["level"], step["operation"], step.get("access"), step.get("repeats")) for step in steps] == [
        (0, "AND", None, None),
        (1, "read", "references to one resource", False),
        (1, "read", "values of one property of a resource", True),
        (1, "IN", None, None),
        (2, "take", "one statement", True),
    ]
    assert steps[1]["text"] == "rdf:type(?x, :Thing)" and (steps[1]["count"], steps[1]["more"]) == (0, False)
    assert steps[2]["count"] > 0, "the documents of other tests"
    assert (steps[4]["span"]["line"], code[steps[4]["span"]["start"] :][:2]) == (2, "-:")
    assert found["complete"] and found["position"] > 0 and found["warnings"][0]["message"].endswith(":Thing")


def test_what_a_program_may_read_and_write(api: Api, doc: str) -> None:
    code = f"""
        :serverPort(?x, 80) AND -:serverHost(?x, "a") AND +:note(?x, "b") AND {{ +:cpu(?x, 1) }}
        AND ON <{doc}> {{ ++:note(?x, ?n) }} AND ON ?new {{ +:note(?x, "c") }} AND SPAWN :go(?x)"""
    found = explain(api, code, inputs=["n"]).json()
    literal = {"type": "literal", "value": "a"}

    def pattern(subject: str | None, name: str, value: Any) -> dict[str, Any]:
        return {"subject": subject, "property": name, "object": value}

    assert {"documents": None} | pattern(None, V + "serverPort", None) in found["may_read"], "80 also matches 80.0"
    assert {"documents": None} | pattern(None, V + "serverHost", literal) in found["may_read"]
    graph = uri("http://www.w3.org/1999/02/22-rdf-syntax-ns#Graph")
    assert found["may_write"] == [
        {"change": "removed", "document": None} | pattern(None, V + "serverHost", literal),
        {"change": "added", "document": INTO} | pattern(None, V + "note", {"type": "literal", "value": "b"}),
        {"change": "added", "document": doc} | pattern(None, V + "note", None),
        {"change": "added", "document": INTO} | pattern(None, "http://www.w3.org/1999/02/22-rdf-syntax-ns#type", graph),
        {"change": "added", "document": None} | pattern(None, V + "note", {"type": "literal", "value": "c"}),
    ]
    assert found["starts"] == [V + "go"] and found["calls"] == []


def test_services_and_engines_may_read_and_add_anything(api: Api) -> None:
    anything = {"subject": None, "property": None, "object": None}
    service = explain(api, "TRUE AND CALL primitive:service(<urn:x>)").json()
    assert service["may_read"] == [{"documents": None} | anything]
    assert service["may_write"] == [{"change": "added", "document": INTO} | anything]
    assert explain(api, "engine:other!rdf:type(<urn:x>, ?)").json()["may_read"] == [{"documents": None} | anything]
    (read,) = explain(api, "!rdf:type(<urn:x>, ?)").json()["may_read"]
    assert read["subject"] == "urn:x" and read["property"] is None


def test_the_bodies_of_actions_are_part_of_the_plan(api: Api, actions: str) -> None:
    found = explain(api, f"CALL <{actions}b>(<urn:x>)").json()
    assert found["calls"] == [f"{actions}b", f"{actions}a"] and found["complete"]
    inner = [step for step in found["steps"] if step.get("action") == f"{actions}a"]
    assert [step["operation"] for step in inner] == ["AND", "read", "add"] and "span" not in inner[0]
    (write,) = found["may_write"]
    assert (write["subject"], write["object"]) == ("urn:x", {"type": "literal", "value": "b"})
    wrong = explain(api, f"CALL <{actions}a>(1 >> ?p)").json()
    assert any("2 inputs" in one["message"] for one in wrong["warnings"])
    for code in ("CALL ?a()", f"CALL <{actions}c>()", "CALL :none()"):
        gaps = explain(api, code).json()
        assert not gaps["complete"] and len(gaps["gaps"]) == 1, gaps


def test_an_invalid_program_has_no_plan(api: Api) -> None:
    answer = explain(api, "TRUE AND")
    assert answer.status_code == 422 and answer.json()["span"]["line"] == 1
    assert explain(api, "TRUE", into="none").status_code == 400


def test_actions_are_listed_with_their_signatures(api: Api, actions: str) -> None:
    first = api.http.get("/api/v1/real/actions", params={"holding": actions, "limit": 2}).json()
    rest = api.http.get("/api/v1/real/actions", params={"holding": actions, "after": first["next"]}).json()
    assert [one["uri"].removeprefix(actions) for one in first["items"] + rest["items"]] == ["a", "b", "c"]
    assert rest["next"] is None
    assert first["items"][0] == {
        "uri": f"{actions}a", "documents": [f"{actions}doc"], "label": "label of a", "inputs": ["x", "text"],
        "outputs": ["port"], "code": ":serverPort(?x, ?port) AND +:note(?x, ?text)", "problem": None,
    }  # fmt: skip
    assert "error" in rest["items"][0]["problem"]
    assert api.http.get("/api/v1/real/actions", params={"after": "x"}).status_code == 400
