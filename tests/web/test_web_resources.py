"""Resources over HTTP: one, as the union of all documents, and pages of them by class."""

from __future__ import annotations

import pytest
import rdflib

from tests.support.server import FIGURE_1, JSON_LD, N_TRIPLES, PROBLEM, TURTLE, XML, Api, V, turtle

RDFLIB = {XML: "xml", TURTLE: "turtle", N_TRIPLES: "nt", JSON_LD: "json-ld"}


def test_a_resource_as_json_has_classes_statements_and_documents(api: Api, doc: str) -> None:
    api.put(doc, FIGURE_1, XML)
    answer = api.get("/resources", uri=doc + "#info")
    assert answer.headers["Content-Type"] == "application/json" and answer.headers["Vary"] == "Accept"
    body = answer.json()
    assert body["uri"] == doc + "#info" and body["documents"] == [doc]
    assert body["classes"] == [V + "ServerInformation"]
    assert [V + "cpu", {"type": "literal", "value": "600"}] in body["statements"]


@pytest.mark.parametrize("media_type", list(RDFLIB))
def test_a_resource_in_each_syntax_is_the_union_of_all_documents(api: Api, doc: str, media_type: str) -> None:
    subject = doc + "#it"
    api.put(doc, turtle(f"<{subject}> ex:note 'one', 'both' ."))
    api.put(doc + "2", turtle(f"<{subject}> ex:note 'two', 'both' ."))
    answer = api.get("/resources", uri=subject, headers={"Accept": media_type})
    graph = rdflib.Graph().parse(data=answer.text, format=RDFLIB[media_type])
    assert {str(o) for o in graph.objects(rdflib.URIRef(subject))} == {"one", "two", "both"}
    assert len(graph) == 3
    assert api.get("/resources", uri=subject).json()["documents"] == [doc, doc + "2"]
    api.delete(doc)
    assert len(api.get("/resources", uri=subject).json()["statements"]) == 2


def test_a_blank_node_is_found_by_its_name(api: Api, doc: str) -> None:
    api.put(doc, turtle("<#a> ex:knows [ ex:note 'hidden' ] ."))
    ((_, target),) = api.get("/resources", uri=doc + "#a").json()["statements"]
    assert target["value"].startswith(doc + "#_:")
    assert api.get("/resources", uri=target["value"]).json()["statements"][0][1]["value"] == "hidden"


def test_an_unknown_resource_is_404_and_an_invalid_uri_is_400(api: Api, doc: str) -> None:
    assert api.get("/resources", uri=doc + "#nobody").status_code == 404
    for uri in ("", "x", "_:b", "http://a b"):
        assert api.get("/resources", uri=uri).status_code == 400
    both = api.get("/resources", uri=doc, **{"class": "Provider"})
    assert both.status_code == 400 and "cannot be combined" in both.json()["detail"]


def test_a_hash_in_a_uri_must_be_encoded(api: Api, doc: str) -> None:
    api.put(doc, FIGURE_1, XML)
    assert api.http.get(f"/api/v1/resources?uri={doc}%23info").status_code == 200
    assert api.http.get(f"/api/v1/resources?uri={doc}").status_code == 404


@pytest.mark.parametrize("name", ["Provider", "ex:Provider", f"<{V}Provider>", f"{V}Provider"])
def test_a_class_by_any_of_its_names_includes_instances_of_subclasses(api: Api, doc: str, name: str) -> None:
    api.put(doc, turtle("<#p> a ex:Provider . <#c> a ex:CycleProvider . <#s> a ex:ServerInformation ."))
    found = {item["uri"]: item["classes"] for item in api.all("/resources", 1000, **{"class": name})}
    assert found[doc + "#p"] == [V + "Provider"] and found[doc + "#c"] == [V + "CycleProvider"]
    assert doc + "#s" not in found


@pytest.mark.parametrize("name", ["Provder", "ex:Provder"])
def test_an_unknown_class_is_404_with_a_suggestion(api: Api, name: str) -> None:
    answer = api.get("/resources", **{"class": name})
    assert answer.status_code == 404 and answer.headers["Content-Type"] == PROBLEM
    assert "Provider" in answer.json()["detail"]


@pytest.mark.parametrize("name", ["", " ", "<", "<>", ":", "ex:", "a b", "'; drop table jobs --"])
def test_an_invalid_class_name_is_not_found(api: Api, name: str) -> None:
    assert api.get("/resources", **{"class": name}).status_code == 404


@pytest.mark.parametrize("limit", [1, 2, 1000])
def test_pages_hold_each_instance_exactly_once(api: Api, doc: str, limit: int) -> None:
    mine = {f"{doc}#{n}" for n in range(5)}
    # Several classes and documents of one resource do not duplicate it.
    lines = [f"<{uri}> a ex:CycleProvider, ex:Provider, ex:ServerInformation ." for uri in mine]
    api.put(doc, turtle(*lines))
    api.put(doc + "2", turtle(*lines))
    for query in ({"class": "Provider"}, {}):
        known = [item["uri"] for item in api.all("/resources", 1000, **query)]
        assert len(known) == len(set(known)) and mine <= set(known)
        before = max(0, min(map(known.index, mine)) - 3)  # begin near them: there are many from other tests
        pages = list(api.pages("/resources", limit, cursor_after(api, before, **query), **query))
        assert [item["uri"] for page in pages for item in page] == known[before:]
        assert all(0 < len(page) <= limit for page in pages)


def cursor_after(api: Api, count: int, **query: str) -> str | None:
    """Return the cursor after the first `count` resources."""
    cursor = None
    while count:
        page = api.get("/resources", limit=min(count, 1000), **query, **({"after": cursor} if cursor else {})).json()
        count, cursor = count - len(page["items"]), page["next"]
    return cursor


def test_a_class_without_instances_gives_an_empty_page(api: Api) -> None:
    body = api.get("/resources", **{"class": "http://nowhere.example/Class"}).json()
    assert body == {"items": [], "next": None}
