"""The gate: a text is safe, whole and well-formed before any RDF parser sees it.

The parsers behind it are fast and trusting: alone they expand entities, accept some truncated input and all empty
input, lose what stands in the wrong place, and end the process on text that is nested deeply enough or on terms
that are defined through each other. So nothing reaches them unchecked, and for RDF/XML they are given the gate's
own UTF-8 rendering of what it read, not the bytes that came.
"""

from __future__ import annotations

import codecs

from mdv.errors import NotWellFormed, TooLarge
from mdv.rdf.gate_json import refuse_bad_json
from mdv.rdf.gate_text import gate_text
from mdv.rdf.gate_xml import gate_xml
from mdv.rdf.gated import Gated
from mdv.rdf.syntax import JSON_LD, RDF_XML, Syntax

MAX_BYTES = 32 * 1024 * 1024


def gate(body: bytes, syntax: Syntax, charset: str | None = None, max_bytes: int = MAX_BYTES) -> Gated:
    """Let `body` pass if it is safe, whole and well-formed; say what is wrong with it otherwise.

    >>> from mdv.rdf.syntax import TURTLE
    >>> gate(b"", TURTLE)
    Traceback (most recent call last):
    mdv.errors.NotWellFormed: The document is empty. To delete a document, delete it by name.
    """
    refuse_large(len(body), max_bytes)
    if not body.removeprefix(codecs.BOM_UTF8).strip():
        raise NotWellFormed("The document is empty. To delete a document, delete it by name.")
    if syntax is RDF_XML:
        return gate_xml(body, charset)
    gated = gate_text(body, syntax, charset)
    if syntax is JSON_LD:
        refuse_bad_json(gated.text.decode())
    return gated


def refuse_large(size: int, max_bytes: int) -> None:
    """Refuse a document over the limit: also before it is read."""
    if size > max_bytes:
        raise TooLarge(f"The document has {size:,} bytes; the limit is {max_bytes:,}. Split it into several.")
