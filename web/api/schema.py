"""/schema: what documents may say."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from flask import Response, make_response, request

from mdv.errors import MdvError, NotWellFormed
from mdv.mdp.schemas import SCHEMA_URI, SchemaInForce
from mdv.rdf.syntax import TURTLE, Syntax, syntax_of_media_type
from web.auth import Caller, lmr_reader, whole_admin
from web.calls import Calls
from web.models import Accepted, SchemaChange, SchemaPut
from web.negotiate import etags, rdf_response, read_body, wanted_syntax, written
from web.openapi import IDEMPOTENCY_KEY, IF_MATCH, SCHEMA, problems, rdf, rdf_body
from web.queue import accepted, has_ended, queue
from web.services import services
from workers.signals import News

calls = Calls("schema", "What documents may say")


@calls.call(
    "PUT",
    "/schema",
    "Replace the schema",
    {200: SchemaChange, 202: Accepted} | problems(408, 409, 412, 413, 415, 422, 429),
    query=SchemaPut,
    headers=(IF_MATCH, IDEMPOTENCY_KEY),
    body=rdf_body({"text/turtle": SCHEMA}),
)
def put(query: SchemaPut) -> Response:
    """Answers when the change is done, or with a job where that takes long. What would break a stored document or a
    rule is refused, naming it. `?dry_run=true` tells what would happen and to whom, and changes nothing."""
    caller = whole_admin()
    media_type = request.headers.get("Content-Type")
    syntax_of_media_type(media_type)
    body = read_body(services().config.body_seconds)
    changed = change_schema(caller, body, media_type, etags("If-Match"), query.dry_run)
    if isinstance(changed, Waiting):
        return accepted(changed.job, SCHEMA_URI, changed.status)
    return make_response(changed.result)


class Changed(NamedTuple):
    """A change that was carried out, and what it did."""

    job: UUID
    result: dict[str, Any]


class Waiting(NamedTuple):
    """A change that has not been carried out yet."""

    job: UUID
    status: News | None


def change_schema(
    caller: Caller, body: bytes, media_type: str | None, if_match: list[str] | None, dry_run: bool
) -> Changed | Waiting:
    """Replace the schema, or try that out: what that did, or the job where it takes long. A refusal is raised."""
    if not body.strip():
        raise NotWellFormed("The text of the schema is empty. Nothing was changed.")
    options: dict[str, Any] = {"if_match": if_match} | ({"dry_run": True} if dry_run else {})
    wait = services().config.max_wait_seconds
    job_id, status = queue("schema", SCHEMA_URI, caller, options, wait, body, media_type, keyed=not dry_run)
    if status is None or not has_ended(status):
        return Waiting(job_id, status)
    if status.problem is not None:
        raise MdvError.from_problem(status.problem)
    return Changed(job_id, dict(status.result or {}))


def schema_text(schema: SchemaInForce, syntax: Syntax) -> bytes:
    """A version of the schema in some syntax."""
    return written(schema.statements, syntax, schema.schema.prefixes, SCHEMA_URI)


@calls.call("GET", "/schema", "The schema, as RDF", {200: rdf("The schema")} | problems(406))
def get() -> Response:
    lmr_reader()
    syntax = wanted_syntax(TURTLE)
    with services().engine.connect() as connection:
        known = services().schemas.now(connection)
    return rdf_response(schema_text(known, syntax), syntax, known.version)
