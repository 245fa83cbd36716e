"""Read resources and documents as users do: in every format that MDV writes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

from flask import Flask, Response

from mdv.model import Document, Statement, Term
from mdv.query.results import ResourcePage
from mdv.rdf.blank import name_blank_nodes
from mdv.rdf.gate import gate
from mdv.rdf.parse import parse
from mdv.rdf.serialise import serialise
from mdv.rdf.syntax import SYNTAXES, Syntax
from web.json_bodies import JSON
from web.responses import query_response, resource_response
from web.streams import OpenConnection, StatementSource, stream_statements

MANY = 1000
_app = Flask(__name__)


def assert_resource_is_read(
    uri: str,
    stored: StatementSource,
    reading: OpenConnection,
    said: Iterable[Statement],
    streamed: Collection[Syntax] = SYNTAXES,
) -> None:
    """Check that the stored statements of a resource are read back: as JSON and RDF, in one piece, streamed, and in the
    answer to a query. Each stream in one of the syntaxes `streamed` reads the store once more."""
    wanted = frozenset(said)
    with reading() as connection:
        few = stored.few(connection, MANY)
    assert few is not None and len(few) == len(wanted)
    with _app.test_request_context():
        for syntax in SYNTAXES:
            asked = query_response(ResourcePage([(uri, [])], None, few), syntax.media_type, {})
            assert _read(asked, syntax) == wanted, syntax.label
            for part in (few, None) if syntax in streamed else (few,):
                answer = resource_response(uri, stored, part, reading, syntax.media_type, {})
                assert _read(answer, syntax) == wanted, syntax.label
        whole, streamed = (
            _listed(uri, resource_response(uri, stored, part, reading, JSON, {})) for part in (few, None)
        )
    assert len(whole) == len(streamed) == len(wanted) and frozenset(whole) == frozenset(streamed) == wanted
    assert whole == sorted(whole, key=lambda s: (s.property, *((part or "") for part in s.object)))


def assert_stored_document_is_read(
    uri: str,
    stored: StatementSource,
    reading: OpenConnection,
    said: Iterable[Statement],
    streamed: Collection[Syntax] = SYNTAXES,
) -> None:
    """Check that a stored document, exported in one piece or streamed, and registered again, is the same."""
    wanted = frozenset(said)
    with reading() as connection:
        few = stored.few(connection, MANY)
    assert few is not None and frozenset(few) == wanted
    assert_document_is_read(Document(uri, tuple(few)))
    with _app.test_request_context():
        for syntax in streamed:
            body = _body(stream_statements(stored, reading, syntax, {}, uri))
            assert frozenset(name_blank_nodes(parse(gate(body, syntax), uri)).statements) == wanted, syntax.label


def assert_document_is_read(document: Document) -> None:
    """Check that a document that is exported and registered again is the same."""
    for syntax in SYNTAXES:
        text = serialise(document.statements, syntax, document.prefixes, document.uri)
        again = name_blank_nodes(parse(gate(text, syntax), document.uri))
        assert frozenset(again.statements) == frozenset(document.statements), syntax.label


def _body(answer: Response) -> bytes:
    try:
        return answer.get_data()
    finally:
        answer.close()


def _read(answer: Response, syntax: Syntax) -> frozenset[Statement]:
    return frozenset(parse(gate(_body(answer), syntax), "http://base/").statements)


def _listed(uri: str, answer: Response) -> list[Statement]:
    return [Statement(uri, name, _term(**term)) for name, term in json.loads(_body(answer))["statements"]]


def _term(type: str, value: str, lang: str | None = None, datatype: str | None = None) -> Term:
    return Term(type, value, lang, datatype)
