"""The console of programs at the level of HTTP: forms without JavaScript, live check, and the parts of a stream."""

from __future__ import annotations

import json

import lxml.html
import pytest

from tests.support.page_visitor import Page, Visitor
from tests.support.server import Api, V, turtle

PREFIX = f"PREFIX ex: <{V}> "


@pytest.fixture
def stored(api: Api, doc: str) -> str:
    """A document with a provider."""
    body = turtle("<#host> a ex:CycleProvider ; ex:serverHost 'a.example' ; ex:serverPort 5874 .")
    assert api.put(doc, body).status_code == 201
    return doc


def run(visitor: Visitor, code: str, act: str = "sandbox", **more: object) -> Page:
    return visitor.post("/programs", text=code, act=act, **more)


def parts(visitor: Visitor, code: str, act: str = "sandbox", **more: object) -> list[tuple[str, str]]:
    """Return the parts of a stream, each with its text."""
    form = {"csrf": visitor.csrf(), "text": code, "act": act, **more}
    answer = visitor.http.post("/programs/stream", data=form)
    assert answer.status_code == 200, answer.text
    lines = [json.loads(line) for line in answer.text.splitlines()]
    return [
        (line["part"], " ".join(" ".join(lxml.html.fragment_fromstring(line["html"], "div").itertext()).split()))
        for line in lines
    ]


def test_the_console_begins_with_a_program_that_fits_the_schema(visitor: Visitor) -> None:
    page = visitor.get("/programs")
    assert page.title.startswith("Programs") and "The program is valid." in page.words
    assert page.form("/programs#result")["text"].startswith("rdf:type(?x, ex:")
    assert visitor.get("/programs", text="TRUE").form("/programs#result")["text"] == "TRUE"
    assert "error at line 1" not in page.words


def test_a_sandbox_shows_solutions_difference_and_trace(visitor: Visitor, stored: str) -> None:
    code = f"{PREFIX}ON <{stored}> {{ -ex:serverPort(?x, ?port) AND +ex:serverPort(?x, 99) AND NO ex:cpu(?x, ?) }}"
    page = run(visitor, code)
    assert page.status == 200 and "1 solution at position" in page.words
    assert "1 statement would be added, 1 removed. Nothing was changed." in page.words
    rows = page.rows()
    assert [row[1:] for row in rows if row[0] in "+−"] == [
        [f"{stored}#host", "serverPort", "5874 integer"],
        [f"{stored}#host", "serverPort", "99 integer"],
    ]
    assert [row for row in rows if row[0] == "1"] == [["1", f"{stored}#host", "5874 integer"]]
    trace = [" ".join(one.text_content().split()) for one in page.tree.xpath("//ol[@data-part='trace']/li")]
    assert trace[0].startswith(f"take serverPort(?x, ?port) in {stored} → ?x = {stored}#host, ?port = 5874")
    assert trace[1].startswith("add serverPort(") and trace[2].startswith("read cpu(") and "no further" in trace[2]


def test_what_a_sandbox_does_not_do_is_offered_to_be_run_for_real(visitor: Visitor, viewer: Visitor) -> None:
    for code, is_offered in (
        ("TRUE", False), ("STOP <urn:none>", True), ("CALL primitive:service(<urn:none>)", True), ("$x AND $x", False),
    ):  # fmt: skip
        assert bool(run(visitor, code).tree.xpath("//button[.='Run for real']")) is is_offered, code
    assert not run(viewer, "STOP <urn:none>").tree.xpath("//button[.='Run for real']")


def test_reading_refuses_changes_and_marks_the_place(visitor: Visitor, stored: str) -> None:
    page = run(visitor, f"{PREFIX}TRUE AND\n+ex:note(ex:a, 'b')", "read")
    assert page.status == 422 and "may only read" in page.alert()
    (area,) = page.tree.xpath("//textarea[@id='text']")
    (mark,) = json.loads(area.get("data-errors"))
    assert (mark["line"], mark["column"]) == (2, 1)
    assert area.text_content().strip() == f"{PREFIX}TRUE AND\n+ex:note(ex:a, 'b')"


def test_a_wrong_program_is_refused_with_its_place(visitor: Visitor) -> None:
    for act in ("sandbox", "explain", "check"):
        page = run(visitor, "TRUE AND\nrdf:type(?x, nothing:x)", act)
        assert "Line 2, column 14" in page.words and "unknown prefix" in page.words, act
    assert "empty" in run(visitor, " ").alert()
    assert run(visitor, "TRUE", "explode").status == 400
    assert run(visitor, "TRUE", limit="0").status == 400
    assert run(visitor, "TRUE", into="no uri").status == 400


def test_the_check_warns_while_typing(visitor: Visitor) -> None:
    part = visitor.post("/programs/check", text="+rdfs:label(?x, 'a')")
    assert "?x is never bound" in part.words
    (marks,) = part.tree.xpath("//*[@data-errors-for='text']/@data-errors")
    (mark,) = json.loads(marks)
    assert (mark["severity"], mark["line"], mark["column"], mark["length"]) == ("warning", 1, 13, 2)


def test_a_plan_is_shown(visitor: Visitor, stored: str) -> None:
    page = run(visitor, f"{PREFIX}ex:serverPort(?x, 5874) AND -ex:serverHost(?x, ?host)", "explain", into=stored)
    assert [row[:2] for row in page.rows()][1:] == [
        ["read", "search for one value"],
        ["take", "values of one property of a resource, for each solution"],
    ]
    assert "in every document that says it" in page.words


def test_a_stream_sends_parts_as_they_happen(visitor: Visitor, stored: str) -> None:
    code = f"{PREFIX}IN <{stored}> {{ ex:serverHost(?x, ?host) AND +ex:cpu(?x, 'none') OR ex:serverPort(?x, ?p) }}"
    found = parts(visitor, code)
    names = [name for name, _ in found]
    assert names[0] == "whole" and names[-1] == "end" and {"solutions", "warnings", "trace"} < set(names)
    by_name = dict(found)
    assert "The program runs" in by_name["whole"] and "?host" in by_name["whole"]
    assert by_name["solutions"] == f"1 {stored}#host 5874 integer" and "xsd:integer" in by_name["warnings"]
    assert "No statement would change." in by_name["end"]
    assert parts(visitor, "TRUE AND")[0][0] == "whole" and "error at line 1" in parts(visitor, "TRUE AND")[0][1]
    assert "Plan" in parts(visitor, "TRUE", "explain")[0][1]
    assert "1 solution" in parts(visitor, "TRUE UNION TRUE", limit=1)[-1][1]


def test_a_viewer_runs_programs_and_a_guest_does_not(viewer: Visitor, new_visitor: object, stored: str) -> None:
    page = run(viewer, f"{PREFIX}ON <{stored}> {{ ++ex:note(<{stored}#host>, 'x') }}")
    assert "1 statement would be added" in page.words and "may read only" in page.words
    guest = new_visitor()  # type: ignore[operator]
    assert guest.get("/programs").path.startswith("/sign-in")
    assert guest.http.post("/programs", data={"text": "TRUE", "act": "sandbox"}).status_code == 401


def test_terms_are_escaped(visitor: Visitor, stored: str) -> None:
    code = f"{PREFIX}ON <{stored}> {{ +ex:note(<{stored}#host>, '<script>alert(1)</script>') AND ex:note(?x, ?t) }}"
    page = run(visitor, code)
    assert not page.tree.xpath("//main//script") and "<script>alert(1)</script>" in page.words
    form = {"csrf": visitor.csrf(), "text": code, "act": "sandbox"}
    assert "<script>" not in visitor.http.post("/programs/stream", data=form).text


def test_words_for_the_editor(visitor: Visitor) -> None:
    words = visitor.http.get("/programs/words.json").json()
    assert "SANDBOX" not in words["keywords"] and "UNION" in words["keywords"]
    assert "ex:serverPort" in {one["name"] for one in words["properties"]}
    assert "ex:CycleProvider" in {one["name"] for one in words["classes"]}
    assert {"name": "primitive:service", "detail": "(1)"} in words["primitives"]


def test_programs_side_by_side(visitor: Visitor) -> None:
    page = visitor.get("/programs/examples")
    assert page.words.count("Open in the console") == 3 and "(6b)" in page.words
    assert "1 statement would be added" in page.words, "the label of (6) without works"
    assert visitor.get("/programs/examples", artist="x").status == 400


def test_actions_are_listed(visitor: Visitor) -> None:
    assert "No action matches." in visitor.get("/programs/actions", holding="nothing").words
