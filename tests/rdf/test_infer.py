"""A schema drafted from samples accepts the samples."""

from __future__ import annotations

import pyoxigraph
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdv.model import MDV, RDF, RDF_TYPE, RDFS, RDFS_RESOURCE, XSD, Document, ParsedDocument, Statement, Term
from mdv.rdf.blank import name_blank_nodes
from mdv.rdf.infer import infer_schema
from mdv.rdf.schema import Schema, read_schema
from mdv.rdf.validate import validate

V = "http://example.org/v#"
D = "http://example.org/d"


def statements_of(text: str, syntax: pyoxigraph.RdfFormat, base: str) -> list[Statement]:
    def name(node: object) -> str:
        return f"_:{node.value}" if isinstance(node, pyoxigraph.BlankNode) else node.value

    def term(node: object) -> Term:
        if isinstance(node, pyoxigraph.Literal):
            datatype = None if node.language or node.datatype.value == XSD + "string" else node.datatype.value
            return Term.literal(node.value, node.language, datatype)
        return Term("blank" if isinstance(node, pyoxigraph.BlankNode) else "uri", name(node))

    triples = pyoxigraph.parse(text, format=syntax, base_iri=base)
    return [Statement(name(t.subject), name(t.predicate), term(t.object)) for t in triples]


def sample(turtle: str, uri: str = D) -> Document:
    head = f"@prefix : <{V}> . @prefix rdf: <{RDF}> . @prefix rdfs: <{RDFS}> . @prefix xsd: <{XSD}> .\n"
    statements = tuple(statements_of(head + turtle, pyoxigraph.RdfFormat.TURTLE, uri))
    return name_blank_nodes(ParsedDocument(uri, statements, {"v": V}))


def read_back(turtle: str) -> Schema:
    return read_schema(statements_of(turtle, pyoxigraph.RdfFormat.TURTLE, "urn:mdv:schema"), {"v": V})


def drafted(*samples: Document) -> Schema:
    """Return the schema drafted from the samples, which must accept them."""
    schema = read_back(infer_schema(samples))
    for one in samples:
        validate(one, schema)
    return schema


def range_of(values: str) -> str | None:
    found = drafted(sample(f"<#a> :p {values} .")).properties[V + "p"].range
    return found and found.removeprefix(XSD)


@pytest.mark.parametrize(
    ("values", "range_"),
    [
        ("'92'", "integer"),
        ("'92', '-1'", "integer"),
        ("'92', '1.5'", "decimal"),
        ("'true', 'false'", "boolean"),
        ("'2024-02-29'", "date"),
        ("'2024-02-29T12:00:00Z'", "dateTime"),
        ("'2023-02-29'", "string"),
        ("'92', 'x'", "string"),
        ("'007'", "string"),
        ("'12E4'", "string"),
        ("'NaN'", "string"),
        ("'92'@en", "string"),
        ("''", "string"),
        ("92", "integer"),
        ("92, 1.5", "decimal"),
        ("92, 1.5e0", "double"),
        ("1.5e0", "double"),
        ("'5'^^xsd:unsignedByte", "unsignedByte"),
        ("'007'^^xsd:integer", "integer"),
        ("'x'^^xsd:integer", "string"),
        ("'2024'^^xsd:gYear", "gYear"),
        ("'2024-02-29'^^xsd:date, 'x'", "string"),
        ("'x'^^:Own", V + "Own"),
        ("'x'^^:Own, 'y'", "string"),
        ("'x', <#b>", None),
        ("<#b>", RDFS_RESOURCE),
        ("[]", RDFS_RESOURCE),
    ],
)
def test_ranges_are_drafted_from_values(values, range_):
    assert range_of(values) == range_


def test_a_property_of_one_class_has_it_as_domain():
    schema = drafted(
        sample("<#a> a :C ; :p 1 . <#b> a :C, :D ; :p 2 ; :q 3 . <#c> :r 4 . <#d> a :D ; :s 1 . <#a> :s 1 .")
    )
    assert schema.properties[V + "p"].domains == (V + "C",)
    assert schema.properties[V + "q"].domains in ((V + "C",), (V + "D",))
    assert schema.properties[V + "r"].domains == ()
    assert schema.properties[V + "s"].domains == ()


def test_a_reference_to_one_described_class_has_it_as_range():
    schema = drafted(sample("<#a> :p <#b> ; :q <#b>, <#c> . <#b> a :C ."))
    assert schema.properties[V + "p"].range == V + "C"
    assert schema.properties[V + "q"].range == RDFS_RESOURCE


def test_a_type_given_by_another_sample_counts():
    schema = drafted(sample("<#a> :p <http://example.org/e#b> ."), sample("<#b> a :C .", "http://example.org/e"))
    assert schema.properties[V + "p"].range == V + "C"


def test_several_values_in_one_document_make_a_property_set_valued():
    one, other = sample("<#a> :p 1, 2 ; :q 1 ."), sample("<http://example.org/d#a> :q 2 .", "http://example.org/e")
    schema = drafted(one, other)
    assert schema.properties[V + "p"].set_valued
    assert not schema.properties[V + "q"].set_valued


def test_references_are_weak_with_a_hint():
    text = infer_schema([sample("<#a> :p <#b> .")])
    assert "# v:p mdv:reference mdv:strong ." in text
    assert not read_back(text).properties[V + "p"].strong


def test_built_in_terms_are_declared_only_where_needed():
    text = infer_schema([sample("<#a> a rdf:Bag ; rdfs:label 'x' ; rdf:_1 'a' ; rdf:value 1 .")])
    assert "Properties" not in text
    assert "Classes" not in text
    drafted(sample("<#a> rdfs:label 'x'@en, 'x'@de ; rdfs:comment <#c> ; rdf:_1 1, 2 ."))


def test_the_drafted_world_is_closed():
    assert not drafted(sample("<#a> a :C .")).open


@pytest.mark.parametrize(
    "turtle",
    [
        "<#a> a :x ; :x 1 .",
        "<#a> a rdf:value ; rdf:value 1, 2 .",
        "<#a> rdf:List 1 ; a rdf:List .",
        "<#a> a xsd:string .",
        "<#a> a [] .",
        f"<#a> <{MDV}setValued> true .",
    ],
)
def test_the_drafted_world_is_open_if_something_cannot_be_declared(turtle):
    assert drafted(sample(turtle)).open


def test_clashing_custom_datatypes_become_text():
    assert not drafted(sample("<#a> a :C ; :p 'x'^^:C .")).open
    drafted(sample("<#a> :p 'x'^^:p ."))


def test_names_without_a_prefix_are_written_in_full():
    assert "<http://other.org/9-lives> a rdf:Property" in infer_schema([sample("<#a> <http://other.org/9-lives> 1 .")])


def test_without_samples_nothing_is_drafted():
    assert read_back(infer_schema([])).classes.keys() == read_back("").classes.keys()


terms = st.one_of(
    st.sampled_from([Term.uri(D + f"#{name}") for name in "abc"] + [Term.uri(V + "p"), Term.uri(V + "C")]),
    st.builds(Term.literal, st.sampled_from(["1", "x", "1.5", "true", "2024-01-01", ""]), st.none(), st.none()),
    st.builds(Term.literal, st.sampled_from(["1", "x", "NaN"]), st.none(), st.sampled_from([XSD + "double", V + "C"])),
    st.builds(Term.literal, st.just("1"), st.just("en")),
)
statements = st.one_of(
    st.builds(Statement, st.sampled_from([D + "#a", D + "#b"]), st.sampled_from([V + "p", V + "q", RDF + "_1"]), terms),
    st.builds(
        Statement,
        st.sampled_from([D + "#a", D + "#b"]),
        st.just(RDF_TYPE),
        st.sampled_from(["C", "D", "p"]).map(lambda name: Term.uri(V + name)),
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(statements, max_size=8, unique=True), max_size=3))
def test_the_samples_are_valid_under_their_draft(drawn):
    drafted(*(Document(f"{D}{n}", tuple(one), {"v": V}) for n, one in enumerate(drawn)))


GUTENBERG = """<?xml version="1.0" encoding="utf-8"?>
<rdf:RDF xml:base="http://www.gutenberg.org/" xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
  xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#" xmlns:dcterms="http://purl.org/dc/terms/"
  xmlns:dcam="http://purl.org/dc/dcam/" xmlns:cc="http://web.resource.org/cc/"
  xmlns:pgterms="http://www.gutenberg.org/2009/pgterms/">
  <pgterms:ebook rdf:about="ebooks/1342">
    <dcterms:title>Pride and Prejudice</dcterms:title>
    <pgterms:downloads rdf:datatype="http://www.w3.org/2001/XMLSchema#integer">60000</pgterms:downloads>
    <dcterms:creator>
      <pgterms:agent rdf:about="2009/agents/68">
        <pgterms:name>Austen, Jane</pgterms:name>
        <pgterms:birthdate rdf:datatype="http://www.w3.org/2001/XMLSchema#integer">1775</pgterms:birthdate>
        <pgterms:webpage rdf:resource="http://en.wikipedia.org/wiki/Jane_Austen"/>
      </pgterms:agent>
    </dcterms:creator>
    <dcterms:language><rdf:Description>
      <rdf:value rdf:datatype="http://purl.org/dc/terms/RFC4646">en</rdf:value></rdf:Description></dcterms:language>
    <dcterms:subject><rdf:Description><dcam:memberOf rdf:resource="http://purl.org/dc/terms/LCSH"/>
      <rdf:value>England -- Fiction</rdf:value></rdf:Description></dcterms:subject>
    <dcterms:subject><rdf:Description><dcam:memberOf rdf:resource="http://purl.org/dc/terms/LCC"/>
      <rdf:value>PR</rdf:value></rdf:Description></dcterms:subject>
    <dcterms:hasFormat>
      <pgterms:file rdf:about="ebooks/1342.epub">
        <dcterms:isFormatOf rdf:resource="ebooks/1342"/>
        <dcterms:extent rdf:datatype="http://www.w3.org/2001/XMLSchema#integer">999</dcterms:extent>
        <dcterms:modified rdf:datatype="http://www.w3.org/2001/XMLSchema#dateTime">2018-01-01T02:03:04.5</dcterms:modified>
      </pgterms:file>
    </dcterms:hasFormat>
  </pgterms:ebook>
  <cc:Work rdf:about=""><rdfs:comment>Archives</rdfs:comment><rdfs:comment>of the past</rdfs:comment></cc:Work>
</rdf:RDF>"""


def test_a_schema_is_drafted_from_a_gutenberg_document():
    uri = "http://www.gutenberg.org/cache/epub/1342/pg1342.rdf"
    parsed = ParsedDocument(uri, tuple(statements_of(GUTENBERG, pyoxigraph.RdfFormat.RDF_XML, uri)))
    schema = drafted(name_blank_nodes(parsed))
    terms, pg = "http://purl.org/dc/terms/", "http://www.gutenberg.org/2009/pgterms/"
    assert schema.properties[terms + "creator"].range == pg + "agent"
    assert schema.properties[terms + "isFormatOf"].domains == (pg + "file",)
    assert schema.properties[terms + "modified"].range == XSD + "dateTime"
    assert schema.properties[terms + "subject"].set_valued
    assert schema.properties[RDFS + "comment"].set_valued
    assert not schema.open
