"""Syntaxes: by media type and by file name."""

from __future__ import annotations

import pytest

from mdv.errors import UnsupportedMediaType
from mdv.rdf.syntax import (
    JSON_LD,
    MEDIA_TYPES,
    N_TRIPLES,
    RDF_XML,
    SYNTAXES,
    TURTLE,
    syntax_of_media_type,
    syntax_of_name,
)


@pytest.mark.parametrize(
    ("content_type", "syntax", "charset"),
    [
        ("application/rdf+xml", RDF_XML, None),
        ("APPLICATION/XML; charset=ISO-8859-1", RDF_XML, "iso-8859-1"),
        ('text/turtle;charset="utf-8"', TURTLE, "utf-8"),
        ("application/n-triples ; x=y", N_TRIPLES, None),
        ('application/ld+json; profile="http://www.w3.org/ns/json-ld#compacted"', JSON_LD, None),
        ("text/turtle; charset=", TURTLE, ""),
    ],
)
def test_a_content_type_names_a_syntax(content_type: str, syntax: object, charset: str | None) -> None:
    found, said = syntax_of_media_type(content_type)
    assert found is syntax
    assert (said or None) == (charset or None)


@pytest.mark.parametrize(
    "content_type", [None, "", "text/html", "application/json", "nonsense", "text/turtle/x", "a/b\r\nX: y"]
)
def test_any_other_content_type_is_refused_with_the_accepted_ones(content_type: str | None) -> None:
    with pytest.raises(UnsupportedMediaType) as caught:
        syntax_of_media_type(content_type)
    assert caught.value.problem()["accepted"] == list(MEDIA_TYPES)


def test_each_syntax_is_found_by_its_names() -> None:
    for syntax in SYNTAXES:
        assert syntax_of_name(syntax.name) is syntax
        assert all(syntax_of_name("a.b/X" + suffix.upper()) is syntax for suffix in syntax.suffixes)
        assert all(syntax_of_media_type(media_type)[0] is syntax for media_type in syntax.media_types)


@pytest.mark.parametrize("name", ["", "rdf", "x.csv", "turtle.txt"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedMediaType, match="does not show its RDF syntax"):
        syntax_of_name(name)
