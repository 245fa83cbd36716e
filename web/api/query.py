"""/query: the rule language with `return`."""

from __future__ import annotations

from flask import Response

from mdv.errors import BadRequest
from mdv.inspect.query import run_query
from mdv.rdf.parse import is_absolute_iri
from mdv.rdf.syntax import MEDIA_TYPES
from mdv.rules.ast import ParsedQuery
from mdv.rules.parse import parse_query
from web.auth import require_reader
from web.json_bodies import JSON, describe_json_body, read_json_body
from web.models import QueryRequest
from web.negotiate import negotiate_type, run_in_thread
from web.openapi import EXAMPLE_QUERY, QUERY_ANSWER, describe_problems
from web.responses import CSV, query_response
from web.routing import RouteGroup
from web.services import services

routes = RouteGroup("query", "Queries on the current resources")


@routes.route(
    "POST",
    "/query",
    "Run a query",
    {200: QUERY_ANSWER} | describe_problems(406, 408, 413, 415, 422),
    body=describe_json_body(QueryRequest, EXAMPLE_QUERY),
    reads=True,
)
def query() -> Response:
    """Queries use the rule language with `return` instead of `register`, followed by `order by PATH [asc|desc]` and
    `limit N`.

    Each row is a binding of the searched variables that satisfies `where`, with a value for each returned path. A path
    with several values gives several rows; a path without a value gives `null`. Paths that share a prefix without `?`,
    including those of `where`, refer to the same resource; each `?` chooses independently. Rows are sorted by number,
    instant, boolean or text (by code point) according to the range of the path, missing values last, then by the
    returned values. The default limit is 1,000 rows, the maximum 10,000; `truncated` is true if there are more.

    A rule with `register` returns the resources that it would register, ordered by URI, one page at a time, as JSON,
    CSV or RDF.

    CSV has the column names in the first line. Fields contain a URI or a text without language and datatype; missing
    values are empty. CSV and RDF responses have the header `MDV-More: true` if there is more.
    """
    require_reader()
    question = read_json_body(QueryRequest)
    parsed = run_in_thread(parse_query, question.query)
    has_rows = isinstance(parsed, ParsedQuery)
    media_type = negotiate_type([JSON, CSV] if has_rows else [JSON, CSV, *MEDIA_TYPES])
    if question.after is not None and not is_absolute_iri(question.after):
        raise BadRequest("`after` must be the `next` of the previous page.")
    with services().engine.connect() as connection:
        answer = run_query(
            connection, parsed, services().schemas, limit=question.limit, after=question.after,
            with_statements=media_type in MEDIA_TYPES, apart=run_in_thread,
        )  # fmt: skip
        prefixes = services().schemas.now(connection).schema.prefixes
    return query_response(answer, media_type, prefixes)
