"""Parse: gated texts become statements, two readers agree on them, and nothing is fetched or silently lost."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pyoxigraph
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdv.errors import BadRequest, Conflict, InvalidDocument, MdvError, NotWellFormed, TooLarge
from mdv.model import RDF, RDF_TYPE, XSD, Statement, Term
from mdv.rdf.blank import name_blank_nodes
from mdv.rdf.gate import gate
from mdv.rdf.parse import _PLAIN, MAX_FLAWS, check_document_uri, check_registration_uri, is_absolute_iri, parse
from mdv.rdf.syntax import JSON_LD, N_TRIPLES, RDF_XML, TURTLE, Syntax
from mdv.rdf.validate import refuse_reserved
from tests.support.gutenberg import GUTENBERG, YEARS
from tests.support.rdflib_reader import (
    CORPUS,
    GOLDEN,
    corpus_document,
    first_opinion,
    gutenberg_documents,
    second_opinion,
)

D = "http://mdv.example/dir/doc.rdf"
EX = "http://example.org/"


def xml(inside: str, attributes: str = "") -> str:
    return f'<rdf:RDF xmlns:rdf="{RDF}" xmlns:ex="{EX}"{attributes}>\n{inside}\n</rdf:RDF>'


def said(body: str | bytes | object, syntax: Syntax = RDF_XML) -> set[Statement]:
    """Parse with stored names for blank nodes."""
    text = body if isinstance(body, str | bytes) else json.dumps(body)
    parsed = parse(gate(text.encode() if isinstance(text, str) else text, syntax), D)
    refuse_reserved(parsed)
    return set(name_blank_nodes(parsed).statements)


def turtle(text: str) -> set[Statement]:
    return said(f"@prefix ex: <{EX}> . @prefix rdf: <{RDF}> . @prefix xsd: <{XSD}> .\n{text}", TURTLE)


def refusal(body: str | object, syntax: Syntax) -> MdvError:
    with pytest.raises((NotWellFormed, InvalidDocument)) as caught:
        said(body, syntax)
    return caught.value


# The paper's Figure 1, and a second reader


def test_figure_1_gives_the_statements_of_the_paper() -> None:
    uri = "http://mdv.example/doc.rdf"
    document = name_blank_nodes(parse(gate((GOLDEN / "figure1.rdf").read_bytes(), RDF_XML), uri))
    expected = parse(gate((GOLDEN / "figure1.nt").read_bytes(), N_TRIPLES), uri)
    assert document.statements == expected.statements
    assert document.prefixes == {"rdf": RDF, "": "http://mdv.example/schema#"}


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_rdflib_reads_the_same_statements(path: Path) -> None:
    body, syntax, uri = corpus_document(path)
    gated = gate(body, syntax)
    assert first_opinion(gated, uri) == second_opinion(gated, uri)


@pytest.mark.skipif(not GUTENBERG.exists(), reason="the Gutenberg catalogue is not available")
@pytest.mark.parametrize("year", YEARS)
def test_rdflib_reads_the_same_statements_in_gutenberg_documents(year: str) -> None:
    for body, syntax, uri in gutenberg_documents(year, every=20):
        gated = gate(body, syntax)
        assert first_opinion(gated, uri) == second_opinion(gated, uri), uri


# Names


@pytest.mark.parametrize(
    ("body", "subject"),
    [
        ('<ex:A rdf:about=""/>', D),
        ('<ex:A rdf:ID="x"/>', D + "#x"),
        ('<ex:A rdf:about="#x"/>', D + "#x"),
        ('<ex:A rdf:about="x"/>', "http://mdv.example/dir/x"),
        ('<ex:A rdf:about="../x"/>', "http://mdv.example/x"),
        ('<ex:A rdf:about="?q"/>', D + "?q"),
        ('<ex:A rdf:about="//host/x"/>', "http://host/x"),
        ('<ex:A xml:base="http://b/c/d" rdf:about="x"/>', "http://b/c/x"),
        ('<ex:A xml:base="http://b/c/d#f" rdf:about=""/>', "http://b/c/d"),
        ('<ex:A xml:base="http://b/c/d#f" rdf:ID="x"/>', "http://b/c/d#x"),
        ('<ex:A xml:base="" rdf:about="x"/>', "http://mdv.example/dir/x"),
        ('<ex:A xml:base="sub/" rdf:ID="x"/>', "http://mdv.example/dir/sub/#x"),
        ('<ex:A rdf:about="javascript:alert(1)"/>', "javascript:alert(1)"),
        ('<ex:A rdf:about="http://e/../x/./y"/>', "http://e/../x/./y"),
    ],
)
def test_names_are_resolved_against_the_base_or_the_document(body: str, subject: str) -> None:
    assert said(xml(body)) == {Statement(subject, RDF_TYPE, Term.uri(EX + "A"))}


def test_inner_bases_are_relative_to_outer_ones() -> None:
    inside = (
        '<ex:A rdf:about="a" xml:base="x/"><ex:p rdf:resource="b" xml:base="../y/"/><ex:q rdf:resource="c"/></ex:A>'
    )
    statements = said(xml(inside, ' xml:base="http://b/c/d"'))
    assert Statement("http://b/c/x/a", EX + "p", Term.uri("http://b/c/y/b")) in statements
    assert Statement("http://b/c/x/a", EX + "q", Term.uri("http://b/c/x/c")) in statements


def test_a_gated_text_can_be_parsed_under_several_uris() -> None:
    gated = gate(xml('<ex:A xml:base="x/" rdf:about="y"/>').encode(), RDF_XML)
    subjects = [parse(gated, f"http://{host}/").statements[0].subject for host in "ab"]
    assert subjects == ["http://a/x/y", "http://b/x/y"]


@pytest.mark.parametrize(
    ("body", "syntax", "line"),
    [
        (xml('<ex:A rdf:about="http://e/a b"/>'), RDF_XML, 2),
        (xml('\n<ex:A><ex:p rdf:resource="a{b}"/></ex:A>'), RDF_XML, 3),
        (xml('\n<ex:A xml:base="a b"/>'), RDF_XML, 3),
        (xml("\n<ex:A><ex:p xml:lang='e n'>x</ex:p></ex:A>"), RDF_XML, 3),
        (xml('\n<A xmlns="a b"/>'), RDF_XML, 3),
        (xml('\n<A xmlns="relative#"/>'), RDF_XML, 3),
        ("<#a> <#p> 1 .\n<a b> <#p> 1 .", TURTLE, 2),
        ("<#a> <#p> 1 .\n<a{> <#p> 1 .", TURTLE, 2),
        ("<#a> <#p> 1 .\n<#a\\u0020> <#p> 1 .", TURTLE, 2),
        ('<http://e/a> <http://e/p> "x" .\n<http://e/a b> <http://e/p> "x" .', N_TRIPLES, 2),
        ('<http://e/a> <http://e/p> "x" .\n<relative> <http://e/p> "x" .', N_TRIPLES, 2),
    ],
)
def test_invalid_names_are_refused_with_their_line(body: str, syntax: Syntax, line: int) -> None:
    assert refusal(body, syntax).flaws[0].line == line


@pytest.mark.parametrize(
    "body",
    [
        {"@id": "http://e/a b", EX + "p": "x", "@included": [{"@id": "ok", EX + "p": "x"}]},
        {"@id": "http://e/a", EX + "p": "x", EX + "q": {"@id": "a b"}},
        {"@id": "http://e/a", EX + "p": "x", EX + "q q": "y"},
        {"@id": "http://e/a", EX + "p": "x", "@type": "a{b}"},
        {"@id": "http://e/a", EX + "p": ["x", {"@value": "y", "@type": "a b"}]},
        {"@id": "http://e/a", EX + "p": ["x", {"@value": "y", "@language": "e n"}]},
        {"@id": "http://e/a", EX + "p": "x", "_:blank": "y"},
        {"@context": {"h": {"@id": EX + "h", "@type": "@id"}}, "h": ["http://e/ok", "http://e/ y"]},
        {"@context": {"@vocab": EX}, "a b": "x", "c": "y"},
        {"@context": {"@base": None}, "@id": "relative", EX + "p": "x", EX + "q": {EX + "p": "y"}},
    ],
)
def test_invalid_names_of_json_ld_are_not_silently_dropped(body: object) -> None:
    assert refusal(body, JSON_LD).flaws


def test_long_names_are_refused_and_the_errors_are_limited() -> None:
    long = EX + "x" * 100_000
    body = f"@prefix l: <{long}> .\n" + "".join(f"l:a{n} <#p> 1 .\n" for n in range(5_000))
    error = refusal(body, TURTLE)
    assert len(error.flaws) == MAX_FLAWS
    assert all("longer than 2,048 bytes" in flaw.message and len(flaw.message) < 200 for flaw in error.flaws)
    assert refusal(xml('<ex:A rdf:about="x"/>', f' xml:base="{long}/"'), RDF_XML).status == 422


# Many errors


def test_every_invalid_line_of_n_triples_is_reported() -> None:
    lines = ['<http://e/a> <http://e/p> "x" .', '<http://e/a> <http://e/p> "x .', "# ok", "<a> <http://e/p> <b> .",
             '<http://e/a> <http://e/p> "\u2028" .', "nonsense"]  # fmt: skip
    error = refusal("\n".join(lines), N_TRIPLES)
    assert [flaw.line for flaw in error.flaws] == [2, 4, 6]
    assert error.detail == "The N-Triples has 3 errors."


def test_several_errors_of_turtle_and_rdf_xml_are_reported_together() -> None:
    assert [f.line for f in refusal("<#a> <#p> x:y .\n<#a> <#p> 1 .\n<a b> <#p> 1 .\n", TURTLE).flaws] == [1, 3]
    inside = '<ex:A rdf:about="a b"/>\n<ex:A rdf:about="ok"/>\n'
    inside += '<ex:A rdf:about="a b"/>\n<ex:A><ex:p rdf:resource="{"/></ex:A>'
    assert [f.line for f in refusal(xml(inside), RDF_XML).flaws] == [2, 4, 5]


def test_the_number_of_reported_errors_is_limited() -> None:
    assert len(refusal("<a b> <#p> 1 .\n" * 5_000, TURTLE).flaws) == MAX_FLAWS
    assert len(refusal("nonsense\n" * 5_000, N_TRIPLES).flaws) == MAX_FLAWS


# Constructs


def test_members_of_containers_are_numbered() -> None:
    body = xml('<rdf:Bag rdf:ID="b"><rdf:li>x</rdf:li><rdf:li rdf:resource="#y"/></rdf:Bag>')
    assert said(body) == turtle(f'<{D}#b> a rdf:Bag ; rdf:_1 "x" ; rdf:_2 <{D}#y> .')


def test_collections_are_lists() -> None:
    body = xml('<ex:A rdf:ID="a"><ex:p rdf:parseType="Collection"><ex:B rdf:ID="b"/><ex:B/></ex:p></ex:A>')
    assert said(body) == turtle("<#a> a ex:A ; ex:p ( <#b> [ a ex:B ] ) . <#b> a ex:B .")


def test_a_statement_with_an_id_is_reified() -> None:
    assert said(xml('<ex:A rdf:ID="a"><ex:p rdf:ID="s">x</ex:p></ex:A>')) == turtle(
        '<#a> a ex:A ; ex:p "x" . <#s> a rdf:Statement ; rdf:subject <#a> ; rdf:predicate ex:p ; rdf:object "x" .'
    )


def test_parse_type_resource_is_a_blank_node() -> None:
    body = xml('<ex:A rdf:ID="a"><ex:p rdf:parseType="Resource"><ex:q>1</ex:q></ex:p></ex:A>')
    assert said(body) == turtle('<#a> a ex:A ; ex:p [ ex:q "1" ] .')


def test_literals_keep_their_forms_datatypes_and_languages() -> None:
    found = turtle('<#a> ex:p +01, -.5, 1.0E0, "01"^^xsd:integer, "x"@EN-us, "x"^^xsd:string, "\\u0007\\r" .')
    assert {s.object for s in found} == {
        Term.literal("+01", datatype=XSD + "integer"),
        Term.literal("-.5", datatype=XSD + "decimal"),
        Term.literal("1.0E0", datatype=XSD + "double"),
        Term.literal("01", datatype=XSD + "integer"),
        Term.literal("x", lang="en-us"),
        Term.literal("x"),
        Term.literal("\a\r"),
    }


def test_json_numbers_take_json_lds_canonical_forms() -> None:
    found = said({"@id": "#a", EX + "p": [1, 1.85, True, 1e3]}, JSON_LD)
    assert {(s.object.value, (s.object.datatype or "").removeprefix(XSD)) for s in found} == {
        ("1", "integer"),
        ("1.85E0", "double"),
        ("true", "boolean"),
        ("1000", "integer"),
    }


# Refused content


@pytest.mark.parametrize(
    ("body", "syntax", "words"),
    [
        ("<< <#a> <#p> 1 >> <#q> 2 .", TURTLE, "RDF-star"),
        ("<#a> <#q> <<( <#a> <#p> 1 )>> .", TURTLE, "RDF-star"),
        ("<#a> <#p> 1 {| <#q> 2 |} .", TURTLE, "RDF-star"),
        ('<http://e/a> <http://e/p> <<( <http://e/a> <http://e/p> "x" )>> .', N_TRIPLES, "RDF-star"),
        ('<#a> <#p> "x"@en--ltr .', TURTLE, "base direction"),
        ({EX + "p": {"@value": "x", "@language": "en", "@direction": "rtl"}}, JSON_LD, "base direction"),
        ({"@id": "#g", "@graph": [{"@id": "#a", EX + "p": "x"}]}, JSON_LD, "named graph"),
    ],
)
def test_unsupported_constructs_are_refused(body: object, syntax: Syntax, words: str) -> None:
    assert words in refusal(body, syntax).detail


def test_json_ld_without_any_mapped_key_is_refused() -> None:
    assert "no @context maps" in refusal({"name": "Ann", "knows": {"name": "Bob"}}, JSON_LD).detail
    assert len(said({"@id": "#a", EX + "p": "x", "comment": "dropped"}, JSON_LD)) == 1


@pytest.fixture
def server() -> Iterator[tuple[str, list[object]]]:
    """Return an address that listens, and the requests that it received."""
    came: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)

        def listen() -> None:
            while not done.is_set():
                try:
                    connection, address = listener.accept()
                except TimeoutError:
                    continue
                came.append(address)
                connection.close()

        done = threading.Event()
        thread = threading.Thread(target=listen)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/context", came
        done.set()
        thread.join()


@pytest.mark.parametrize("kind", ["url", "array", "nested", "import", "scoped", "relative"])
def test_a_remote_context_is_refused_and_never_fetched(kind: str, server: tuple[str, list[object]]) -> None:
    url, came = server
    bodies: dict[str, object] = {
        "url": {"@context": url, "a": "b"},
        "array": {"@context": [{"a": EX + "a"}, url], "a": "b"},
        "nested": {EX + "p": {"@context": url, "a": "b"}},
        "import": {"@context": {"@version": 1.1, "@import": url}, "a": "b"},
        "scoped": {"@context": {"a": {"@id": EX + "a", "@context": url}}, "a": {"b": "c"}},
        "relative": {"@context": "context.jsonld", "a": "b"},
    }
    assert "which MDV does not fetch" in refusal(bodies[kind], JSON_LD).detail
    assert not came


def test_schema_locations_and_stylesheets_are_not_fetched(server: tuple[str, list[object]]) -> None:
    url, came = server
    xsi = f' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="{EX} {url}"'
    include = f'<ex:p><xi:include xmlns:xi="http://www.w3.org/2001/XInclude" rdf:about="{url}"/></ex:p>'
    body = f'<?xml-stylesheet href="{url}"?>' + xml(f'<ex:A rdf:about="{url}">{include}</ex:A>', xsi)
    assert len(said(body)) == 3
    assert not came


# Names of documents


@pytest.mark.parametrize("uri", ["http://e/d", "urn:mdvx:y", "http://é/ü?q=1", "file:///t/x", "http://e/" + "x" * 2039])
def test_absolute_uris_are_accepted_as_document_names(uri: str) -> None:
    assert check_document_uri(uri) == uri


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        (None, "The URI of the document is missing"),
        ("", "The URI of the document is missing"),
        ("doc.rdf", "not an absolute URI"),
        ("//host/doc", "not an absolute URI"),
        ("http://e/a b", "not an absolute URI"),
        ("http://e/a\nb", "not an absolute URI"),
        ("http://e/a>b", "not an absolute URI"),
        ("http://e/a> <urn:p> <urn:o> . <http://e/b", "not an absolute URI"),
        ("http://e/\\u0041", "not an absolute URI"),
        ("http://e/\0", "not an absolute URI"),
        ("http://e/\ud800", "not an absolute URI"),
        ("http:", "not an absolute URI"),
        ("http://e/d#f", "has a fragment"),
        ("http://e/d#", "has a fragment"),
        ("http://e/" + "x" * 2040, "longer than 2,048 bytes"),
        ("http://e/" + "é" * 1020, "longer than 2,048 bytes"),
    ],
)
def test_other_strings_are_refused_as_document_names(uri: str | None, words: str) -> None:
    for check in (check_document_uri, check_registration_uri):
        with pytest.raises(BadRequest, match=words):
            check(uri)


@pytest.mark.parametrize("uri", ["urn:mdv:schema", "URN:Mdv:lmr:1"])
def test_documents_of_mdv_itself_are_not_registered(uri: str) -> None:
    assert check_document_uri(uri) == uri
    with pytest.raises(Conflict, match="begins with urn:mdv:"):
        check_registration_uri(uri)


def test_all_readers_agree_on_absolute_iris() -> None:
    for iri in ("http://e/é", "urn:a", "a+b.c-d:e", "tag:e,2001:x"):
        assert is_absolute_iri(iri)
        assert said(f"<{iri}> <{EX}p> <{iri}> .", TURTLE) == said(f"<{iri}> <{EX}p> <{iri}> .", N_TRIPLES)
    for other in ("", ":", "a", "1a:b", "http://[", "http://e/%zz", "http://e/^"):
        assert not is_absolute_iri(other)


@given(iri=st.from_regex(_PLAIN, fullmatch=True))
def test_the_parser_accepts_every_plain_iri(iri: str) -> None:
    (quad,) = pyoxigraph.parse(f"<{iri}> <urn:p> <urn:o> .", format=pyoxigraph.RdfFormat.N_TRIPLES)
    assert quad.subject == pyoxigraph.NamedNode(iri)


def test_a_value_beyond_the_parsers_limit_is_too_large() -> None:
    with pytest.raises(TooLarge):
        parse(gate(b"<http://a> <http://b> '" + b"x" * 17_000_000 + b"' .", TURTLE), "http://d/")
