"""The search over HTTP: the API, the box in the header and the results page."""

from __future__ import annotations

import pytest

from tests.support.page_visitor import Visitor
from tests.support.server import PROBLEM, Api, V, turtle

LABEL = "<http://www.w3.org/2000/01/rdf-schema#label>"


@pytest.fixture
def word(api: Api, doc: str) -> str:
    """A word that only the resources of one new document have: a labelled provider and two with a value."""
    word = "w" + doc.rpartition("/")[2].removesuffix(".rdf")
    text = turtle(
        f"<#a> a ex:CycleProvider ; ex:serverHost '{word}.example' .",
        f"<#b> a ex:CycleProvider ; {LABEL} 'Green {word}'@en .",
        f"<#c> a ex:ServerInformation ; ex:note 'the {word}' .",
    )
    assert api.put(doc, text).status_code == 201
    assert api.put(doc + "/de", turtle(f"<{doc}#b> {LABEL} 'Grüne {word}'@de .")).status_code == 201
    return word


def test_a_search_finds_what_was_just_registered(api: Api, doc: str, word: str) -> None:
    body = api.get("/search", q=word.upper(), headers={"Accept-Language": "de"}).json()
    assert [item["uri"] for item in body["items"]] == [doc + "#b", doc + "#a", doc + "#c"]
    assert body["items"][0]["label"] == f"Grüne {word}" and body["items"][1]["label"] is None
    assert body["items"][0]["classes"] == [V + "CycleProvider"]
    assert body["items"][2]["matches"] == [{"property": V + "note", "value": f"the {word}"}]
    assert {"property": LABEL[1:-1], "value": f"Green {word}", "lang": "en"} in body["items"][0]["matches"]
    assert body["classes"] == [
        {"class": V + "CycleProvider", "count": 2},
        {"class": V + "ServerInformation", "count": 1},
    ]
    assert body["up_to_date"] is True and body["classes_sampled"] is False and body["next"] is None
    changed = api.put(doc, turtle("<#a> ex:note 'gone' .")).json()["position"]
    assert body["position"] < changed
    after = api.get("/search", q=word).json()
    assert [item["uri"] for item in after["items"]] == [doc + "#b"] and after["position"] >= changed


def test_the_api_pages_and_filters_by_class(api: Api, doc: str, word: str) -> None:
    for limit in (1, 2, 1000):
        found = [item["uri"] for item in api.all("/search", limit, q=word)]
        assert found == [doc + "#b", doc + "#a", doc + "#c"]
    only = [item["uri"] for item in api.all("/search", 1, q=word, **{"class": "Provider"})]
    assert only == [doc + "#b", doc + "#a"]
    assert [item["uri"] for item in api.all("/search", 1, q=doc + "#")] == [doc + "#a", doc + "#b", doc + "#c"]


@pytest.mark.parametrize(
    ("parameters", "status", "detail"),
    [
        ({}, 400, ""),
        ({"q": ""}, 400, "no word"),
        ({"q": "!"}, 400, "no word"),
        ({"q": "x", "after": "here"}, 400, "previous page"),
        ({"q": "x", "limit": 0}, 400, ""),
        ({"q": "x", "class": "Provder"}, 404, "Provider"),
    ],
)
def test_an_invalid_search_is_refused(api: Api, parameters: dict[str, str], status: int, detail: str) -> None:
    answer = api.get("/search", **parameters)
    assert answer.status_code == status and answer.headers["Content-Type"] == PROBLEM
    assert detail in answer.text


def test_characters_of_query_languages_are_plain_text(api: Api) -> None:
    for query in ("a' | 'b", "a & !b", "'; drop table resources --", "a:*b", "%", "\\", 'a"b', "<->"):
        assert api.get("/search", q=query).status_code in (200, 400), query


def test_a_search_needs_a_token(api: Api) -> None:
    assert api.http.get("/api/v1/search?q=x", headers={"Authorization": ""}).status_code == 401


def test_the_box_in_the_header_leads_to_the_results(visitor: Visitor, doc: str, word: str) -> None:
    home = visitor.get("/")
    (form,) = home.tree.xpath("//header//form[@role='search']")
    assert form.get("action") == "/search" and form.xpath("string(.//input/@name)") == "q"
    page = visitor.get("/search", {"Accept-Language": "en"}, q=word)
    assert page.tree.xpath("string(//header//input[@name='q']/@value)") == word
    links = page.tree.xpath("//ol/li/a/@title")
    assert links == [doc + "#b", doc + "#a", doc + "#c"]
    assert f"Green {word} {doc}#b" in page.words and f"note the {word}" in page.words


def test_the_results_can_be_limited_to_a_class(visitor: Visitor, doc: str, word: str) -> None:
    page = visitor.get("/search", q=word)
    facets = {link.text_content().strip(): link.get("href") for link in page.tree.xpath("//nav[@class='facets']/a")}
    (chosen,) = [link for text, link in facets.items() if text.endswith("1")]
    limited = visitor.get(chosen)
    assert limited.tree.xpath("//ol/li/a/@title") == [doc + "#c"]
    assert "All classes" in limited.words


def test_results_page(visitor: Visitor, api: Api, doc: str) -> None:
    word = "many" + doc.rpartition("/")[2].removesuffix(".rdf")
    assert api.put(doc, turtle(*(f"<#{n:02}> ex:note '{word}' ." for n in range(25)))).status_code == 201
    first = visitor.get("/search", q=word)
    (link,) = first.tree.xpath("//a[@rel='next']/@href")
    second = visitor.get(link)
    found = first.tree.xpath("//ol/li/a/@title") + second.tree.xpath("//ol/li/a/@title")
    assert sorted(found) == [f"{doc}#{n:02}" for n in range(25)] and len(found) == 25


def test_the_exact_uri_of_a_resource_leads_to_its_page(visitor: Visitor, doc: str, word: str) -> None:
    assert visitor.get("/search", q=doc + "#a").title.startswith("a ")


def test_a_search_without_results_leads_to_words_that_start_alike(visitor: Visitor, doc: str, word: str) -> None:
    start = word[:-1]
    page = visitor.get("/search", q=f"{start} green")
    assert "No resource has all of these words" in page.words
    (link,) = page.tree.xpath("//div[@class='empty']//a/@href")
    assert doc + "#b" in visitor.get(link).tree.xpath("//ol/li/a/@title")
    again = visitor.get("/search", q="unheardofword*")
    assert "No resource has all of these words" in again.words and not again.tree.xpath("//div[@class='empty']//a")


def test_a_search_without_results_or_words_says_what_to_try(visitor: Visitor) -> None:
    assert "No resource has all of these words" in visitor.get("/search", q="unheardofword").words
    assert "Enter words of labels" in visitor.get("/search").words
    no_uri = visitor.get("/search", q="http://unheard.example/")
    assert "No resource has a URI that starts with this" in no_uri.words and "these words" not in no_uri.words
    page = visitor.get("/search", q="!?")
    assert page.status == 400 and "contains no word" in page.words and page.words.count("Enter words") == 1
