"""Document text in forms, shared by MDP and LMR pages."""

from __future__ import annotations

import re

from mdv.errors import MdvError
from mdv.rdf.syntax import JSON_LD, RDF_XML, SYNTAXES, TURTLE, Syntax, syntax_of_name

MAX_TEXT_SHOWN_BYTES = 2 * 2**20
"""A larger text is not shown again with its errors: it came from a file, which has to be chosen again."""
DOWNLOAD_FORMATS = {
    "rdf": ("application/rdf+xml", "RDF/XML"),
    "ttl": ("text/turtle", "Turtle"),
    "jsonld": ("application/ld+json", "JSON-LD"),
    "nt": ("application/n-triples", "N-Triples"),
}
"""Download formats of a resource by file suffix: media type and label."""
assert {media_type for media_type, _ in DOWNLOAD_FORMATS.values()} <= {syntax.media_type for syntax in SYNTAXES}


def text_for_form(text: bytes) -> str:
    """Return the text that the form shows again.

    >>> text_for_form(b"a\\0b")
    'a\\ufffdb'
    """
    return text.decode("utf-8", "replace").replace("\0", "\ufffd") if len(text) <= MAX_TEXT_SHOWN_BYTES else ""


def form_bytes(text: str) -> bytes:
    """Encode the text of a form field, with LF line ends instead of the CRLF that browsers send."""
    return text.replace("\r\n", "\n").encode("utf-8", "replace")


def choose_syntax(name: str, file: str | None, text: bytes) -> Syntax:
    """Return the chosen syntax, else the one of the file suffix, else the one that the text looks like."""
    if name in {syntax.name for syntax in SYNTAXES}:
        return syntax_of_name(name)
    if file is not None:
        try:
            return syntax_of_name(file)
        except MdvError:
            pass
    return guess_syntax(text)


def guess_syntax(text: bytes) -> Syntax:
    """Guess the syntax of a text.

    >>> texts = (b"<?xml version='1.0'?>", b" <rdf:RDF", b'[{"@id": 1}]', b"<a> <b> 'c' .")
    >>> [guess_syntax(text).label for text in texts]
    ['RDF/XML', 'RDF/XML', 'JSON-LD', 'Turtle']
    """
    start = text[:2000].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith((b"<?xml", b"<!--", b"<!DOCTYPE", b"<rdf:RDF")) or re.match(rb"<[\w.:-]+\s[^>]*xmlns", start):
        return RDF_XML
    return JSON_LD if start.startswith((b"{", b"[")) and b'"@' in start else TURTLE
