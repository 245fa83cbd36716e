"""The pages about rules: editing, decomposition, lists, drawings, and the filter's replay."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mdv.embedded import Valkey
from tests.support.local_http import local_client
from tests.support.page_visitor import Page, Visitor
from tests.support.server import FIGURE_1, XML, Api, Server, start_server, stopping

PAPER = """search CycleProvider c register c
where c.serverHost contains 'uni-passau.de' and c.serverInformation.memory > 64 and c.serverInformation.cpu > 500"""
_numbers = itertools.count(1)
DOC = "http://rules.example/doc.rdf"
HOSTILE = "<script>alert('x')</script>\u202e"


@pytest.fixture
def lmr(visitor: Visitor) -> str:
    """An LMR without a rule."""
    name = f"rules-{next(_numbers)}"
    assert visitor.post("/lmrs", name=name).status == 200
    return name


@pytest.fixture(scope="module")
def public(server: Server, folder: Path, system_database: str, valkey: Valkey) -> Iterator[Server]:
    """A web server of the same system with public reading."""
    other = start_server(folder, system_database, valkey.url, MDV_PUBLIC_READ="true")
    with stopping(other):
        yield other


@pytest.fixture
def figure(api: Api) -> Api:
    """The document of Figure 1 is registered."""
    assert api.put(DOC, FIGURE_1, XML).status_code in (200, 201)
    return api


def drawing(page: Page) -> dict[str, Any]:
    (found,) = page.tree.xpath("//figure/@data-graph")
    return dict(json.loads(found))


def subscribe(visitor: Visitor, lmr: str, rule: str, name: str = "") -> int:
    page = visitor.post("/rules/subscribe", rule=rule, lmr=lmr, name=name)
    assert "/like/subscribed" in page.path, page.words
    return int(page.path.partition("id=")[2].partition("&")[0])


def test_a_rule_is_decomposed_while_it_is_typed(visitor: Visitor, figure: Api) -> None:
    page = visitor.post("/rules/look", rule=PAPER)
    assert page.answer.headers["X-Part"] == "yes"
    told = drawing(page)
    assert sorted(node["kind"] for node in told["nodes"]) == ["join", "join", "triggering", "triggering", "triggering"]
    assert len(told["edges"]) == 4
    assert "AtomicRules" in page.answer.text
    assert "FilterRulesGT" in page.answer.text
    assert "match" in page.words
    assert page.tree.xpath("//*[@data-errors-for='rule']/@data-errors") == ["[]"]


def test_errors_have_their_places(visitor: Visitor, figure: Api) -> None:
    page = visitor.post("/rules/look", rule="search CycleProvider c\nregister c\nwhere c.serverHots = 'x'")
    (flaws,) = page.tree.xpath("//*[@data-errors-for='rule']/@data-errors")
    (flaw,) = json.loads(flaws)
    assert (flaw["line"], flaw["column"], flaw["length"]) == (3, 9, len("serverHots"))
    assert "serverHost" in flaw["hint"]
    assert page.status == 200, "an incomplete text is no error"
    assert "serverHots" in page.answer.text
    assert not page.tree.xpath("//figure")


def test_without_javascript_the_form_accepts_text_of_any_length(visitor: Visitor, figure: Api) -> None:
    long = "search CycleProvider c register c where " + " or ".join(
        f"c.serverHost contains '{'x' * 230}{number}'" for number in range(30))  # fmt: skip
    page = visitor.post("/rules", rule=long)
    assert page.status == 200
    assert page.tree.xpath("string(//textarea[@id='rule'])").strip() == long
    assert len(drawing(page)["nodes"]) == 30
    assert "30 atomic rules would be new" in page.words or "all would be new" in page.words
    page = visitor.get("/rules", rule=PAPER)
    assert page.tree.xpath("string(//textarea[@id='rule'])").strip() == PAPER


def test_a_decomposed_rule_has_a_url(visitor: Visitor, figure: Api, lmr: str) -> None:
    page = visitor.post("/rules", rule=PAPER.replace("\n", "\r\n"), lmr=lmr, name="mine")
    assert page.answer.request.method == "GET" and page.path.startswith("/rules?rule=")
    assert page.tree.xpath("string(//textarea[@id='rule'])").strip() == PAPER
    assert page.tree.xpath("//select[@id='lmr']/option[@selected]/@value") == [lmr]
    assert page.tree.xpath("//input[@name='name']/@value") == ["mine"]
    empty = visitor.post("/rules", rule="")
    assert empty.tree.xpath("string(//textarea[@id='rule'])").strip() == "" and "Write a rule" in empty.words


def test_a_rule_that_searches_rules_of_an_lmr_has_no_link_to_a_query(visitor: Visitor, figure: Api, lmr: str) -> None:
    subscribe(visitor, lmr, "search ServerInformation s register s where s.memory > 64", "roomy")
    own = visitor.post("/rules/look", rule="search roomy r register r where r.cpu > 500", lmr=lmr)
    assert "match" in own.words and not [link for link in own.tree.xpath("//a/@href") if link.startswith("/query")]
    plain = visitor.post("/rules/look", rule="search ServerInformation s register s", lmr=lmr)
    (link,) = [link for link in plain.tree.xpath("//a/@href") if link.startswith("/query")]
    assert visitor.get(str(link)).status == 200


def test_the_editor_gets_the_named_rules_of_an_lmr(visitor: Visitor, figure: Api, lmr: str) -> None:
    subscribe(visitor, lmr, "search ServerInformation s register s where s.memory > 64", "roomy")
    subscribe(visitor, lmr, "search roomy r register r where r.cpu > 500", "fast")
    told = visitor.get("/rules/words.json", lmr=lmr).answer.json()
    assert {one["name"]: one["iri"].rpartition("#")[2] for one in told["rules"]} == {
        "roomy": "ServerInformation", "fast": "ServerInformation"}  # fmt: skip
    assert visitor.get("/rules/words.json").answer.json()["rules"] == []


def test_with_public_reading_rules_of_lmrs_need_a_sign_in(
    public: Server, visitor: Visitor, figure: Api, lmr: str
) -> None:
    subscribe(visitor, lmr, "search ServerInformation s register s where s.memory > 4711", "secretrule")
    with local_client(base_url=public.url, timeout=60, follow_redirects=True) as anybody:
        stranger = Visitor(anybody)
        assert "match" in stranger.get("/rules", rule="search ServerInformation s register s", lmr=lmr).words
        asked = stranger.get("/rules", rule="search secretrule s register s", lmr=lmr)
        assert "4711" not in asked.answer.text and "secretrule" in asked.alert()
        assert stranger.get("/rules/words.json", lmr=lmr).answer.json()["rules"] == []


def test_a_subscribed_rule_is_shown_listed_and_drawn(visitor: Visitor, figure: Api, lmr: str) -> None:
    number = subscribe(visitor, lmr, PAPER, "paper")
    page = visitor.get("/rules", id=number)
    assert page.title == f"Subscription {number} paper"
    assert lmr in page.words
    assert "All of its atomic rules already exist" in page.words
    told = drawing(page)
    assert not any("new" in node["marks"] for node in told["nodes"])
    listed = visitor.get("/rules/registered", lmr=lmr)
    assert [[row[0], row[2], row[3]] for row in listed.rows()] == [[str(number), "paper", lmr]]
    assert visitor.get("/rules/registered", holding="UNI-PASSAU.DE", lmr=lmr).rows() == listed.rows()
    assert visitor.get("/rules/registered", holding="nowhere", lmr=lmr).rows() == []
    graph = visitor.get("/rules/graph", lmr=lmr)
    assert {node["id"] for node in drawing(graph)["nodes"]} == {node["id"] for node in told["nodes"]}


def test_a_refused_rule_is_shown_with_its_error(visitor: Visitor, figure: Api, lmr: str) -> None:
    page = visitor.post("/rules/subscribe", rule="search Nothing n register n", lmr=lmr)
    assert page.status == 422
    assert "Nothing" in page.alert()
    assert page.tree.xpath("string(//textarea[@id='rule'])").strip() == "search Nothing n register n"
    assert visitor.post("/rules/subscribe", rule=PAPER, lmr="").status == 400
    assert visitor.post("/rules/subscribe", rule=PAPER, lmr="nobody").status == 404
    assert visitor.post("/rules/subscribe", rule="", lmr=lmr).status == 400


def test_an_atomic_rule_shows_its_parts_and_the_rules_that_use_it(visitor: Visitor, figure: Api, lmr: str) -> None:
    number = subscribe(visitor, lmr, PAPER)
    other = subscribe(visitor, lmr, "search ServerInformation s register s where s.memory > 64")
    end = next(node for node in drawing(visitor.get("/rules", id=number))["nodes"] if "end" in node["marks"])
    page = visitor.get(end["href"])
    assert page.title == f"Atomic rule {end['id']}"
    assert str(number) in [row[0] for row in page.rows()]
    memory = next(node for node in drawing(page)["nodes"] if "memory > 64" in node["label"])
    assert "shared" in memory["marks"]
    shared = visitor.get(f"/rules/atomic/{memory['id']}")
    assert "triggering rule" in shared.words
    assert str(other) in [row[0] for row in shared.rows()]
    assert [node["id"] for node in drawing(shared)["nodes"] if "lit" in node["marks"]] == [memory["id"]]
    for lost in ("999999999", "9" * 30):
        assert visitor.get(f"/rules/atomic/{lost}").status == 404


def test_figure_9_is_replayed_in_steps(visitor: Visitor, figure: Api, lmr: str) -> None:
    number = subscribe(visitor, lmr, PAPER)
    page = visitor.get("/rules/replay", document=DOC, rule=number)
    (steps,) = page.tree.xpath("//figure/@data-steps")
    labels = {node["id"]: node["label"].partition("\n")[2].replace("ex:", "") for node in drawing(page)["nodes"]}
    said = [
        sorted((labels[one["node"]].replace("\n", " "), *one["lines"]) for one in step) for step in json.loads(steps)
    ]
    assert said == [
        [("c.serverHost contains 'uni-passau.de'", "→ doc.rdf#host"), ("s.cpu > 500", "→ doc.rdf#info"),
         ("s.memory > 64", "→ doc.rdf#info")],
        [("a = b", "→ doc.rdf#info")],
        [("c.serverInformation = a", "→ doc.rdf#host")],
    ]  # fmt: skip
    tables = page.tree.xpath("//*[@data-iteration]")
    assert [table.get("data-iteration") for table in tables] == ["1", "2", "3"]
    assert all("ahead" in table.get("class") for table in tables)
    second = visitor.get("/rules/replay", document=DOC, rule=number, step=2)
    classes = [table.get("class").split() for table in second.tree.xpath("//*[@data-iteration]")]
    assert [("current" in names, "ahead" in names) for names in classes] == [
        (False, False), (True, False), (False, True)]  # fmt: skip
    assert "Step 2 of 3" in second.words
    assert "Step" not in visitor.get("/rules/replay", document=DOC, step="99").alert()


def test_an_impossible_replay_is_refused_with_a_reason(visitor: Visitor, figure: Api, lmr: str) -> None:
    assert visitor.get("/rules/replay", document="http://mdv.example/nowhere").status == 404
    assert visitor.get("/rules/replay", document="nonsense").status == 400
    assert visitor.get("/rules/replay", document=DOC, rule="x").status == 404
    assert visitor.get("/rules/replay", document=DOC, rule="99999999").status == 404
    assert visitor.get("/rules/replay", document=DOC, step="-1").status == 400
    choose = visitor.get("/rules/replay")
    assert 0 < len(choose.tree.xpath("//option/@value")) <= 20
    number = subscribe(visitor, lmr, "search ServerInformation s register s where s.memory = 123456")
    page = visitor.get("/rules/replay", document=DOC, rule=number)
    assert "No resource of this document triggers this rule" in page.words


def test_the_editor_gets_the_names_of_the_schema(visitor: Visitor, figure: Api) -> None:
    told = visitor.get("/rules/words.json").answer.json()
    assert "CycleProvider" in [one["name"] for one in told["classes"]]


def test_a_hostile_constant_is_shown_as_text(visitor: Visitor, figure: Api, lmr: str) -> None:
    quoted = HOSTILE.replace("'", "''")
    number = subscribe(visitor, lmr, f"search CycleProvider c register c where c.serverHost = '{quoted}'", "<b>&'")
    for path in (f"/rules?id={number}", "/rules/registered?lmr=" + lmr, "/rules/graph?lmr=" + lmr):
        page = visitor.get(path)
        assert page.status == 200
        assert "<script>alert" not in page.answer.text
        assert not page.tree.xpath("//script[not(@src)]")
    node = drawing(visitor.get("/rules/graph", lmr=lmr))["nodes"][0]
    assert HOSTILE.replace("'", "''") in node["title"], "the drawing has it unchanged, as text"


def test_a_viewer_cannot_subscribe(viewer: Visitor, figure: Api, lmr: str) -> None:
    page = viewer.get("/rules", rule=PAPER)
    assert page.status == 200
    assert "/rules/subscribe" not in page.tree.xpath("//button/@formaction")
    assert viewer.post("/rules/subscribe", rule=PAPER, lmr=lmr).status == 403
    assert viewer.post("/rules/look", rule=PAPER).status == 200
    assert viewer.post("/rules/look", rule=PAPER, csrf="wrong").status == 403


def test_rules_of_an_unknown_lmr_are_not_found(visitor: Visitor, figure: Api, lmr: str) -> None:
    for path in ("/rules/registered", "/rules/graph"):
        assert visitor.get(path, lmr="nobody").status == 404
        assert "has no rules yet" in visitor.get(path, lmr=lmr).words


def test_an_anonymous_visitor_is_asked_to_sign_in(new_visitor: Callable[..., Visitor], figure: Api) -> None:
    stranger = new_visitor()
    for path in ("", "/registered", "/graph", "/atomic/1", "/replay", "/words.json"):
        assert stranger.get(f"/rules{path}").title == "Sign in"
    assert stranger.post("/rules/look", rule=PAPER, csrf="").status == 401


def test_many_rules_are_listed_and_drawn_in_pages(visitor: Visitor, figure: Api, lmr: str) -> None:
    rules = [{"rule": f"search ServerInformation s register s where s.memory = {number} and s.cpu = {number}"}
             for number in range(260)]  # fmt: skip
    assert figure.http.post(f"/api/v1/lmrs/{lmr}/subscriptions", json=rules).status_code == 201
    first = visitor.get("/rules/registered", lmr=lmr)
    assert len(first.rows()) == 50
    assert "260 rules" in first.words and first.tree.xpath("//select[@name='lmr']/option[@selected]/@value") == [lmr]
    (more,) = first.tree.xpath("//a[@rel='next']/@href")
    second = visitor.get(more)
    assert second.rows()[0] != first.rows()[0]
    (back,) = second.tree.xpath("//a[@rel='first']/@href")
    assert visitor.get(str(back)).rows() == first.rows() and not first.tree.xpath("//a[@rel='first']")
    graph = visitor.get("/rules/graph", lmr=lmr)
    nodes = drawing(graph)["nodes"]
    assert 450 <= len(nodes) <= 500
    assert {node["block"] for node in nodes if node["kind"] == "triggering"} == {
        "ServerInformation.memory =", "ServerInformation.cpu ="}  # fmt: skip
    (more,) = graph.tree.xpath("//a[@rel='next']/@href")
    (group,) = drawing(graph)["groups"]
    joins = sum(node["kind"] == "join" for node in nodes)
    assert f"{joins} of 260 rules" in graph.words and re.fullmatch(
        rf"group \d+ · {joins} of \d+ rules shown", group["label"]
    )
    assert visitor.get(more).tree.xpath("//a[@rel='first']/@href") == [f"/rules/graph?lmr={lmr}"]
    seen = {node["id"] for node in nodes}
    rest = {node["id"] for node in drawing(visitor.get(more))["nodes"]}
    assert rest
    assert len(seen | rest) <= 780
    assert not {node["id"] for node in drawing(visitor.get(more))["nodes"] if "end" in node["marks"]} & seen
