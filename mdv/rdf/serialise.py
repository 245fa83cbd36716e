"""Serialise statements as a text that parses to the same statements.

The output is deterministic: it does not depend on the order of the statements.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyoxigraph
from pyoxigraph import BlankNode, Literal, NamedNode, Triple

from mdv.errors import NotAcceptable
from mdv.model import BLANK_MARK, RDF, RDF_TYPE, RDFS, XSD, XSD_STRING, Statement, Term
from mdv.rdf.gate_xml import MAX_TEXT_BYTES, NAME_REST, NAME_START
from mdv.rdf.syntax import JSON_LD, N_TRIPLES, RDF_XML, TURTLE, Syntax

MAX_NESTING = 20
"""Nesting depth of written RDF/XML. Deeper resources are referenced. The gate accepts up to 200 levels."""

_MAX_PIECE = MAX_TEXT_BYTES // 4
"""Characters of one piece of text. A character has at most four bytes."""
XML_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
XML_NAMESPACES = ("http://www.w3.org/2000/xmlns/", "http://www.w3.org/XML/1998/namespace")
"""Namespaces that no document may declare."""
_NCNAME = re.compile(f"[{NAME_START}][{NAME_REST}]*+")
_NAME_START = re.compile(f"[{NAME_START}]")
_NAME_REST = re.compile(f"[{NAME_REST}]")
_PREFIX = re.compile(r"(?!xml)[a-z][a-z0-9_-]*", re.IGNORECASE)
"""Prefixes that all syntaxes accept."""

_COMMON_PREFIXES = {"rdf": RDF, "rdfs": RDFS, "xsd": XSD}
_NIL, _FIRST, _REST = RDF + "nil", RDF + "first", RDF + "rest"
_SYNTAX_TERMS = {
    RDF + name
    for name in ("RDF", "Description", "ID", "about", "parseType", "resource", "nodeID", "datatype", "li", "bagID",
                 "aboutEach", "aboutEachPrefix")
}  # fmt: skip


def serialise(
    statements: Iterable[Statement], syntax: Syntax, prefixes: Mapping[str, str], document: str | None = None
) -> bytes:
    """Return the statements in `syntax`. Names of blank nodes of `document` are written as blank nodes.

    >>> from mdv.rdf.syntax import TURTLE
    >>> print(serialise([Statement("http://a/x", "http://v/p", Term.literal("y"))], TURTLE, {"v": "http://v/"}).decode())
    @prefix v: <http://v/> .
    <http://a/x> v:p "y" .
    """
    ordered = list(dict.fromkeys(sorted(statements, key=_order)))
    used = _used_prefixes(ordered, prefixes)
    blank_prefix = None if document is None else document + BLANK_MARK
    return WRITERS[syntax.name](ordered, used, blank_prefix)


def _rdf_xml(statements: list[Statement], prefixes: dict[str, str], blank_prefix: str | None) -> bytes:
    return _RdfXml(statements, prefixes, blank_prefix).write()


def _turtle(statements: list[Statement], prefixes: dict[str, str], blank_prefix: str | None) -> bytes:
    # The library writes prefixes in arbitrary order, so they are sorted here.
    text = pyoxigraph.serialize(to_triples(statements, blank_prefix), format=TURTLE.format, prefixes=prefixes) or b""
    declared = sum(line.startswith(b"@prefix ") for line in text.split(b"\n", len(prefixes))[: len(prefixes)])
    lines = text.split(b"\n", declared)
    return b"\n".join([*sorted(lines[:declared]), *lines[declared:]])


def _n_triples(statements: list[Statement], prefixes: dict[str, str], blank_prefix: str | None) -> bytes:
    return pyoxigraph.serialize(to_triples(statements, blank_prefix), format=N_TRIPLES.format) or b""


def _order(statement: Statement) -> tuple[object, ...]:
    """Sort key: named resources before blank nodes, types before other properties."""
    subject, property, term = statement
    return BLANK_MARK in subject, subject, property != RDF_TYPE, property, *term.sort_key()


def blank_node_label(uri: str, blank_prefix: str | None) -> str | None:
    """Return the label of a blank node of the document; None for other URIs."""
    if blank_prefix is None or not uri.startswith(blank_prefix):
        return None
    return "b" + uri.removeprefix(blank_prefix)


def to_triples(statements: Iterable[Statement], blank_prefix: str | None) -> Iterator[Triple]:
    def node(uri: str) -> NamedNode | BlankNode:
        label = blank_node_label(uri, blank_prefix)
        return NamedNode(uri) if label is None else BlankNode(label)

    for subject, name, term in statements:
        yield Triple(node(subject), NamedNode(name), node(term.value) if term.is_uri else _literal(term))


def _literal(term: Term) -> Literal:
    if term.lang is not None:
        return Literal(term.value, language=term.lang)
    return Literal(term.value, datatype=NamedNode(term.datatype or XSD_STRING))


def _used_prefixes(statements: list[Statement], prefixes: Mapping[str, str]) -> dict[str, str]:
    """Return the prefixes of the namespaces that occur, one for each namespace."""
    names = {s.property for s in statements} | {s.subject for s in statements}
    names |= {s.object.value if s.object.is_uri else s.object.datatype or "" for s in statements}
    spaces = {split_name(name)[0] for name in names}
    return {prefix: uri for prefix, uri in usable_prefixes(prefixes).items() if uri in spaces}


def usable_prefixes(prefixes: Mapping[str, str]) -> dict[str, str]:
    """Return these prefixes and the common ones that all syntaxes accept, one for each namespace."""
    best: dict[str, str] = {}
    for prefix, uri in sorted((_COMMON_PREFIXES | dict(prefixes)).items(), key=lambda pair: (len(pair[0]), pair[0])):
        if not prefix or _PREFIX.fullmatch(prefix):
            best.setdefault(uri, prefix)
    return {prefix: uri for uri, prefix in sorted(best.items(), key=lambda pair: pair[1])}


def split_name(uri: str) -> tuple[str, str]:
    """Split a URI into namespace and local name. The local name is the longest suffix that is an XML name.

    >>> split_name("http://v/größe"), split_name("http://v/1a"), split_name("http://v/1")
    (('http://v/', 'größe'), ('http://v/1', 'a'), ('http://v/1', ''))
    """
    start = len(uri)
    while start and _NAME_REST.match(uri[start - 1]):
        start -= 1
    while start < len(uri) and not _NAME_START.match(uri[start]):
        start += 1
    return uri[:start], uri[start:]


class _RdfXml:
    """Writes nested RDF/XML: a resource that is referenced once is written inside the referring element (Figure 1)."""

    def __init__(self, statements: list[Statement], prefixes: dict[str, str], blank_prefix: str | None) -> None:
        self.blank_prefix = blank_prefix
        self.statements_of: dict[str, list[Statement]] = {}
        for statement in statements:
            self.statements_of.setdefault(statement.subject, []).append(statement)
        self.uses = Counter(s.object.value for s in statements if s.object.is_uri)
        self.types = {subject: self._element_class(own) for subject, own in self.statements_of.items()}
        self.names = self._element_names(statements, prefixes)
        self.lists = self._find_lists(statements)
        self.nested = self._find_nested(statements)
        self.lines: list[str] = []

    def write(self) -> bytes:
        spaces = sorted((prefix, uri) for uri, prefix in self.prefixes.items())
        declared = [
            f'xmlns:{prefix}="{escape_xml(uri)}"' if prefix else f'xmlns="{escape_xml(uri)}"' for prefix, uri in spaces
        ]
        self.lines = [
            '<?xml version="1.0" encoding="utf-8"?>',
            f"<{self.rdf}:RDF " + "\n         ".join(declared) + ">",
        ]
        for subject in self.statements_of:
            if subject not in self.nested and subject not in self.cells:
                self._node(subject, 1)
        self.lines.append(f"</{self.rdf}:RDF>\n")
        return "\n".join(self.lines).encode()

    def _element_class(self, statements: list[Statement]) -> str | None:
        """Return the class that can be written as the element of a resource."""
        for _, name, term in statements:
            if name != RDF_TYPE or not term.is_uri or blank_node_label(term.value, self.blank_prefix) is not None:
                continue
            if term.value not in _SYNTAX_TERMS and _is_writable(term.value):
                return term.value
        return None

    def _element_names(self, statements: list[Statement], prefixes: dict[str, str]) -> dict[str, str]:
        """Return the element names of the properties and classes that are written as elements."""
        for statement in statements:
            _refuse_unwritable(statement)
        self.prefixes = {uri: prefix for prefix, uri in prefixes.items() if uri not in XML_NAMESPACES}
        taken = set(self.prefixes.values())
        if self.prefixes.get(RDF, "") == "":
            # Attributes need a prefix.
            self.prefixes[RDF] = unused_prefix("rdf", taken)
        self.rdf = self.prefixes[RDF]
        names: dict[str, str] = {}
        for uri in sorted({s.property for s in statements} | {type for type in self.types.values() if type}):
            space, local = split_name(uri)
            if space not in self.prefixes:
                self.prefixes[space] = unused_prefix("ns", taken)
            prefix = self.prefixes[space]
            names[uri] = f"{prefix}:{local}" if prefix else local
        elements = {split_name(uri)[0] for uri in names} | {RDF}
        self.prefixes = {uri: prefix for uri, prefix in self.prefixes.items() if uri in elements}
        return names

    def _find_lists(self, statements: list[Statement]) -> dict[str, list[str]]:
        """Return the items of each list that rdf:parseType="Collection" can express, by the list's first cell."""
        self.cells: set[str] = set()
        rests: dict[str, tuple[str, str]] = {}
        for subject, own in self.statements_of.items():
            if self.uses[subject] == 1 and blank_node_label(subject, self.blank_prefix) is not None:
                values = {s.property: s.object.value for s in own if s.object.is_uri}
                if len(own) == 2 and set(values) == {_FIRST, _REST}:
                    rests[subject] = values[_FIRST], values[_REST]
        lists: dict[str, list[str]] = {}
        for _, name, term in statements:
            if name in (_FIRST, _REST, RDF_TYPE) or term.value not in rests or not term.is_uri:
                continue
            cells, cell = [], term.value
            while cell in rests:
                cells.append(cell)
                cell = rests[cell][1]
            if cell == _NIL:
                lists[term.value] = [rests[cell][0] for cell in cells]
                self.cells.update(cells)
        return lists

    def _find_nested(self, statements: list[Statement]) -> set[str]:
        """Return the resources that are written inside the only element that refers to them. Breaks cycles and limits
        the depth."""
        owners: dict[str, str] = {}
        for subject, name, term in statements:
            if subject in self.cells or name == RDF_TYPE or not term.is_uri:
                continue
            for value in self.lists.get(term.value, [term.value]):
                if self.uses[value] == 1 and value in self.statements_of and value not in self.cells:
                    owners[value] = subject
        depths: dict[str, int] = {}
        for start in self.statements_of:
            path, at = [], start
            while at in owners and at not in depths:
                path.append(at)
                depths[at] = 0
                at = owners[at]
            # In a cycle, one resource stays at the top level and the others are nested below it.
            chains = [path]
            if path and at in path:
                del owners[at]
                chains = [path[: path.index(at)], path[path.index(at) + 1 :]]
            for chain in chains:
                depth = depths.get(at, 0)
                for nested in reversed(chain):
                    depth = depth + 1 if depth < MAX_NESTING else 0
                    depths[nested] = depth
                    if not depth:
                        del owners[nested]
        return set(owners)

    def _node(self, subject: str, level: int) -> None:
        type = self.types.get(subject)
        tag = self.names[type] if type else f"{self.rdf}:Description"
        indent = "  " * level
        start = f"{indent}<{tag}{self._subject(subject)}"
        written_type = Statement(subject, RDF_TYPE, Term.uri(type or ""))
        others = [statement for statement in self.statements_of.get(subject, []) if statement != written_type]
        if not others:
            self.lines.append(start + "/>")
            return
        self.lines.append(start + ">")
        for statement in others:
            self._property(statement, level + 1)
        self.lines.append(f"{indent}</{tag}>")

    def _property(self, statement: Statement, level: int) -> None:
        term, tag, indent = statement.object, self.names[statement.property], "  " * level
        value = term.value
        if not term.is_uri:
            self.lines.append(f"{indent}<{tag}{self._literal(term)}>{element_text(value)}</{tag}>")
        elif value in self.lists and statement.property not in (_FIRST, _REST, RDF_TYPE):
            self.lines.append(f'{indent}<{tag} {self.rdf}:parseType="Collection">')
            for item in self.lists[value]:
                if item in self.nested:
                    self._node(item, level + 1)
                else:
                    self.lines.append(f"{indent}  <{self.rdf}:Description{self._subject(item)}/>")
            self.lines.append(f"{indent}</{tag}>")
        elif value in self.nested and statement.property != RDF_TYPE:
            self.lines.append(f"{indent}<{tag}>")
            self._node(value, level + 1)
            self.lines.append(f"{indent}</{tag}>")
        else:
            label = blank_node_label(value, self.blank_prefix)
            reference = f'resource="{escape_xml(value)}"' if label is None else f'nodeID="{label}"'
            self.lines.append(f"{indent}<{tag} {self.rdf}:{reference}/>")

    def _subject(self, uri: str) -> str:
        label = blank_node_label(uri, self.blank_prefix)
        if label is None:
            return f' {self.rdf}:about="{escape_xml(uri)}"'
        return "" if uri in self.nested or not self.uses[uri] else f' {self.rdf}:nodeID="{label}"'

    def _literal(self, term: Term) -> str:
        if term.lang is not None:
            return f' xml:lang="{term.lang}"'
        return "" if term.datatype is None else f' {self.rdf}:datatype="{escape_xml(term.datatype)}"'


def unused_prefix(stem: str, taken: set[str]) -> str:
    names = ([stem] if stem == "rdf" else []) + [f"{stem}{number}" for number in range(1, len(taken) + 2)]
    name = next(name for name in names if name not in taken)
    taken.add(name)
    return name


def _is_writable(name: str) -> bool:
    space, local = split_name(name)
    return bool(local) and space not in XML_NAMESPACES


def _refuse_unwritable(statement: Statement) -> None:
    subject, name, term = statement
    if (reason := property_write_error(name)) is not None:
        raise NotAcceptable(reason)
    if XML_FORBIDDEN.search(term.value):
        raise NotAcceptable(value_write_error(subject))


def property_write_error(name: str) -> str | None:
    """Return why RDF/XML cannot write a property; None if it can."""
    if _is_writable(name) and name not in _SYNTAX_TERMS:
        return None
    why = "which is part of its syntax" if name in _SYNTAX_TERMS else "whose URI does not end with an XML name"
    return f"RDF/XML cannot write the property <{name}>, {why}. Request text/turtle."


def value_write_error(subject: str) -> str:
    """Return why RDF/XML cannot write a value of a resource."""
    return f"RDF/XML cannot write a control character in a value of <{subject}>. Request text/turtle."


def element_text(value: str) -> str:
    """Return the text of an element. Comments divide a long text, because XML parsers limit the length of a piece."""
    if len(value) <= _MAX_PIECE:
        return escape_xml(value)
    return "<!---->".join(escape_xml(value[at : at + _MAX_PIECE]) for at in range(0, len(value), _MAX_PIECE))


def escape_xml(text: str) -> str:
    # XML parsers convert a literal carriage return to a newline.
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;").replace("\r", "&#13;")


def _json_ld(statements: list[Statement], prefixes: dict[str, str], blank_prefix: str | None) -> bytes:
    """Write one object for each resource, with short names where they are unambiguous."""
    names = {n for s in statements for n in (s.subject, s.property, s.object.value, s.object.datatype or "")}
    schemes = {name.partition(":")[0] for name in names}
    usable = {p: uri for p, uri in prefixes.items() if p and p not in schemes and uri[-1] in ":/?#[]@"}
    vocabulary = prefixes.get("", "")
    shorts: dict[str, str] = {}

    def short(uri: str) -> str:
        """Return the short name of a property or class."""
        if uri not in shorts:
            space, local = split_name(uri)
            prefix = next((prefix for prefix, known in usable.items() if known == space), None)
            if local and prefix is not None:
                shorts[uri] = f"{prefix}:{local}"
            else:
                shorts[uri] = local if local and space == vocabulary and local not in usable else name(uri)
        return shorts[uri]

    def name(uri: str) -> str:
        label = blank_node_label(uri, blank_prefix)
        return uri if label is None else f"_:{label}"

    def value(term: Term) -> Any:
        if term.is_uri:
            return {"@id": name(term.value)}
        if term.lang is not None:
            return {"@value": term.value, "@language": term.lang}
        return term.value if term.datatype is None else {"@value": term.value, "@type": short(term.datatype)}

    nodes: dict[str, dict[str, Any]] = {}
    for subject, property, term in statements:
        node = nodes.setdefault(subject, {"@id": name(subject)})
        if property == RDF_TYPE and term.is_uri:
            node.setdefault("@type", []).append(short(term.value))
        else:
            node.setdefault(short(property), []).append(value(term))
    plain = [{k: v[0] if isinstance(v, list) and len(v) == 1 else v for k, v in n.items()} for n in nodes.values()]
    context = ({"@vocab": vocabulary} if vocabulary else {}) | usable
    return json.dumps({"@context": context, "@graph": plain}, ensure_ascii=False, indent=1).encode() + b"\n"


Writer = Callable[[list[Statement], dict[str, str], str | None], bytes]

WRITERS: dict[str, Writer] = {
    RDF_XML.name: _rdf_xml,
    TURTLE.name: _turtle,
    N_TRIPLES.name: _n_triples,
    JSON_LD.name: _json_ld,
}
"""By name of the syntax: writes ordered statements, with prefixes and the prefix of the names of blank nodes."""
