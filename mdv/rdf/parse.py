"""Parse: a text that has passed the gate becomes statements."""

from __future__ import annotations

import re

import pyoxigraph
from pyoxigraph import BlankNode, DefaultGraph, Literal, NamedNode

from mdv.errors import BadRequest, Flaw, InvalidDocument, NotWellFormed
from mdv.model import LANG_STRING, XSD_STRING, ParsedDocument, Statement, Term
from mdv.rdf.gate import Gated
from mdv.rdf.locate import locate_text
from mdv.rdf.syntax import JSON_LD

MAX_URI_BYTES = 2048


def parse(gated: Gated, uri: str) -> ParsedDocument:
    """The statements of a gated text, relative names resolved against `uri`.

    >>> from mdv.rdf.gate import gate
    >>> from mdv.rdf.syntax import TURTLE
    >>> parse(gate(b"<#a> <http://v/p> 'x' .", TURTLE), "http://d/doc").statements
    (Statement(subject='http://d/doc#a', property='http://v/p',
               object=Term(type='literal', value='x', lang=None, datatype=None)),)
    """
    reader = pyoxigraph.parse(gated.text, format=gated.syntax.format, base_iri=uri)
    statements: list[Statement] = []
    try:
        for quad in reader:
            if type(quad.graph_name) is not DefaultGraph:
                raise InvalidDocument(
                    "The document holds a named graph. A document is one graph: register each under its own URI."
                )
            statements.append(Statement(_name(quad.subject), quad.predicate.value, _term(quad.object)))
    except SyntaxError as error:
        raise _not_well_formed(error, gated) from None
    if not statements:
        hint = " In JSON-LD, a key that no @context maps to a URI says nothing." if gated.syntax is JSON_LD else ""
        raise NotWellFormed(f"The document holds no statement. To delete a document, delete it by name.{hint}")
    return ParsedDocument(uri, tuple(statements), gated.prefixes or dict(reader.prefixes))


def check_document_uri(uri: str | None) -> str:
    """`uri`, if a document can be registered under it.

    >>> check_document_uri("doc.rdf")
    Traceback (most recent call last):
    mdv.errors.BadRequest: 'doc.rdf' is not an absolute URI: a document's name is one, as in http://example.org/doc.rdf.
    """
    if not uri:
        raise BadRequest("Say which document with ?uri=URI.")
    if len(uri.encode("utf-8", "replace")) > MAX_URI_BYTES:
        raise BadRequest(f"The URI is longer than {MAX_URI_BYTES:,} bytes.")
    if "#" in uri:
        raise BadRequest(f"{uri!r} has a fragment (#…); a document's name has none, its resources' names do.")
    if not is_absolute_iri(uri):
        raise BadRequest(f"{uri!r} is not an absolute URI: a document's name is one, as in http://example.org/doc.rdf.")
    return uri


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:.")


def is_absolute_iri(text: str) -> bool:
    """Whether `text` is a whole IRI by the parser's own measure.

    >>> is_absolute_iri("http://a/b"), is_absolute_iri("a/b"), is_absolute_iri("http://a b")
    (True, False, False)
    """
    if not _SCHEME.match(text):
        return False
    try:
        NamedNode(text)
        next(iter(pyoxigraph.parse(f"<{text}> <urn:p> <urn:o> .", format=pyoxigraph.RdfFormat.N_TRIPLES)))
    except (ValueError, SyntaxError, StopIteration):
        return False
    return True


def _name(node: object) -> str:
    if type(node) is NamedNode:
        return node.value
    if type(node) is BlankNode:
        return "_:" + node.value
    raise InvalidDocument("The document speaks of a quoted statement (RDF-star), which MDV does not store.")


def _term(node: object) -> Term:
    if type(node) is NamedNode:
        return Term("uri", node.value)
    if type(node) is Literal:
        datatype = node.datatype.value
        if datatype == XSD_STRING:
            return Term("literal", node.value)
        if node.language is not None:
            if datatype != LANG_STRING:
                raise InvalidDocument(f"{node.value[:60]!r} has a base direction, which MDV does not store.")
            return Term("literal", node.value, node.language)
        return Term("literal", node.value, None, datatype)
    return Term("blank", _name(node))


_REMOTE_CONTEXT = "LoadDocumentCallback"


def _not_well_formed(error: SyntaxError, gated: Gated) -> NotWellFormed:
    reason = re.sub(r"^Parser error at .*?: ", "", error.msg)
    if _REMOTE_CONTEXT in reason:
        return NotWellFormed(
            "The JSON-LD names a remote @context. MDV fetches nothing: put the context's terms into the document."
        )
    line, column = error.lineno, error.offset
    if line is None and gated.tree is not None:
        line = locate_text(gated.tree, reason)
    flaw = Flaw(reason, line, column)
    return NotWellFormed(f"The {gated.syntax.label} cannot be read: {flaw}.", [flaw])
