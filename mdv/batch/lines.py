"""A line of a dump: which document its statement belongs to, and the statement as N-Triples without its graph.

Nearly every line fits one pattern. What does not is left to the parser: what it accepts is a statement.
"""

from __future__ import annotations

import json
import re

import pyoxigraph
from pyoxigraph import BlankNode, NamedNode, RdfFormat, Triple

from mdv.errors import Flaw, InvalidDocument, NotWellFormed, Refused, storable
from mdv.rdf.gated import count_flaws

Said = tuple[str | None, str | None, str | None, str, str | None]
"""The document of a statement (None: not to be told from its line), the blank nodes in it (the subject first), its text
as N-Triples, and the problem, as JSON, that refuses it and its document."""

SHOWN = 200
"""So many characters of a line that is refused are shown."""

_NO_UTF8 = "\ud800-\udfff"
"""Bytes that are no UTF-8 arrive as these (surrogateescape)."""
_IRI = rf"[A-Za-z][A-Za-z0-9+.-]*+:[^\x00-\x20<>\"{{}}|^`\\{_NO_UTF8}]*+"
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_-])?"
_ESCAPE = r"\\(?:[tbnrf\"'\\]|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})"
_LITERAL = rf'"[^"\\{_NO_UTF8}]*+(?:{_ESCAPE}[^"\\{_NO_UTF8}]*+)*+"(?:@[A-Za-z]++(?:-[A-Za-z0-9]++)*+|\^\^<{_IRI}>)?+'
_STATEMENT = re.compile(
    rf"[ \t]*+(?:<({_IRI})>|_:({_LABEL}))([ \t]*+<{_IRI}>[ \t]*+)(?:_:({_LABEL})|(<{_IRI}>|{_LITERAL}))"
    rf"[ \t]*+(?:<({_IRI})>[ \t]*+)?\.[ \t]*+(?:\#.*)?"
)
_BEGINNING = re.compile(rf"[ \t]*<({_IRI})>[ \t]*<[^<>]*>[ \t]*")
_END = re.compile(rf"<({_IRI})>[ \t]*\.[ \t]*$")
_LONGEST_END = 4096


def read_line(line: str, mark: str, by: re.Pattern[str] | None) -> Said | None:
    """The statement that `line` is; None where it is empty or a comment.

    `mark` goes before the labels of blank nodes, since the same label in another file is another node. `by` finds the
    document of a statement without a graph in its subject; without `by` it is the subject without its fragment.

    >>> read_line('<http://a/d#x> <http://v/p> "1" .', "f_", None)
    ('http://a/d', None, None, '<http://a/d#x> <http://v/p> "1" .', None)
    >>> read_line('_:x <http://v/p> _:y <http://a/g> .  # so', "f_", None)
    ('http://a/g', 'f_x', 'f_y', '_:f_x <http://v/p> _:f_y .', None)
    """
    found = _STATEMENT.fullmatch(line)
    if found is None:
        return _read_slowly(line, mark, by)
    subject, label, between, object_label, value, graph = found.groups()
    if label is None and object_label is None:
        document, text = graph, f"<{subject}>{between}{value} ."
        if document is None and (document := _document_of(subject, by)) is None:
            return _unfit(subject, text, by)
        return document, None, None, text, None
    node, other = (mark + one if one is not None else None for one in (label, object_label))
    text = f"{f'<{subject}>' if node is None else f'_:{node}'}{between}{value if other is None else f'_:{other}'} ."
    if graph is None and node is None and (graph := _document_of(subject, by)) is None:
        return _unfit(subject, text, by)
    return graph, node or other, other if node else None, text, None


def _document_of(subject: str, by: re.Pattern[str] | None) -> str | None:
    if by is None:
        return subject.partition("#")[0]
    found = by.match(subject)
    return (found[1] if by.groups else found[0]) or None if found else None


def _read_slowly(line: str, mark: str, by: re.Pattern[str] | None) -> Said | None:
    bare = line.strip(" \t")
    if not bare or bare.startswith("#"):
        return None
    try:
        quads = list(pyoxigraph.parse(line.encode(), format=RdfFormat.N_QUADS))
    except UnicodeEncodeError as error:
        return broken(line, f"byte 0x{ord(line[error.start]) & 0xFF:02x} is not UTF-8", by)
    except MemoryError:
        return broken(line, "a value is larger than 16 MiB, which is the most that can be read", by)
    except SyntaxError as error:
        return broken(line, re.sub(r"^Parser error at .*?: ", "", error.msg), by)
    return _said(quads[0], mark, by) if quads else None


def _said(quad: pyoxigraph.Quad, mark: str, by: re.Pattern[str] | None) -> Said:
    subject, value, graph = quad.subject, quad.object, quad.graph_name
    node = mark + subject.value if type(subject) is BlankNode else None
    other = mark + value.value if type(value) is BlankNode else None
    text = f"{subject if node is None else f'_:{node}'} {quad.predicate} {value if other is None else f'_:{other}'} ."
    if type(graph) is BlankNode:
        return _refused(None, InvalidDocument, f"the graph _:{graph.value} has no URI, and so no document", text)
    document = graph.value if type(graph) is NamedNode else None
    if document is None and type(subject) is NamedNode and (document := _document_of(subject.value, by)) is None:
        return _unfit(subject.value, text, by)
    if type(value) is Triple or type(subject) is Triple:
        return _refused(document, InvalidDocument, "a quoted statement (RDF-star), which MDV does not store", text)
    return document, node or other, other if node else None, text, None


def _unfit(subject: str, text: str, by: re.Pattern[str] | None) -> Said:
    wanted = by.pattern if by is not None else ""
    return _refused(None, InvalidDocument, f"the subject {shown(subject)} does not begin as --by {wanted} says", text)


def broken(line: str, reason: str, by: re.Pattern[str] | None) -> Said:
    """A line that is no statement refuses the document of which it seems to speak: none is registered in part."""
    return _refused(_seems_of(line, by), NotWellFormed, f"a line is not N-Triples or N-Quads: {reason}", line)


def _seems_of(line: str, by: re.Pattern[str] | None) -> str | None:
    beginning = _BEGINNING.match(line)
    if beginning is None:
        return None
    end = _END.search(line, max(beginning.end(), len(line) - _LONGEST_END))
    if end is not None and end.start() > beginning.end():
        return end[1]
    return _document_of(beginning[1], by)


def _refused(document: str | None, kind: type[Refused], reason: str, line: str) -> Said:
    return document, None, None, shown(line), refusal(kind, f"{reason}, in `{shown(line)}`")


def refusal(kind: type[Refused], reason: str) -> str:
    """A problem with a single flaw, as JSON."""
    return json.dumps(kind(count_flaws([Flaw(reason)], "The dump"), [Flaw(reason)]).problem(), ensure_ascii=False)


def shown(text: str) -> str:
    """The beginning of a text that may be anything, as far as it can be printed.

    >>> shown("a\\0" + 300 * "b")[:8]
    'a␀bbbbbb'
    """
    return storable(text if len(text) <= SHOWN else text[: SHOWN - 1] + "…")
