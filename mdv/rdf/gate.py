"""The gate: a text is safe, whole and well-formed before any RDF parser sees it.

The parsers behind it are fast and trusting: alone they expand entities, accept some truncated input and all empty
input, and one of them ends the process on JSON that is nested deeply enough. So nothing reaches them unchecked, and
for RDF/XML they are given the gate's own UTF-8 rendering of what it read, not the bytes that came.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from dataclasses import dataclass, field

from lxml import etree

from mdv.errors import Flaw, NotWellFormed, TooLarge
from mdv.model import RDF
from mdv.rdf.syntax import JSON_LD, RDF_XML, TURTLE, Syntax

MAX_DEPTH = 200
MAX_BYTES = 32 * 1024 * 1024

_RDF_ROOT = f"{{{RDF}}}RDF"
_PARSE_TYPE = f"{{{RDF}}}parseType"
_ID = f"{{{RDF}}}ID"
_XML_BASE = "{http://www.w3.org/XML/1998/namespace}base"
_SYNTAX_ATTRIBUTES = frozenset({"ID", "about", "resource", "nodeID", "parseType", "datatype"})
_EXCESSIVE_DEPTH = "Excessive depth"


@dataclass(frozen=True, slots=True)
class Gated:
    """A text that has passed: UTF-8, and for RDF/XML the tree it was read as (to find lines in later)."""

    text: bytes
    syntax: Syntax
    tree: etree._Element | None = None
    prefixes: dict[str, str] = field(default_factory=dict)


def gate(body: bytes, syntax: Syntax, charset: str | None = None, max_bytes: int = MAX_BYTES) -> Gated:
    """Let `body` pass if it is safe, whole and well-formed; say what is wrong with it otherwise.

    >>> from mdv.rdf.syntax import TURTLE
    >>> gate(b"", TURTLE)
    Traceback (most recent call last):
    mdv.errors.NotWellFormed: The document is empty. To delete a document, delete it by name.
    """
    if len(body) > max_bytes:
        raise TooLarge(f"The document has {len(body):,} bytes; the limit is {max_bytes:,}. Split it into several.")
    if not body.strip():
        raise NotWellFormed("The document is empty. To delete a document, delete it by name.")
    if syntax is RDF_XML:
        return _gate_xml(body, charset)
    return _gate_text(body, syntax, charset)


def _gate_text(body: bytes, syntax: Syntax, charset: str | None) -> Gated:
    if charset not in (None, "utf-8", "utf8", "us-ascii"):
        raise NotWellFormed(f"{syntax.label} is always UTF-8; this says charset={charset}.")
    body = body.removeprefix(codecs.BOM_UTF8)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = _place(body[: error.start].decode("utf-8", "replace"))
        raise _not_well_formed(syntax, f"byte 0x{body[error.start]:02x} is not UTF-8", line, column) from None
    if "\0" in text:
        raise _not_well_formed(syntax, "a NUL character", *_place(text[: text.index("\0")]))
    if syntax in (TURTLE, JSON_LD):
        _refuse_deep_brackets(text, syntax)
    return Gated(body, syntax)


_BRACKETS = {
    JSON_LD.name: re.compile(r'"(?:[^"\\]|\\.)*"|[\[{(]|[\]})]', re.DOTALL),
    TURTLE.name: re.compile(
        r'"""(?:[^"\\]|\\.|"(?!""))*"""|' + r"'''(?:[^'\\]|\\.|'(?!''))*'''|"
        r'"(?:[^"\\\n]|\\.)*"|' + r"'(?:[^'\\\n]|\\.)*'|"
        r"<[^<>\"{}|^`\\\s]*>|\\.|#[^\n]*|[\[{(]|[\]})]",
        re.DOTALL,
    ),
}


def _refuse_deep_brackets(text: str, syntax: Syntax) -> None:
    """Count brackets that stand outside of strings, names and comments."""
    if text.count("[") + text.count("{") + text.count("(") <= MAX_DEPTH:
        return
    depth = 0
    for token in _BRACKETS[syntax.name].finditer(text):
        found = token.group()
        if found in "[{(":
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep(syntax, *_place(text[: token.start()]))
        elif found in "]})":
            depth -= 1


def _gate_xml(body: bytes, charset: str | None) -> Gated:
    root = _read_xml(body, charset)
    docinfo = root.getroottree().docinfo
    if docinfo.doctype or docinfo.internalDTD is not None:
        raise NotWellFormed(
            "The document has a DOCTYPE. MDV reads none, since entities can be made to explode or to fetch files: "
            "remove the DOCTYPE, and write what its entities stood for in full."
        )
    if root.tag != _RDF_ROOT:
        hint = " It looks like a web page." if str(root.tag).lower().endswith("html") else ""
        raise NotWellFormed(
            f"The outermost element is <{etree.QName(root).localname}>, not <rdf:RDF> of the namespace {RDF}.{hint}",
            [Flaw("no rdf:RDF", line=root.sourceline)],
        )
    flaws = _settle_elements(root)
    if flaws:
        raise NotWellFormed(_count(flaws, "The RDF/XML"), flaws)
    text = etree.tostring(root, encoding="utf-8")
    return Gated(text, RDF_XML, root, {prefix or "": uri for prefix, uri in root.nsmap.items()})


def _read_xml(body: bytes, charset: str | None) -> etree._Element:
    try:
        parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=False, encoding=charset)
    except LookupError:
        raise NotWellFormed(f"charset={charset} is not an encoding that is known here; send UTF-8.") from None
    try:
        return etree.fromstring(body, parser)
    except etree.XMLSyntaxError as error:
        line, column = error.position
        reason = re.sub(r", line \d+, column \d+$", "", error.msg or "not XML")
        if reason.startswith(_EXCESSIVE_DEPTH):
            raise _too_deep(RDF_XML, line, column) from None
        raise _not_well_formed(RDF_XML, reason, line, column) from None


def _settle_elements(root: etree._Element) -> list[Flaw]:
    """Walk the elements once: depth, names without a namespace, rdf:ID used twice.

    An attribute without a prefix belongs to the namespace of its element, as in the paper's Figure 1. What stands
    below rdf:parseType="Literal" is a value and stays as it is.
    """
    flaws: list[Flaw] = []
    seen: Counter[tuple[str, str]] = Counter()
    base: list[str] = []
    depth = 0
    literal_depth = 0
    for event, element in etree.iterwalk(root, events=("start", "end"), tag="{*}*"):
        if event == "end":
            depth -= 1
            literal_depth = max(0, literal_depth - 1)
            base.pop()
            continue
        depth += 1
        base.append(element.get(_XML_BASE) or (base[-1] if base else ""))
        if depth > MAX_DEPTH:
            raise _too_deep(RDF_XML, element.sourceline, None)
        if literal_depth:
            literal_depth += 1
            continue
        flaws += _settle_names(element)
        if element.get(_PARSE_TYPE, "Resource") not in ("Resource", "Collection"):
            literal_depth = 1
        identifier = element.get(_ID)
        if identifier is not None:
            seen[base[-1], identifier] += 1
            if seen[base[-1], identifier] == 2:
                flaws.append(Flaw(f'rdf:ID="{identifier}" is used twice', line=element.sourceline,
                                  hint="an rdf:ID names one resource; use rdf:about to speak of it again"))  # fmt: skip
    return flaws


def _settle_names(element: etree._Element) -> list[Flaw]:
    name = etree.QName(element)
    if name.namespace is None:
        return [Flaw(f"<{name.localname}> is in no namespace", line=element.sourceline,
                     hint='give it a prefix, or the document a default namespace: xmlns="…"')]  # fmt: skip
    flaws = []
    for attribute in [a for a in element.attrib if not str(a).startswith("{")]:
        if attribute in _SYNTAX_ATTRIBUTES:
            namespace = RDF
        elif name.namespace == RDF:
            flaws.append(Flaw(f'{attribute}="…" has no prefix, and <rdf:{name.localname}> lends it no namespace',
                              line=element.sourceline, hint="write it with a prefix"))  # fmt: skip
            continue
        else:
            namespace = name.namespace
        element.set(f"{{{namespace}}}{attribute!s}", element.attrib.pop(attribute))
    return flaws


def _place(before: str) -> tuple[int, int]:
    """Line and column, counted from 1, of what follows `before`."""
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def _not_well_formed(syntax: Syntax, reason: str, line: int | None, column: int | None) -> NotWellFormed:
    flaw = Flaw(reason, line, column)
    return NotWellFormed(f"The {syntax.label} is not well-formed: {flaw}.", [flaw])


def _too_deep(syntax: Syntax, line: int | None, column: int | None) -> NotWellFormed:
    flaw = Flaw(f"more than {MAX_DEPTH} levels of nesting", line, column)
    return NotWellFormed(
        f"The {syntax.label} is nested more than {MAX_DEPTH} levels deep. Refer to inner resources by their URI.",
        [flaw],
    )


def _count(flaws: list[Flaw], what: str) -> str:
    return f"{what} has an error: {flaws[0]}." if len(flaws) == 1 else f"{what} has {len(flaws)} errors."
