"""Resources are shown by their labels, in the language of the reader, with one query per page."""

from __future__ import annotations

import pytest

from tests.support.page_visitor import Visitor
from tests.support.server import SCHEMA, Api, turtle
from web import labels

LABEL = "<http://www.w3.org/2000/01/rdf-schema#label>"


@pytest.fixture
def labelled(api: Api, doc: str) -> str:
    """A provider with labels in two languages, from two documents, that refers to a resource with a label."""
    text = turtle(
        f"<#p> a ex:CycleProvider ; {LABEL} 'Green <machine>'@en ; ex:serverHost '{doc}' .",
        "<#p> ex:serverInformation <#info> .",
        f"<#info> a ex:ServerInformation ; {LABEL} 'Its memory' ; ex:memory 64 .",
        "<#bare> a ex:CycleProvider ; ex:knows <#p> .",
    )
    assert api.put(doc, text).status_code == 201
    assert api.put(doc + "/de", turtle(f"<{doc}#p> {LABEL} 'Grüne Maschine'@de .")).status_code == 201
    return f"{doc}#p"


def english(visitor: Visitor, path: str, **query: str) -> str:
    return visitor.get(path, {"Accept-Language": "en"}, **query).words


def test_a_resource_is_shown_by_its_label_in_the_language_of_the_reader(visitor: Visitor, labelled: str) -> None:
    page = visitor.get("/resource", {"Accept-Language": "de-AT,en;q=0.5"}, uri=labelled)
    assert page.title == f"Grüne Maschine {labelled}"
    assert page.tree.xpath("string(//title)").startswith("Grüne Maschine")
    assert visitor.get("/resource", {"Accept-Language": "en"}, uri=labelled).title == f"Green <machine> {labelled}"


def test_without_a_label_the_fragment_is_shown(visitor: Visitor, labelled: str) -> None:
    bare = labelled.replace("#p", "#bare")
    assert visitor.get("/resource", uri=bare).title == f"bare {bare}"


def test_the_drawing_shows_labels(visitor: Visitor, labelled: str) -> None:
    page = visitor.get("/resource", {"Accept-Language": "en"}, uri=labelled)
    texts = page.tree.xpath("//figure//*[local-name()='rect']/following-sibling::*/text()")
    assert set(texts) == {"Its memory", "bare", "Green <machine>"}


def test_lists_show_the_label_and_the_uri(visitor: Visitor, labelled: str) -> None:
    info = labelled.replace("#p", "#info")
    assert f"Its memory {info}" in english(visitor, "/resource", uri=labelled)
    document = labelled.removesuffix("#p")
    assert "Green <machine> #p" in english(visitor, "/document", uri=document)
    assert f"Green <machine> {labelled}" in english(visitor, "/browse", find=document)
    instances = english(visitor, "/browse/instances", **{"class": "CycleProvider", "property":
        "http://mdv.example/schema#serverHost", "op": "=", "value": document})  # fmt: skip
    assert f"Green <machine> {labelled}" in instances and "Its memory" in instances


def test_query_results_show_labels(visitor: Visitor, labelled: str) -> None:
    where = f"where c = <{labelled}>"
    rows = english(visitor, "/query", q=f"search CycleProvider c {where} return c, c.serverInformation")
    assert f"Green <machine> {labelled}" in rows and "Its memory" in rows
    assert f"Green <machine> {labelled}" in english(visitor, "/query", q=f"search CycleProvider c register c {where}")


def test_the_explanation_of_a_resource_shows_labels(visitor: Visitor, api: Api, labelled: str) -> None:
    assert api.http.post("/api/v1/lmrs", json={"name": "labels"}).status_code == 201
    rule = f"search CycleProvider c register c where c = <{labelled}>"
    assert api.http.post("/api/v1/lmrs/labels/subscriptions", json={"rule": rule}).status_code == 201
    words = english(visitor, "/lmrs/labels/explain", uri=labelled.replace("#p", "#info"))
    assert f"Green <machine> {labelled}" in words and "Its memory" in words


def test_a_page_reads_all_labels_with_one_call(
    visitor: Visitor, labelled: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if not request.config.getoption("quick"):
        pytest.skip("the application runs in another process")
    calls: list[int] = []
    fill = labels.fill_labels

    def counted(text: str, read: labels.ReadLabels) -> str:
        def count(uris: list[str], languages: list[str]) -> object:
            calls.append(len(uris))
            return read(uris, languages)

        return fill(text, count)  # type: ignore[arg-type]

    monkeypatch.setattr("web.page_base.fill_labels", counted)
    english(visitor, "/resource", uri=labelled)
    assert calls == [3]


def test_completions_show_the_labels_of_schema_terms(visitor: Visitor, api: Api) -> None:
    label_terms = "ex:CycleProvider rdfs:label 'Rechner'@de, 'Machine'@en . ex:serverHost rdfs:label 'host name' ."
    try:
        assert api.put_schema(SCHEMA + label_terms).status_code == 200
        found = visitor.get("/rules/words.json", {"Accept-Language": "de"}).answer.json()
    finally:
        assert api.put_schema(SCHEMA).status_code == 200
    assert [one["label"] for one in found["classes"] if "label" in one] == ["Rechner"]
    assert [one["label"] for one in found["properties"] if "label" in one] == ["host name"]


def test_a_property_marked_in_the_schema_is_a_label(visitor: Visitor, api: Api, labelled: str) -> None:
    mark = "ex:serverHost mdv:label true ."
    try:
        assert api.put_schema(SCHEMA + mark).json()["changed"] is True
        page = visitor.get("/resource", {"Accept-Language": "fr"}, uri=labelled)
    finally:
        assert api.put_schema(SCHEMA).status_code == 200
    assert page.title == f"{labelled.removesuffix('#p')} {labelled}"
