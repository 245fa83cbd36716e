"""Serialise: statements become a text that reads back as the same statements, with the prefixes people expect.

The same statements give the same bytes, in whatever order they come.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyoxigraph
from pyoxigraph import BlankNode, Literal, NamedNode, Triple

from mdv.errors import NotAcceptable
from mdv.model import BLANK_MARK, RDF, RDF_TYPE, RDFS, XSD, XSD_STRING, Statement, Term
from mdv.rdf.gate_xml import NAME_REST, NAME_START
from mdv.rdf.syntax import JSON_LD, RDF_XML, Syntax

MAX_NESTING = 20
"""So deep RDF/XML is nested; what would be deeper is referred to. The gate takes no document deeper than 200."""

_XML_CANNOT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_XMLNS = "http://www.w3.org/2000/xmlns/"
_XML_NAMESPACE = "http://www.w3.org/XML/1998/namespace"
_NCNAME = re.compile(f"[{NAME_START}][{NAME_REST}]*+")
_NAME_START = re.compile(f"[{NAME_START}]")
_NAME_REST = re.compile(f"[{NAME_REST}]")
_PREFIX = re.compile(r"(?!xml)[a-z][a-z0-9_-]*", re.IGNORECASE)
"""What all of the syntaxes take as a prefix."""

_USUAL = {"rdf": RDF, "rdfs": RDFS, "xsd": XSD}
_NIL, _FIRST, _REST = RDF + "nil", RDF + "first", RDF + "rest"
_SYNTAX_TERMS = {
    RDF + name
    for name in ("RDF", "Description", "ID", "about", "parseType", "resource", "nodeID", "datatype", "li", "bagID",
                 "aboutEach", "aboutEachPrefix")
}  # fmt: skip


def serialise(
    statements: Iterable[Statement], syntax: Syntax, prefixes: Mapping[str, str], document: str | None = None
) -> bytes:
    """The statements in `syntax`. Names of `document`'s blank nodes become blank nodes again.

    >>> from mdv.rdf.syntax import TURTLE
    >>> print(serialise([Statement("http://a/x", "http://v/p", Term.literal("y"))], TURTLE, {"v": "http://v/"}).decode())
    @prefix v: <http://v/> .
    <http://a/x> v:p "y" .
    """
    ordered = list(dict.fromkeys(sorted(statements, key=_order)))
    used = _used_prefixes(ordered, prefixes)
    blank_prefix = None if document is None else document + BLANK_MARK
    if syntax is RDF_XML:
        return _RdfXml(ordered, used, blank_prefix).write()
    if syntax is JSON_LD:
        return _json_ld(ordered, used, blank_prefix)
    # The writer declares prefixes in no fixed order, so they are declared here.
    text = pyoxigraph.serialize(_triples(ordered, blank_prefix), format=syntax.format, prefixes=used) or b""
    declared = sum(line.startswith(b"@prefix ") for line in text.split(b"\n", len(used))[: len(used)])
    lines = text.split(b"\n", declared)
    return b"\n".join([*sorted(lines[:declared]), *lines[declared:]])


def _order(statement: Statement) -> tuple[object, ...]:
    """Named resources before blank nodes, types before other properties."""
    subject, property, (type, value, lang, datatype) = statement
    return BLANK_MARK in subject, subject, property != RDF_TYPE, property, type, value, lang or "", datatype or ""


def _label(uri: str, blank_prefix: str | None) -> str | None:
    """The label of a blank node of the document; None for every other name."""
    if blank_prefix is None or not uri.startswith(blank_prefix):
        return None
    return "b" + uri.removeprefix(blank_prefix)


def _triples(statements: Iterable[Statement], blank_prefix: str | None) -> Iterator[Triple]:
    def node(uri: str) -> NamedNode | BlankNode:
        label = _label(uri, blank_prefix)
        return NamedNode(uri) if label is None else BlankNode(label)

    for subject, name, term in statements:
        yield Triple(node(subject), NamedNode(name), node(term.value) if term.is_uri else _literal(term))


def _literal(term: Term) -> Literal:
    if term.lang is not None:
        return Literal(term.value, language=term.lang)
    return Literal(term.value, datatype=NamedNode(term.datatype or XSD_STRING))


def _used_prefixes(statements: list[Statement], prefixes: Mapping[str, str]) -> dict[str, str]:
    """The prefixes whose namespaces occur, one for each namespace."""
    names = {s.property for s in statements} | {s.subject for s in statements}
    names |= {s.object.value if s.object.is_uri else s.object.datatype or "" for s in statements}
    spaces = {_split(name)[0] for name in names}
    best: dict[str, str] = {}
    for prefix, uri in sorted((_USUAL | dict(prefixes)).items(), key=lambda pair: (len(pair[0]), pair[0])):
        if uri in spaces and (not prefix or _PREFIX.fullmatch(prefix)):
            best.setdefault(uri, prefix)
    return {prefix: uri for uri, prefix in sorted(best.items(), key=lambda pair: pair[1])}


def _split(uri: str) -> tuple[str, str]:
    """Namespace and local name, which is as long as an XML name can be.

    >>> _split("http://v/größe"), _split("http://v/1a"), _split("http://v/1")
    (('http://v/', 'größe'), ('http://v/1', 'a'), ('http://v/1', ''))
    """
    start = len(uri)
    while start and _NAME_REST.match(uri[start - 1]):
        start -= 1
    while start < len(uri) and not _NAME_START.match(uri[start]):
        start += 1
    return uri[:start], uri[start:]


class _RdfXml:
    """RDF/XML as people write it: what is referred to once stands inside of what refers to it, as in Figure 1."""

    def __init__(self, statements: list[Statement], prefixes: dict[str, str], blank_prefix: str | None) -> None:
        self.blank_prefix = blank_prefix
        self.said: dict[str, list[Statement]] = {}
        for statement in statements:
            self.said.setdefault(statement.subject, []).append(statement)
        self.uses = Counter(s.object.value for s in statements if s.object.is_uri)
        self.types = {subject: self._type(said) for subject, said in self.said.items()}
        self.names = self._names(statements, prefixes)
        self.lists = self._lists(statements)
        self.inner = self._inner(statements)
        self.lines: list[str] = []

    def write(self) -> bytes:
        spaces = sorted((prefix, uri) for uri, prefix in self.prefixes.items())
        declared = [
            f'xmlns:{prefix}="{_escape(uri)}"' if prefix else f'xmlns="{_escape(uri)}"' for prefix, uri in spaces
        ]
        self.lines = [
            '<?xml version="1.0" encoding="utf-8"?>',
            f"<{self.rdf}:RDF " + "\n         ".join(declared) + ">",
        ]
        for subject in self.said:
            if subject not in self.inner and subject not in self.cells:
                self._node(subject, 1)
        self.lines.append(f"</{self.rdf}:RDF>\n")
        return "\n".join(self.lines).encode()

    def _type(self, said: list[Statement]) -> str | None:
        """The class that can be the element of a resource."""
        for _, name, term in said:
            if name != RDF_TYPE or not term.is_uri or _label(term.value, self.blank_prefix) is not None:
                continue
            if term.value not in _SYNTAX_TERMS and _is_writable(term.value):
                return term.value
        return None

    def _names(self, statements: list[Statement], prefixes: dict[str, str]) -> dict[str, str]:
        """For each property and class that becomes an element its name, as written."""
        for statement in statements:
            _refuse_unwritable(statement)
        self.prefixes = {uri: prefix for prefix, uri in prefixes.items() if uri not in (_XMLNS, _XML_NAMESPACE)}
        taken = set(self.prefixes.values())
        if self.prefixes.get(RDF, "") == "":
            # Attributes need a prefix.
            self.prefixes[RDF] = _fresh("rdf", taken)
        self.rdf = self.prefixes[RDF]
        names: dict[str, str] = {}
        for uri in sorted({s.property for s in statements} | {type for type in self.types.values() if type}):
            space, local = _split(uri)
            if space not in self.prefixes:
                self.prefixes[space] = _fresh("ns", taken)
            prefix = self.prefixes[space]
            names[uri] = f"{prefix}:{local}" if prefix else local
        elements = {_split(uri)[0] for uri in names} | {RDF}
        self.prefixes = {uri: prefix for uri, prefix in self.prefixes.items() if uri in elements}
        return names

    def _lists(self, statements: list[Statement]) -> dict[str, list[str]]:
        """The items of each list that rdf:parseType="Collection" can express, by the list's first cell."""
        self.cells: set[str] = set()
        rests: dict[str, tuple[str, str]] = {}
        for subject, said in self.said.items():
            if self.uses[subject] == 1 and _label(subject, self.blank_prefix) is not None:
                values = {s.property: s.object.value for s in said if s.object.is_uri}
                if len(said) == 2 and set(values) == {_FIRST, _REST}:
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

    def _inner(self, statements: list[Statement]) -> set[str]:
        """What is written inside of the one place that refers to it: no circle, and not too deep."""
        owners: dict[str, str] = {}
        for subject, name, term in statements:
            if subject in self.cells or name == RDF_TYPE or not term.is_uri:
                continue
            for value in self.lists.get(term.value, [term.value]):
                if self.uses[value] == 1 and value in self.said and value not in self.cells:
                    owners[value] = subject
        depths: dict[str, int] = {}
        for start in self.said:
            path, at = [], start
            while at in owners and at not in depths:
                path.append(at)
                depths[at] = 0
                at = owners[at]
            # Where the way ends in itself (a circle), one of the circle stays outside; the others hang below it.
            chains = [path]
            if path and at in path:
                del owners[at]
                chains = [path[: path.index(at)], path[path.index(at) + 1 :]]
            for chain in chains:
                depth = depths.get(at, 0)
                for inner in reversed(chain):
                    depth = depth + 1 if depth < MAX_NESTING else 0
                    depths[inner] = depth
                    if not depth:
                        del owners[inner]
        return set(owners)

    def _node(self, subject: str, level: int) -> None:
        type = self.types.get(subject)
        tag = self.names[type] if type else f"{self.rdf}:Description"
        indent = "  " * level
        start = f"{indent}<{tag}{self._subject(subject)}"
        said = [
            s for s in self.said.get(subject, []) if not (s.property == RDF_TYPE and s.object == Term.uri(type or ""))
        ]
        if not said:
            self.lines.append(start + "/>")
            return
        self.lines.append(start + ">")
        for statement in said:
            self._property(statement, level + 1)
        self.lines.append(f"{indent}</{tag}>")

    def _property(self, statement: Statement, level: int) -> None:
        term, tag, indent = statement.object, self.names[statement.property], "  " * level
        value = term.value
        if not term.is_uri:
            self.lines.append(f"{indent}<{tag}{self._literal(term)}>{_escape(value)}</{tag}>")
        elif value in self.lists and statement.property not in (_FIRST, _REST, RDF_TYPE):
            self.lines.append(f'{indent}<{tag} {self.rdf}:parseType="Collection">')
            for item in self.lists[value]:
                if item in self.inner:
                    self._node(item, level + 1)
                else:
                    self.lines.append(f"{indent}  <{self.rdf}:Description{self._subject(item)}/>")
            self.lines.append(f"{indent}</{tag}>")
        elif value in self.inner and statement.property != RDF_TYPE:
            self.lines.append(f"{indent}<{tag}>")
            self._node(value, level + 1)
            self.lines.append(f"{indent}</{tag}>")
        else:
            label = _label(value, self.blank_prefix)
            reference = f'resource="{_escape(value)}"' if label is None else f'nodeID="{label}"'
            self.lines.append(f"{indent}<{tag} {self.rdf}:{reference}/>")

    def _subject(self, uri: str) -> str:
        label = _label(uri, self.blank_prefix)
        if label is None:
            return f' {self.rdf}:about="{_escape(uri)}"'
        return "" if uri in self.inner or not self.uses[uri] else f' {self.rdf}:nodeID="{label}"'

    def _literal(self, term: Term) -> str:
        if term.lang is not None:
            return f' xml:lang="{term.lang}"'
        return "" if term.datatype is None else f' {self.rdf}:datatype="{_escape(term.datatype)}"'


def _fresh(stem: str, taken: set[str]) -> str:
    names = ([stem] if stem == "rdf" else []) + [f"{stem}{number}" for number in range(1, len(taken) + 2)]
    name = next(name for name in names if name not in taken)
    taken.add(name)
    return name


def _is_writable(name: str) -> bool:
    space, local = _split(name)
    return bool(local) and space not in (_XMLNS, _XML_NAMESPACE)


def _refuse_unwritable(statement: Statement) -> None:
    subject, name, term = statement
    if not _is_writable(name) or name in _SYNTAX_TERMS:
        why = "which is a word of its own syntax" if name in _SYNTAX_TERMS else "whose name does not end in an XML name"
        raise NotAcceptable(f"RDF/XML cannot write the property <{name}>, {why}. Ask for text/turtle.")
    if _XML_CANNOT.search(term.value):
        raise NotAcceptable(f"RDF/XML cannot write a control character in a value of <{subject}>. Ask for text/turtle.")


def _escape(text: str) -> str:
    # XML readers turn a bare carriage return into a newline.
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;").replace("\r", "&#13;")


def _json_ld(statements: list[Statement], prefixes: dict[str, str], blank_prefix: str | None) -> bytes:
    """One object for each resource, with short names where they cannot be taken for others."""
    names = {n for s in statements for n in (s.subject, s.property, s.object.value, s.object.datatype or "")}
    schemes = {name.partition(":")[0] for name in names}
    usable = {p: uri for p, uri in prefixes.items() if p and p not in schemes and uri[-1] in ":/?#[]@"}
    vocabulary = prefixes.get("", "")
    shorts: dict[str, str] = {}

    def short(uri: str) -> str:
        """A key or a class."""
        if uri not in shorts:
            space, local = _split(uri)
            prefix = next((prefix for prefix, known in usable.items() if known == space), None)
            if local and prefix is not None:
                shorts[uri] = f"{prefix}:{local}"
            else:
                shorts[uri] = local if local and space == vocabulary and local not in usable else name(uri)
        return shorts[uri]

    def name(uri: str) -> str:
        label = _label(uri, blank_prefix)
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
