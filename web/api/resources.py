"""/resources: resources, each the union of the statements of all documents."""

from __future__ import annotations

from typing import Any

from flask import Response, jsonify

from mdv.errors import BadRequest
from mdv.inspect.sql.resources import list_resources
from mdv.rdf.classes import resolve_classes
from mdv.rdf.parse import is_absolute_iri
from mdv.rdf.syntax import MEDIA_TYPES
from web.auth import require_reader_or_lmr
from web.models import ResourceQuery
from web.negotiate import negotiate_type
from web.number_params import read_after
from web.openapi import RESOURCE_OR_PAGE, describe_problems, describe_rdf
from web.routing import RouteGroup
from web.services import services
from web.use_cases.resources import one_resource

routes = RouteGroup("resources", "Resources: the union of the statements of all documents")


@routes.route(
    "GET",
    "/resources",
    "Get a resource, or list resources",
    {200: describe_rdf("The resource (`uri`) or a page of resources", RESOURCE_OR_PAGE)} | describe_problems(404, 406),
    query=ResourceQuery,
)
def get(query: ResourceQuery) -> Response:
    """With `uri`, returns the statements of all documents about the resource. With `class`, lists its instances. With
    neither, lists all resources."""
    require_reader_or_lmr()
    if query.uri is not None and query.class_ is not None:
        raise BadRequest(
            "`uri` and `class` cannot be combined. Use `uri` for one resource or `class` for the instances of a class."
        )
    if query.uri is not None:
        return _one(query.uri)
    return _page(query)


def _one(uri: str) -> Response:
    media_type = negotiate_type(["application/json", *MEDIA_TYPES])
    if not is_absolute_iri(uri):
        raise BadRequest(f"{uri!r} is not an absolute URI.")
    return one_resource(uri, media_type, with_documents=True)


def _page(query: ResourceQuery) -> Response:
    negotiate_type(["application/json"])
    after = read_after(query.after)
    with services().engine.connect() as connection:
        schema = services().schemas.now(connection).schema
        classes = None if query.class_ is None else resolve_classes(query.class_, schema)
        rows = list_resources(connection, classes, after, query.limit + 1)
    items: list[dict[str, Any]] = [{"uri": uri, "classes": direct} for _, uri, direct in rows[: query.limit]]
    more = str(rows[query.limit - 1][0]) if len(rows) > query.limit else None
    return jsonify({"items": items, "next": more})
