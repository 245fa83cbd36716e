"""/schema: what documents may say."""

from __future__ import annotations

from flask import Response, make_response, request

from mdv.rdf.serialise import serialise
from mdv.rdf.syntax import TURTLE, syntax_of_media_type
from web.auth import lmr_reader, whole_admin
from web.calls import Calls
from web.models import Accepted, SchemaChange
from web.negotiate import etags, rdf_response, read_body, wanted_syntax
from web.openapi import IDEMPOTENCY_KEY, IF_MATCH, SCHEMA, problems, rdf, rdf_body
from web.queue import carried_out
from web.services import services

calls = Calls("schema", "What documents may say")


@calls.call(
    "PUT",
    "/schema",
    "Replace the schema",
    {200: SchemaChange, 202: Accepted} | problems(408, 409, 412, 413, 415, 422, 429),
    headers=(IF_MATCH, IDEMPOTENCY_KEY),
    body=rdf_body({"text/turtle": SCHEMA}),
)
def put() -> Response:
    """Answers when the change is done, or with a job where that takes long. What would break a stored document or a
    rule is refused, naming it."""
    caller = whole_admin()
    media_type = request.headers.get("Content-Type")
    syntax_of_media_type(media_type)
    body = read_body(services().config.body_seconds)
    changed = carried_out("schema", "urn:mdv:schema", caller, {"if_match": etags("If-Match")}, body, media_type)
    return changed if isinstance(changed, Response) else make_response(changed)


@calls.call("GET", "/schema", "The schema, as RDF", {200: rdf("The schema")} | problems(406))
def get() -> Response:
    lmr_reader()
    syntax = wanted_syntax(TURTLE)
    with services().engine.connect() as connection:
        known = services().schemas.now(connection)
    text = serialise(known.statements, syntax, known.schema.prefixes, "urn:mdv:schema")
    return rdf_response(text, syntax, known.version)
