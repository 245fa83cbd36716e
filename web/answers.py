"""Answers that an MDP and an LMR give alike: of queries and of resources, in the form that was asked for."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from flask import Response, jsonify

from mdv.model import RDF_TYPE, RDFS_RESOURCE, Statement
from mdv.query.answers import Resources, Rows
from mdv.rdf.serialise import serialise
from mdv.rdf.syntax import syntax_of_media_type
from web.bodies import JSON
from web.negotiate import in_thread, rdf_response, written

CSV = "text/csv"


def query_response(answer: Rows | Resources, media_type: str, prefixes: Mapping[str, str]) -> Response:
    """The answer to a query as JSON, CSV or (resources) RDF."""
    more = answer.truncated if isinstance(answer, Rows) else answer.next is not None
    if media_type == JSON:
        response = jsonify(in_thread(_as_json, answer))
    elif media_type == CSV:
        response = Response(in_thread(_as_csv, answer), content_type="text/csv; charset=utf-8; header=present")
    else:
        assert isinstance(answer, Resources)
        syntax = syntax_of_media_type(media_type)[0]
        response = rdf_response(written(sorted(answer.statements), syntax, prefixes), syntax)
    if more and media_type != JSON:
        response.headers["MDV-More"] = "true"
    response.headers["Vary"] = "Accept"
    return response


def resource_response(
    uri: str, statements: Iterable[Statement], media_type: str, prefixes: Mapping[str, str], **more: Any
) -> Response:
    """One resource as JSON or RDF."""
    said = sorted(statements)
    if media_type != JSON:
        syntax = syntax_of_media_type(media_type)[0]
        return rdf_response(serialise(said, syntax, prefixes), syntax)
    classes = [s.object.value for s in said if s.property == RDF_TYPE] or [RDFS_RESOURCE]
    body = {"uri": uri, "classes": classes, "statements": [[s.property, s.object.as_dict()] for s in said]}
    response = jsonify(body | more)
    response.headers["Vary"] = "Accept"
    return response


def _as_json(answer: Rows | Resources) -> dict[str, Any]:
    if isinstance(answer, Rows):
        rows = [[term.as_dict() if term is not None else None for term in row] for row in answer.rows]
        return {"columns": answer.columns, "rows": rows, "truncated": answer.truncated}
    return {"items": [{"uri": uri, "classes": classes} for uri, classes in answer.items], "next": answer.next}


def _as_csv(answer: Rows | Resources) -> str:
    text = io.StringIO()
    lines = csv.writer(text)
    if isinstance(answer, Rows):
        lines.writerow(answer.columns)
        lines.writerows([term.value if term is not None else None for term in row] for row in answer.rows)
    else:
        lines.writerow(["uri", "classes"])
        lines.writerows([uri, " ".join(classes)] for uri, classes in answer.items)
    return text.getvalue()
