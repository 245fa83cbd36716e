"""/query: the rule language with `return`."""

from __future__ import annotations

import csv
import io
from typing import Any

from flask import Response, jsonify

from mdv.errors import BadRequest
from mdv.mdp.query import Resources, Rows, run_query
from mdv.rdf.parse import is_absolute_iri
from mdv.rdf.syntax import MEDIA_TYPES, syntax_of_media_type
from mdv.rules.ast import ParsedQuery
from mdv.rules.parse import parse_query
from web.auth import reader
from web.bodies import JSON, json_body, json_request
from web.calls import Calls
from web.models import QueryQuestion
from web.negotiate import rdf_response, wanted_type, written
from web.openapi import page, problems, rdf, record
from web.services import services

calls = Calls("query", "Answers from what is known now")

CSV = "text/csv"
EXAMPLE = {"query": "search CycleProvider c where c.serverPort = 5874 return c, c.serverHost"}
_TERM = {"anyOf": [record(type="string", value="string"), {"type": "null"}]}
_ROWS: dict[str, Any] = {
    "type": "object",
    "required": ["columns", "rows", "truncated"],
    "properties": {
        "columns": {"type": "array", "items": {"type": "string"}},
        "rows": {"type": "array", "items": {"type": "array", "items": _TERM}},
        "truncated": {"type": "boolean", "description": "there are more rows than these"},
    },
}
_ANSWER = rdf("Rows (`return`), or a page of resources (`register`)", {"anyOf": [_ROWS, page(record(uri="string",
              classes="array"))]})  # fmt: skip
_ANSWER["content"][CSV] = {"schema": {"type": "string"}}


@calls.call(
    "POST",
    "/query",
    "Ask a query",
    {200: _ANSWER} | problems(406, 408, 413, 415, 422),
    body=json_request(QueryQuestion, EXAMPLE),
    reads=True,
)
def query() -> Response:
    """The rule language with `return` in place of `register`, and after it `order by PATH [asc|desc]` and `limit N`.

    A row stands for a choice of resources for the searched variables under which `where` holds, with a value for each
    returned path: one row for each value of a path that has several, `null` where it has none. Paths that share a
    beginning without `?`, those of `where` included, mean the same resource there; each `?` is its own choice. Rows are
    ordered by number, instant, truth or text by code point, as the path's range says, what is missing last; then by
    what is returned. There are at most 10,000 rows, 1,000 unless `limit` says otherwise; `truncated` tells that there
    are more.

    A rule with `register` gives the resources that it would register, by URI, a page at a time; also as RDF.

    CSV has the columns in its first line, a URI or a text without language and datatype in each field, and nothing
    where a value is missing. The header `MDV-More: true` goes with CSV and RDF where there is more.
    """
    reader()
    question = json_body(QueryQuestion)
    parsed = parse_query(question.query)
    has_rows = isinstance(parsed, ParsedQuery)
    media_type = wanted_type([JSON, CSV] if has_rows else [JSON, CSV, *MEDIA_TYPES])
    if question.after is not None and not is_absolute_iri(question.after):
        raise BadRequest("`after` takes the `next` of the page before.")
    with services().engine.connect() as connection:
        answer = run_query(
            connection, parsed, services().schemas, limit=question.limit, after=question.after,
            with_statements=media_type in MEDIA_TYPES,
        )  # fmt: skip
        prefixes = services().schemas.now(connection).schema.prefixes
    more = answer.truncated if isinstance(answer, Rows) else answer.next is not None
    if media_type == JSON:
        response = jsonify(_as_json(answer))
    elif media_type == CSV:
        response = Response(_as_csv(answer), content_type="text/csv; charset=utf-8; header=present")
    else:
        assert isinstance(answer, Resources)
        syntax = syntax_of_media_type(media_type)[0]
        response = rdf_response(written(sorted(answer.statements), syntax, prefixes), syntax)
    if more and media_type != JSON:
        response.headers["MDV-More"] = "true"
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
