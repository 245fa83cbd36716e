"""Serialise: the output reads back as exactly the same statements, in each syntax, always in the same bytes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mdv.errors import InvalidDocument, NotAcceptable, NotWellFormed, TooLarge
from mdv.model import RDF, RDF_TYPE, XSD, Document, ParsedDocument, Statement, Term
from mdv.rdf.blank import name_blank_nodes
from mdv.rdf.gate import gate
from mdv.rdf.parse import MAX_VALUE_BYTES, parse
from mdv.rdf.serialise import MAX_NESTING, serialise
from mdv.rdf.syntax import JSON_LD, N_TRIPLES, RDF_XML, SYNTAXES, TURTLE, Syntax, syntax_of_name
from tests.support.gutenberg import GUTENBERG, YEARS
from tests.support.limits import calls_of
from tests.support.rdflib_reader import CORPUS, GOLDEN, corpus_document, gutenberg_documents

D = "http://mdv.example/doc.rdf"
V = "http://v.example/"
EVERY_SYNTAX = pytest.mark.parametrize("syntax", SYNTAXES, ids=lambda syntax: syntax.name)


def read(body: bytes, syntax: Syntax, uri: str = D) -> Document:
    return name_blank_nodes(parse(gate(body, syntax), uri))


def named(*statements: Statement) -> Document:
    return name_blank_nodes(ParsedDocument(D, statements))


def assert_reads_back(document: Document, syntax: Syntax, prefixes: dict[str, str] | None = None) -> bytes:
    text = serialise(document.statements, syntax, document.prefixes if prefixes is None else prefixes, document.uri)
    assert read(text, syntax, document.uri).statements == document.statements, text.decode()
    return text


@EVERY_SYNTAX
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_every_document_of_the_corpus_reads_back_exactly(path: Path, syntax: Syntax) -> None:
    document = read(*corpus_document(path))
    if syntax is RDF_XML and any("\a" in s.object.value for s in document.statements):
        with pytest.raises(NotAcceptable, match="control character"):
            serialise(document.statements, syntax, document.prefixes, document.uri)
    else:
        assert_reads_back(document, syntax)


@pytest.mark.skipif(not GUTENBERG.exists(), reason="the Gutenberg catalogue is not available")
@pytest.mark.parametrize("year", YEARS)
def test_gutenberg_documents_read_back_exactly(year: str) -> None:
    for body, syntax, uri in gutenberg_documents(year, every=60):
        document = read(body, syntax, uri)
        for other in SYNTAXES:
            assert_reads_back(document, other)


@EVERY_SYNTAX
def test_equal_statements_give_the_same_bytes_in_any_order_and_process(syntax: Syntax) -> None:
    path = GOLDEN / "documents" / "blanks.ttl"
    document = read(*corpus_document(path))
    prefixes = {"b": "http://b/", **document.prefixes, "v": V, "a": "urn:a:"}
    statements = [*document.statements, Statement("http://b/x", V + "p", Term.literal("x", datatype="urn:a:t"))]
    text = serialise(statements, syntax, prefixes, document.uri)
    for seed in range(5):
        random.Random(seed).shuffle(statements)
        turned = dict(reversed(prefixes.items()))
        assert serialise(statements + statements[:3], syntax, turned, document.uri) == text


def test_the_output_does_not_depend_on_hash_seeds() -> None:
    script = (
        "import sys; from mdv.model import *; from mdv.rdf.serialise import serialise; from mdv.rdf.syntax import *\n"
        "prefixes = {c: f'http://{c}.example/' for c in 'abcdefgh'}\n"
        "said = [Statement(f'http://s/{c}', f'http://{c}.example/p', Term.literal(c)) for c in 'abcdefgh']\n"
        "sys.stdout.buffer.write(b''.join(serialise(said, syntax, prefixes) for syntax in SYNTAXES))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(texts) == 1


# Generated statements

_texts = st.text(
    st.one_of(
        st.sampled_from("\r\n\t \"'\\<>&]@:{}[]#%\x0b\x1f\x7f\x85\u2028\u0301\ufeff\ufffd\ufffe\uffff𝒳😀"),
        st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"),
    ),
    max_size=8,
)
_locals = st.sampled_from(["p", "p1", "a.b-c", "_x", "größe", "http", "ex", "type", "12a", "Description", "v"])
_properties = st.one_of(
    st.builds(str.__add__, st.sampled_from([V, V + "#", "urn:x:", "tag:e.org,2001:"]), _locals),
    st.sampled_from([RDF_TYPE, RDF + "first", RDF + "rest", RDF + "_1", RDF + "value"]),
)
_uris = st.one_of(
    st.builds(str.__add__, st.sampled_from([V, D + "#", "urn:x:", "urn:", "http://prefix/"]), _locals),
    st.sampled_from([D, RDF + "nil", RDF + "li", RDF + "List", "http://e/it's(a)~b?c=d&e=%20f;g!h$*,", "x-y+z.1:q"]),
)
_blanks = st.sampled_from(["_:a", "_:b", "_:c", "_:d"])
_literals = st.one_of(
    st.builds(Term.literal, _texts),
    st.builds(Term.literal, _texts, lang=st.sampled_from(["en", "de-at", "zh-hant-tw", "x-private"])),
    st.builds(
        Term.literal,
        st.one_of(
            _texts, st.sampled_from(["01", "1", "-0", "1.0E0", "1e0", "abc", "true", "1", ".5", "5.", "+1", "INF"])
        ),
        datatype=st.one_of(
            st.sampled_from([XSD + t for t in ("integer", "double", "decimal", "boolean", "date", "anyURI")]),
            st.sampled_from([RDF + "XMLLiteral", RDF + "JSON", RDF + "HTML", V + "t", "urn:odd", V + "1"]),
        ),
    ),
)
_objects = st.one_of(st.builds(Term.uri, _uris), _blanks.map(lambda id: Term("blank", id)), _literals)
_statements = st.lists(
    st.tuples(st.one_of(_uris, _blanks), _properties, _objects).map(Statement._make), min_size=1, max_size=10
)
_LANGS = ["en", "en-us", "de"]
_DATATYPES = [XSD + "integer", XSD + "decimal", RDF + "XMLLiteral", V + "t"]


@st.composite
def _alike(draw: st.DrawFn) -> list[Statement]:
    """Statements whose objects differ only in language, datatype, or kind."""
    subject, name = draw(st.one_of(_uris, _blanks)), draw(_properties)
    text = draw(st.one_of(_texts, st.sampled_from(["5", V + "p"])))
    terms = [Term.literal(text), *(Term.literal(text, lang=lang) for lang in _LANGS)]
    terms += [Term.literal(text, datatype=datatype) for datatype in _DATATYPES]
    terms += [Term.uri(V + "p")] if text == V + "p" else []
    return [Statement(subject, name, term) for term in draw(st.lists(st.sampled_from(terms), min_size=2, unique=True))]


_prefixes = st.dictionaries(
    st.sampled_from(["", "v", "ex", "urn", "http", "rdf", "xml", "xmlns", "_", "a.", "p", "é", "type", "ns1", "tag"]),
    st.sampled_from(
        [V, V + "#", "urn:x:", "urn:", RDF, XSD, "http://prefix/", D + "#", "http://www.w3.org/2000/xmlns/"]
    ),
)


@settings(max_examples=150, deadline=None)
@given(_statements, _prefixes)
@example([Statement(V + "a", V + "p", Term.literal("x")), Statement(V + "a", V + "p", Term.literal("x", "en"))], {})
@example([Statement("_:a", V + "p", Term("blank", "_:b")), Statement("_:b", V + "p", Term("blank", "_:a"))], {})
@example([Statement("urn:x:s", "urn:x:p", Term.uri("urn:x:o"))], {"urn": "urn:x:", "x": "urn:"})
@example([Statement(V + "a", V + "ex", Term.literal("x"))], {"": V, "ex": "urn:x:"})
def test_random_statements_read_back_exactly(statements: list[Statement], prefixes: dict[str, str]) -> None:
    assert_all_read_back(statements, prefixes)


@settings(max_examples=100, deadline=None)
@given(st.lists(_alike(), min_size=1, max_size=3), _statements, _prefixes)
def test_nearly_equal_statements_read_back_exactly(
    alike: list[list[Statement]], others: list[Statement], prefixes: dict[str, str]
) -> None:
    assert_all_read_back([*chain(*alike), *others], prefixes)


def assert_all_read_back(statements: list[Statement], prefixes: dict[str, str]) -> None:
    document = named(*statements)
    for syntax in SYNTAXES:
        try:
            assert_reads_back(document, syntax, prefixes)
        except NotAcceptable as refusal:
            assert syntax is RDF_XML and "control character" in refusal.detail
            assert any(
                (c < " " and c not in "\t\r\n") or c in "\ufffe\uffff" for s in statements for c in s.object.value
            )


# Long values

LONG = {
    "ten million bytes": "x" * 10_000_000,
    "the longest": "x" * (MAX_VALUE_BYTES - 2),  # without the quotes
    "newlines": "\n" * 7_900_000,
    "quotes and backslashes": '"\\' * 3_900_000,
    "two bytes a character": "ü" * 7_900_000,
    "four bytes a character": "😀" * 3_900_000,
    "markup": "<&>" * 1_900_000,
    "control characters": "\x01" * 2_600_000,
}


@EVERY_SYNTAX
@pytest.mark.parametrize("name", LONG)
def test_a_long_value_reads_back_from_every_syntax(name: str, syntax: Syntax) -> None:
    terms = [Term.literal(LONG[name]), Term.literal("beside it"), Term.literal("x", lang="en")]
    document = named(*(Statement(V + "a", V + "p", term) for term in terms))
    if syntax is RDF_XML and name == "control characters":
        with pytest.raises(NotAcceptable, match="control character"):
            serialise(document.statements, syntax, {}, document.uri)
        return
    text = serialise(document.statements, syntax, {}, document.uri)
    assert read(text, syntax).statements == document.statements


@EVERY_SYNTAX
@pytest.mark.parametrize("value", ["x" * (MAX_VALUE_BYTES - 1), "\n" * 8_100_000, "😀" * 4_100_000])
def test_a_value_over_the_limit_is_refused_in_every_syntax(value: str, syntax: Syntax) -> None:
    """Otherwise one syntax would accept values that another could not read back."""
    text = serialise([Statement(V + "a", V + "p", Term.literal(value))], syntax, {})
    with pytest.raises(TooLarge, match="16,000,000 bytes"):
        read(text, syntax)


@pytest.mark.parametrize(
    "inside",
    [
        '"@id": "http://e/%s", "http://e/p": "x"',
        '"@type": "http://e/%s", "http://e/p": "x"',
        '"http://e/p": {"@id": "%s"}',
        '"http://e/p": {"@value": "x", "@language": "%s"}',
        '"http://e/p": {"@value": {"a": "%s"}, "@type": "@json"}',
        '"http://e/%s": "x"',
    ],
)
def test_a_long_string_of_json_ld_that_is_not_a_value_is_refused(inside: str) -> None:
    with pytest.raises((InvalidDocument, NotWellFormed)):
        read(("{" + inside % ("x" * 2_000_000) + "}").encode(), JSON_LD)


def test_a_long_string_of_json_ld_is_accepted_wherever_a_value_is_allowed() -> None:
    long = '\\"ü\n' * 400_000
    written = json.dumps(long)
    context = f'{{"t": {{"@id": "{V}t", "@type": "{V}type"}}, "l": {{"@id": "{V}l", "@container": "@set"}}}}'
    body = f"""{{"@context": {context},
      "@id": "{V}a", "t": {written}, "l": [{written}, "short"],
      "{V}v": {{"@value": {written}, "@language": "en"}}, "comment": {written}}}"""
    assert set(read(body.encode(), JSON_LD).statements) == {
        Statement(V + "a", V + "t", Term.literal(long, datatype=V + "type")),
        Statement(V + "a", V + "l", Term.literal(long)),
        Statement(V + "a", V + "l", Term.literal("short")),
        Statement(V + "a", V + "v", Term.literal(long, lang="en")),
    }


# RDF/XML


@pytest.mark.parametrize("name", ["http://v/1", "http://v/", "urn:x:12", "http://v/a/2.5"])
def test_a_property_that_is_no_xml_name_cannot_be_written_as_rdf_xml(name: str) -> None:
    said = [Statement("http://a/b", name, Term.literal("x"))]
    with pytest.raises(NotAcceptable, match="text/turtle"):
        serialise(said, RDF_XML, {})
    for syntax in (TURTLE, N_TRIPLES, JSON_LD):
        assert read(serialise(said, syntax, {}), syntax).statements == tuple(said)


@pytest.mark.parametrize("word", ["li", "Description", "RDF", "ID", "about", "parseType", "bagID", "aboutEach"])
def test_rdf_syntax_terms_are_refused_as_properties_in_rdf_xml(word: str) -> None:
    with pytest.raises(NotAcceptable, match="part of its syntax"):
        serialise([Statement("http://a/b", RDF + word, Term.literal("x"))], RDF_XML, {})
    as_class = named(Statement("http://a/b", RDF_TYPE, Term.uri(RDF + word)))
    assert_reads_back(as_class, RDF_XML)


def test_figure_1_is_written_with_the_nesting_of_the_paper() -> None:
    document = read((GOLDEN / "figure1.rdf").read_bytes(), RDF_XML)
    text = assert_reads_back(document, RDF_XML).decode()
    assert text.splitlines()[3:] == [
        f'  <CycleProvider rdf:about="{D}#host">',
        "    <serverHost>pirates.uni-passau.de</serverHost>",
        "    <serverInformation>",
        f'      <ServerInformation rdf:about="{D}#info">',
        "        <cpu>600</cpu>",
        "        <memory>92</memory>",
        "      </ServerInformation>",
        "    </serverInformation>",
        "    <serverPort>5874</serverPort>",
        "  </CycleProvider>",
        "</rdf:RDF>",
    ]


def test_the_nesting_of_a_long_chain_is_limited() -> None:
    chain = [Statement(f"_:{n}", V + "next", Term("blank", f"_:{n + 1}")) for n in range(500)]
    text = assert_reads_back(named(*chain), RDF_XML).decode()
    assert max(len(line) - len(line.lstrip()) for line in text.splitlines()) <= 4 * (MAX_NESTING + 2)


def test_a_long_list_is_written_as_a_collection() -> None:
    cells = [Statement(f"_:{n}", RDF + "first", Term.uri(f"{V}{n}")) for n in range(1000)]
    cells += [Statement(f"_:{n}", RDF + "rest", Term("blank", f"_:{n + 1}")) for n in range(999)]
    cells += [Statement("_:999", RDF + "rest", Term.uri(RDF + "nil")), Statement(V, V + "l", Term("blank", "_:0"))]
    text = assert_reads_back(named(*cells), RDF_XML).decode()
    assert text.count("parseType") == 1 and "rdf:first" not in text


@pytest.mark.parametrize(
    "extra",
    [
        Statement("_:1", RDF_TYPE, Term.uri(RDF + "List")),
        Statement("_:1", V + "p", Term.literal("x")),
        Statement(V, V + "other", Term("blank", "_:1")),
        Statement("_:1", RDF + "first", Term.uri(V + "second")),
        Statement("_:1", RDF + "rest", Term.uri(RDF + "nil")),
        Statement("_:1", RDF + "rest", Term("blank", "_:0")),
    ],
)
def test_a_list_with_additional_statements_reads_back_exactly(extra: Statement) -> None:
    cells = [Statement(f"_:{n}", RDF + "first", Term.uri(f"{V}{n}")) for n in range(3)]
    cells += [Statement(f"_:{n}", RDF + "rest", Term("blank", f"_:{n + 1}")) for n in range(2)]
    cells += [Statement("_:2", RDF + "rest", Term.uri(RDF + "nil")), Statement(V, V + "l", Term("blank", "_:0"))]
    for syntax in SYNTAXES:
        assert_reads_back(named(*cells, extra), syntax)


def test_prefixes_that_look_like_uri_schemes_are_not_used_in_json_ld() -> None:
    document = named(Statement("http://a/b", "urn:x:p", Term.uri("tag:c")))
    text = assert_reads_back(document, JSON_LD, {"http": "http://a/", "urn": "urn:x:", "tag": "http://a/"})
    assert b'"urn"' not in text and b'"urn:x:p"' in text


def test_blank_nodes_of_other_documents_keep_their_names() -> None:
    other = Statement("http://other/d#_:1f", V + "p", Term.uri("http://other/d#_:2a"))
    for syntax in SYNTAXES:
        text = serialise([other], syntax, {}, D)
        assert b"http://other/d#_:1f" in text and b"http://other/d#_:2a" in text


def test_two_prefixes_of_one_namespace_and_a_redefined_rdf_prefix_are_supported() -> None:
    document = named(Statement(V + "a", V + "p", Term.literal("x", datatype=XSD + "date")))
    text = assert_reads_back(document, RDF_XML, {"rdf": V, "long": V, "": RDF}).decode()
    assert "<rdf:p rdf1:datatype=" in text


@pytest.mark.parametrize("syntax", SYNTAXES, ids=lambda syntax: syntax.name)
def test_the_work_of_serialising_is_linear(syntax: Syntax) -> None:
    many = [Statement(f"{V}s{n // 10}", f"{V}p{n % 10}", Term.literal(str(n))) for n in range(8_000)]
    text = serialise(many, syntax, {"v": V}, D)
    assert read(text, syntax).statements == tuple(sorted(many, key=lambda s: (s.subject, s.property)))
    few = many[:800]
    calls = [calls_of(lambda some=some: serialise(some, syntax, {"v": V}, D)) for some in (few, many)]
    assert calls[1] < 11 * calls[0]


def test_syntaxes_are_found_by_file_name() -> None:
    assert {syntax_of_name(path.name).name for path in CORPUS} == {"rdfxml", "turtle", "ntriples", "jsonld"}


@pytest.mark.parametrize("node", ["_:n{}", "<http://ring/{}>"])
@pytest.mark.parametrize("length", [2, 21, 110, 900])
def test_a_cycle_of_any_length_reads_back_from_rdf_xml(length: int, node: str) -> None:
    lines = [f"{node.format(n)} <http://e/ref> {node.format((n + 1) % length)} .\n" for n in range(length)]
    document = name_blank_nodes(parse(gate("".join(lines).encode(), N_TRIPLES), "http://d/ring"))
    written = serialise(document.statements, RDF_XML, {}, document.uri)
    again = name_blank_nodes(parse(gate(written, RDF_XML), document.uri))
    assert again.statements == document.statements
