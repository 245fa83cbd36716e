"""/query: the rule language with `return`."""

from __future__ import annotations

from typing import Any

from flask import Response

from mdv.errors import BadRequest
from mdv.mdp.query import run_query
from mdv.rdf.parse import is_absolute_iri
from mdv.rdf.syntax import MEDIA_TYPES
from mdv.rules.ast import ParsedQuery
from mdv.rules.parse import parse_query
from web.answers import CSV, query_response
from web.auth import reader
from web.bodies import JSON, json_body, json_request
from web.calls import Calls
from web.models import QueryQuestion
from web.negotiate import in_thread, wanted_type
from web.openapi import page, problems, rdf, record
from web.services import services

calls = Calls("query", "Answers from what is known now")

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
ANSWER = rdf("Rows (`return`), or a page of resources (`register`)", {"anyOf": [_ROWS, page(record(uri="string",
              classes="array"))]})  # fmt: skip
ANSWER["content"][CSV] = {"schema": {"type": "string"}}


@calls.call(
    "POST",
    "/query",
    "Ask a query",
    {200: ANSWER} | problems(406, 408, 413, 415, 422),
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
            with_statements=media_type in MEDIA_TYPES, apart=in_thread,
        )  # fmt: skip
        prefixes = services().schemas.now(connection).schema.prefixes
    return query_response(answer, media_type, prefixes)
