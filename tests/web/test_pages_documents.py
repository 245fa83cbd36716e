"""Documents at the pages, at the level of HTTP: cases that need no browser."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from tests.support.page_visitor import Visitor
from tests.support.server import Api, provider, turtle


def test_deleting_and_restoring_need_the_newest_version(visitor: Visitor, api: Api, doc: str) -> None:
    api.put(doc, provider(1))
    api.put(doc, provider(2))
    for version, status in (("", 400), ("1", 409), ("x", 400), ("*", 400)):
        assert visitor.post("/document/delete", uri=doc, version=version).status == status, version
    assert visitor.post("/document/delete", uri=doc, version="2").status == 200
    assert visitor.post("/document/restore", uri=doc, restored="1", version="2").status == 409, "it was deleted since"
    assert visitor.post("/document/restore", uri=doc, restored="3", version="3").status == 400, "that is a deletion"
    page = visitor.post("/document/restore", uri=doc, restored="1", version="3")
    assert page.status == 200 and "as a new version" in page.words
    assert [row["version"] for row in api.get("/documents/history", uri=doc).json()["items"]] == [4, 3, 2, 1]


def test_a_deletion_names_other_documents_that_refer_to_its_resources(visitor: Visitor, api: Api, doc: str) -> None:
    other = doc + "-other"
    api.put(doc, turtle("<#info> a ex:ServerInformation ; ex:memory 1 . <#shared> a ex:ServerInformation ."))
    refers = f"<#host> a ex:CycleProvider ; ex:serverInformation <{doc}#info> . <{doc}#shared> ex:memory 2 ."
    api.put(other, turtle(refers + f" <#two> a ex:CycleProvider ; ex:serverInformation <{doc}#shared> ."))
    page = visitor.get("/document/delete", uri=doc)
    assert page.status == 200 and "Other documents refer to resources that will be deleted" in page.words
    row = [f"{other}#host", "serverInformation", f"{doc}#info", other]
    assert page.rows() == [row], "another document describes #shared"
    assert f"/document?uri={other}" in [unquote(link) for link in page.links()]
    tried = api.http.delete("/api/v1/documents", params={"uri": doc, "dry_run": "true"})
    assert [list(found.values()) for found in tried.json()["references"]] == [
        [other, f"{other}#host", "http://mdv.example/schema#serverInformation", f"{doc}#info"]
    ]
    assert "refer" not in visitor.get("/document/delete", uri=other).words


def test_deleted_documents_can_be_listed(visitor: Visitor, api: Api, doc: str) -> None:
    api.put(doc, provider(1))
    assert doc not in visitor.get("/documents", prefix=doc, deleted="yes").words
    visitor.post("/document/delete", uri=doc, version="1")
    assert doc in visitor.get("/documents", prefix=doc, deleted="yes").words
    assert "No document URI starts with" in visitor.get("/documents", prefix=doc).words


@pytest.mark.parametrize("syntax", ["rdfxml", "turtle", "ntriples", "jsonld"])
def test_a_version_is_downloaded_and_not_cached(visitor: Visitor, api: Api, doc: str, syntax: str) -> None:
    api.put(doc, provider(1))
    answer = visitor.get("/document/text", uri=doc, version="1", syntax=syntax).answer
    assert answer.status_code == 200 and answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Content-Disposition"].startswith("attachment; filename=")
    again = api.put(doc, answer.content, answer.headers["Content-Type"].partition(";")[0])
    assert again.json()["version"] == 1, "the content is the same"


def test_a_document_too_large_for_a_page_is_reported_as_such(visitor: Visitor, api: Api, doc: str) -> None:
    many = turtle(" ".join(f"<#{number}> ex:serverHost 'x' ." for number in range(20_001)))
    preview = visitor.post("/register", files={"file": ("many.ttl", many.encode())}, uri=doc, act="check")
    assert "The document is new, and too large to show" in preview.words and "both versions" not in preview.words
    for text in (many, many.replace("'x'", "'y'", 1)):
        assert api.put(doc, text, wait=60).status_code in (200, 201)
    page = visitor.get("/document", uri=doc)
    assert page.status == 200 and "Statements 20,001, the first 200 shown" in page.words
    assert "too large to compare" in visitor.get("/document/difference", uri=doc, **{"from": "1", "to": "2"}).words
    assert visitor.get("/register", uri=doc).status == 413
    assert api.http.delete("/api/v1/documents", params={"uri": doc}, headers={"Prefer": "wait=60"}).status_code == 200


def test_a_value_is_changed_and_removed_in_place(visitor: Visitor, api: Api, doc: str) -> None:
    api.put(doc, turtle("<#a> ex:note 'x' , 'kept'@en ; ex:knows <http://other.example/b> ."))
    page = visitor.get("/document", uri=doc)
    assert page.words.count("Edit") == 5, "the heading, the button, and one link for each statement"
    assert "Save" not in page.words
    form = visitor.get("/document", uri=doc, edit="3").form("/document/edit")
    assert form["value"] == "x" and form["version"] == "1"
    changed = visitor.post("/document/edit", **form | {"value": "new", "act": "save"})
    assert (
        changed.status == 200 and "The value was changed." in changed.words and "Update by token admin" in changed.words
    )
    text = api.get("/documents", {"Accept": "application/n-triples"}, uri=doc).text
    assert '"new"' in text and '"x"' not in text and '"kept"@en' in text
    form = visitor.get("/document", uri=doc, edit="1").form("/document/edit")
    assert form["value"] == "http://other.example/b"
    removed = visitor.post("/document/edit", **form | {"act": "remove"})
    assert "The value was removed." in removed.words
    assert "other.example" not in api.get("/documents", {"Accept": "application/n-triples"}, uri=doc).text
    causes = [row["cause"] for row in api.get("/documents/history", uri=doc).json()["items"]]
    assert causes == ["update", "update", "registration"]


def test_removing_the_last_value_deletes_the_document(visitor: Visitor, api: Api, doc: str) -> None:
    api.put(doc, turtle("<#a> ex:note 'x' ."))
    page = visitor.get("/document", uri=doc, edit="1")
    assert "Remove this value, and with it the document" in page.words
    removed = visitor.post("/document/edit", **page.form("/document/edit") | {"act": "remove"})
    assert "This document was deleted in version 2" in removed.words


def test_a_rejected_value_stays_in_the_form_with_the_reason(visitor: Visitor, api: Api, doc: str) -> None:
    api.put(doc, turtle("<#a> ex:serverPort '80' ; ex:knows <http://other.example/b> , [ ex:note 'blank' ] ."))
    rows = visitor.get("/document", uri=doc)
    assert rows.words.count("Edit") == 4, "blank nodes cannot be edited"
    form = visitor.get("/document", uri=doc, edit="4").form("/document/edit")
    assert form["value"] == "80"
    refused = visitor.post("/document/edit", **form | {"value": "high", "act": "save"})
    assert refused.status == 422 and "high" in refused.form("/document/edit")["value"]
    assert "Document refused" in refused.words
    assert visitor.post("/document/edit", **form | {"act": "save"}).words.startswith("Nothing was changed.")
    form = visitor.get("/document", uri=doc, edit="3").form("/document/edit")
    relative = visitor.post("/document/edit", **form | {"value": "not a URI", "act": "save"})
    assert relative.status == 422 and "'not a URI' is not an absolute URI" in relative.words
    api.put(doc, turtle("<#a> ex:serverPort '81' ."))
    late = visitor.post("/document/edit", **form | {"act": "remove"})
    assert late.status == 409 and "It is shown as it is now" in late.words


@pytest.mark.parametrize("statement", ["", "x", "[]", "{}", "[1, 2, 3]", '["http://a", "http://p", {"type": "uri"}]'])
def test_a_form_without_a_statement_is_refused(visitor: Visitor, api: Api, doc: str, statement: str) -> None:
    api.put(doc, turtle("<#a> ex:note 'x' ."))
    form = {"uri": doc, "version": "1", "statement": statement, "value": "y", "act": "save"}
    assert visitor.post("/document/edit", **form).status == 400
    assert api.get("/documents", uri=doc).headers["ETag"] == '"1"'


@pytest.mark.parametrize("typo", ["CycleProvidr", "Cycle"])
def test_an_unknown_class_of_a_document_gets_a_suggestion(visitor: Visitor, api: Api, doc: str, typo: str) -> None:
    text = provider(1).replace("ex:CycleProvider", f"ex:{typo}")
    (flaw,) = api.put(doc, text).json()["errors"]
    assert flaw["hint"].startswith("did you mean ex:CycleProvider")
    for act in ("check", "register"):
        page = visitor.post("/register", text=text, syntax="text/turtle", uri=doc, act=act)
        assert page.status == 422 and "did you mean ex:CycleProvider" in page.words, page.words
    page = visitor.post("/register", text=text.replace("serverPort", "serverPrt"), uri=doc, act="check")
    assert page.words.count("is not declared (did you mean ex:") == 2, "each error with its remedy"
