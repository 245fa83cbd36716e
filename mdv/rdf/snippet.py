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
        reason = error.flaws[0].message if error.flaws else error.detail
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


def read_prefixes(turtle: bytes) -> dict[str, str]:
    """Return the prefixes that a Turtle text declares.

    >>> read_prefixes(b"@prefix v: <http://v/> .")
    {'v': 'http://v/'}
    """
    reader = pyoxigraph.parse(turtle, format=TURTLE.format)
    for _ in reader:
        pass
    return dict(reader.prefixes)
