"""Change the schema, and return a version of it as RDF."""

from __future__ import annotations

from typing import Any

from flask import Response

from mdv.accounts.callers import Caller
from mdv.errors import NotWellFormed
from mdv.mdp.schemas import SCHEMA_URI, SchemaInForce
from mdv.rdf.syntax import Syntax
from web.job_queue import FinishedJob, PendingJob, run_job
from web.negotiate import serialise_statements
from web.streams import statements_response


def change_schema(
    caller: Caller, body: bytes, media_type: str | None, if_match: list[str] | None, dry_run: bool
) -> FinishedJob | PendingJob:
    """Replace the schema or, with `dry_run`, report the effects. Raises an error if the schema is rejected."""
    if not body.strip():
        raise NotWellFormed("The schema is empty. Nothing was changed. Send the schema as the request body.")
    options: dict[str, Any] = {"if_match": if_match} | ({"dry_run": True} if dry_run else {})
    return run_job("schema", SCHEMA_URI, caller, options, body, media_type, keyed=not dry_run)


def schema_text(schema: SchemaInForce, syntax: Syntax) -> bytes:
    """Return the text of a small schema version in a syntax."""
    return serialise_statements(schema.statements, syntax, schema.schema.prefixes, SCHEMA_URI)


def schema_response(schema: SchemaInForce, syntax: Syntax) -> Response:
    """Return a response with a schema version in a syntax."""
    return statements_response(schema.statements, syntax, schema.schema.prefixes, SCHEMA_URI)
