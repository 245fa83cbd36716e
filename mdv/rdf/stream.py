"""Write large numbers of statements as a stream of chunks.

`serialise` needs all statements in memory to nest resources and to shorten names. The stream writes one block for each
chunk of a resource: RDF/XML is flat, and JSON-LD uses full names. Both parse to the same statements.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import pyoxigraph

from mdv.errors import NotAcceptable
from mdv.model import BLANK_MARK, RDF, RDF_TYPE, Statement, Term
from mdv.rdf.serialise import (
    XML_FORBIDDEN,
    XML_NAMESPACES,
    blank_node_label,
    element_text,
    escape_xml,
    property_write_error,
    split_name,
    to_triples,
    unused_prefix,
    usable_prefixes,
    value_write_error,
)
from mdv.rdf.syntax import JSON_LD, N_TRIPLES, RDF_XML, TURTLE, Syntax

XML_FORBIDDEN_PATTERN = XML_FORBIDDEN.pattern.replace("\x00", "\x01")
"""A regular expression for characters that RDF/XML cannot write. For use in SQL, where texts contain no NUL."""


class StreamWriter(NamedTuple):
    """The parts of a streamed text: `head`, then `write` of each chunk, separated by `between`, then `tail`."""

    head: bytes
    write: Callable[[Sequence[Statement]], bytes]
    between: bytes
    tail: bytes

    def pieces(
        self, chunks: Iterable[Sequence[Statement]], offload: Callable[..., bytes] | None = None
    ) -> Iterator[bytes]:
        """Yield the text of all statements in pieces. With `offload`, each chunk is written through that function."""
        write = self.write if offload is None else partial(offload, self.write)
        yield self.head
        for number, chunk in enumerate(chunks):
            yield (self.between if number else b"") + write(chunk)
        yield self.tail


def make_stream_writer(syntax: Syntax, prefixes: Mapping[str, str], document: str | None = None) -> StreamWriter:
    """Return the stream writer of a syntax. Names of blank nodes of `document` are written as blank nodes.

    >>> statements = [Statement("http://a/x", "http://v/p", Term.literal(text)) for text in "yz"]
    >>> chunks = [statements[:1], statements[1:]]
    >>> print(b"".join(make_stream_writer(TURTLE, {"v": "http://v/"}).pieces(chunks)).decode())
    @prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
    @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
    @prefix v: <http://v/> .
    @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
    <http://a/x> v:p "y" .
    <http://a/x> v:p "z" .
    <BLANKLINE>
    """
    blank_prefix = None if document is None else document + BLANK_MARK
    usable = usable_prefixes(prefixes)
    return STREAM_WRITERS[syntax.name](usable, blank_prefix)


def check_writable(syntax: Syntax, properties: Iterable[str], unwritable: Callable[[], str | None]) -> None:
    """Raise `NotAcceptable` if RDF/XML cannot write the statements, before the response starts.

    Property names are checked here. `unwritable` finds the subject of a value with a control character.
    """
    if syntax is not RDF_XML:
        return
    for name in properties:
        if (reason := property_write_error(name)) is not None:
            raise NotAcceptable(reason)
    subject = unwritable()
    if subject is not None:
        raise NotAcceptable(value_write_error(subject))


def _turtle(prefixes: Mapping[str, str], blank_prefix: str | None) -> StreamWriter:
    declared = "".join(f"@prefix {prefix}: <{uri}> .\n" for prefix, uri in prefixes.items())

    def write(chunk: Sequence[Statement]) -> bytes:
        triples = to_triples(chunk, blank_prefix)
        text = pyoxigraph.serialize(triples, format=TURTLE.format, prefixes=dict(prefixes)) or b""
        while text.startswith(b"@prefix "):
            text = text.partition(b"\n")[2]
        return text

    return StreamWriter(declared.encode(), write, b"", b"")


def _n_triples(prefixes: Mapping[str, str], blank_prefix: str | None) -> StreamWriter:
    def write(chunk: Sequence[Statement]) -> bytes:
        return pyoxigraph.serialize(to_triples(chunk, blank_prefix), format=N_TRIPLES.format) or b""

    return StreamWriter(b"", write, b"", b"")


def _json_ld(prefixes: Mapping[str, str], blank_prefix: str | None) -> StreamWriter:
    return StreamWriter(b'{"@graph": [\n', lambda chunk: _json_ld_nodes(chunk, blank_prefix), b",\n", b"\n]}\n")


def _rdf_xml(prefixes: Mapping[str, str], blank_prefix: str | None) -> StreamWriter:
    spaces = {uri: prefix for prefix, uri in prefixes.items() if prefix and uri not in (RDF, *XML_NAMESPACES)}
    taken = set(spaces.values())
    rdf = spaces[RDF] = unused_prefix("rdf", taken)
    other = unused_prefix("ns", taken)
    declared = "\n         ".join(f'xmlns:{prefix}="{escape_xml(uri)}"' for uri, prefix in sorted(spaces.items()))
    head = f'<?xml version="1.0" encoding="utf-8"?>\n<{rdf}:RDF {declared}>\n'

    def named(uri: str, about: str) -> str:
        label = blank_node_label(uri, blank_prefix)
        return f'{rdf}:nodeID="{label}"' if label is not None else f'{rdf}:{about}="{escape_xml(uri)}"'

    def element(statement: Statement) -> str:
        term = statement.object
        space, local = split_name(statement.property)
        tag = f"{spaces.get(space, other)}:{local}"
        start = f"    <{tag}" + ("" if space in spaces else f' xmlns:{other}="{escape_xml(space)}"')
        if term.is_uri:
            return f"{start} {named(term.value, 'resource')}/>"
        kind = f' xml:lang="{term.lang}"' if term.lang is not None else ""
        if term.datatype is not None and term.lang is None:
            kind = f' {rdf}:datatype="{escape_xml(term.datatype)}"'
        return f"{start}{kind}>{element_text(term.value)}</{tag}>"

    def write(chunk: Sequence[Statement]) -> bytes:
        lines = []
        for subject, group in groupby(chunk, key=lambda statement: statement.subject):
            lines.append(f"  <{rdf}:Description {named(subject, 'about')}>")
            lines += map(element, group)
            lines.append(f"  </{rdf}:Description>\n")
        return "\n".join(lines).encode()

    return StreamWriter(head.encode(), write, b"", f"</{rdf}:RDF>\n".encode())


def _json_ld_nodes(chunk: Sequence[Statement], blank_prefix: str | None) -> bytes:
    """Write one object for each resource of a chunk. Several objects with the same `@id` are one resource."""

    def name(uri: str) -> str:
        label = blank_node_label(uri, blank_prefix)
        return uri if label is None else f"_:{label}"

    def value(term: Term) -> Any:
        if term.is_uri:
            return {"@id": name(term.value)}
        if term.lang is not None:
            return {"@value": term.value, "@language": term.lang}
        return {"@value": term.value} | ({} if term.datatype is None else {"@type": term.datatype})

    nodes = []
    for subject, group in groupby(chunk, key=lambda statement: statement.subject):
        node: dict[str, Any] = {"@id": name(subject)}
        for _, property_iri, term in group:
            if property_iri == RDF_TYPE and term.is_uri:
                node.setdefault("@type", []).append(name(term.value))
            else:
                node.setdefault(property_iri, []).append(value(term))
        nodes.append(json.dumps(node, ensure_ascii=False))
    return ",\n".join(nodes).encode()


STREAM_WRITERS: dict[str, Callable[[Mapping[str, str], str | None], StreamWriter]] = {
    RDF_XML.name: _rdf_xml,
    TURTLE.name: _turtle,
    N_TRIPLES.name: _n_triples,
    JSON_LD.name: _json_ld,
}
"""By name of the syntax: makes a writer, with prefixes and the prefix of the names of blank nodes."""
