"""Values that all packages share: terms, statements and documents. They are immutable and do no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
XSD = "http://www.w3.org/2001/XMLSchema#"
OWL = "http://www.w3.org/2002/07/owl#"
MDV = "urn:mdv:schema#"
LRM = "http://xrce.xerox.com/LRM#"
REAL = "http://xrce.xerox.com/ReAL#"

RDF_TYPE = RDF + "type"
RDFS_RESOURCE = RDFS + "Resource"
XSD_STRING = XSD + "string"
LANG_STRING = RDF + "langString"

BLANK_MARK = "#_:"
"""Marks the name of a blank node, `D#_:…`. No IRI in a document may contain it."""


class Term(NamedTuple):
    """The object of a statement: a URI or a literal, as in the feed.

    `datatype` is None for plain text (xsd:string) and for text with a language.
    Terms have a total order: type, value, language, datatype, with None first. The comparison of tuples would fail
    on terms that differ only in language or datatype, since None and text have no order. Statements and other tuples
    that contain terms follow from it, so a plain `sorted` is always safe.

    >>> Term.uri("http://a/b")
    Term(type='uri', value='http://a/b', lang=None, datatype=None)
    >>> Term.literal("92", datatype=XSD + "integer").as_dict()
    {'type': 'literal', 'value': '92', 'datatype': 'http://www.w3.org/2001/XMLSchema#integer'}
    >>> [term.lang for term in sorted([Term.literal("x", lang="en"), Term.literal("x"), Term.literal("x", lang="de")])]
    [None, 'de', 'en']
    """

    type: str
    value: str
    lang: str | None = None
    datatype: str | None = None

    @classmethod
    def uri(cls, value: str) -> Term:
        return cls("uri", value)

    @classmethod
    def literal(cls, value: str, lang: str | None = None, datatype: str | None = None) -> Term:
        return cls("literal", value, lang, datatype)

    @property
    def is_uri(self) -> bool:
        return self.type == "uri"

    def as_dict(self) -> dict[str, str]:
        body = {"type": self.type, "value": self.value}
        if self.lang is not None:
            body["lang"] = self.lang
        if self.datatype is not None:
            body["datatype"] = self.datatype
        return body

    def sort_key(self) -> tuple[str, str, str, str]:
        """Return a sort key for the order of terms. Sorting with it is faster than with comparisons."""
        type, value, lang, datatype = self
        return type, value, lang or "", datatype or ""

    def __lt__(self, other: Term) -> bool:  # type: ignore[override]
        return self.sort_key() < other.sort_key()

    def __le__(self, other: Term) -> bool:  # type: ignore[override]
        return self.sort_key() <= other.sort_key()

    def __gt__(self, other: Term) -> bool:  # type: ignore[override]
        return self.sort_key() > other.sort_key()

    def __ge__(self, other: Term) -> bool:  # type: ignore[override]
        return self.sort_key() >= other.sort_key()


class Statement(NamedTuple):
    """Subject, property, object. The subject is a URI reference, or the name of a blank node.

    In a `ParsedDocument`, blank nodes still have the `_:id` of the parser.
    """

    subject: str
    property: str
    object: Term

    def sort_key(self) -> tuple[str, ...]:
        """Return a sort key for the order of statements."""
        return self.subject, self.property, *self.object.sort_key()


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """A document as the parser returns it. Blank nodes are `_:id`, with ids that are local to the document."""

    uri: str
    statements: tuple[Statement, ...]
    prefixes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Document:
    """A document with distinct statements in a fixed order. Its blank nodes have their permanent names."""

    uri: str
    statements: tuple[Statement, ...]
    prefixes: dict[str, str] = field(default_factory=dict)


def is_blank(uri: str) -> bool:
    """True if `uri` is the name of a blank node.

    >>> is_blank("http://a/d#_:b1"), is_blank("http://a/d#b1")
    (True, False)
    """
    return BLANK_MARK in uri
