"""The gate: check that a text is safe, complete and well-formed before an RDF parser reads it.

The parsers behind the gate are fast but not robust. On their own they expand entities, accept truncated or empty input,
silently drop misplaced elements, and crash the process on deeply nested text or on terms that are defined through each
other. So every text is checked first. For RDF/XML the parser gets a UTF-8 rendering of the checked tree, not the
original bytes.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable

from mdv.errors import NotWellFormed, TooLarge
from mdv.rdf.gate_json import gate_json
from mdv.rdf.gate_text import gate_text
from mdv.rdf.gate_xml import gate_xml
from mdv.rdf.gated import Gated
from mdv.rdf.syntax import JSON_LD, N_TRIPLES, RDF_XML, TURTLE, Syntax

MAX_BYTES = 32 * 1024 * 1024


def gate(body: bytes, syntax: Syntax, charset: str | None = None, max_bytes: int = MAX_BYTES) -> Gated:
    """Return the checked text of `body`. Raise `NotWellFormed` or `TooLarge` if it is not safe and well-formed.

    >>> from mdv.rdf.syntax import TURTLE
    >>> gate(b"", TURTLE)
    Traceback (most recent call last):
    mdv.errors.NotWellFormed: The document is empty. To delete a document, delete it by its URI.
    """
    refuse_too_large(len(body), max_bytes)
    if not body.removeprefix(codecs.BOM_UTF8).strip():
        raise NotWellFormed("The document is empty. To delete a document, delete it by its URI.")
    return GATES[syntax.name](body, charset)


GATES: dict[str, Callable[[bytes, str | None], Gated]] = {
    RDF_XML.name: gate_xml,
    TURTLE.name: lambda body, charset: gate_text(body, TURTLE, charset),
    N_TRIPLES.name: lambda body, charset: gate_text(body, N_TRIPLES, charset),
    JSON_LD.name: lambda body, charset: gate_json(gate_text(body, JSON_LD, charset)),
}
"""By name of the syntax: checks a text with its charset, if it is known."""


def refuse_too_large(size: int, max_bytes: int) -> None:
    """Raise `TooLarge` if a document exceeds the limit. Can be called before the document is read."""
    if size > max_bytes:
        raise TooLarge(f"The document has {size:,} bytes; the limit is {max_bytes:,}. Split it into several documents.")
