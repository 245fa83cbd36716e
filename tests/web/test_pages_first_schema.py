"""A system without a schema: pages, API and commands name the missing schema and how to create one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.in_process_server import serve_in_process
from tests.support.local_http import local_client
from tests.support.page_visitor import Visitor
from tests.support.server import ADMIN, Api, WebAddress

URI = "http://first.example/doc.ttl"
TEXT = "@prefix v: <http://first.example/v#> . <#a> a v:Book ; v:pages 92 ; v:title 'One' ."


@pytest.fixture
def empty(new_database: Callable[[], str], new_queue: Callable[[], str]) -> Iterator[WebAddress]:
    with serve_in_process(new_database(), new_queue()) as server:
        yield server


@pytest.fixture
def first(empty: WebAddress) -> Iterator[Visitor]:
    """The administrator of a system without a schema."""
    with local_client(base_url=empty.url, timeout=60, follow_redirects=True) as client:
        yield Visitor(client).sign_in(ADMIN)


@pytest.mark.parametrize("path", ["/", "/register"])
def test_pages_of_a_system_without_a_schema_lead_to_it(first: Visitor, path: str) -> None:
    page = first.get(path)
    assert "There is no schema yet" in page.words
    assert "/schema" in page.links()


def test_the_overview_without_a_schema_does_not_ask_for_a_document_first(first: Visitor) -> None:
    assert "Load a schema to start" in first.get("/").words


@pytest.mark.parametrize("act", ["infer", "check", "register"])
def test_a_schema_is_inferred_from_the_document_at_hand(first: Visitor, empty: WebAddress, act: str) -> None:
    page = first.post("/register", uri=URI, text=TEXT, act=act)
    assert "Schema inferred from this document" in page.words
    assert ("#first-schema" in page.links()) == (page.status == 422), "a refusal leads to the remedy on the same page"
    form = page.form("/register")
    assert "v:pages a rdf:Property" in form["schema"] and form["text"] == TEXT
    preview = first.post("/register", **form | {"act": "put_schema"})
    assert preview.status == 200 and "Preview" in preview.words and "no schema yet" not in preview.words
    done = first.post("/register", **preview.form("/register") | {"act": "register"})
    assert done.title == "Registered"
    assert "Go to the schema" not in first.get("/").words + first.get("/register").words


def test_a_schema_in_force_is_not_replaced_by_an_inferred_one(first: Visitor, empty: WebAddress) -> None:
    form = first.post("/register", uri=URI, text=TEXT, act="infer").form("/register")
    other = "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . <http://other.example/C> a rdfs:Class ."
    assert empty.api().put_schema(other).status_code == 200
    page = first.post("/register", **form | {"act": "put_schema"})
    assert page.status == 409 and page.form("/register")["text"] == TEXT
    assert "A schema was loaded since" in page.alert()
    assert empty.api().get("/schema").text.count("other.example")


def test_an_empty_document_gives_no_schema(first: Visitor) -> None:
    page = first.post("/register", uri=URI, text=" ", act="infer")
    assert page.status == 400 and "The document is empty" in page.alert()


def test_the_api_names_the_missing_schema_and_the_remedy(empty: WebAddress) -> None:
    api: Api = empty.api()
    refused = api.put(URI, TEXT.encode(), "text/turtle")
    assert refused.status_code == 422
    detail = refused.json()["detail"]
    assert detail.startswith("There is no schema yet.") and "has 3 errors" in detail
    assert "mdv schema infer FILE" in detail and "mdv schema put" in detail


def test_errors_of_a_system_with_a_schema_do_not_name_a_missing_one(server: WebAddress) -> None:
    refused = server.api().put("http://docs.example/undeclared", TEXT.encode(), "text/turtle")
    assert refused.status_code == 422 and "no schema" not in refused.json()["detail"]
