"""Responses for queries and resources, shared by MDP and LMR, in the negotiated format."""

from __future__ import annotations

import csv
import io
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from flask import Response, jsonify
from sqlalchemy import Connection

from mdv.model import RDF_TYPE, RDFS_RESOURCE, Statement
from mdv.query.results import QueryRows, ResourcePage
from mdv.rdf.syntax import syntax_of_media_type
from web.json_bodies import JSON
from web.negotiate import rdf_response, run_in_thread, serialise_statements
from web.streams import (
    STREAM_CHUNK_ITEMS,
    OpenConnection,
    StatementSource,
    json_pieces,
    list_response,
    statements_response,
    stream,
    stream_statements,
)

CSV = "text/csv"


def query_response(answer: QueryRows | ResourcePage, media_type: str, prefixes: Mapping[str, str]) -> Response:
    """Return the result of a query as JSON, CSV or, for resources, RDF."""
    more = answer.truncated if isinstance(answer, QueryRows) else answer.next is not None
    if media_type == JSON:
        response = _json_response(answer)
    elif media_type == CSV:
        response = Response(run_in_thread(_as_csv, answer), content_type="text/csv; charset=utf-8; header=present")
    else:
        assert isinstance(answer, ResourcePage)
        syntax = syntax_of_media_type(media_type)[0]
        response = statements_response(answer.statements, syntax, prefixes)
    if more and media_type != JSON:
        response.headers["MDV-More"] = "true"
    response.headers["Vary"] = "Accept"
    return response


def resource_response(
    uri: str,
    stored: StatementSource,
    few: Sequence[Statement] | None,
    reading: OpenConnection,
    media_type: str,
    prefixes: Mapping[str, str],
    **more: Any,
) -> Response:
    """Return one resource as JSON or RDF. `few`: all of its statements, or None if they have to be streamed."""
    if media_type != JSON:
        syntax = syntax_of_media_type(media_type)[0]
        if few is None:
            return stream_statements(stored, reading, syntax, prefixes)
        return rdf_response(serialise_statements(few, syntax, prefixes), syntax)
    if few is None:
        return _stream_resource(uri, stored, reading, more)
    statements = sorted(few, key=Statement.sort_key)
    classes = [s.object.value for s in statements if s.property == RDF_TYPE] or [RDFS_RESOURCE]
    body = {"uri": uri, "classes": classes, "statements": list(map(_statement_pair, statements))}
    response = jsonify(body | more)
    response.headers["Vary"] = "Accept"
    return response


def _stream_resource(uri: str, stored: StatementSource, reading: OpenConnection, more: Mapping[str, Any]) -> Response:
    def make(connection: Connection) -> Generator[bytes]:
        classes: list[str] = []

        def pairs() -> Iterator[Any]:
            for chunk in stored.chunks(connection, STREAM_CHUNK_ITEMS):
                for statement in chunk:
                    if statement.property == RDF_TYPE:
                        classes.append(statement.object.value)
                    yield _statement_pair(statement)

        yield from json_pieces(
            "statements", pairs(), {"uri": uri}, lambda: {"classes": classes or [RDFS_RESOURCE], **more}
        )

    response = stream(reading, make, JSON)
    response.headers["Vary"] = "Accept"
    return response


def _statement_pair(statement: Statement) -> list[Any]:
    return [statement.property, statement.object.as_dict()]


def _json_response(answer: QueryRows | ResourcePage) -> Response:
    if isinstance(answer, QueryRows):
        rows = run_in_thread(_rows, answer)
        return list_response("rows", rows, {"columns": answer.columns}, {"truncated": answer.truncated})
    return jsonify({"items": [{"uri": uri, "classes": classes} for uri, classes in answer.items], "next": answer.next})


def _rows(answer: QueryRows) -> list[Any]:
    return [[term.as_dict() if term is not None else None for term in row] for row in answer.rows]


def _as_csv(answer: QueryRows | ResourcePage) -> str:
    text = io.StringIO()
    lines = csv.writer(text)
    if isinstance(answer, QueryRows):
        lines.writerow(answer.columns)
        lines.writerows([term.value if term is not None else None for term in row] for row in answer.rows)
    else:
        lines.writerow(["uri", "classes"])
        lines.writerows([uri, " ".join(classes)] for uri, classes in answer.items)
    return text.getvalue()
