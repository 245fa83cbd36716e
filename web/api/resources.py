"""/resources: what is known, whoever said it."""

from __future__ import annotations

from typing import Any

from flask import Response, jsonify

from mdv.db.read import list_resources, resource_documents, resource_statements
from mdv.errors import BadRequest, NotFound
from mdv.mdp.schemas import classes_named
from mdv.rdf.parse import is_absolute_iri
from mdv.rdf.syntax import MEDIA_TYPES
from web.answers import resource_response
from web.auth import lmr_reader
from web.calls import Calls
from web.models import ResourceQuery
from web.negotiate import wanted_type
from web.numbers import after_number
from web.openapi import page, problems, rdf, record
from web.services import services

calls = Calls("resources", "What is known, whoever said it")

ONE_OR_PAGE = {
    "anyOf": [
        record(uri="string", classes="array", statements="array", documents="array"),
        page(record(uri="string", classes="array")),
    ]
}
ONE_OR_PAGE["anyOf"][0]["properties"]["statements"]["items"] = {"type": "array"}


@calls.call(
    "GET",
    "/resources",
    "One resource, or a page of them",
    {200: rdf("The resource (`uri`), or a page of resources", ONE_OR_PAGE)} | problems(404, 406),
    query=ResourceQuery,
)
def get(query: ResourceQuery) -> Response:
    """With `uri`, the union of what all documents say of it; with `class`, its instances; with neither, all."""
    lmr_reader()
    if query.uri is not None and query.class_ is not None:
        raise BadRequest("Ask for one resource with uri=, or for the instances of a class with class=, not for both.")
    if query.uri is not None:
        return _one(query.uri)
    return _page(query)


def _one(uri: str) -> Response:
    media_type = wanted_type(["application/json", *MEDIA_TYPES])
    if not is_absolute_iri(uri):
        raise BadRequest(f"{uri!r} is not an absolute URI.")
    with services().engine.connect() as connection:
        statements = resource_statements(connection, uri)
        documents = resource_documents(connection, uri)
        schema = services().schemas.now(connection).schema
    if not statements:
        raise NotFound(f"No document describes {uri}.")
    return resource_response(uri, statements, media_type, schema.prefixes, documents=documents)


def _page(query: ResourceQuery) -> Response:
    wanted_type(["application/json"])
    after = after_number(query.after)
    with services().engine.connect() as connection:
        schema = services().schemas.now(connection).schema
        classes = None if query.class_ is None else classes_named(query.class_, schema)
        rows = list_resources(connection, classes, after, query.limit + 1)
    items: list[dict[str, Any]] = [{"uri": uri, "classes": direct} for _, uri, direct in rows[: query.limit]]
    more = str(rows[query.limit - 1][0]) if len(rows) > query.limit else None
    return jsonify({"items": items, "next": more})
