"""The values that travel between the rooms: frozen, with no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
XSD = "http://www.w3.org/2001/XMLSchema#"
OWL = "http://www.w3.org/2002/07/owl#"
MDV = "urn:mdv:schema#"

RDF_TYPE = RDF + "type"
RDFS_RESOURCE = RDFS + "Resource"
XSD_STRING = XSD + "string"
LANG_STRING = RDF + "langString"

BLANK_MARK = "#_:"
"""What tells the name of a blank node, `D#_:…`, from every IRI that a document may write."""


class Term(NamedTuple):
    """The object of a statement: a URI or a literal, as in the feed.

    `datatype` is None for plain text (xsd:string) and for text with a language.

    >>> Term.uri("http://a/b")
    Term(type='uri', value='http://a/b', lang=None, datatype=None)
    >>> Term.literal("92", datatype=XSD + "integer").as_dict()
    {'type': 'literal', 'value': '92', 'datatype': 'http://www.w3.org/2001/XMLSchema#integer'}
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


class Statement(NamedTuple):
    """Subject, property, object. The subject is a URI reference; a blank node's is its name.

    In a `ParsedDocument` blank nodes are still `_:id`, as the parser called them.
    """

    subject: str
    property: str
    object: Term


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """A document as its parser saw it: blank nodes are `_:id`, ids meaning nothing outside of it."""

    uri: str
    statements: tuple[Statement, ...]
    prefixes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Document:
    """A document whose blank nodes have their lasting names: distinct statements, in a fixed order."""

    uri: str
    statements: tuple[Statement, ...]
    prefixes: dict[str, str] = field(default_factory=dict)


def is_blank(uri: str) -> bool:
    """Whether `uri` is the name MDV gave to a blank node.

    >>> is_blank("http://a/d#_:b1"), is_blank("http://a/d#b1")
    (True, False)
    """
    return BLANK_MARK in uri
