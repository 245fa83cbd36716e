"""Locate: a flaw of a document is reported with its line."""

from __future__ import annotations

import pytest

from mdv.errors import Flaw
from mdv.model import RDF, RDF_TYPE
from mdv.rdf.gate import gate
from mdv.rdf.locate import locate_flaws, locate_quoted_texts
from mdv.rdf.syntax import N_TRIPLES, RDF_XML, TURTLE

D = "http://d.example/doc"
EX = "http://example.org/"

DOCUMENT = f"""<rdf:RDF xmlns:rdf="{RDF}" xmlns:ex="{EX}">
  <ex:A rdf:ID="a" ex:memory="92">
    <ex:size>1</ex:size>
    <ex:size>two</ex:size>
    <ex:part rdf:resource="#b"/>
  </ex:A>
  <ex:B rdf:ID="b" ex:memory="much">
    <ex:size>two</ex:size>
    <ex:size>{"long " * 100}</ex:size>
    <ex:part>
      <ex:C rdf:about="http://other.example/c"
            ex:memory="92"/>
    </ex:part>
    <rdf:type rdf:resource="{EX}D"/>
  </ex:B>
  <ex:A rdf:about="aa"><ex:size>two</ex:size>
    <ex:size> spaced </ex:size>
  </ex:A>
</rdf:RDF>"""


@pytest.mark.parametrize(
    ("subject", "property", "value", "line"),
    [
        (D + "#a", EX + "size", "1", 3),
        (D + "#a", EX + "size", "two", 4),
        (D + "#b", EX + "size", "two", 8),
        ("http://d.example/aa", EX + "size", "two", 16),
        ("http://d.example/aa", EX + "size", " spaced ", 17),
        (D + "#b", EX + "size", ("long " * 100)[:199] + "…", 9),
        (D + "#a", EX + "memory", "92", 2),
        (D + "#b", EX + "memory", "much", 7),
        (D + "#a", RDF_TYPE, EX + "A", 2),
        (D + "#b", RDF_TYPE, EX + "B", 7),
        ("http://d.example/aa", RDF_TYPE, EX + "A", 16),
        (D + "#b", RDF_TYPE, EX + "D", 14),
        (D + "#a", EX + "part", D + "#b", 5),
        (D + "#b", EX + "part", "http://other.example/c", 10),
        (D + "#b", EX + "size", "'two', 'three'", 8),
        (None, EX + "part", None, 5),
        (D + "#a", EX + "nothing", "x", None),
    ],
)
def test_a_flaw_of_rdf_xml_is_found(subject: str | None, property: str, value: str | None, line: int | None) -> None:
    gated = gate(DOCUMENT.encode(), RDF_XML)
    (found,) = locate_flaws((Flaw("wrong", subject=subject, property=property, value=value),), gated)
    assert found == Flaw("wrong", line=line, subject=subject, property=property, value=value)


def test_an_attribute_of_an_inner_resource_is_found_at_its_element() -> None:
    (found,) = locate_flaws(
        (Flaw("wrong", subject="http://other.example/c", property=EX + "memory", value="92"),),
        gate(DOCUMENT.encode(), RDF_XML),
    )
    assert found.line == 12


LINES = f"""# comment
<{D}#a> <{EX}size> "two" .
<{D}#b> <{EX}size> "one" .
<{D}#b> <{EX}size> "two\u2028" .
<{D}#b> <{EX}size> "two" .
<{D}#b> <{EX}says> "a \\"quoted\\"\\nword" .\r<{D}#b> <{RDF_TYPE}> <{EX}A> .
"""


@pytest.mark.parametrize(
    ("subject", "property", "value", "line"),
    [
        (D + "#a", EX + "size", "two", 2),
        (D + "#b", EX + "size", "one", 3),
        (D + "#b", EX + "says", 'a "quoted"\nword', 6),
        (D + "#b", RDF_TYPE, EX + "A", 7),
        (D + "#b", EX + "size", "'one', 'two'", 3),
        (D + "#a", EX + "nothing", "x", None),
    ],
)
def test_a_flaw_of_n_triples_is_found(subject: str, property: str, value: str, line: int | None) -> None:
    gated = gate(LINES.encode(), N_TRIPLES)
    (found,) = locate_flaws((Flaw("wrong", subject=subject, property=property, value=value),), gated)
    assert found.line == line


def test_known_lines_are_kept_and_flaws_are_ordered_by_line() -> None:
    gated = gate(DOCUMENT.encode(), RDF_XML)
    flaws = (Flaw("first", line=99, property=EX + "size"), Flaw("second", property=EX + "size"), Flaw("third"))
    assert [(flaw.message, flaw.line) for flaw in locate_flaws(flaws, gated)] == [
        ("second", 3),
        ("first", 99),
        ("third", None),
    ]


def test_flaws_of_turtle_have_a_line_if_it_is_unambiguous() -> None:
    gated = gate(b"@prefix v: <http://v/> .\n<#a> a v:T ;\n v:p 'x' .\n<#b>\n v:p 'y' .", TURTLE)

    def line(**about: str) -> int | None:
        return locate_flaws((Flaw("x", **about),), gated)[0].line

    assert line(property="http://v/p", value="y") == 5
    assert line(property=RDF + "type", value="http://v/T") == 2
    assert line(property="http://v/p") is None, "it may be either"
    assert line(property="http://v/p", value="z") is None
    assert line(property="http://v/q") is None


def test_repeated_texts_are_located_in_successive_elements() -> None:
    inside = '<ex:A rdf:about="a b"/>\n<ex:A/>\n<ex:A rdf:about="a b"/>'
    text = f'<rdf:RDF xmlns:rdf="{RDF}" xmlns:ex="{EX}">\n{inside}</rdf:RDF>'
    gated = gate(text.encode(), RDF_XML)
    assert gated.tree is not None
    message = "'a b' is not a valid IRI: Invalid IRI code point ' '"
    assert locate_quoted_texts(gated.tree, [message, message, "nothing quoted"]) == [2, 4, None]
