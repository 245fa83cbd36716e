"""The schema's pages: drawing and lists, versions, and changes with a preview."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import rdflib
from rdflib.compare import isomorphic

from mdv.embedded import Valkey
from tests.support import local_http
from tests.support.local_http import local_client
from tests.support.page_visitor import Page, Visitor
from tests.support.server import ADMIN, SCHEMA, Api, Server, V, start_server, stopping, turtle

_numbers = itertools.count(1)
RICH = (
    SCHEMA
    + """ex:Station rdfs:subClassOf ex:Provider .
ex:near rdfs:domain ex:Station ; rdfs:range ex:Station ; mdv:setValued true .
ex:next rdfs:subPropertyOf ex:near ; rdfs:domain ex:Station . ex:height rdfs:domain ex:Station ; rdfs:range xsd:string .
"""
)
PATHS = {"turtle": "turtle", "rdfxml": "xml", "ntriples": "nt", "jsonld": "json-ld"}


@pytest.fixture
def rich(api: Api) -> Iterator[int]:
    """A larger schema and its version; the tests' schema is restored afterwards."""
    put = api.put_schema(RICH)
    assert put.status_code == 200, put.text
    yield put.json()["version"]
    back = api.put_schema(SCHEMA)
    assert back.status_code == 200, back.text


@pytest.fixture
def lmr(api: Api) -> Iterator[str]:
    name = f"schema-{next(_numbers)}"
    assert api.http.post("/api/v1/lmrs", json={"name": name}).status_code == 201
    yield name
    assert api.http.delete(f"/api/v1/lmrs/{name}").is_success


@pytest.fixture
def stored(api: Api, doc: str) -> Iterator[Callable[[str], str]]:
    """Register a document, which is deleted afterwards."""

    def put(text: str) -> str:
        assert api.put(doc, turtle(text)).status_code == 201
        return doc

    yield put
    assert api.delete(doc).status_code == 200


def drawn(page: Page) -> dict[str, Any]:
    (found,) = page.tree.xpath("//figure/@data-graph")
    return dict(json.loads(found))


def hidden(page: Page) -> dict[str, str]:
    """Return the hidden fields of the form for a schema change."""
    fields = page.tree.xpath("//main//form//input[@type='hidden'][@name!='csrf']")
    return {field.get("name"): field.get("value") for field in fields}


def send(visitor: Visitor, text: str, act: str = "check", **more: str) -> Page:
    return visitor.post("/schema/change", files={"file": ("", b"")}, text=text, act=act, syntax="", **more)


def of_class(page: Page, name: str) -> tuple[str, list[list[str]]]:
    """Return the description of a class, and its properties."""
    (article,) = page.tree.xpath("//article[normalize-space(h3)=$name]", name=name)
    cells = [
        [" ".join(cell.text_content().split()) for cell in row.xpath("./td")] for row in article.xpath(".//tbody/tr")
    ]
    return " ".join(article.xpath("string(p)").split()), cells


# Reading


def test_classes_and_properties_are_listed(viewer: Visitor, rich: int) -> None:
    page = viewer.get("/schema")
    assert page.status == 200 and f"version {rich}" in page.title.replace(",", "") and "closed" in page.words
    said, properties = of_class(page, "ex:Station")
    assert said == "subclass of ex:Provider · 0 instances" and "/browse/instances?class=" in " ".join(page.links())
    assert properties == [
        ["ex:height", "xsd:string", "", ""],
        ["ex:near", "ex:Station", "weak set-valued", "superproperty of ex:next"],
        ["ex:next", "ex:Station", "weak set-valued", "subproperty of ex:near"],
    ]
    assert ["ex:serverInformation", "ex:ServerInformation", "strong", ""] in of_class(page, "ex:CycleProvider")[1]
    others = page.tree.xpath("//section[@id='properties']//tbody/tr/td[1]")
    assert [cell.text_content().strip() for cell in others] == ["ex:knows", "ex:note"]
    assert "http://mdv.example/schema#" in page.words and "/schema/change" not in page.links()


def test_the_drawing_shows_the_listed_classes(visitor: Visitor, rich: int) -> None:
    page = visitor.get("/schema")
    drawing = drawn(page)
    nodes = {node["id"]: node for node in drawing["nodes"]}
    assert set(nodes) == {V + name for name in ("Provider", "CycleProvider", "ServerInformation", "Station")}
    assert nodes[V + "Station"]["label"] == "ex:Station" and nodes[V + "Station"]["kind"] == "class"
    edges = {(edge["from"], edge["to"], edge["label"], edge["kind"]) for edge in drawing["edges"]}
    assert edges == {
        (V + "CycleProvider", V + "Provider", "", "subclass"),
        (V + "Station", V + "Provider", "", "subclass"),
        (V + "CycleProvider", V + "ServerInformation", "ex:serverInformation", "strong"),
        (V + "Station", V + "Station", "ex:near?", "weak"),
        (V + "Station", V + "Station", "ex:next?", "weak"),
    }
    for node in nodes.values():
        path, _, anchor = node["href"].partition("#")
        assert path == "/schema" and page.tree.xpath("//h3[@id=$anchor]", anchor=anchor)
    assert "/schema/change" in page.links()


@pytest.mark.parametrize("name", PATHS)
def test_the_schema_is_downloaded_in_every_syntax(viewer: Visitor, rich: int, name: str) -> None:
    answer = viewer.http.get("/schema/text", params={"as": name})
    assert answer.status_code == 200 and f'filename="schema-{rich}.' in answer.headers["Content-Disposition"]
    found = rdflib.Graph().parse(data=answer.text, format=PATHS[name])
    assert isomorphic(found, rdflib.Graph().parse(data=RICH, format="turtle"))


def test_versions_are_listed_compared_and_downloaded(visitor: Visitor, rich: int) -> None:
    page = visitor.get("/schema/versions")
    assert page.rows()[0][0] == f"{rich:,} active" and f"/schema/difference?to={rich}" in page.links()
    change = visitor.get("/schema/difference", to=rich)
    assert change.status == 200 and ["+", "added class", "ex:Station", "superclasses ex:Provider"] in change.rows()
    assert any(row[0] == "+" and row[2] == "subClassOf" for row in change.rows())
    earlier = viewer_text(visitor, rich - 1)
    assert "Station" not in earlier and "CycleProvider" in earlier
    assert "Station" in viewer_text(visitor, rich)
    assert visitor.get("/schema/difference", to=rich + 1).status == 404
    assert visitor.get("/schema/text", version="x").status == 400
    assert visitor.get("/schema/text", **{"as": "word"}).status == 415


def viewer_text(visitor: Visitor, version: int) -> str:
    return visitor.http.get("/schema/text", params={"version": version, "as": "ntriples"}).text


@pytest.mark.full
def test_without_a_schema_the_page_says_how_to_add_one(
    folder: Path, new_database: Callable[[], str], valkey: Valkey
) -> None:
    empty = start_server(folder, new_database(), valkey.url, MDV_PUBLIC_READ="true")
    with stopping(empty):
        text = local_http.get(empty.url + "/schema").text
    assert "There is no schema yet" in text and "mdv schema infer" in text and "data-graph" not in text


def test_many_classes_are_paged_and_the_drawing_reports_its_limit(visitor: Visitor, api: Api, rich: int) -> None:
    many = "".join(f"ex:Many{number:03} a rdfs:Class . " for number in range(230))
    many += "".join(f"ex:p{number:03} rdfs:range xsd:string . " for number in range(60))
    assert api.put_schema(RICH + many).status_code == 200
    page = visitor.get("/schema")
    assert "1 to 50 of 234" in page.words and len(page.tree.xpath("//article")) == 50
    assert len(drawn(page)["nodes"]) == 200 and "Only the first 200 of 234 classes are shown" in page.words
    second = visitor.get("/schema", after=50)
    assert "51 to 100 of 234" in second.words and not second.tree.xpath("//figure")
    href = next(node["href"] for node in drawn(page)["nodes"] if node["label"] == "ex:Many120")
    path, _, anchor = href.partition("#")
    (heading,) = visitor.get(path).tree.xpath("//h3[@id=$anchor]", anchor=anchor)
    assert heading.text_content() == "ex:Many120"
    more = visitor.get("/schema", properties=50)
    assert len(more.tree.xpath("//section[@id='properties']//tbody/tr")) == 12


# Changing


def test_only_an_unlimited_administrator_gets_the_form(
    viewer: Visitor, new_visitor: Callable[..., Visitor], make_token: Callable[..., tuple[str, int]]
) -> None:
    assert viewer.get("/schema/change").status == 403 and send(viewer, SCHEMA).status == 403
    limited = new_visitor(make_token("admin", ["http://own.example/"])[0])
    assert limited.get("/schema/change").status == 403 and send(limited, SCHEMA, "put").status == 403
    assert "/schema/change" not in limited.get("/schema").links()


def test_changes_are_previewed_before_the_schema_becomes_active(
    visitor: Visitor, api: Api, rich: int, lmr: str, stored: Callable[[str], str]
) -> None:
    stored("<#s> a ex:Station ; ex:height '70' . <#p> a ex:Provider .")
    rule = {"rule": "search Station s register s"}
    assert api.http.post(f"/api/v1/lmrs/{lmr}/subscriptions", json=rule).status_code == 201
    form = visitor.get("/schema/change")
    text = form.tree.xpath("string(//textarea)")
    assert "ex:Station" in text and not form.tree.xpath("//button[@value='put']")
    new = text + "\n<http://mdv.example/schema#Provider> rdfs:subClassOf ex:Station ."
    looked = send(visitor, new, **hidden(form))
    assert looked.status == 200 and "Preview" in looked.words
    assert ["~", "changed class", "ex:Provider", "superclasses ex:Station"] in looked.rows()
    (row,) = [row for row in looked.rows() if row[0] == lmr]
    assert int(row[1].replace(",", "")) >= 1 and row[2] == "0" and looked.tree.xpath("//button[@value='put']")
    assert api.get("/schema").headers["ETag"] == f'"{rich}"'
    done = send(visitor, new, "put", **hidden(looked))
    assert done.status == 200 and done.title == f"Version {rich + 1} of the schema is active"
    assert api.get("/schema").headers["ETag"] == f'"{rich + 1}"'


def test_only_a_previewed_schema_becomes_active(visitor: Visitor, api: Api, rich: int) -> None:
    unseen = send(visitor, RICH + "ex:Unseen a rdfs:Class .", "put", version=str(rich))
    assert unseen.status == 200 and "differs from the previewed one" in unseen.alert()
    other = send(visitor, RICH + "ex:Other a rdfs:Class .", "put", **hidden(unseen))
    assert "differs from the previewed one" in other.alert() and "ex:Other" in other.words
    assert api.get("/schema").headers["ETag"] == f'"{rich}"'


def test_a_newer_schema_is_not_overwritten_without_confirmation(visitor: Visitor, api: Api, rich: int) -> None:
    mine = RICH + "ex:Mine a rdfs:Class ."
    looked = send(visitor, mine, version=str(rich))
    assert api.put_schema(RICH + "ex:Faster a rdfs:Class .").status_code == 200
    late = send(visitor, mine, "put", **hidden(looked))
    assert late.status == 412 and "Edit conflict" in late.alert()
    assert not late.tree.xpath("//button[@value='put']") and "Faster" in api.get("/schema").text
    again = send(visitor, mine, version=str(rich))
    assert f"now at version {rich + 1}" in again.alert() and ["−", "removed class", "ex:Faster", ""] in again.rows()
    assert send(visitor, mine, "put", **hidden(again)).status == 200
    assert "Mine" in api.get("/schema").text


def test_errors_are_shown_at_their_lines_and_the_text_is_kept(visitor: Visitor, rich: int) -> None:
    first = RICH.count("\n") + 1
    page = send(visitor, RICH + "ex:odd rdfs:range 'no range' .\nex:odd rdfs:domain 'no domain' .\n")
    assert page.status == 422 and "2 errors" in page.alert()
    lines = [int(line) for line in page.tree.xpath("//a[@data-line]/@data-line")]
    flaws = json.loads(page.tree.xpath("string(//textarea/@data-errors)"))
    assert lines == [flaw["line"] for flaw in flaws] == [first, first + 1]
    assert "no range" in page.tree.xpath("string(//textarea)")
    broken = send(visitor, "<a> <b>")
    assert broken.status == 400 and broken.tree.xpath("//a[@data-line='1']")


def test_documents_and_rules_that_would_break_are_named_and_linked(
    visitor: Visitor, api: Api, rich: int, lmr: str, stored: Callable[[str], str]
) -> None:
    uri = stored("<#s> a ex:Station ; ex:height 'high' .")
    page = send(visitor, RICH.replace("rdfs:domain ex:Station ; rdfs:range xsd:string", "rdfs:range xsd:date"))
    assert page.status == 409 and uri in page.alert()
    assert any(link.startswith("/document?uri=") for link in page.links())
    rule = {"rule": "search Station s register s where s.height = 'x'", "name": "high"}
    assert api.http.post(f"/api/v1/lmrs/{lmr}/subscriptions", json=rule).status_code == 201
    page = send(visitor, RICH + "ex:height mdv:setValued true .")
    assert page.status == 409 and f"rule high of {lmr}" in page.alert() and rule["rule"] in page.alert()


def test_an_uploaded_file_is_previewed_and_shown_as_text(visitor: Visitor, rich: int) -> None:
    graph = rdflib.Graph().parse(data=RICH + "ex:Filed a rdfs:Class .", format="turtle")
    named = '<rdf:RDF xmlns:ex="http://mdv.example/schema#"'  # rules of other tests use the prefix
    body = graph.serialize(format="xml").replace("<rdf:RDF", named).replace("\n", "\r\n").encode()
    files = {"file": ("mine.rdf", body, "application/rdf+xml")}
    looked = visitor.post("/schema/change", files=files, act="check", syntax="", text="")
    assert ["+", "added class", "ex:Filed", ""] in looked.rows()
    assert looked.tree.xpath("string(//select/option[@selected]/@value)") == "rdfxml"
    text = looked.tree.xpath("string(//textarea)").removeprefix("\n")
    sent = {"act": "put", "syntax": "rdfxml", "text": text.replace("\n", "\r\n"), **hidden(looked)}
    done = visitor.post("/schema/change", files={"file": ("", b"")}, **sent)
    assert done.title == f"Version {rich + 1} of the schema is active"


def test_the_same_schema_changes_nothing_and_an_earlier_version_can_be_restored(visitor: Visitor, rich: int) -> None:
    same = send(visitor, RICH)
    assert "identical to the active schema" in same.words and not same.tree.xpath("//button[@value='put']")
    form = visitor.get("/schema/change", version=rich - 1)
    text = form.tree.xpath("string(//textarea)")
    assert f"text of version {rich - 1}" in form.words.replace(",", "") and "Station" not in text
    looked = send(visitor, text, **hidden(form))
    assert ["−", "removed class", "ex:Station", "superclasses ex:Provider"] in looked.rows()


def test_resources_that_leave_an_lmr_are_reported_before_and_after_and_at_a_url(
    visitor: Visitor, api: Api, rich: int, lmr: str, stored: Callable[[str], str]
) -> None:
    weak = RICH + "ex:Box a rdfs:Class . ex:keeps rdfs:domain ex:Station ; rdfs:range ex:Box ."
    strong = weak + "ex:keeps mdv:reference mdv:strong ."
    assert api.put_schema(strong).status_code == 200
    stored("<#s> a ex:Station ; ex:keeps <#b> . <#b> a ex:Box .")
    rule = {"rule": "search Station s register s"}
    assert api.http.post(f"/api/v1/lmrs/{lmr}/subscriptions", json=rule).status_code == 201
    looked = send(visitor, weak)
    assert "1 would be removed from caches" in looked.words and [lmr, "0", "0", "0", "1"] in looked.rows()
    done = send(visitor, weak, "put", **hidden(looked))
    assert done.answer.request.method == "GET" and done.path.startswith("/schema/changed/")
    assert done.title == f"Version {rich + 2} of the schema is active" and "1 was removed from caches" in done.words
    assert visitor.get(done.path).words == done.words


def test_an_empty_text_is_refused_and_a_place_is_shown_once(visitor: Visitor, rich: int) -> None:
    empty = send(visitor, " ")
    assert empty.status == 400 and "The schema is empty" in empty.alert() and "delete" not in empty.alert()
    broken = send(visitor, "nonsense")
    assert broken.status == 400 and broken.alert().lower().count("line 1") == 1


def test_a_change_of_annotations_only_is_reported_as_such(visitor: Visitor, rich: int) -> None:
    looked = send(visitor, RICH + "ex:Station rdfs:comment 'Where trains stop.' .")
    assert "Only annotations such as labels and comments differ" in looked.words
    assert looked.tree.xpath("//button[@value='put']")


def test_a_slow_dry_run_becomes_a_job(small: Server) -> None:
    """This server has no worker."""
    with local_client(base_url=small.url, timeout=60, follow_redirects=True) as client:
        waiting = send(new := Visitor(client).sign_in(ADMIN), "<u:A> a <http://www.w3.org/2000/01/rdf-schema#Class> .")
        assert waiting.status == 202 and "takes longer" in waiting.alert()
        assert hidden(waiting)["looked_at"] and waiting.tree.xpath("//button[@value='put']")
        (job,) = [link for link in waiting.links() if link.startswith("/jobs/")]
        assert new.get(job).status == 200


def test_hostile_names_are_shown_as_text(visitor: Visitor, api: Api, rich: int) -> None:
    evil = (
        "<javascript:alert(1)> a rdfs:Class . <http://a.example/'%22onload=x> rdfs:subClassOf <javascript:alert(1)> ."
    )
    assert api.put_schema(RICH + evil).status_code == 200
    page = visitor.get("/schema")
    assert "javascript:alert(1)" in page.words
    assert not [link for link in page.links() if re.match(r"\s*javascript:", link)]
    assert all(node["href"] is None or node["href"].startswith("/schema") for node in drawn(page)["nodes"])
