"""The API of an LMR (contract, section 7)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flask import Response, jsonify, request

from mdv.backbone.etag import parse_token
from mdv.errors import BadRequest
from mdv.inspect.sql.cache import count_cache, list_resources, read_suspended_rules
from mdv.lmr.garbage_collector import find_problems as check_cache
from mdv.lmr.local_documents import delete_local, get_local, list_local, put_local
from mdv.lmr.query import run_query
from mdv.rdf.classes import resolve_classes
from mdv.rdf.parse import check_document_uri, check_registration_uri, is_absolute_iri
from mdv.rdf.syntax import MEDIA_TYPES, TURTLE
from mdv.rules.ast import ParsedQuery
from mdv.rules.parse import parse_query
from web.json_bodies import JSON, describe_json_body, read_json_body
from web.lmr.actions import (
    add_subscription,
    change_subscription,
    compare_with_mdp,
    end_subscription,
    resume_subscription,
)
from web.lmr.resource import cached_resource
from web.lmr.search import run_cache_search
from web.lmr.services import (
    LmrServices,
    lmr,
    local_write_slot,
    mdp_request_slot,
    query_slot,
    require_reader,
    require_snapshot,
    require_user,
)
from web.models import (
    DocumentQuery,
    ListQuery,
    LmrChange,
    LmrStatus,
    LocalDocumentResult,
    LocalUri,
    NewRule,
    NewSubscription,
    QueryRequest,
    ResourceQuery,
    SearchAnswer,
    SearchQuery,
    StatusQuery,
    SubscriptionShown,
    Verification,
)
from web.negotiate import negotiate_syntax, negotiate_type, read_body
from web.number_params import read_after
from web.openapi import (
    EXAMPLE_QUERY,
    QUERY_ANSWER,
    RESOURCE_OR_PAGE,
    SUBSCRIPTIONS,
    describe_json,
    describe_problems,
    describe_rdf,
    describe_rdf_body,
    object_schema,
    page_schema,
)
from web.responses import CSV, query_response
from web.routing import RouteGroup
from web.search_view import SearchParameters, search_answer
from web.streams import statements_response

RULE = {"rule": "search CycleProvider c register c where c.serverInformation.memory > 64"}

MAX_SUSPENDED_SHOWN = 100
"""Maximum number of suspended rules in the status."""

status_routes = RouteGroup("status", "State of the cache")
subscription_routes = RouteGroup("subscriptions", "Subscriptions of this LMR")
resource_routes = RouteGroup("resources", "Resources in the cache")
search_routes = RouteGroup("search", "Search by words")
query_routes = RouteGroup("query", "Queries on the cache and local metadata")
local_routes = RouteGroup("local", "Local metadata: included in queries, never sent to the MDP")
ROUTE_GROUPS = [status_routes, subscription_routes, resource_routes, search_routes, query_routes, local_routes]


@status_routes.route(
    "GET", "/status", "Get the state of the cache", {200: LmrStatus} | describe_problems(), query=StatusQuery
)
def status(query: StatusQuery) -> dict[str, Any]:
    """With `after`, answers when that position is applied, at the latest after `wait` seconds. Use it to read your own
    writes. If too many requests are already waiting, it answers immediately; check `reached`. `after` may also be the
    `token` of a change at any MDP of a backbone."""
    require_reader()
    s = lmr()
    reached = _wait_for_change(s, query)
    now, home = s.sync.status, s.cache.home()
    with s.cache.reading() as connection:
        counts = count_cache(connection)
        suspended = read_suspended_rules(connection, MAX_SUSPENDED_SHOWN)
    return {
        "mdp": s.mdp.url,
        "cursor": now.cursor,
        "position": now.position,
        "up_to_date": now.up_to_date and reached is not False,
        **asdict(counts),
        "taking_snapshot": now.taking_snapshot,
        "last_contact": now.last_contact.isoformat() if now.last_contact else None,
        "last_error": now.last_error,
        "last_verified": now.last_verified.isoformat() if now.last_verified else None,
        "mended": now.mended,
        "suspended": [asdict(rule) for rule in suspended.first],
        "suspended_count": suspended.count,
        "mdps": s.homes.urls,
        "vector": dict(home.vector),
        "term": home.term,
        "adoptions": list(home.adoptions),
    } | ({} if reached is None else {"reached": reached})


def _wait_for_change(s: LmrServices, query: StatusQuery) -> bool | None:
    """Wait for the position or the token that a request names. Return whether it is applied; None if it names none."""
    if query.after is None:
        return None
    longest = s.config.max_wait_seconds
    seconds = longest if query.wait is None else min(query.wait, longest)
    if not query.after.isascii() or not query.after.isdecimal():
        return s.wait_for_token(parse_token(query.after), seconds)
    position = int(query.after[:19])
    s.wait_for(position, seconds)
    return s.sync.status.position >= position


@status_routes.route("POST", "/verify", "Compare checksums with the MDP", {200: Verification} | describe_problems(503))
def verify() -> dict[str, Any]:
    """Fetches only the differing buckets again."""
    require_user()
    found = compare_with_mdp()
    return {"position": found.position, "mended": list(found.mended)}


@status_routes.route("POST", "/check", "Check the consistency of the cache",
                   {200: describe_json(object_schema(problems="array"), "The inconsistencies; normally none")}
                   | describe_problems(503))  # fmt: skip
def check() -> dict[str, Any]:
    """Checks that the cache holds exactly the closure: the selected resources and the targets of strong references."""
    require_user()
    with query_slot():
        return {"problems": check_cache(lmr().cache)}


# Subscriptions


@subscription_routes.route("POST", "/subscriptions", "Subscribe",
                         {201: SubscriptionShown} | describe_problems(408, 409, 413, 415, 422),
                         body=describe_json_body(NewSubscription, RULE))  # fmt: skip
def subscribe() -> tuple[dict[str, Any], int]:
    """Subscribes at the MDP and answers when the first matches are in the cache."""
    require_user()
    draft = read_json_body(NewSubscription)
    return add_subscription(draft.rule, draft.name), 201


@subscription_routes.route("GET", "/subscriptions", "List subscriptions", {200: SUBSCRIPTIONS} | describe_problems(503),
                         query=ListQuery)  # fmt: skip
def subscriptions(query: ListQuery) -> dict[str, Any]:
    require_reader()
    with mdp_request_slot():
        return lmr().mdp.subscriptions(query.after, query.limit)


@subscription_routes.route("PUT", "/subscriptions/<number>", "Change a subscription",
                         {200: SubscriptionShown} | describe_problems(404, 408, 409, 413, 415, 422),
                         body=describe_json_body(NewRule, RULE))  # fmt: skip
def change(number: str) -> dict[str, Any]:
    """Replaces the rule. Only the difference is transferred. Answers when it is in the cache."""
    require_user()
    return change_subscription(number, read_json_body(NewRule).rule)


@subscription_routes.route("POST", "/subscriptions/<number>/resume", "Resume a suspended subscription",
                         {200: SubscriptionShown} | describe_problems(404, 409, 422, 503))  # fmt: skip
def resume(number: str) -> dict[str, Any]:
    """The MDP evaluates the rule again. Answers when the difference is in the cache. An active subscription does not
    change."""
    require_user()
    return resume_subscription(number)


@subscription_routes.route("DELETE", "/subscriptions/<number>", "Remove a subscription",
                         {200: LmrChange} | describe_problems(404, 409, 503))  # fmt: skip
def unsubscribe(number: str) -> dict[str, Any]:
    """Answers when the resources that only this subscription selected have left the cache."""
    require_user()
    return end_subscription(number)


# Resources and queries


@resource_routes.route(
    "GET",
    "/resources",
    "Get a resource, or list resources",
    {200: describe_rdf("The resource (`uri`) or a page of resources", RESOURCE_OR_PAGE)}
    | describe_problems(404, 406, 503),
    query=ResourceQuery,
)
def resources(query: ResourceQuery) -> Response:
    """With `uri`, returns the statements of the MDP and of local metadata about the resource. With `class`, lists its
    instances. With neither, lists all resources."""
    require_reader()
    if query.uri is not None and query.class_ is not None:
        raise BadRequest(
            "`uri` and `class` cannot be combined. Use `uri` for one resource or `class` for the instances of a class."
        )
    cache = require_snapshot().cache
    if query.uri is not None:
        media_type = negotiate_type([JSON, *MEDIA_TYPES])
        if not is_absolute_iri(query.uri):
            raise BadRequest(f"{query.uri!r} is not an absolute URI.")
        return cached_resource(cache, query.uri, media_type)
    negotiate_type([JSON])
    after = read_after(query.after)
    with cache.reading() as connection:
        schema = cache.schema(connection).schema
        classes = None if query.class_ is None else resolve_classes(query.class_, schema)
        rows = list_resources(connection, classes, after, query.limit + 1)
    items: list[dict[str, Any]] = [{"uri": uri, "classes": direct} for _, uri, direct in rows[: query.limit]]
    return jsonify({"items": items, "next": str(rows[query.limit - 1][0]) if len(rows) > query.limit else None})


@search_routes.route(
    "GET", "/search", "Search resources", {200: SearchAnswer} | describe_problems(404, 422, 503), query=SearchQuery
)
def search(query: SearchQuery) -> dict[str, Any]:
    """Same query and results as at the MDP, on the cache and local metadata together."""
    require_reader()
    return search_answer(run_cache_search(SearchParameters(query.q, query.class_, query.after, query.limit)))


@query_routes.route("POST", "/query", "Run a query",
                  {200: QUERY_ANSWER} | describe_problems(406, 408, 413, 415, 422, 503),
                  body=describe_json_body(QueryRequest, EXAMPLE_QUERY), reads=True)  # fmt: skip
def query() -> Response:
    """Same language and results as at the MDP, on the cache and local metadata together."""
    require_reader()
    question = read_json_body(QueryRequest)
    parsed = parse_query(question.query)
    media_type = negotiate_type([JSON, CSV] if isinstance(parsed, ParsedQuery) else [JSON, CSV, *MEDIA_TYPES])
    if question.after is not None and not is_absolute_iri(question.after):
        raise BadRequest("`after` must be the `next` of the previous page.")
    cache = require_snapshot().cache
    with cache.reading() as connection:
        schema = cache.schema(connection).schema
        with query_slot():
            answer = run_query(connection, schema, parsed, limit=question.limit, after=question.after,
                               with_statements=media_type in MEDIA_TYPES)  # fmt: skip
    return query_response(answer, media_type, schema.prefixes)


# Local metadata


@local_routes.route("PUT", "/local/documents", "Register a local document",
                  {200: LocalDocumentResult, 201: LocalDocumentResult} | describe_problems(408, 413, 415, 422, 503),
                  query=LocalUri, body=describe_rdf_body({}))  # fmt: skip
def put(query: LocalUri) -> tuple[dict[str, Any], int]:
    """The document is included in queries at this LMR and never sent to the MDP. It must conform to the schema of the
    MDP."""
    require_user()
    uri = check_registration_uri(query.uri)
    s = require_snapshot()
    body = read_body(s.config.body_seconds)
    with local_write_slot():
        done = put_local(s.cache, uri, body, request.headers.get("Content-Type"), s.config.max_document_bytes)
    answer = {"document": done.uri, "created": done.created, "changed": done.changed, "statements": done.statements}
    return answer, 201 if done.created else 200


@local_routes.route("GET", "/local/documents", "Get a local document as RDF, or list local documents",
                  {200: describe_rdf("The document (`uri`) or a page of documents",
                                     page_schema(object_schema(uri="string")))} | describe_problems(404, 406),
                  query=DocumentQuery)  # fmt: skip
def get(query: DocumentQuery) -> Response:
    require_reader()
    cache = lmr().cache
    if query.uri is not None:
        document = get_local(cache, check_document_uri(query.uri))
        syntax = negotiate_syntax(TURTLE)
        statements = list(document.statements)
        return statements_response(statements, syntax, document.prefixes, document.uri)
    negotiate_type([JSON])
    found = list_local(cache, query.after or "", query.limit + 1)
    more = found[query.limit - 1] if len(found) > query.limit else None
    return jsonify({"items": [{"uri": uri} for uri in found[: query.limit]], "next": more})


@local_routes.route("DELETE", "/local/documents", "Delete a local document",
                  {200: LocalDocumentResult} | describe_problems(404, 503), query=LocalUri)  # fmt: skip
def delete(query: LocalUri) -> dict[str, Any]:
    require_user()
    uri = check_document_uri(query.uri)
    with local_write_slot():
        delete_local(lmr().cache, uri)
    return {"document": uri, "created": False, "changed": True, "statements": 0}
