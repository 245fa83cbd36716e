"""Read a few statements that a person has typed, as Turtle without prefix declarations."""

from __future__ import annotations

from collections.abc import Mapping

import pyoxigraph

from mdv.errors import BadRequest, InvalidDocument, MdvError
from mdv.model import Statement
from mdv.rdf.gate import gate
from mdv.rdf.parse import parse
from mdv.rdf.syntax import TURTLE


def read_snippet(text: str, base: str, prefixes: Mapping[str, str]) -> tuple[Statement, ...]:
    """Return the statements of a text. Relative URIs are resolved against `base`. The last full stop may be missing.

    >>> read_snippet("<#a> v:p 'x'", "http://d/1", {"v": "http://v/"})
    (Statement(subject='http://d/1#a', property='http://v/p',
               object=Term(type='literal', value='x', lang=None, datatype=None)),)
    """
    declared = " ".join(f"@prefix {name}: <{iri}> ." for name, iri in prefixes.items())
    stripped = text.strip()
    stop = "" if stripped.endswith(".") else " ."
    try:
        statements = parse(gate(f"{declared} {stripped}{stop}".encode("utf-8", "replace"), TURTLE), base).statements
    except MdvError as error:
        reason = _reason(error)
        known = ", ".join(f"{name}:" for name in sorted(prefixes)) or "none"
        raise BadRequest(
            f"{text!r} is not a statement: {reason}. Write Turtle, for example <#host> <http://example.org/port> 80."
            f" Prefixes of the schema: {known}."
        ) from None
    if any(name.startswith("_:") for one in statements for name in (one.subject, one.object.value)):
        raise InvalidDocument(
            f"{text!r} contains a blank node. The name of a blank node depends on its statements, so it cannot be"
            " edited. Register the document again instead."
        )
    return statements


_MISSING = {
    ". is not a valid RDF object": "its value is missing",
    ". is not a valid predicate": "its property and its value are missing",
    ". is not a valid subject or graph name": "it is empty",
    "Unexpected end of file": "it ends too early; check quotes and brackets",
}
"""Errors of the parser at the full stop that `read_snippet` adds."""


def _reason(error: MdvError) -> str:
    if not error.flaws:
        return "it is empty"
    message = error.flaws[0].message
    return next((plain for start, plain in _MISSING.items() if message.startswith(start)), message)


def read_prefixes(turtle: bytes) -> dict[str, str]:
    """Return the prefixes that a Turtle text declares.

    >>> read_prefixes(b"@prefix v: <http://v/> .")
    {'v': 'http://v/'}
    """
    reader = pyoxigraph.parse(turtle, format=TURTLE.format)
    for _ in reader:
        pass
    return dict(reader.prefixes)
