"""The words in which calls are described: bodies, answers, problems, headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mdv
from mdv.rdf.syntax import SYNTAXES

_DEMO = Path(mdv.__file__).parent / "demo"
FIGURE_1 = (_DEMO / "doc.rdf").read_text("utf-8")
SCHEMA = (_DEMO / "schema.ttl").read_text("utf-8")

_TEXT = {"schema": {"type": "string"}}


def rdf_body(examples: dict[str, str]) -> dict[str, Any]:
    """An RDF body in any syntax, with an example where there is one."""
    content = {
        media_type: _TEXT | ({"example": examples[media_type]} if media_type in examples else {})
        for syntax in SYNTAXES
        for media_type in syntax.media_types
    }
    # Swagger UI shows no text in XML as it is, so that the example stands in the description too.
    shown = "\n\n".join(f"As {media_type}:\n\n```\n{text}```" for media_type, text in examples.items())
    return {"required": True, "description": shown, "content": content}


def rdf(description: str, also_json: dict[str, Any] | None = None) -> dict[str, Any]:
    """An answer in any RDF syntax, and as JSON where there is a shape for it."""
    content: dict[str, Any] = {syntax.media_type: _TEXT for syntax in SYNTAXES}
    if also_json is not None:
        content["application/json"] = {"schema": also_json}
    return {"description": description, "content": content}


def page(item: dict[str, Any]) -> dict[str, Any]:
    """A page of items."""
    return {
        "type": "object",
        "required": ["items", "next"],
        "properties": {"items": {"type": "array", "items": item}, "next": {"type": ["string", "null"]}},
    }


def record(**fields: str) -> dict[str, Any]:
    """An object with these fields, each of a JSON type; `array` means of texts."""
    shapes = {n: {"type": t} | ({"items": {"type": "string"}} if t == "array" else {}) for n, t in fields.items()}
    return {"type": "object", "required": list(fields), "properties": shapes}


def json_answer(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def problems(*statuses: int) -> dict[int, dict[str, Any]]:
    """The ways in which a call can fail, besides those that all calls share."""
    reasons = {
        400: "a parameter or a text that cannot be read",
        401: "no token, or one that opens nothing",
        403: "a token for something else",
        404: "no such thing",
        406: "no such representation",
        408: "the body did not arrive in time",
        410: "a cursor that the feed cannot go on from: take a snapshot",
        409: "something stands in the way: stored documents, a name that is taken, a rule that needs it",
        412: "the stored version is another one",
        413: "too large",
        414: "an address too long for the HTTP server, which answers before MDV does",
        415: "a syntax that is not read",
        422: "at odds with the schema, or an Idempotency-Key used twice",
        429: "more at once than one caller may have, or more that waits already; `Retry-After` says when to come again",
        503: "a part of the system is away",
    }
    shape = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    found: dict[int, dict[str, Any]] = {
        status: {"description": reasons[status], "content": shape} for status in sorted({*statuses, 400, 401, 403, 503})
    }
    return found | {414: {"description": reasons[414], "content": {"text/html": _TEXT}}}


PREFER = {
    "name": "Prefer", "in": "header", "schema": {"type": "string"},
    "description": "wait=SECONDS: answer once the change has been carried out", "example": "wait=30",
}  # fmt: skip
PRIORITY = {
    "name": "Priority", "in": "header", "schema": {"type": "string"},
    "description": "u=0 to u=7 (RFC 9218): 0 before all others, 7 after them; with `Prefer: wait` 3, otherwise 5",
    "example": "u=3",
}  # fmt: skip
IF_MATCH = {
    "name": "If-Match", "in": "header", "schema": {"type": "string"},
    "description": "carry it out only if the stored version is this one",
}  # fmt: skip
IF_NONE_MATCH = {
    "name": "If-None-Match", "in": "header", "schema": {"type": "string"},
    "description": "`*`: carry it out only if nothing is stored under this URI",
}  # fmt: skip
IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "maxLength": 255},
    "description": "the same key with the same request is carried out once, however often it is sent",
}  # fmt: skip
