"""Change the schema, and return a version of it as RDF."""

from __future__ import annotations

from typing import Any

from flask import Response

from mdv.accounts.callers import Caller
from mdv.errors import NotWellFormed, Refused, Unavailable
from mdv.mdp.replicated_schema import document_as_text, refuse_unless_lead
from mdv.mdp.schemas import SCHEMA_URI, SchemaInForce, read_schema_document
from mdv.rdf.syntax import TURTLE, Syntax
from web.job_queue import FinishedJob, PendingJob, run_job
from web.negotiate import serialise_statements
from web.services import services
from web.streams import statements_response
from web.use_cases.backbone import find_facts, read_facts
from web.use_cases.schema_trial import try_at_members


def change_schema(
    caller: Caller,
    body: bytes,
    media_type: str | None,
    if_match: list[str] | None,
    dry_run: bool,
    force: bool = False,
) -> FinishedJob | PendingJob:
    """Replace the schema or, with `dry_run`, report the effects. Raises an error if the schema is rejected, in a
    backbone also by another member. `force`: also if a member of the backbone is away."""
    if not body.strip():
        raise NotWellFormed("The schema is empty. Nothing was changed. Send the schema as the request body.")
    options: dict[str, Any] = {"if_match": if_match} | ({"dry_run": True} if dry_run else {})
    s = services()
    if find_facts(s) is None:
        return run_job("schema", SCHEMA_URI, caller, options, body, media_type, keyed=not dry_run)
    facts, kind = read_facts(s)
    refuse_unless_lead(facts)
    tried = run_job("schema", SCHEMA_URI, caller, options | {"dry_run": True}, body, media_type, keyed=False)
    if isinstance(tried, PendingJob):
        raise Unavailable("Trying the schema here took too long. Nothing was changed. Try again later.")
    if tried.result["changed"]:
        text = document_as_text(read_schema_document(body, media_type))
        try_at_members(s, facts, kind, text, holds=not dry_run, force=force or dry_run)
    if dry_run:
        return tried
    return run_job("schema", SCHEMA_URI, caller, options, body, media_type)


def answer_trial(caller: Caller, schema: str, holds: bool) -> dict[str, Any]:
    """Return what a schema would break here, for the lead of the backbone: a problem, or None."""
    options = {"trial": True, "holds": holds}
    try:
        tried = run_job("schema", SCHEMA_URI, caller, options, schema.encode(), TURTLE.media_type, keyed=False)
    except Refused as error:
        return {"problem": error.problem()}
    if isinstance(tried, PendingJob):
        raise Unavailable("Trying the schema took too long.")
    return {"problem": None}


def schema_text(schema: SchemaInForce, syntax: Syntax) -> bytes:
    """Return the text of a small schema version in a syntax."""
    return serialise_statements(schema.statements, syntax, schema.schema.prefixes, SCHEMA_URI)


def schema_response(schema: SchemaInForce, syntax: Syntax) -> Response:
    """Return a response with a schema version in a syntax."""
    return statements_response(schema.statements, syntax, schema.schema.prefixes, SCHEMA_URI)
