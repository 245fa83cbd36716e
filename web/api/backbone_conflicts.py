"""/backbone/conflicts: what concurrent changes left to be decided."""

from __future__ import annotations

from typing import Any

from flask import Response

from mdv.rdf.parse import check_document_uri
from mdv.rdf.term_json import read_term
from web.auth import require_admin, require_reader
from web.json_bodies import describe_json_body, read_json_body
from web.models import Accepted, BackboneConflictQuery, ConflictResolution, Registration
from web.openapi import IF_MATCH, PREFER, describe_json, describe_problems, object_schema, page_schema
from web.routing import RouteGroup
from web.services import services
from web.use_cases.backbone import read_facts
from web.use_cases.conflicts import answer_resolution, describe_conflict, find_open_conflict

routes = RouteGroup("conflicts", "What concurrent changes in a backbone left to be decided")

_EXAMPLE = {"keep": [{"type": "literal", "value": "5874"}]}
_CONFLICT = object_schema(id="string", kind="string", document="string")
_CONFLICT["properties"]["kind"] = {"type": "string", "enum": ["values", "remnant", "schema", "merged"]}
_CONFLICT["properties"] |= {name: {"type": "array"} for name in ("about", "values", "origins")}


@routes.route("GET", "/backbone/conflicts", "List conflicts",
              {200: describe_json(page_schema(_CONFLICT), "A page of conflicts")} | describe_problems(404),
              query=BackboneConflictQuery)  # fmt: skip
def conflicts(query: BackboneConflictQuery) -> dict[str, Any]:
    """Returns what concurrent changes left to be decided, equal at all members: `values` (several values of a property
    that has one), `remnant` (deleted at one member, changed at another), `schema` (a value that the schema refuses)
    and, for a week, `merged`. `about` is the subject and the property. Registering the document resolves a conflict,
    and so does `POST /backbone/conflicts/ID`."""
    require_reader()
    if query.uri is not None:
        check_document_uri(query.uri)
    s = services()
    read_facts(s)
    with s.single.connect() as connection:
        items, after = s.replica.conflict_page(connection, query.after or "", query.limit, query.uri)
    return {"items": [conflict.as_dict() for conflict in items], "next": after}


@routes.route("GET", "/backbone/conflicts/<conflict>", "Get a conflict",
              {200: describe_json(_CONFLICT, "The conflict")} | describe_problems(404))  # fmt: skip
def get_conflict(conflict: str) -> dict[str, Any]:
    """Returns a conflict with the origins of its values: the members that inserted them, and when. These are what this
    MDP knows: other members may know other times."""
    require_reader()
    s = services()
    read_facts(s)
    return describe_conflict(s, find_open_conflict(s, conflict))


@routes.route("POST", "/backbone/conflicts/<conflict>", "Resolve a conflict",
              {200: Registration, 202: Accepted} | describe_problems(400, 404, 409, 412, 413, 415, 422, 429),
              headers=(PREFER, IF_MATCH),
              body=describe_json_body(ConflictResolution, _EXAMPLE))  # fmt: skip
def resolve(conflict: str) -> Response:
    """Keeps some of the values of a conflict and removes the others, by a change of the document. An empty list removes
    all. A remnant has one value: the document as it is. Answers as `PATCH /documents` does, when the change is done."""
    caller = require_admin()
    keep = [one if isinstance(one, str) else read_term(one) for one in read_json_body(ConflictResolution).keep]
    s = services()
    read_facts(s)
    return answer_resolution(find_open_conflict(s, conflict), keep, caller)
