"""Files and pasted texts in forms: encodings, recognised syntaxes, and files that are not RDF."""

from __future__ import annotations

import json
import zlib

import pytest

from tests.support.page_visitor import Visitor
from tests.support.server import Api, V

RDF = f"""<?xml version="1.0" encoding="ISO-8859-1"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="{V}">
  <rdf:Description rdf:ID="a"><note>m\u00fcller</note></rdf:Description>
</rdf:RDF>"""
TURTLE = f"<#a> <{V}note> 'm\u00fcller' ."


def stored(api: Api, uri: str) -> str:
    answer = api.get("/documents", {"Accept": "application/n-triples"}, uri=uri)
    assert answer.status_code == 200, answer.text
    return answer.text


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_file_is_read_in_its_own_encoding(visitor: Visitor, api: Api, doc: str, encoding: str) -> None:
    text = RDF if encoding == "latin-1" else RDF.replace("ISO-8859-1", "UTF-16")
    page = visitor.post("/register", files={"file": ("a.rdf", text.encode(encoding))}, uri=doc, act="check")
    assert page.status == 200 and "Preview" in page.words
    form = page.form("/register")
    assert "m\u00fcller" in form["text"]
    # The text of the preview is sent, with its declaration.
    assert visitor.post("/register", **form | {"act": "register"}).status == 200
    assert '"m\u00fcller"' in stored(api, doc)
    again = visitor.post("/register", files={"file": ("a.rdf", text.encode(encoding))}, uri=doc + "2", act="register")
    assert again.status == 200 and '"m\u00fcller"' in stored(api, doc + "2")


def test_the_result_of_a_registration_can_be_reloaded(visitor: Visitor, api: Api, doc: str) -> None:
    page = visitor.post("/register", uri=doc, text=TURTLE, act="register")
    assert page.status == 200 and page.title == "Registered" and page.path.startswith("/registered?job=")
    again = visitor.get(page.path)
    assert again.title == "Registered" and doc in again.words
    assert api.get("/documents", uri=doc).headers["ETag"] == '"1"'
    assert visitor.get("/registered", job="7").status == 404


def test_pasted_text_is_unicode_whatever_its_declaration_says(visitor: Visitor, api: Api, doc: str) -> None:
    assert visitor.post("/register", uri=doc, text=RDF, act="register").status == 200
    assert '"m\u00fcller"' in stored(api, doc)


@pytest.mark.parametrize(("name", "text"), [("a.rdf", RDF.replace("ISO-8859-1", "UTF-8")), ("a.ttl", TURTLE)])
def test_a_file_that_cannot_be_decoded_is_refused(visitor: Visitor, api: Api, doc: str, name: str, text: str) -> None:
    for act in ("check", "register"):
        page = visitor.post("/register", files={"file": (name, text.encode("latin-1"))}, uri=doc, act=act)
        assert page.status == 400, page.words
        assert page.form("/register")["text"] == "", "damaged text is not offered for another attempt"
    assert api.get("/documents", uri=doc).status_code == 404


@pytest.mark.parametrize("encoding", ["punycode", "undefined", "utf-7", "unicode_escape", "idna", "rot13", "nowhere"])
def test_only_encodings_of_texts_are_decoded(visitor: Visitor, api: Api, doc: str, encoding: str) -> None:
    body = RDF.replace("ISO-8859-1", encoding).replace("m\u00fcller", "+2AA-\\ud800" + "a" * 50_000).encode()
    page = visitor.post("/register", files={"file": ("a.rdf", body)}, uri=doc, act="check")
    assert page.status == 400, page.words
    assert page.form("/register")["text"] == ""


def test_several_files_keep_their_encodings(visitor: Visitor, api: Api, doc: str) -> None:
    files = [("file", ("one.rdf", RDF.encode("latin-1"))), ("file", ("two.ttl", TURTLE.encode()))]
    page = visitor.post("/register", files=files, uri=doc + "/", act="register")
    assert page.status == 200
    for name in ("one.rdf", "two.ttl"):
        assert '"m\u00fcller"' in stored(api, f"{doc}/{name}")


@pytest.mark.parametrize("chosen", ["turtle", "ntriples", ""])
def test_the_syntax_of_a_pasted_text_is_recognised(visitor: Visitor, api: Api, doc: str, chosen: str) -> None:
    json_ld = json.dumps({"@id": "#a", V + "note": "json"})
    for number, text in enumerate((RDF, json_ld, f"<{doc}#a> <{V}note> 'plain' .")):
        page = visitor.post("/register", uri=f"{doc}/{number}", text=text, syntax=chosen, act="register")
        assert page.status == (200 if number < 2 or chosen != "ntriples" else 400), page.words
    assert '"json"' in stored(api, f"{doc}/1")


PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("picture.png", PNG, "picture.png seems to be a PNG image"),
        ("picture.ttl", PNG, "picture.ttl seems to be a PNG image"),
        ("many.zip", b"PK\x03\x04" + b"\0" * 30, "seems to be a ZIP archive"),
        ("one.ttl.gz", b"\x1f\x8b" + zlib.compress(b"x"), "`mdv batch` reads archives and compressed files"),
        ("data.bin", b"\x01\x02\0\x03" * 50, "data.bin seems to be a binary file"),
        ("table.csv", b"name,port\nhost,80\n", "table.csv seems to be a table"),
        ("page.html", b"<!DOCTYPE html><html></html>", "seems to be an HTML page"),
        ("package.json", b'{"name": "mdv", "items": [1, {"x": null}]}', "JSON, but not JSON-LD"),
    ],
)
def test_files_that_are_not_rdf_are_named(
    visitor: Visitor, api: Api, doc: str, name: str, body: bytes, words: str
) -> None:
    page = visitor.post("/register", files={"file": (name, body)}, uri=doc, act="register")
    assert page.status == 415 and words in page.words, page.words
    assert "RDF/XML, Turtle, N-Triples, JSON-LD" in page.words
    form = page.form("/register")
    assert form["uri"] == doc and form["text"] == ("" if b"\0" in body or b"\x89" in body else form["text"])
    assert api.get("/documents", uri=doc).status_code == 404


def test_text_that_begins_like_json_can_be_turtle(visitor: Visitor, api: Api, doc: str) -> None:
    page = visitor.post("/register", uri=doc, text=f"[] <{V}note> '@x' , \"@y\" .", syntax="turtle", act="register")
    assert page.status == 200 and '"@y"' in stored(api, doc)


def test_a_schema_file_is_read_in_its_own_encoding(visitor: Visitor, api: Api) -> None:
    body = RDF.replace("note>", "unknown>").encode("latin-1")
    page = visitor.post("/schema/change", files={"file": ("schema.rdf", body)}, act="look")
    assert page.status in (200, 409, 422) and "m\u00fcller" in page.form("/schema/change")["text"]
