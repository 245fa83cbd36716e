"""Drafts: the text of a document as a form brings it, at an MDP and at an LMR alike."""

from __future__ import annotations

import re

from mdv.errors import MdvError
from mdv.rdf.syntax import JSON_LD, RDF_XML, SYNTAXES, TURTLE, Syntax, syntax_of_name

MOST_SHOWN = 2 * 2**20
"""Bytes of a text that comes back with its errors; a larger one was a file, and is chosen again."""
FORMS = {
    "rdf": ("application/rdf+xml", "RDF/XML"),
    "ttl": ("text/turtle", "Turtle"),
    "jsonld": ("application/ld+json", "JSON-LD"),
    "nt": ("application/n-triples", "N-Triples"),
}
"""What a resource can be kept as, by the suffix of a file."""
assert {media_type for media_type, _ in FORMS.values()} <= {syntax.media_type for syntax in SYNTAXES}


def shown(text: bytes) -> str:
    """A text as its form shows it again.

    >>> shown(b"a\\0b")
    'a\\ufffdb'
    """
    return text.decode("utf-8", "replace").replace("\0", "\ufffd") if len(text) <= MOST_SHOWN else ""


def written(text: str) -> bytes:
    """A text that somebody wrote, as it was meant: browsers end lines otherwise."""
    return text.replace("\r\n", "\n").encode("utf-8", "replace")


def chosen_syntax(name: str, file: str | None, text: bytes) -> Syntax:
    """The syntax that was chosen, that a file's name tells, or that a text looks like."""
    if name in {syntax.name for syntax in SYNTAXES}:
        return syntax_of_name(name)
    if file is not None:
        try:
            return syntax_of_name(file)
        except MdvError:
            pass
    return guess(text)


def guess(text: bytes) -> Syntax:
    """What a text looks like.

    >>> [guess(text).label for text in (b"<?xml version='1.0'?>", b" <rdf:RDF", b'[{"@id": 1}]', b"<a> <b> 'c' .")]
    ['RDF/XML', 'RDF/XML', 'JSON-LD', 'Turtle']
    """
    start = text[:2000].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith((b"<?xml", b"<!--", b"<!DOCTYPE", b"<rdf:RDF")) or re.match(rb"<[\w.:-]+\s[^>]*xmlns", start):
        return RDF_XML
    return JSON_LD if start.startswith((b"{", b"[")) and b'"@' in start else TURTLE
