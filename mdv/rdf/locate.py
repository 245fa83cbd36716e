"""Locate: find the line that a flaw speaks of. Used only once something is wrong, so it may take its time."""

from __future__ import annotations

import re
from dataclasses import replace

from lxml import etree

from mdv.errors import Flaw
from mdv.model import RDF, RDF_TYPE
from mdv.rdf.gate import Gated
from mdv.rdf.syntax import N_TRIPLES


def locate(flaws: tuple[Flaw, ...], gated: Gated) -> list[Flaw]:
    """The flaws, each with the line it stands at, where that can be told."""
    return [flaw if flaw.line is not None else replace(flaw, line=_line_of(flaw, gated)) for flaw in flaws]


def locate_text(tree: etree._Element, message: str) -> int | None:
    """The line of the first element that holds something `message` quotes."""
    quoted = [q for pair in re.findall(r"'([^']+)'|<([^>]+)>|^(\S.*?) is not a valid", message) for q in pair if q]
    for element in tree.iter("{*}*"):
        values = [str(v) for v in element.attrib.values()] + [element.text or ""]
        if any(q == v or (v and q.endswith("#" + v)) for q in quoted for v in values):
            return int(element.sourceline)
    return None


def _line_of(flaw: Flaw, gated: Gated) -> int | None:
    if gated.tree is not None:
        return _line_in_tree(flaw, gated.tree)
    if gated.syntax is N_TRIPLES and flaw.subject and flaw.property:
        for number, line in enumerate(gated.text.decode().splitlines(), 1):
            if f"<{flaw.property}>" in line and (flaw.value is None or flaw.value in line):
                return number
    return None


def _line_in_tree(flaw: Flaw, tree: etree._Element) -> int | None:
    """The best element for a flaw: one that writes its property with its value, about its subject if possible."""
    best: tuple[int, int] | None = None
    for element in tree.iter("{*}*"):
        score = _likeness(element, flaw)
        if score and (best is None or score > best[0]):
            best = (score, element.sourceline or 0)
    return best[1] if best else None


def _likeness(element: etree._Element, flaw: Flaw) -> int:
    about = _about(element)
    if flaw.property == RDF_TYPE and _iri(element.tag) == flaw.value:
        return 2 + _same(about, flaw.subject)
    for attribute, value in element.attrib.items():
        if _iri(attribute) == flaw.property:
            return 1 + (str(value) == flaw.value) + _same(about, flaw.subject)
    if _iri(element.tag) != flaw.property:
        return 0
    text = (element.text or "").strip()
    resource = element.get(f"{{{RDF}}}resource")
    said = text == (flaw.value or "").strip() or _same(resource, flaw.value)
    parent = element.getparent()
    return 1 + bool(said) + (0 if parent is None else _same(_about(parent), flaw.subject))


def _about(element: etree._Element) -> str | None:
    identifier = element.get(f"{{{RDF}}}ID")
    about = element.get(f"{{{RDF}}}about")
    return str(about) if about is not None else f"#{identifier}" if identifier is not None else None


def _same(written: str | bytes | None, resolved: str | None) -> bool:
    return bool(written) and resolved is not None and resolved.endswith(str(written))


def _iri(name: object) -> str:
    return str(name).replace("{", "", 1).replace("}", "", 1)
