"""Serialise: statements become a text that reads back as the same statements, with the prefixes people expect."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyoxigraph
import rdflib
from pyoxigraph import BlankNode, Literal, NamedNode, Triple

from mdv.errors import NotAcceptable
from mdv.model import BLANK_MARK, RDF_TYPE, XSD_STRING, Statement, Term
from mdv.rdf.syntax import JSON_LD, RDF_XML, Syntax

PRETTY_LIMIT = 2000
"""Up to this many statements RDF/XML is nested for people; beyond, it is written flat and fast."""

_XML_CANNOT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_LOCAL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9._-]*$")


def serialise(
    statements: Iterable[Statement], syntax: Syntax, prefixes: Mapping[str, str], document: str | None = None
) -> bytes:
    """The statements in `syntax`. Names of `document`'s blank nodes become blank nodes again.

    >>> from mdv.rdf.syntax import TURTLE
    >>> print(serialise([Statement("http://a/x", "http://v/p", Term.literal("y"))], TURTLE, {"v": "http://v/"}).decode())
    @prefix v: <http://v/> .
    <http://a/x> v:p "y" .
    """
    ordered = sorted(statements, key=lambda s: (BLANK_MARK in s.subject, s.subject, s.property != RDF_TYPE, s))
    used = _used_prefixes(ordered, prefixes)
    if syntax is RDF_XML:
        return _rdf_xml(ordered, used, document)
    text = _write(ordered, syntax, used, document)
    if syntax is JSON_LD:
        return _compact(json.loads(text), used)
    return text


def _write(statements: list[Statement], syntax: Syntax, prefixes: dict[str, str], document: str | None) -> bytes:
    return pyoxigraph.serialize(_triples(statements, document), format=syntax.format, prefixes=prefixes) or b""


def _triples(statements: Iterable[Statement], document: str | None) -> Iterable[Triple]:
    blank_prefix = None if document is None else document + BLANK_MARK

    def node(uri: str) -> NamedNode | BlankNode:
        if blank_prefix is not None and uri.startswith(blank_prefix):
            return BlankNode(_blank_label(uri, blank_prefix))
        return NamedNode(uri)

    for subject, name, term in statements:
        yield Triple(node(subject), NamedNode(name), node(term.value) if term.is_uri else _literal(term))


def _blank_label(uri: str, blank_prefix: str) -> str:
    return "b" + uri.removeprefix(blank_prefix)


def _literal(term: Term) -> Literal:
    if term.lang is not None:
        return Literal(term.value, language=term.lang)
    return Literal(term.value, datatype=NamedNode(term.datatype or XSD_STRING))


def _used_prefixes(statements: list[Statement], prefixes: Mapping[str, str]) -> dict[str, str]:
    names = {s.property for s in statements} | {s.object.value for s in statements if s.object.is_uri}
    names |= {s.object.datatype for s in statements if s.object.datatype}
    spaces = {name[: len(name) - len(_local(name))] for name in names}
    return {prefix: uri for prefix, uri in prefixes.items() if uri in spaces}


def _local(uri: str) -> str:
    found = _LOCAL_NAME.search(uri)
    return found.group() if found else ""


def _rdf_xml(statements: list[Statement], prefixes: dict[str, str], document: str | None) -> bytes:
    for statement in statements:
        if not _local(statement.property):
            raise NotAcceptable(
                f"RDF/XML cannot write the property <{statement.property}>, whose name does not end in an XML name. "
                "Ask for text/turtle."
            )
        if _XML_CANNOT.search(statement.object.value):
            raise NotAcceptable(
                f"RDF/XML cannot write a control character in a value of <{statement.subject}>. Ask for text/turtle."
            )
    if len(statements) <= PRETTY_LIMIT:
        text = _graph(statements, prefixes, document).serialize(format="pretty-xml", encoding="utf-8")
    else:
        text = _write(statements, RDF_XML, prefixes, document)
    # XML readers turn a bare carriage return into a newline; the writers use none of their own.
    return text.replace(b"\r", b"&#13;")


def _graph(statements: Iterable[Statement], prefixes: dict[str, str], document: str | None) -> rdflib.Graph:
    graph = rdflib.Graph(bind_namespaces="none")
    for prefix, uri in prefixes.items():
        graph.bind(prefix, uri)
    blank_prefix = None if document is None else document + BLANK_MARK

    def node(uri: str) -> rdflib.URIRef | rdflib.BNode:
        if blank_prefix is not None and uri.startswith(blank_prefix):
            return rdflib.BNode(_blank_label(uri, blank_prefix))
        return rdflib.URIRef(uri)

    for subject, name, term in statements:
        value: rdflib.term.Node
        if term.is_uri:
            value = node(term.value)
        else:
            datatype = rdflib.URIRef(term.datatype) if term.datatype else None
            value = rdflib.Literal(term.value, lang=term.lang, datatype=datatype, normalize=False)
        graph.add((node(subject), rdflib.URIRef(name), value))
    return graph


def _compact(expanded: list[dict[str, Any]], prefixes: dict[str, str]) -> bytes:
    """Expanded JSON-LD with short names: prefixes in a context, @type, lone values without their lists."""
    usable = {prefix: uri for prefix, uri in prefixes.items() if prefix and uri[-1] in ":/?#[]@"}
    vocabulary = prefixes.get("", "")
    by_uri = sorted(((uri, prefix) for prefix, uri in usable.items()), key=lambda pair: -len(pair[0]))

    def short(uri: str) -> str:
        for space, prefix in by_uri:
            if uri.startswith(space) and _LOCAL_NAME.fullmatch(uri[len(space) :]):
                return f"{prefix}:{uri[len(space) :]}"
        local = uri.removeprefix(vocabulary) if vocabulary else ""
        return local if local != uri and _LOCAL_NAME.fullmatch(local) else uri

    def value(entry: Any) -> Any:
        if set(entry) == {"@value"}:
            return entry["@value"]
        return {key: short(v) if key == "@type" else v for key, v in entry.items()}

    nodes: dict[str, dict[str, Any]] = {}
    for source in expanded:
        node = nodes.setdefault(source["@id"], {"@id": source["@id"]})
        for key, entries in source.items():
            if key == RDF_TYPE or key == "@type":
                types = [short(e["@id"] if isinstance(e, dict) else e) for e in entries]
                node["@type"] = node.get("@type", []) + types
            elif key != "@id":
                node[short(key)] = node.get(short(key), []) + [value(e) for e in entries]
    plain = [{k: v[0] if isinstance(v, list) and len(v) == 1 else v for k, v in n.items()} for n in nodes.values()]
    context = ({"@vocab": vocabulary} if vocabulary else {}) | dict(sorted(usable.items()))
    return json.dumps({"@context": context, "@graph": plain}, ensure_ascii=False, indent=1).encode()
