"""The calls of an LMR (contract, section 7)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flask import Response, jsonify, request

from mdv.db import cache_read as db
from mdv.errors import BadRequest, NotFound
from mdv.lmr.answer import run_query
from mdv.lmr.collect import check as check_cache
from mdv.lmr.local import delete_local, get_local, list_local, put_local
from mdv.mdp.schemas import classes_named
from mdv.rdf.parse import check_document_uri, is_absolute_iri
from mdv.rdf.syntax import MEDIA_TYPES, TURTLE
from mdv.rules.ast import ParsedQuery
from mdv.rules.parse import parse_query
from web.answers import CSV, query_response, resource_response
from web.api.query import ANSWER, EXAMPLE
from web.api.resources import ONE_OR_PAGE
from web.bodies import JSON, json_body, json_request
from web.calls import Calls
from web.lmr.acts import add_subscription, change_subscription, compare_with_mdp, end_subscription
from web.lmr.services import answering, asking_mdp, begun, lmr, reader, user
from web.models import (
    DocumentQuery,
    LmrChange,
    LmrStatus,
    LocalDocument,
    LocalUri,
    NewRule,
    Page,
    QueryQuestion,
    ResourceQuery,
    StatusQuery,
    SubscriptionDraft,
    SubscriptionShown,
    Verification,
)
from web.negotiate import rdf_response, read_body, wanted_syntax, wanted_type, written
from web.numbers import after_number
from web.openapi import json_answer, page, problems, rdf, rdf_body, record

RULE = {"rule": "search CycleProvider c register c where c.serverInformation.memory > 64"}

_PAGE = json_answer(page({"type": "object"}), "A page")

status_calls = Calls("status", "How far the cache is")
subscription_calls = Calls("subscriptions", "What this LMR wants")
resource_calls = Calls("resources", "What is in the cache")
query_calls = Calls("query", "Answers from the cache and from local metadata")
local_calls = Calls("local", "Local metadata: in every query, in no message to the MDP")
NOUNS = [status_calls, subscription_calls, resource_calls, query_calls, local_calls]


@status_calls.call("GET", "/status", "How far the cache is", {200: LmrStatus} | problems(), query=StatusQuery)
def status(query: StatusQuery) -> dict[str, Any]:
    """With `after`, answers once that position is applied, or after `wait` seconds: so one reads one's own writes. If
    very many wait already, it answers at once; `position` and `up_to_date` tell whether it is applied."""
    reader()
    s = lmr()
    if query.after is not None:
        longest = s.config.max_wait_seconds
        s.wait_for(query.after, longest if query.wait is None else min(query.wait, longest))
    now = s.sync.status
    with s.cache.reading() as connection:
        counts = db.count_cache(connection)
    return {
        "mdp": s.mdp.url,
        "cursor": now.cursor,
        "position": now.position,
        "up_to_date": now.up_to_date and (query.after is None or now.position >= query.after),
        **asdict(counts),
        "taking_snapshot": now.taking_snapshot,
        "last_contact": now.last_contact.isoformat() if now.last_contact else None,
        "last_error": now.last_error,
        "last_verified": now.last_verified.isoformat() if now.last_verified else None,
        "mended": now.mended,
    }


@status_calls.call("POST", "/verify", "Compare with the MDP's checksum", {200: Verification} | problems(503))
def verify() -> dict[str, Any]:
    """The buckets that differ are fetched again, and only they."""
    user()
    found = compare_with_mdp()
    return {"position": found.position, "mended": list(found.mended)}


@status_calls.call("POST", "/check", "Check the cache against a full mark",
                   {200: json_answer(record(problems="array"), "What is wrong; nothing should be")}
                   | problems())  # fmt: skip
def check() -> dict[str, Any]:
    """Whether exactly the closure is here: what is selected, what that strongly references, and nothing else."""
    user()
    return {"problems": check_cache(lmr().cache)}


# Subscriptions


@subscription_calls.call("POST", "/subscriptions", "Subscribe",
                         {201: SubscriptionShown} | problems(408, 409, 413, 415, 422),
                         body=json_request(SubscriptionDraft, RULE))  # fmt: skip
def subscribe() -> tuple[dict[str, Any], int]:
    """Subscribes at the MDP, and answers when the first matches are here."""
    user()
    draft = json_body(SubscriptionDraft)
    return add_subscription(draft.rule, draft.name), 201


@subscription_calls.call("GET", "/subscriptions", "A page of subscriptions", {200: _PAGE} | problems(503), query=Page)
def subscriptions(query: Page) -> dict[str, Any]:
    reader()
    with asking_mdp():
        return lmr().mdp.subscriptions(query.after, query.limit)


@subscription_calls.call("PUT", "/subscriptions/<number>", "Change a subscription",
                         {200: SubscriptionShown} | problems(404, 408, 409, 413, 415, 422),
                         body=json_request(NewRule, RULE))  # fmt: skip
def change(number: str) -> dict[str, Any]:
    """Only the difference is sent. Answers when it is here."""
    user()
    return change_subscription(number, json_body(NewRule).rule)


@subscription_calls.call("DELETE", "/subscriptions/<number>", "End a subscription",
                         {200: LmrChange} | problems(404, 409, 503))  # fmt: skip
def unsubscribe(number: str) -> dict[str, Any]:
    """Answers when what only it held is gone."""
    user()
    return end_subscription(number)


# What is in the cache


@resource_calls.call(
    "GET",
    "/resources",
    "One resource, or a page of them",
    {200: rdf("The resource (`uri`), or a page of resources", ONE_OR_PAGE)} | problems(404, 406, 503),
    query=ResourceQuery,
)
def resources(query: ResourceQuery) -> Response:
    """With `uri`, what the MDP and local metadata say of it; with `class`, its instances; with neither, all."""
    reader()
    if query.uri is not None and query.class_ is not None:
        raise BadRequest("Ask for one resource with uri=, or for the instances of a class with class=, not for both.")
    cache = begun().cache
    if query.uri is not None:
        media_type = wanted_type([JSON, *MEDIA_TYPES])
        if not is_absolute_iri(query.uri):
            raise BadRequest(f"{query.uri!r} is not an absolute URI.")
        with cache.reading() as connection:
            said = db.resource_statements(connection, query.uri)
            prefixes = cache.schema(connection).schema.prefixes
        if not said:
            raise NotFound(f"{query.uri} is not in this cache: `mdv explain` tells why.")
        return resource_response(query.uri, said, media_type, prefixes)
    wanted_type([JSON])
    after = after_number(query.after)
    with cache.reading() as connection:
        schema = cache.schema(connection).schema
        classes = None if query.class_ is None else classes_named(query.class_, schema)
        rows = db.list_resources(connection, classes, after, query.limit + 1)
    items: list[dict[str, Any]] = [{"uri": uri, "classes": direct} for _, uri, direct in rows[: query.limit]]
    return jsonify({"items": items, "next": str(rows[query.limit - 1][0]) if len(rows) > query.limit else None})


@query_calls.call("POST", "/query", "Ask a query", {200: ANSWER} | problems(406, 408, 413, 415, 422, 503),
                  body=json_request(QueryQuestion, EXAMPLE), reads=True)  # fmt: skip
def query() -> Response:
    """The same language and the same answers as at the MDP, from the cache and local metadata together."""
    reader()
    question = json_body(QueryQuestion)
    parsed = parse_query(question.query)
    media_type = wanted_type([JSON, CSV] if isinstance(parsed, ParsedQuery) else [JSON, CSV, *MEDIA_TYPES])
    if question.after is not None and not is_absolute_iri(question.after):
        raise BadRequest("`after` takes the `next` of the page before.")
    cache = begun().cache
    with cache.reading() as connection:
        schema = cache.schema(connection).schema
        with answering():
            answer = run_query(connection, schema, parsed, limit=question.limit, after=question.after,
                               with_statements=media_type in MEDIA_TYPES)  # fmt: skip
    return query_response(answer, media_type, schema.prefixes)


# Local metadata


@local_calls.call("PUT", "/local/documents", "Register a local document",
                  {200: LocalDocument, 201: LocalDocument} | problems(408, 413, 415, 422, 503), query=LocalUri,
                  body=rdf_body({}))  # fmt: skip
def put(query: LocalUri) -> tuple[dict[str, Any], int]:
    """In every query here; never sent anywhere. It keeps to the MDP's schema."""
    user()
    uri = check_document_uri(query.uri)
    s = begun()
    body = read_body(s.config.body_seconds)
    done = put_local(s.cache, uri, body, request.headers.get("Content-Type"), s.config.max_document_bytes)
    answer = {"document": done.uri, "created": done.created, "changed": done.changed, "statements": done.statements}
    return answer, 201 if done.created else 200


@local_calls.call("GET", "/local/documents", "A local document as RDF, or a page of all",
                  {200: rdf("The document (`uri`), or a page", page(record(uri="string")))} | problems(404, 406),
                  query=DocumentQuery)  # fmt: skip
def get(query: DocumentQuery) -> Response:
    reader()
    cache = lmr().cache
    if query.uri is not None:
        document = get_local(cache, check_document_uri(query.uri))
        syntax = wanted_syntax(TURTLE)
        return rdf_response(written(list(document.statements), syntax, document.prefixes, document.uri), syntax)
    wanted_type([JSON])
    found = list_local(cache, query.after or "", query.limit + 1)
    more = found[query.limit - 1] if len(found) > query.limit else None
    return jsonify({"items": [{"uri": uri} for uri in found[: query.limit]], "next": more})


@local_calls.call("DELETE", "/local/documents", "Delete a local document", {200: LocalDocument} | problems(404),
                  query=LocalUri)  # fmt: skip
def delete(query: LocalUri) -> dict[str, Any]:
    user()
    uri = check_document_uri(query.uri)
    delete_local(lmr().cache, uri)
    return {"document": uri, "created": False, "changed": True, "statements": 0}
