"""/schema: what documents may say."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flask import Response, request

from mdv.mdp.put_schema import put_schema
from mdv.mdp.schemas import read_schema_document
from mdv.rdf.serialise import serialise
from mdv.rdf.syntax import TURTLE, syntax_of_media_type
from web.auth import lmr_reader, whole_admin
from web.calls import Calls
from web.models import SchemaChange
from web.negotiate import etags, in_thread, rdf_response, read_body, wanted_syntax
from web.openapi import IF_MATCH, SCHEMA, problems, rdf, rdf_body
from web.services import services

calls = Calls("schema", "What documents may say")


@calls.call(
    "PUT",
    "/schema",
    "Replace the schema",
    {200: SchemaChange} | problems(408, 409, 412, 413, 415, 422),
    headers=(IF_MATCH,),
    body=rdf_body({"text/turtle": SCHEMA}),
)
def put() -> dict[str, Any]:
    """Answers when the change is done. What would break a stored document or a rule is refused, naming it."""
    whole_admin()
    media_type = request.headers.get("Content-Type")
    syntax_of_media_type(media_type)
    document = in_thread(read_schema_document, read_body(services().config.body_seconds), media_type)
    with services().engine.begin() as connection:
        return asdict(
            put_schema(
                connection, document, services().schemas, services().vocabulary, services().rules, etags("If-Match")
            )
        )


@calls.call("GET", "/schema", "The schema, as RDF", {200: rdf("The schema")} | problems(406))
def get() -> Response:
    lmr_reader()
    syntax = wanted_syntax(TURTLE)
    with services().engine.connect() as connection:
        known = services().schemas.now(connection)
    text = serialise(known.statements, syntax, known.schema.prefixes, "urn:mdv:schema")
    return rdf_response(text, syntax, known.version)
