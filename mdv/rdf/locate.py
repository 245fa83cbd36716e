"""Find the lines of errors in the text of a document. Runs only for refused documents, so it need not be fast."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from lxml import etree

from mdv.errors import Flaw
from mdv.model import RDF, RDF_TYPE
from mdv.rdf.gated import Gated
from mdv.rdf.syntax import N_TRIPLES


def locate_flaws(flaws: tuple[Flaw, ...], gated: Gated) -> list[Flaw]:
    """Return the flaws in the order of their lines. A line is added where it can be determined."""
    found = [flaw if flaw.line is not None else replace(flaw, line=_line_of(flaw, gated)) for flaw in flaws]
    return sorted(found, key=lambda flaw: (flaw.line is None, flaw.line or 0))


def locate_quoted_texts(tree: etree._Element, messages: list[str]) -> list[int | None]:
    """Return for each message the line of the next element with a value or name that the message quotes.

    For a message about a duplicate this is the second occurrence.
    """
    elements = list(tree.iter("{*}*"))
    lines: list[int | None] = []
    position = -1
    for message in messages:
        quoted = [q for pair in _QUOTED.findall(message) for q in pair if q]
        order = [*range(position + 1, len(elements)), *range(position + 1)]
        matches = (at for at in order if _holds(elements[at], quoted))
        if "already been used" in message:
            next(matches, None)
        found = next(matches, None)
        position = position if found is None else found
        lines.append(None if found is None else int(elements[found].sourceline))
    return lines


_QUOTED = re.compile(r"^'(.+?)' is not a valid|<([^>]+)>|tag '(.*?)'|text event: '(.+)'$", re.DOTALL)


def _holds(element: etree._Element, quoted: list[str]) -> bool:
    values = [str(v) for v in element.attrib.values()] + [element.text or ""]
    names = [_iri(element.tag), *map(_iri, element.attrib)]
    return any(q == v or (v and q.endswith("#" + v)) for q in quoted for v in values) or any(q in names for q in quoted)


def _line_of(flaw: Flaw, gated: Gated) -> int | None:
    if gated.tree is not None:
        elements = gated.tree.iter("{*}*")
        return _best((_score_element(element, flaw), int(element.sourceline or 0)) for element in elements)
    if gated.syntax is N_TRIPLES and flaw.property:
        lines = re.split(r"\r\n|\r|\n", gated.text.decode())
        return _best((_score_line(line, flaw), number) for number, line in enumerate(lines, 1))
    if flaw.property:
        return _line_of_words(re.split(r"\r\n|\r|\n", gated.text.decode()), flaw)
    return None


def _line_of_words(lines: list[str], flaw: Flaw) -> int | None:
    """Return the first line of Turtle or JSON-LD that contains both the name of the property and the value.

    If there is none, return the only line with the value, or else the only line with the property. Return None if
    several lines are possible.

    >>> text = ["<#a> a v:T ;", "  v:p 'x' ;", "  v:q 'x', 'y' ."]
    >>> _line_of_words(text, Flaw("", property="http://v/q", value="x"))
    3
    >>> _line_of_words(text, Flaw("", property="http://v/p")), _line_of_words(text, Flaw("", property="http://v/other"))
    (2, None)
    >>> _line_of_words(["v:p mdv:reference mdv:maybe ."], Flaw("", property="http://v/p", value="urn:mdv:schema#maybe"))
    1
    """
    property_, value = flaw.property or "", (flaw.value or "").removesuffix("…")
    name = _word(property_) if property_ != RDF_TYPE else None
    text = _word(value) if property_ == RDF_TYPE or _IRI.fullmatch(value) else re.compile(re.escape(value))
    with_name = [number for number, line in enumerate(lines, 1) if name is not None and name.search(line)]
    with_value = [number for number, line in enumerate(lines, 1) if value and text.search(line)]
    both = sorted(set(with_name) & set(with_value))
    return next((some[0] for some in (both, with_value, with_name) if len(some) == 1 or (some and some is both)), None)


_IRI = re.compile(r"[A-Za-z][\w+.-]*:[^\s:]\S*")


def _word(iri: str) -> re.Pattern[str]:
    """Return a pattern that matches the last part of an IRI as a whole word."""
    return re.compile(rf"(?<![\w-]){re.escape(re.split(r'[#/:]', iri)[-1])}(?![\w-])")


def _best(scores: Iterable[tuple[int, int]]) -> int | None:
    """Return the first line with the highest score; None if all scores are 0."""
    best = max(scores, key=lambda scored: scored[0], default=(0, 0))
    return best[1] if best[0] else None


def _score_line(line: str, flaw: Flaw) -> int:
    if f"<{flaw.property}>" not in line:
        return 0
    subject = bool(flaw.subject) and line.lstrip().startswith(f"<{flaw.subject}>")
    value = (flaw.value or "").removesuffix("…")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    has_value = bool(value) and any(mark + text in line for mark in '<"' for text in {value, escaped})
    return 1 + 2 * subject + 2 * has_value


def _score_element(element: etree._Element, flaw: Flaw) -> int:
    """Return how well an element fits a flaw. The property must match; value and subject add to the score."""
    if flaw.property == RDF_TYPE and _iri(element.tag) == flaw.value:
        return 3 + 2 * _same(_about(element), flaw.subject)
    for attribute, value in element.attrib.items():
        if _iri(attribute) == flaw.property:
            return 1 + 2 * _is_value(str(value), flaw) + 2 * _same(_about(element), flaw.subject)
    if _iri(element.tag) != flaw.property:
        return 0
    inner = next(element.iterchildren("{*}*"), None)
    written = element.get(f"{{{RDF}}}resource") if inner is None else _about(inner)
    has_value = _same(written, flaw.value) if written is not None else _is_value(element.text or "", flaw)
    parent = element.getparent()
    return 1 + 2 * has_value + 2 * (parent is not None and _same(_about(parent), flaw.subject))


def _about(element: etree._Element) -> str | None:
    identifier = element.get(f"{{{RDF}}}ID")
    about = element.get(f"{{{RDF}}}about")
    return str(about) if about is not None else f"#{identifier}" if identifier is not None else None


def _is_value(text: str, flaw: Flaw) -> bool:
    if flaw.value is None:
        return False
    # Long values are truncated in flaws.
    return text == flaw.value or (flaw.value.endswith("…") and text.startswith(flaw.value[:-1]))


def _same(written: str | None, resolved: str | None) -> bool:
    """True if a reference can resolve to a URI. The base is unknown, so only the end is compared, as a whole part."""
    if not written or resolved is None or not resolved.endswith(written):
        return False
    before = resolved[: len(resolved) - len(written)]
    return not before or written[0] in "#?/" or before[-1] in "#?/:"


def _iri(name: object) -> str:
    return str(name).replace("{", "", 1).replace("}", "", 1)
