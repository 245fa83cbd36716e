"""The gate refuses unsafe, incomplete and malformed documents, with their place, before they are parsed."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from mdv.errors import MdvError, NotWellFormed, TooLarge
from mdv.model import LANG_STRING, RDF, XSD_STRING, ParsedDocument, Statement, Term
from mdv.rdf.blank import name_blank_nodes
from mdv.rdf.gate import gate
from mdv.rdf.gated import MAX_DEPTH
from mdv.rdf.parse import parse
from mdv.rdf.syntax import JSON_LD, N_TRIPLES, RDF_XML, SYNTAXES, TURTLE, Syntax, syntax_of_media_type
from mdv.rdf.validate import refuse_reserved
from tests.support.limits import hang_guard

D = "http://mdv.example/doc.rdf"
S = "http://mdv.example/schema#"
EX = "http://example.org/"


def xml(inside: str, attributes: str = "") -> bytes:
    return f'<rdf:RDF xmlns:rdf="{RDF}" xmlns="{S}" xmlns:ex="{EX}"{attributes}>\n{inside}\n</rdf:RDF>'.encode()


def read(body: bytes | str, syntax: Syntax = RDF_XML, charset: str | None = None) -> ParsedDocument:
    body = body.encode() if isinstance(body, str) else body
    parsed = parse(gate(body, syntax, charset), D)
    refuse_reserved(parsed)
    return parsed


def values(parsed: ParsedDocument, property: str) -> list[str]:
    return [s.object.value for s in parsed.statements if s.property == property]


def refusal(body: bytes | str, syntax: Syntax = RDF_XML, charset: str | None = None) -> MdvError:
    with pytest.raises(MdvError) as caught:
        read(body, syntax, charset)
    assert caught.value.status in (400, 413, 422)
    return caught.value


def gate_refusal(body: bytes | str, syntax: Syntax = RDF_XML) -> MdvError:
    """Check that the gate itself refuses: the parser never sees the body."""
    with hang_guard(), pytest.raises(MdvError) as caught:
        gate(body.encode() if isinstance(body, str) else body, syntax)
    return caught.value


def flaws(inside: str, attributes: str = "") -> list[tuple[int | None, str]]:
    """Lines are those of `inside`, from 1."""
    return [(flaw.line and flaw.line - 1, flaw.message) for flaw in refusal(xml(inside, attributes)).flaws]


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    calls: list[object] = []

    def connect(self: socket.socket, address: object) -> None:
        calls.append(address)
        raise OSError("no network here")

    monkeypatch.setattr(socket.socket, "connect", connect)
    yield calls
    assert not calls


# Entities and DOCTYPE

LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
DOCTYPES = {
    "billion laughs": (f'<!DOCTYPE x [<!ENTITY l0 "lol">{LAUGHS}]>', "&l11;"),
    "quadratic": (f'<!DOCTYPE x [<!ENTITY a "{"a" * 50_000}">]>', "&a;" * 5_000),
    "external entity": ('<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>', "&a;"),
    "external DTD": ('<!DOCTYPE x SYSTEM "http://127.0.0.1:9/x.dtd">', ""),
    "public DTD": ('<!DOCTYPE x PUBLIC "-//X//X" "http://127.0.0.1:9/x.dtd">', ""),
    "parameter entity": ('<!DOCTYPE x [<!ENTITY % p SYSTEM "http://127.0.0.1:9/x"> %p;]>', ""),
    "harmless": ("<!DOCTYPE rdf:RDF>", ""),
    "empty": ("<!DOCTYPE rdf:RDF []>", ""),
    "after a comment": ("<!-- <x> --><?pi?>\n<!DOCTYPE rdf:RDF>", ""),
    "unfinished": ("<!DOCTYPE rdf:RDF [", ""),
}


@pytest.mark.parametrize("where", ["text", "attribute"])
@pytest.mark.parametrize("kind", DOCTYPES)
def test_any_doctype_is_refused_and_nothing_is_fetched(kind: str, where: str, no_network: list[object]) -> None:
    doctype, use = DOCTYPES[kind]
    inside = f"<ex:A><ex:p>{use}</ex:p></ex:A>" if where == "text" else f'<ex:A ex:p="{use}"/>'
    assert "DOCTYPE" in gate_refusal(doctype.encode() + xml(inside)).detail


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_doctype_in_another_encoding_is_refused(encoding: str) -> None:
    text = DOCTYPES["billion laughs"][0] + xml("<ex:A><ex:p>&l11;</ex:p></ex:A>").decode()
    assert "DOCTYPE" in refusal(text.encode(encoding)).detail


# Empty, truncated, not RDF


@pytest.mark.parametrize("syntax", SYNTAXES, ids=lambda syntax: syntax.name)
@pytest.mark.parametrize("body", [b"", b" \n\t", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_empty_documents_are_refused_and_delete_nothing(body: bytes, syntax: Syntax) -> None:
    assert "empty. To delete a document, delete it by its URI" in refusal(body, syntax).detail


@pytest.mark.parametrize(
    ("body", "syntax"),
    [(b'<?xml version="1.0"?>', RDF_XML), (xml(""), RDF_XML), (b"# a comment", TURTLE), (b"# a comment", N_TRIPLES),
     (b"@prefix ex: <http://e/> .", TURTLE), (b"{}", JSON_LD), (b"[]", JSON_LD), (b"null", JSON_LD), (b'"x"', JSON_LD)],
)  # fmt: skip
def test_documents_without_statements_are_refused(body: bytes, syntax: Syntax) -> None:
    assert refusal(body, syntax).status == 400


RDF_XML_TEXT = xml(
    '<ex:A rdf:about="#é"><ex:p xml:lang="en">x &amp; y</ex:p><!-- c --><ex:q rdf:resource="#b"/></ex:A>'
)
JSON_LD_TEXT = json.dumps(
    {"@context": {"ex": EX, "p": {"@id": "ex:p", "@type": "@id"}}, "@id": "#a", "p": ["#é", "#c"], "ex:q": [1.5, True]}
).encode()
STATEMENTS = [
    b'<http://e/a> <http://e/p> "x\\"\\u00e9"@en .\n',
    b'_:b1 <http://e/p> "y"^^<http://e/t> . # comment\n',
    "<http://e/a> <http://e/é> _:b1 .\n".encode(),
]
TURTLE_HEAD = b"@prefix ex: <http://e/> .\n"
TURTLE_STATEMENTS = [
    b'ex:a ex:p 15, true ; ex:q "x"@en-gb, """long "x" """ .\n',
    b"<#b> ex:p [ ex:q ( 1 <#c> ) ] .\n",
]


@pytest.mark.parametrize(("text", "syntax"), [(RDF_XML_TEXT, RDF_XML), (JSON_LD_TEXT, JSON_LD)])
def test_a_document_truncated_anywhere_is_refused(text: bytes, syntax: Syntax) -> None:
    assert read(text, syntax).statements
    for end in range(len(text)):
        error = refusal(text[:end], syntax)
        assert error.status == 400, (end, text[:end])


@pytest.mark.parametrize(
    ("head", "parts", "syntax"),
    [(b"", STATEMENTS, N_TRIPLES), (TURTLE_HEAD, TURTLE_STATEMENTS, TURTLE)],
)
def test_a_document_truncated_within_a_statement_is_refused(head: bytes, parts: list[bytes], syntax: Syntax) -> None:
    text = head + b"".join(parts)
    whole_counts = [len(read(head + b"".join(parts[: n + 1]), syntax).statements) for n in range(len(parts))]
    for end in range(len(text)):
        try:
            parsed = read(text[:end], syntax)
        except NotWellFormed:
            continue
        # The rest is a complete document: complete statements, then at most space or a comment.
        rest = text[:end].rpartition(b".")[2].strip()
        assert not rest or rest.startswith(b"#"), text[:end]
        assert len(parsed.statements) in whole_counts


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<!DOCTYPE html><html><body><p>Not found<br></body></html>", "web page"),
        (b"<html><body/></html>", "web page"),
        (b"<root/>", "<root>, not <rdf:RDF>"),
        (b'<rdf:RDF xmlns:rdf="http://www.w3.org/TR/WD-rdf-syntax#"/>', "not <rdf:RDF> of the namespace"),
        (b"<rdf:RDF/>", "rdf"),
        (b"not XML", "not well-formed"),
        (xml("") + b"<more/>", "not well-formed"),
    ],
)
def test_text_that_is_not_rdf_xml_is_refused_with_a_reason(body: bytes, words: str) -> None:
    error = refusal(body)
    assert words in error.detail and error.status == 400


def test_a_node_without_rdf_rdf_is_refused() -> None:
    body = f'<Description xmlns="{RDF}" about="x"/>'.encode()
    assert refusal(body).flaws[0].line == 1


@pytest.mark.parametrize("text", ["<html><body>x</body></html>", "Internal Server Error"])
@pytest.mark.parametrize("syntax", [TURTLE, N_TRIPLES, JSON_LD])
def test_an_error_page_is_refused(text: str, syntax: Syntax) -> None:
    assert refusal(text, syntax).flaws[0].line == 1


# Size and depth


def test_a_document_over_the_size_limit_is_refused_before_it_is_read() -> None:
    body = xml("<ex:A/>")
    assert gate(body, RDF_XML, max_bytes=len(body)).syntax is RDF_XML
    with pytest.raises(TooLarge, match="the limit is"):
        gate(body, RDF_XML, max_bytes=len(body) - 1)


def nested_xml(depth: int) -> bytes:
    """Nested elements, the first of them rdf:RDF; an odd depth ends in a node."""
    pairs = (depth - 1) // 2
    last = "<ex:A/>" if depth % 2 == 0 else ""
    return xml("<ex:A><ex:p>" * pairs + last + "</ex:p></ex:A>" * pairs)


def nested(depth: int, syntax: Syntax, kind: str) -> bytes:
    if kind == "xml":
        return nested_xml(depth)
    if kind == "xml literal":
        return xml(f'<ex:A><ex:p rdf:parseType="Literal">{"<b>" * (depth - 3)}{"</b>" * (depth - 3)}</ex:p></ex:A>')
    if kind == "[]":
        return b"<#a> <#p> " + b"[ <#p> " * depth + b"1" + b" ]" * depth + b" ."
    if kind == "()":
        return b"<#a> <#p> " + b"( " * depth + b" )" * depth + b" ."
    if kind == "{}":
        return b'{"http://e/p":' * depth + b"1" + b"}" * depth
    if kind == "[[]]":
        return b'{"http://e/p":' + b"[" * (depth - 1) + b"1" + b"]" * (depth - 1) + b"}"
    if kind == "lists":
        return b'{"http://e/p":' + b'{"@list":' * (depth - 1) + b"1" + b"}" * (depth - 1) + b"}"
    assert kind == "contexts"
    # An object, its context, and so on.
    pairs = (depth - 2) // 2
    inner = b'{"t":{"@id":"http://e/t","@context":' * pairs + b"{}" + b"}}" * pairs
    return b'{"@context":' + inner + b',"http://e/p":"x"}'


KINDS = [(RDF_XML, "xml"), (RDF_XML, "xml literal"), (TURTLE, "[]"), (TURTLE, "()"), (JSON_LD, "{}"), (JSON_LD, "[[]]"),
         (JSON_LD, "lists"), (JSON_LD, "contexts")]  # fmt: skip


@pytest.mark.parametrize(("syntax", "kind"), KINDS)
def test_two_hundred_levels_are_read_and_more_are_refused(syntax: Syntax, kind: str) -> None:
    assert read(nested(MAX_DEPTH, syntax, kind), syntax).statements
    deeper = refusal(nested(MAX_DEPTH + (2 if kind == "contexts" else 1), syntax, kind), syntax)
    assert "more than 200 levels" in deeper.detail
    assert deeper.flaws[0].line is not None


@pytest.mark.parametrize(("syntax", "kind"), KINDS)
def test_huge_depth_is_refused_by_the_gate(syntax: Syntax, kind: str) -> None:
    assert "more than 200 levels" in gate_refusal(nested(500_000, syntax, kind), syntax).detail


@pytest.mark.parametrize(
    ("before", "syntax"),
    [
        (b'{"x":"\\\\","y":"\\"","z":"\\u0022","http://e/p":', JSON_LD),
        (b'{"x":"]]]]]]}}}}","http://e/p":', JSON_LD),
        (b']]]]]]}}}}{"http://e/p":', JSON_LD),
        (b'<#a> <#p> "\\"", \'\\\'\', "\\\\", """\\"""", \'\'\'""\'\'\', "]]]]" .\n<#a> <#p> ', TURTLE),
        (b"# a comment ends at a return\r<#a> <#p> ", TURTLE),
        (b"]]]]]))))) .\n<#a> <#p> ", TURTLE),
        (b"<#a> <#(]> ]]]]] ", TURTLE),
    ],
)
def test_depth_is_counted_despite_strings_comments_and_stray_brackets(before: bytes, syntax: Syntax) -> None:
    for bracket in (b"[", b"{") if syntax is JSON_LD else (b"[", b"("):
        inner = {b"[": b"[", b"{": b'{"http://e/p":', b"(": b"( "}[bracket]
        assert "more than 200 levels" in refusal(before + inner * 60_000, syntax).detail


def test_depth_is_counted_despite_mismatched_brackets() -> None:
    assert "more than 200 levels" in refusal(b'{"http://e/p":' + b"[}" * 60_000, JSON_LD).detail


@pytest.mark.parametrize("syntax", [TURTLE, N_TRIPLES])
def test_nested_quoted_statements_are_refused_by_depth_before_parsing(syntax: Syntax) -> None:
    term = "<<( <http://e/a> <http://e/p> " * 60_000 + "<http://e/o>" + " )>>" * 60_000
    assert "more than 200 levels" in refusal(f"<http://e/a> <http://e/p> {term} .", syntax).detail


@pytest.mark.parametrize(
    ("body", "syntax"),
    [
        ("<#a> <#p> '" + "[(" * 5_000 + "', \"\"\"" + "\\\"[(\n" * 5_000 + '""" .', TURTLE),
        ("<#a> <#p> 1 . # " + "[(" * 5_000, TURTLE),
        ("<#a> <#p> " + ", ".join("<#x(" + str(n) + ">" for n in range(500)) + " .", TURTLE),
        ("<#a> <#p> " + ", ".join("<#\\u0078(" + str(n) + ">" for n in range(500)) + " .", TURTLE),
        ("<http://e/a> <http://e/p> \"" + "<<(" * 5_000 + "\" .", N_TRIPLES),
        ('{"http://e/p": "' + '[{\\"' * 5_000 + '"}', JSON_LD),
        ("<ex:A><ex:p><![CDATA[" + "<a>" * 5_000 + "]]></ex:p></ex:A>", RDF_XML),
    ],
)  # fmt: skip
def test_brackets_in_strings_names_and_comments_are_not_counted(body: str, syntax: Syntax) -> None:
    assert read(xml(body) if syntax is RDF_XML else body, syntax).statements


def test_sibling_brackets_do_not_add_depth() -> None:
    assert len(read("<#a> <#p> " + ", ".join("[ <#q> (1) ]" for _ in range(500)) + " .", TURTLE).statements) == 2000


def test_an_unterminated_string_among_many_brackets_is_refused_in_linear_work() -> None:
    """The work is proportional to the text: searching for the end again at each bracket would take too long."""
    for text in ("<#a> <#p> " + "()" * 300 + '"""' + '\\"' * 500_000, "<#a> <#p> " + "()" * 300 + "'a" * 500_001):
        with hang_guard():
            assert refusal(text, TURTLE).status == 400


# Expensive contexts


def test_terms_defined_through_thousands_of_others_are_refused_before_parsing() -> None:
    forth = {f"t{n}": f"t{n - 1}:x" if n else EX for n in range(20_000)}
    back = {f"t{n}": {"@id": f"t{n + 1}:x"} for n in range(20_000)}
    ring = {f"t{n}": {"@type": f"t{(n + 1) % 20_000}", "@id": f"{EX}{n}"} for n in range(20_000)}
    for context in (forth, back, ring):
        body = json.dumps({"@context": [context], "@id": "#a", "t1:p": "x"})
        assert "through more than 20 other terms" in gate_refusal(body, JSON_LD).detail


def test_terms_may_be_defined_through_some_others() -> None:
    context = {
        "e": "http://e/",
        "f": "e:f/",
        "g": {"@id": "f:g"},
        "h": {"@id": "f:h", "@type": "e:t"},
        "e:x": {"@id": "e:x"},
    }
    assert values(read(json.dumps({"@context": context, "g": "1", "h": "2"}), JSON_LD), "http://e/f/g") == ["1"]


def test_names_that_contexts_expand_are_limited() -> None:
    for long in ({"@vocab": EX + "a" * 100_000}, {"t": EX + "a" * 100_000}, {"t": {"@id": EX + "a" * 100_000}}):
        terms = {f"t{n}": {"@type": "@id"} for n in range(5_000)}
        assert "the limit is 2,048" in refusal(json.dumps({"@context": long | terms, "t": "x"}), JSON_LD).detail


@pytest.mark.parametrize("scoped", [True, False])
def test_contexts_applied_again_for_each_object_are_limited(scoped: bool) -> None:
    terms = {f"t{n}": f"{EX}{n}" for n in range(6_000)}
    if scoped:
        body = {"@context": {"p": {"@id": EX + "p", "@context": terms}}, "p": [{"t1": "x"} for _ in range(6_000)]}
    else:
        body = {"@context": terms, "t1": [{"@context": {"a": EX}, "t1": "x"} for _ in range(6_000)]}
    assert "one @context at the top" in gate_refusal(json.dumps(body), JSON_LD).detail


def test_a_large_context_at_the_top_is_accepted() -> None:
    terms = {f"t{n}": f"{EX}{n}" for n in range(3_000)}
    body = {"@context": terms, "@graph": [{"t1": str(n)} for n in range(3_000)]}
    assert len(read(json.dumps(body), JSON_LD).statements) == 3_000


# Encodings

TEXT = "Grüße, ÿ"


def encoded(encoding: str, declared: str | None, bom: bytes = b"") -> bytes:
    head = f'<?xml version="1.0" encoding="{declared}"?>\n' if declared else ""
    return bom + (head + xml(f"<ex:A><ex:p>{TEXT}</ex:p></ex:A>").decode()).encode(encoding)


@pytest.mark.parametrize(
    ("body", "charset"),
    [
        (encoded("utf-8", None), None),
        (encoded("utf-8", "UTF-8", b"\xef\xbb\xbf"), None),
        (encoded("utf-16-le", "UTF-16", b"\xff\xfe"), None),
        (encoded("utf-16-be", None, b"\xfe\xff"), None),
        (encoded("utf-16-le", "UTF-16", b"\xff\xfe"), "utf-8"),
        (encoded("utf-8", None, b"\xef\xbb\xbf"), "iso-8859-1"),
        (encoded("latin-1", "iso-8859-1"), None),
        (encoded("cp1252", "windows-1252"), None),
        (encoded("latin-1", None), "iso-8859-1"),
        (encoded("latin-1", "utf-8"), "ISO-8859-1"),
        (encoded("utf-8", "iso-8859-1"), "utf-8"),
    ],
)
def test_xml_reads_the_same_in_every_encoding(body: bytes, charset: str | None) -> None:
    assert values(read(body, RDF_XML, charset), EX + "p") == [TEXT]


@pytest.mark.parametrize(
    ("body", "words", "line"),
    [
        (encoded("latin-1", None), "invalid in the document's encoding", 2),
        (encoded("latin-1", "utf-8"), "invalid in the document's encoding", 3),
        (encoded("utf-8", "klingon"), "klingon", 1),
        (encoded("utf-8", "utf-16"), "not well-formed", 1),
        (xml("<ex:A>\n<ex:p>\x00</ex:p></ex:A>"), "U+0000", 3),
        (xml("<ex:A>\n<ex:p>&#0;</ex:p></ex:A>"), "U+0000", 3),
        (xml("<ex:A>\n<ex:p>&#x1;</ex:p></ex:A>"), "U+0001", 3),
        (xml("<ex:A>\n<ex:p>&#xFFFE;</ex:p></ex:A>"), "U+FFFE", 3),
    ],
)
def test_invalid_bytes_and_characters_in_xml_are_refused_with_their_line(body: bytes, words: str, line: int) -> None:
    error = refusal(body)
    assert words in error.detail and error.flaws[0].line == line


@pytest.mark.parametrize("charset", ["klingon", "é", "x y", "a\0b"])
def test_an_unknown_charset_is_refused(charset: str) -> None:
    assert "charset" in refusal(xml("<ex:A/>"), RDF_XML, charset).detail
    assert "must be UTF-8" in refusal(b"<#a> <#p> 1 .", TURTLE, charset).detail


@pytest.mark.parametrize("syntax", [TURTLE, N_TRIPLES, JSON_LD])
def test_text_that_is_not_utf8_is_refused_with_line_and_column(syntax: Syntax) -> None:
    flaw = refusal(b'# \xc3\xa9\n<http://e/\xc3\xa9> "\xe9"', syntax).flaws[0]
    assert (flaw.line, flaw.column, flaw.message) == (2, 15, "byte 0xe9 is not UTF-8")
    assert "UTF-16" in refusal("<#a> <#p> 1 .".encode("utf-16"), syntax).detail


def test_a_content_type_names_syntax_and_charset() -> None:
    syntax, charset = syntax_of_media_type('Application/RDF+XML; Charset="UTF-8"')
    assert (syntax, charset) == (RDF_XML, "utf-8")
    assert read(b"\xef\xbb\xbf<#a> <#p> 1 .", TURTLE, "UTF-8").statements


@pytest.mark.parametrize(
    ("body", "syntax"),
    [
        (b'<http://e/a> <http://e/p> "a\\u0000b" .', TURTLE),
        (b'<http://e/a> <http://e/p> "a\\u0000b" .', N_TRIPLES),
        (b'{"@id": "http://e/a", "http://e/p": "a\\u0000b"}', JSON_LD),
        (b"<http://e/\\u0000> <http://e/p> 1 .", TURTLE),
        (b'<http://e/\\u0000> <http://e/p> "x" .', N_TRIPLES),
        (b'{"@id": "http://e/\\u0000", "http://e/p": "x", "http://e/q": {"@id": "http://e/ok"}}', JSON_LD),
        (b'<http://e/a> <http://e/p> "a\0b" .', TURTLE),
        (b'<http://e/a> <http://e/p> "a\0b" .', N_TRIPLES),
        (b'{"@id": "http://e/a", "http://e/p": "a\0b"}', JSON_LD),
    ],
)
def test_nul_is_refused_in_any_notation(body: bytes, syntax: Syntax) -> None:
    assert refusal(body, syntax).flaws


# RDF/XML: misplaced text and attributes


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        ("\n<A xmlns=''/>", "<A> is in no namespace"),
        ("<ex:A>\n<p xmlns=''>x</p></ex:A>", "<p> is in no namespace"),
        ("\n<rdf:Description memory='92'/>",
         'memory="…" has no prefix, and cannot take the namespace of <rdf:Description>'),
        ("\n<ex:A ex:memory='92' memory='64'/>", 'memory="…" is given twice, with a prefix and without'),
        ("\n<ex:A rdf:about='a' about='b'/>", 'about="…" is given twice, with a prefix and without'),
        ("\n<ex:A rdf:about='a' rdf:ID='b'/>", "rdf:ID and rdf:about on one element"),
        ("\n<ex:A rdf:nodeID='a' rdf:ID='b'/>", "rdf:ID and rdf:nodeID on one element"),
        ("<ex:A rdf:ID='a'/>\n<ex:A rdf:ID='a'/>", 'rdf:ID="a" is used twice'),
        ("<ex:A rdf:ID='a'>\n<ex:p><ex:A ID='a'/></ex:p></ex:A>", 'rdf:ID="a" is used twice'),
        ("<ex:A rdf:ID='a'>\n<ex:p rdf:ID='a'>x</ex:p></ex:A>", 'rdf:ID="a" is used twice'),
        ("\n<ex:A rdf:ID='1a'/>", 'rdf:ID="1a" is not an XML name'),
        ("\n<ex:A rdf:ID='a:b'/>", 'rdf:ID="a:b" is not an XML name'),
        ("\n<ex:A rdf:ID=''/>", 'rdf:ID="" is not an XML name'),
        ("\n<ex:A rdf:nodeID='a b'/>", 'rdf:nodeID="a b" is not an XML name'),
        ("\n<ex:A rdf:resource='a'/>", "rdf:resource belongs on a property, but this element is a resource"),
        ("\n<ex:A rdf:parseType='Literal'/>", "rdf:parseType belongs on a property, but this element is a resource"),
        ("\n<ex:A rdf:datatype='a'/>", "rdf:datatype belongs on a property, but this element is a resource"),
        ("<ex:A>\n<ex:p rdf:about='x'/></ex:A>", "rdf:about belongs on a resource, but this element is a property"),
        ("\n<ex:A rdf:bagID='a'/>", "rdf:bagID is not an attribute of RDF/XML"),
        ("\n<ex:A rdf:aboutEach='a'/>", "rdf:aboutEach is not an attribute of RDF/XML"),
        ("\n<ex:A rdf:li='a'/>", "rdf:li is not an attribute of RDF/XML"),
        ("\n<rdf:li/>", "rdf:li cannot be the element of a resource"),
        ("<ex:A>\n<rdf:Description/></ex:A>", "rdf:Description cannot be a property"),
        ("\n<ex:A>text</ex:A>", "the text 'text' is not allowed directly inside a resource"),
        ("\n<ex:A><ex:p/>text</ex:A>", "the text 'text' is not allowed directly inside a resource"),
        ("<ex:A>\n<ex:p rdf:resource='a' rdf:nodeID='b'/></ex:A>", "rdf:resource and rdf:nodeID on one property"),
        ("<ex:A>\n<ex:p rdf:resource='a'>x</ex:p></ex:A>", "rdf:resource on a property that also has content"),
        ("<ex:A>\n<ex:p rdf:resource='a'><ex:B/></ex:p></ex:A>", "rdf:resource on a property that also has content"),
        ("<ex:A>\n<ex:p rdf:datatype='a' rdf:resource='b'/></ex:A>", "rdf:resource and rdf:datatype on one property"),
        ("<ex:A>\n<ex:p rdf:datatype='a'><ex:B/></ex:p></ex:A>",
         "rdf:datatype on a property whose value is a resource"),
        ("<ex:A>\n<ex:p ex:q='1'>x</ex:p></ex:A>", "<http://example.org/q> on a property that also has content"),
        ("<ex:A>\n<ex:p rdf:parseType='Resource' ex:q='1'/></ex:A>",
         "<http://example.org/q> together with rdf:parseType"),
        ("<ex:A>\n<ex:p rdf:parseType='Literal' rdf:datatype='a'/></ex:A>", "rdf:datatype together with rdf:parseType"),
        ("<ex:A>\n<ex:p>text<ex:B/></ex:p></ex:A>", "text and an element as one value"),
        ("<ex:A><ex:p><ex:B/>\n<ex:B/></ex:p></ex:A>", "2 resources as one value of <http://example.org/p>"),
        ("<ex:A>\n<ex:p rdf:parseType='Collection'>x</ex:p></ex:A>",
         "the text 'x' is not allowed directly inside rdf:parseType=\"Collection\""),
        ("<ex:A xml:lang='de'>\n<ex:p><ex:B xml:lang='' ex:q='1'/></ex:p></ex:A>",
         'xml:lang="" removes an outer language, which <http://example.org/q> cannot express'),
    ],
)  # fmt: skip
def test_meaningless_rdf_xml_is_refused_with_its_line(inside: str, message: str) -> None:
    assert flaws(inside) == [(2, message)]


def test_text_and_attributes_of_rdf_rdf_are_refused() -> None:
    found = flaws("<ex:A/>stray", " ex:p='1' q='2'")
    assert [message for _, message in found] == [
        'q="…" has no prefix, and cannot take the namespace of <rdf:RDF>',
        "<http://example.org/p> has no meaning on rdf:RDF",
        "the text 'stray' is not allowed directly inside rdf:RDF",
    ]


def test_all_errors_are_reported_together_with_their_lines() -> None:
    error = refusal(xml("<A xmlns=''/>\n<rdf:Description x='1'/>\n<ex:A rdf:ID='a'/>\n<ex:A rdf:ID='a'>text</ex:A>"))
    assert [flaw.line for flaw in error.flaws] == [2, 3, 5, 5]
    assert error.detail == "The RDF/XML has 4 errors."
    assert all(flaw.hint for flaw in error.flaws)


def test_the_same_rdf_id_under_another_base_is_another_resource() -> None:
    parsed = read(xml("<ex:A rdf:ID='a'/><ex:A xml:base='http://other/' rdf:ID='a'/>"))
    assert [s.subject for s in parsed.statements] == [D + "#a", "http://other/#a"]
    assert refusal(xml(f"<ex:A rdf:ID='a'/>\n<ex:A xml:base='{D}' rdf:ID='a'/>")).flaws[0].line == 3
    assert refusal(xml("<ex:A xml:base='http://o/x' rdf:ID='a'/>\n<ex:A xml:base='http://o/x#y' rdf:ID='a'/>")).flaws


# RDF/XML: what the gate normalises


def test_attributes_without_a_prefix_belong_to_the_namespace_of_their_element() -> None:
    parsed = read(
        xml('<A ID="a" memory="92"/><ex:A about="b" memory="64"><p resource="#a"/><q datatype="urn:t">1</q></ex:A>')
    )
    said = {(s.subject, s.property, s.object.value) for s in parsed.statements}
    assert {(D + "#a", S + "memory", "92"), ("http://mdv.example/b", EX + "memory", "64")} <= said
    assert ("http://mdv.example/b", S + "p", D + "#a") in said
    assert Statement("http://mdv.example/b", S + "q", Term.literal("1", datatype="urn:t")) in parsed.statements


@pytest.mark.parametrize(
    "inside",
    [
        '<rdf:Description rdf:about="http://e/a" {}><ex:p>x</ex:p></rdf:Description>',
        '<rdf:Description rdf:about="http://e/a"><ex:p {}>x</ex:p></rdf:Description>',
        '<rdf:Description rdf:about="http://e/a"><ex:p><rdf:Description {} rdf:about="http://e/b"/></ex:p></rdf:Description>',
        '<ex:A rdf:about="http://e/a" {}><ex:p>x</ex:p></ex:A>',
        '<ex:A rdf:about="http://e/a"><ex:p {}><ex:A/></ex:p></ex:A>',
        '<A rdf:about="http://e/a"><p {} rdf:resource="http://e/b"/></A>',
    ],
)
@pytest.mark.parametrize(
    "attribute",
    [
        'xml:foo="bar"',
        'xml:space="preserve"',
        'xmlnewthing="bar"',
        'XmlNewThing="bar"',
        'xml="bar"',
        'xmlnew:thing="bar" xmlns:xmlnew="http://new/"',
        'XML-q:thing="bar" xmlns:XML-q="http://new/"',
    ],
)
def test_attributes_with_names_reserved_by_xml_are_ignored(inside: str, attribute: str) -> None:
    """W3C's unrecognised-xml-attributes, test001 and test002."""
    with_it, without = (name_blank_nodes(read(xml(inside.format(one)))) for one in (attribute, ""))
    assert with_it.statements == without.statements


def test_reserved_attributes_are_ignored_on_rdf_rdf_and_kept_in_an_xml_literal() -> None:
    reserved = 'xmlnewthing="bar" xmlnew:thing="bar" xmlns:xmlnew="http://new/"'
    plain = "<ex:A><ex:p>x</ex:p></ex:A>"
    assert values(read(xml(plain, " " + reserved)), EX + "p") == ["x"]
    literal = '<ex:A><ex:p rdf:parseType="Literal"><b xmlns="" xmlnewthing="bar"></b></ex:p></ex:A>'
    assert values(read(xml(literal)), EX + "p") == ['<b xmlnewthing="bar"></b>']


def test_attributes_without_a_prefix_on_a_property_describe_its_value() -> None:
    parsed = read(xml('<A rdf:ID="a"><ex:info memory="92" xml:lang="en"/></A>'))
    (info,) = [s.object for s in parsed.statements if s.property == EX + "info"]
    assert Statement(info.value, EX + "memory", Term.literal("92", lang="en")) in parsed.statements


def test_parse_type_without_a_prefix_is_that_of_rdf() -> None:
    assert values(read(xml('<A about="a"><p parseType="Resource"><q>1</q></p></A>')), S + "q") == ["1"]


def test_the_content_of_an_xml_literal_is_not_normalised() -> None:
    body = '<A about="a"><p parseType="Literal">x &lt; y <b class="c" xmlns="">z<!-- c --></b>'
    body += "<?pi d?><![CDATA[<&]]></p></A>"
    (value,) = [s.object for s in read(xml(body)).statements if s.property == S + "p"]
    assert value.datatype == RDF + "XMLLiteral"
    assert value.value == 'x &lt; y <b class="c">z<!-- c --></b><?pi d?>&lt;&amp;'


def test_an_xml_literal_declares_exactly_the_namespaces_it_uses() -> None:
    body = "<ex:A><ex:p rdf:parseType='Literal'><b ex:x='1'><c/></b></ex:p></ex:A>"
    assert values(read(xml(body)), EX + "p") == [f'<b xmlns="{S}" xmlns:ex="{EX}" ex:x="1"><c></c></b>']


def test_an_unknown_parse_type_is_kept_as_an_xml_literal() -> None:
    parsed = read(xml("<ex:A><ex:p rdf:parseType='daml:x'><b xmlns=''/></ex:p></ex:A>"))
    assert values(parsed, EX + "p") == ["<b></b>"]


def test_comments_instructions_and_cdata_do_not_split_a_text() -> None:
    parsed = read(xml("<?pi a?><ex:A><!-- b --><ex:p>x<!-- c -->y<?pi d?>z<![CDATA[<&>]]>.</ex:p></ex:A>"))
    assert values(parsed, EX + "p") == ["xyz<&>."]


def test_an_empty_language_ends_an_outer_one() -> None:
    body = "<ex:A><ex:p xml:lang=''>x</ex:p><ex:p>y</ex:p><ex:q xml:lang=''><ex:A><ex:r>z</ex:r></ex:A></ex:q></ex:A>"
    objects = {s.object.value: s.object for s in read(xml(body, " xml:lang='de'")).statements}
    assert (objects["x"].lang, objects["y"].lang, objects["z"].lang) == (None, "de", None)
    assert objects["x"].datatype is None
    assert values(read(xml("<ex:A xml:lang=''><ex:p>x</ex:p></ex:A>")), EX + "p") == ["x"]


def test_a_text_over_ten_million_bytes_is_refused_with_a_clear_message() -> None:
    long = "x" * 10_000_001
    for inside in (f"<ex:A><ex:p>{long}</ex:p></ex:A>", f"<ex:A ex:p='{long}'/>", f"<!--{long}-->"):
        detail = refusal(xml(inside)).detail
        assert "10,000,000 bytes" in detail and "HUGE" not in detail
    assert values(read(f"<#a> <{EX}p> '{long}' .", TURTLE), EX + "p") == [long]


def test_prefixes_are_kept_for_later_output() -> None:
    assert gate(xml("<ex:A/>"), RDF_XML).prefixes == {"rdf": RDF, "": S, "ex": EX}
    assert gate(xml("<ex:A/>").replace(f'xmlns="{S}"'.encode(), b'xmlns=""'), RDF_XML).prefixes == {
        "rdf": RDF,
        "ex": EX,
    }


# JSON


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"@id": "#a",\n "http://e/p": }', "line 2, column 16"),
        ('{"http://e/p": NaN}', "NaN is not JSON"),
        ('{"http://e/p": "x", "http://e/p": "y"}', "occurs twice"),
        ('{"@context": {}, "@context": {}, "http://e/p": "y"}', "occurs twice"),
        ('{"http://e/p": "x"} trailing', "Extra data"),
        ('{"http://e/p": "x"}{}', "Extra data"),
        ("{'http://e/p': 'x'}", "double quotes"),
    ],
)
def test_invalid_json_is_refused_with_its_place(body: str, words: str) -> None:
    assert words in refusal(body, JSON_LD).detail


def test_numbers_of_any_length_are_read() -> None:
    assert read('{"http://e/p": ' + "9" * 10_000 + "}", JSON_LD).statements


def test_an_unpaired_surrogate_is_refused() -> None:
    for body, syntax in (('{"http://e/p": "\\ud800"}', JSON_LD), ('<#a> <#p> "\\uD800" .', TURTLE)):
        assert refusal(body, syntax).status == 400


@pytest.mark.parametrize(
    ("string", "half", "column"),
    [
        (r"a\ud800", r"\ud800", 2),
        (r"\uDFFF", r"\uDFFF", 1),
        (r"\ud83d\ude00\ud83d", r"\ud83d", 13),
        (r"\ud83d\ud83d\ude00", r"\ud83d", 1),
        (r"\\\ud800", r"\ud800", 3),
        (r"\ud800\\udc00", r"\ud800", 1),
    ],
)
@pytest.mark.parametrize("where", ['{"@id": "http://e/a",\n "http://e/p": "%s"}', '{"http://e/p": 1,\n "%s": 1}'])
def test_an_unpaired_surrogate_in_json_is_reported_with_its_place(
    where: str, string: str, half: str, column: int
) -> None:
    (flaw,) = refusal(where % string, JSON_LD).flaws
    assert flaw.message.startswith(f"{half} is an unpaired surrogate")
    assert (flaw.line, flaw.column) == (2, where.partition("\n")[2].index("%") + column)


def test_surrogate_pairs_and_escaped_backslashes_are_characters() -> None:
    parsed = read(r'{"http://e/p": "\ud83d\ude00 \\ud800 \\\uD83D\uDE00"}', JSON_LD)
    assert values(parsed, "http://e/p") == ["😀 \\ud800 \\😀"]


def test_a_language_string_needs_its_language() -> None:
    assert "no language" in refusal(xml(f"<ex:A><ex:p rdf:datatype='{LANG_STRING}'>x</ex:p></ex:A>")).detail
    assert read(xml(f"<ex:A><ex:p rdf:datatype='{XSD_STRING}'>x</ex:p></ex:A>")).statements[-1].object == Term.literal(
        "x"
    )


def test_an_element_with_too_many_attributes_is_refused_with_its_line() -> None:
    many = " ".join(f'e:z{n}="1"' for n in range(1_001))
    with pytest.raises(NotWellFormed) as error:
        gate(f'<rdf:RDF xmlns:rdf="{RDF}" xmlns:e="http://e/">\n<e:A {many}/></rdf:RDF>'.encode(), RDF_XML)
    assert error.value.flaws[0].line == 2 and "attributes" in error.value.flaws[0].message
