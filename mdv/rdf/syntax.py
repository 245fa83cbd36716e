"""The RDF syntaxes that MDV reads and writes, and their selection by media type or file name."""

from __future__ import annotations

from dataclasses import dataclass
from email.message import Message
from pathlib import PurePath

from pyoxigraph import RdfFormat

from mdv.errors import UnsupportedMediaType


@dataclass(frozen=True, slots=True)
class Syntax:
    """An RDF syntax with its name, media types (MDV responds with the first) and file suffixes."""

    name: str
    label: str
    media_types: tuple[str, ...]
    suffixes: tuple[str, ...]
    format: RdfFormat

    @property
    def media_type(self) -> str:
        return self.media_types[0]


RDF_XML = Syntax("rdfxml", "RDF/XML", ("application/rdf+xml", "application/xml", "text/xml"), (".rdf", ".xml", ".owl"),
                 RdfFormat.RDF_XML)  # fmt: skip
TURTLE = Syntax("turtle", "Turtle", ("text/turtle", "application/x-turtle"), (".ttl",), RdfFormat.TURTLE)
N_TRIPLES = Syntax("ntriples", "N-Triples", ("application/n-triples",), (".nt",), RdfFormat.N_TRIPLES)
JSON_LD = Syntax("jsonld", "JSON-LD", ("application/ld+json",), (".jsonld", ".json"), RdfFormat.JSON_LD)

SYNTAXES = (RDF_XML, TURTLE, N_TRIPLES, JSON_LD)
"""In order of preference, RDF/XML first as in the paper. `gate`, `serialise` and `stream` have an entry for each."""

MEDIA_TYPES = tuple(syntax.media_type for syntax in SYNTAXES)


def syntax_of_media_type(content_type: str | None) -> tuple[Syntax, str | None]:
    """Return the syntax of a `Content-Type` header, and its charset if it has one.

    >>> syntax_of_media_type("text/turtle; charset=utf-8")[0].label
    'Turtle'
    """
    message = Message()
    message["content-type"] = content_type or ""
    media_type = message.get_content_type() if content_type else ""
    for syntax in SYNTAXES:
        if media_type in syntax.media_types:
            return syntax, message.get_content_charset()
    problem = f"MDV does not read {media_type!r}." if media_type else "The Content-Type is missing."
    raise UnsupportedMediaType(f"{problem} Send Content-Type: {', '.join(MEDIA_TYPES)}.", accepted=list(MEDIA_TYPES))


def syntax_of_name(name: str) -> Syntax:
    """Return the syntax for the name of a syntax or of a file.

    >>> syntax_of_name("books/pg84.rdf").label, syntax_of_name("turtle").label
    ('RDF/XML', 'Turtle')
    """
    suffix = PurePath(name).suffix.lower()
    for syntax in SYNTAXES:
        if name == syntax.name or suffix in syntax.suffixes:
            return syntax
    known = ", ".join(suffix for syntax in SYNTAXES for suffix in syntax.suffixes)
    raise UnsupportedMediaType(f"The name {name!r} does not show its RDF syntax. MDV reads {known}.")
