"""/schema: the schema of documents."""

from __future__ import annotations

from flask import Response, make_response, request

from mdv.rdf.syntax import TURTLE, syntax_of_media_type
from web.auth import require_reader_or_lmr, require_unlimited_admin
from web.job_queue import PendingJob, accepted_response
from web.models import Accepted, SchemaChange, SchemaPut
from web.negotiate import negotiate_syntax, not_modified, read_body, request_etags
from web.openapi import EXAMPLE_SCHEMA, IDEMPOTENCY_KEY, IF_MATCH, describe_problems, describe_rdf, describe_rdf_body
from web.routing import RouteGroup
from web.services import services
from web.use_cases.schema import change_schema, schema_response

routes = RouteGroup("schema", "The schema of documents")


@routes.route(
    "PUT",
    "/schema",
    "Replace the schema",
    {200: SchemaChange, 202: Accepted} | describe_problems(408, 409, 412, 413, 415, 422, 429, 503),
    query=SchemaPut,
    headers=(IF_MATCH, IDEMPOTENCY_KEY),
    body=describe_rdf_body({"text/turtle": EXAMPLE_SCHEMA}),
)
def put(query: SchemaPut) -> Response:
    """Answers when the change is done, or with a job if that takes long. A schema that would break a stored document or
    a rule is rejected, naming them. `?dry_run=true` reports the effects without changing anything. In a backbone, only
    the lead replaces the schema (409 `not-lead` elsewhere), and all members try it first: 409 if one refuses, 503 if
    one is away, unless `force=true`."""
    caller = require_unlimited_admin()
    media_type = request.headers.get("Content-Type")
    syntax_of_media_type(media_type)
    body = read_body(services().config.body_seconds)
    changed = change_schema(caller, body, media_type, request_etags("If-Match"), query.dry_run, query.force)
    return accepted_response(changed) if isinstance(changed, PendingJob) else make_response(changed.result)


@routes.route("GET", "/schema", "Get the schema as RDF", {200: describe_rdf("The schema")} | describe_problems(406))
def get() -> Response:
    require_reader_or_lmr()
    syntax = negotiate_syntax(TURTLE)
    with services().engine.connect() as connection:
        known = services().schemas.now(connection)
    if (unchanged := not_modified(syntax, known.version)) is not None:
        return unchanged
    response = schema_response(known, syntax)
    response.set_etag(str(known.version))
    return response
