"""Building blocks of the OpenAPI description: bodies, responses, problems, headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mdv
from mdv.rdf.syntax import SYNTAXES

_DEMO = Path(mdv.__file__).parent / "demo"
EXAMPLE_DOCUMENT = (_DEMO / "doc.rdf").read_text("utf-8")
EXAMPLE_SCHEMA = (_DEMO / "schema.ttl").read_text("utf-8")
_PORT = ["http://mdv.example/doc.rdf#host", "http://mdv.example/schema#serverPort"]
EXAMPLE_EDIT = {
    "remove": [[*_PORT, {"type": "literal", "value": "5874"}]],
    "add": [[*_PORT, {"type": "literal", "value": "5875"}]],
}

_TEXT = {"schema": {"type": "string"}}


def describe_rdf_body(examples: dict[str, str]) -> dict[str, Any]:
    """Describe an RDF request body, with examples by media type."""
    content = {
        media_type: _TEXT | ({"example": examples[media_type]} if media_type in examples else {})
        for syntax in SYNTAXES
        for media_type in syntax.media_types
    }
    # Swagger UI does not show XML examples verbatim, so they are also in the description.
    shown = "\n\n".join(f"As {media_type}:\n\n```\n{text}```" for media_type, text in examples.items())
    return {"required": True, "description": shown, "content": content}


def describe_rdf(description: str, also_json: dict[str, Any] | None = None) -> dict[str, Any]:
    """Describe a response in any RDF syntax, and as JSON if a schema is given."""
    content: dict[str, Any] = {syntax.media_type: _TEXT for syntax in SYNTAXES}
    if also_json is not None:
        content["application/json"] = {"schema": also_json}
    return {"description": description, "content": content}


def page_schema(item: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a page of items."""
    return {
        "type": "object",
        "required": ["items", "next"],
        "properties": {"items": {"type": "array", "items": item}, "next": {"type": ["string", "null"]}},
    }


def object_schema(**fields: str) -> dict[str, Any]:
    """Return the JSON schema of an object with these fields and types; `array` means an array of strings."""
    shapes = {n: {"type": t} | ({"items": {"type": "string"}} if t == "array" else {}) for n, t in fields.items()}
    return {"type": "object", "required": list(fields), "properties": shapes}


def describe_json(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


SUBSCRIPTIONS = describe_json(
    page_schema({"$ref": "#/components/schemas/SubscriptionShown"}), "A page of subscriptions"
)


def describe_problems(*statuses: int) -> dict[int, dict[str, Any]]:
    """Describe the error responses of a call, including those that all calls share."""
    reasons = {
        400: "Invalid parameter or body",
        401: "Missing or invalid token",
        403: "The token does not allow this call",
        404: "Not found",
        406: "The requested representation is not available",
        408: "The body did not arrive in time",
        410: "The feed cannot continue from this cursor: take a snapshot",
        409: "Conflict with stored documents, an existing name or a dependent rule",
        412: "The stored version does not match the condition",
        413: "Body too large",
        414: "URL too long (answered by the HTTP server)",
        415: "Unsupported media type",
        422: "The content violates the schema, or an Idempotency-Key was reused for another request",
        429: "Too many concurrent requests or waiting jobs; see `Retry-After`",
        503: "A part of the system is unavailable",
    }
    shape = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    found: dict[int, dict[str, Any]] = {
        status: {"description": reasons[status], "content": shape} for status in sorted({*statuses, 400, 401, 403, 503})
    }
    return found | {414: {"description": reasons[414], "content": {"text/html": _TEXT}}}


PREFER = {
    "name": "Prefer", "in": "header", "schema": {"type": "string"},
    "description": "wait=SECONDS: answer when the change is done, at the latest after this time; with a backbone also"
    " replicas=N: answer when N other members have it, in the same time", "example": "wait=30",
}  # fmt: skip
PRIORITY = {
    "name": "Priority", "in": "header", "schema": {"type": "string"},
    "description": "u=0 (highest) to u=7 (lowest), RFC 9218; the default is 3 with `Prefer: wait` and 5 without",
    "example": "u=3",
}  # fmt: skip
IF_MATCH = {
    "name": "If-Match", "in": "header", "schema": {"type": "string"},
    "description": "Carry the change out only if the stored version is this one",
}  # fmt: skip
IF_NONE_MATCH = {
    "name": "If-None-Match", "in": "header", "schema": {"type": "string"},
    "description": "`*`: carry the change out only if the document does not exist",
}  # fmt: skip
IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "maxLength": 255},
    "description": "A request with the same key is carried out only once",
}  # fmt: skip


EXAMPLE_QUERY = {"query": "search CycleProvider c where c.serverPort = 5874 return c, c.serverHost"}
_TERM = {"anyOf": [object_schema(type="string", value="string"), {"type": "null"}]}
_ROWS: dict[str, Any] = {
    "type": "object",
    "required": ["columns", "rows", "truncated"],
    "properties": {
        "columns": {"type": "array", "items": {"type": "string"}},
        "rows": {"type": "array", "items": {"type": "array", "items": _TERM}},
        "truncated": {"type": "boolean", "description": "there are more rows"},
    },
}
_RESOURCES = page_schema(object_schema(uri="string", classes="array"))
QUERY_ANSWER = describe_rdf("Rows (`return`) or a page of resources (`register`)", {"anyOf": [_ROWS, _RESOURCES]})
QUERY_ANSWER["content"]["text/csv"] = {"schema": {"type": "string"}}

RESOURCE_OR_PAGE = {
    "anyOf": [
        object_schema(uri="string", classes="array", statements="array", documents="array", origins="array"),
        page_schema(object_schema(uri="string", classes="array")),
    ]
}
RESOURCE_OR_PAGE["anyOf"][0]["properties"]["statements"]["items"] = {"type": "array"}
RESOURCE_OR_PAGE["anyOf"][0]["properties"]["origins"] = {
    "type": "array",
    "items": {"type": "object"},
    "description": "the rules and updates that inserted statements, with the reason",
}
