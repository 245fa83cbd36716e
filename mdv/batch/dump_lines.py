"""Parse one line of a dump: find the document of its statement, and the statement as N-Triples without its graph.

Nearly every line matches one regular expression. Other lines are left to the RDF parser.
"""

from __future__ import annotations

import json
import re

import pyoxigraph
from pyoxigraph import BlankNode, NamedNode, RdfFormat, Triple

from mdv.errors import Flaw, InvalidDocument, NotWellFormed, Refused, replace_unstorable
from mdv.rdf.gated import summarise_flaws

ParsedLine = tuple[str | None, str | None, str | None, str, str | None]
"""The document of a statement (None if the line does not determine it), the blank nodes in it (the subject first), its
text as N-Triples, and the problem, as JSON, that refuses it and its document."""

MAX_EXCERPT_CHARS = 200
"""Maximum number of characters of a refused line that are shown."""

_NOT_UTF8 = "\ud800-\udfff"
"""Bytes that are not UTF-8 are decoded to these characters (surrogateescape)."""
_IRI = rf"[A-Za-z][A-Za-z0-9+.-]*+:[^\x00-\x20<>\"{{}}|^`\\{_NOT_UTF8}]*+"
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_-])?"
_ESCAPE = r"\\(?:[tbnrf\"'\\]|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})"
_LITERAL = rf'"[^"\\{_NOT_UTF8}]*+(?:{_ESCAPE}[^"\\{_NOT_UTF8}]*+)*+"(?:@[A-Za-z]++(?:-[A-Za-z0-9]++)*+|\^\^<{_IRI}>)?+'
_STATEMENT = re.compile(
    rf"[ \t]*+(?:<({_IRI})>|_:({_LABEL}))([ \t]*+<{_IRI}>[ \t]*+)(?:_:({_LABEL})|(<{_IRI}>|{_LITERAL}))"
    rf"[ \t]*+(?:<({_IRI})>[ \t]*+)?\.[ \t]*+(?:\#.*)?"
)
_BEGINNING = re.compile(rf"[ \t]*<({_IRI})>[ \t]*<[^<>]*>[ \t]*")
_END = re.compile(rf"<({_IRI})>[ \t]*\.[ \t]*$")
_MAX_END_CHARS = 4096


def parse_line(line: str, mark: str, by: re.Pattern[str] | None) -> ParsedLine | None:
    """Return the statement of `line`, or None if the line is empty or a comment.

    `mark` is put before the labels of blank nodes, since the same label in another file denotes another node. `by`
    finds the document of a statement without a graph in its subject; without `by`, it is the subject without its
    fragment.

    >>> parse_line('<http://a/d#x> <http://v/p> "1" .', "f_", None)
    ('http://a/d', None, None, '<http://a/d#x> <http://v/p> "1" .', None)
    >>> parse_line('_:x <http://v/p> _:y <http://a/g> .  # so', "f_", None)
    ('http://a/g', 'f_x', 'f_y', '_:f_x <http://v/p> _:f_y .', None)
    """
    found = _STATEMENT.fullmatch(line)
    if found is None:
        return _parse_with_library(line, mark, by)
    subject, label, between, object_label, value, graph = found.groups()
    if label is None and object_label is None:
        document, text = graph, f"<{subject}>{between}{value} ."
        if document is None and (document := _document_of(subject, by)) is None:
            return _refuse_unmatched_subject(subject, text, by)
        return document, None, None, text, None
    node, other = (mark + one if one is not None else None for one in (label, object_label))
    text = f"{f'<{subject}>' if node is None else f'_:{node}'}{between}{value if other is None else f'_:{other}'} ."
    if graph is None and node is None and (graph := _document_of(subject, by)) is None:
        return _refuse_unmatched_subject(subject, text, by)
    return graph, node or other, other if node else None, text, None


def _document_of(subject: str, by: re.Pattern[str] | None) -> str | None:
    if by is None:
        return subject.partition("#")[0]
    found = by.match(subject)
    return (found[1] if by.groups else found[0]) or None if found else None


def _parse_with_library(line: str, mark: str, by: re.Pattern[str] | None) -> ParsedLine | None:
    bare = line.strip(" \t")
    if not bare or bare.startswith("#"):
        return None
    try:
        quads = list(pyoxigraph.parse(line.encode(), format=RdfFormat.N_QUADS))
    except UnicodeEncodeError as error:
        return malformed_line(line, f"byte 0x{ord(line[error.start]) & 0xFF:02x} is not UTF-8", by)
    except MemoryError:
        return malformed_line(line, "a value is larger than 16 MiB, the limit of the parser", by)
    except SyntaxError as error:
        return malformed_line(line, re.sub(r"^Parser error at .*?: ", "", error.msg), by)
    return _from_quad(quads[0], mark, by) if quads else None


def _from_quad(quad: pyoxigraph.Quad, mark: str, by: re.Pattern[str] | None) -> ParsedLine:
    subject, value, graph = quad.subject, quad.object, quad.graph_name
    node = mark + subject.value if type(subject) is BlankNode else None
    other = mark + value.value if type(value) is BlankNode else None
    text = f"{subject if node is None else f'_:{node}'} {quad.predicate} {value if other is None else f'_:{other}'} ."
    if type(graph) is BlankNode:
        return _refuse(
            None, InvalidDocument, f"the graph _:{graph.value} is a blank node, so it cannot name a document", text
        )
    document = graph.value if type(graph) is NamedNode else None
    if document is None and type(subject) is NamedNode and (document := _document_of(subject.value, by)) is None:
        return _refuse_unmatched_subject(subject.value, text, by)
    if type(value) is Triple or type(subject) is Triple:
        return _refuse(document, InvalidDocument, "a quoted statement (RDF-star), which MDV does not support", text)
    return document, node or other, other if node else None, text, None


def _refuse_unmatched_subject(subject: str, text: str, by: re.Pattern[str] | None) -> ParsedLine:
    wanted = by.pattern if by is not None else ""
    return _refuse(None, InvalidDocument, f"the subject {excerpt(subject)} does not match --by {wanted}", text)


def malformed_line(line: str, reason: str, by: re.Pattern[str] | None) -> ParsedLine:
    """Return the refusal of the document that a malformed line seems to describe: no document is registered in part."""
    return _refuse(_guess_document(line, by), NotWellFormed, f"a line is not N-Triples or N-Quads: {reason}", line)


def _guess_document(line: str, by: re.Pattern[str] | None) -> str | None:
    beginning = _BEGINNING.match(line)
    if beginning is None:
        return None
    end = _END.search(line, max(beginning.end(), len(line) - _MAX_END_CHARS))
    if end is not None and end.start() > beginning.end():
        return end[1]
    return _document_of(beginning[1], by)


def _refuse(document: str | None, kind: type[Refused], reason: str, line: str) -> ParsedLine:
    return document, None, None, excerpt(line), problem_json(kind, f"{reason}, in `{excerpt(line)}`")


def problem_json(kind: type[Refused], reason: str) -> str:
    """Return a problem with a single flaw, as JSON."""
    return json.dumps(kind(summarise_flaws([Flaw(reason)], "The dump"), [Flaw(reason)]).problem(), ensure_ascii=False)


def excerpt(text: str) -> str:
    """Return the beginning of any text, with characters that cannot be stored or printed replaced.

    >>> excerpt("a\\0" + 300 * "b")[:8]
    'a␀bbbbbb'
    """
    return replace_unstorable(text if len(text) <= MAX_EXCERPT_CHARS else text[: MAX_EXCERPT_CHARS - 1] + "…")
