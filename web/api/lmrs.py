"""/lmrs: local metadata repositories and their subscriptions."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flask import Response, make_response

from mdv.errors import BadRequest
from mdv.inspect.sql.lmrs import LmrCounts, count_per_lmr
from mdv.mdp.lmrs import Lmr, create_lmr, list_lmrs, replace_token, set_paused
from mdv.mdp.subscribe import Subscription, get_subscription, list_subscriptions
from web.auth import current_caller, require_lmr_access, require_reader, require_unlimited_admin
from web.job_queue import FinishedJob, PendingJob, accepted_response
from web.json_bodies import describe_json_body, read_json_body, read_json_items
from web.models import (
    Accepted,
    Adoption,
    AdoptionRequest,
    ListQuery,
    LmrChange,
    LmrCreated,
    LmrShown,
    LmrToken,
    NewLmr,
    NewRule,
    NewSubscription,
    NewSubscriptions,
    SubscriptionShown,
)
from web.number_params import read_after, read_subscription_id
from web.openapi import SUBSCRIPTIONS, describe_json, describe_problems, page_schema
from web.routing import RouteGroup
from web.services import services
from web.streams import list_response
from web.use_cases.lmrs import adopt_lmr, change_rules

routes = RouteGroup("lmrs", "Local metadata repositories and their subscriptions")

_RULE = {"rule": "search CycleProvider c register c where c.serverInformation.memory > 64", "name": "large"}
_PAGE = describe_json(page_schema({"type": "object"}), "A page")
_ONE_OR_MANY = {
    "required": True,
    "content": {"application/json": {"schema": NewSubscriptions.model_json_schema(), "example": _RULE}},
}


@routes.route("POST", "/lmrs", "Create an LMR", {201: LmrCreated} | describe_problems(408, 409, 413, 415),
            body=describe_json_body(NewLmr, {"name": "library"}))  # fmt: skip
def create() -> tuple[dict[str, Any], int]:
    """The response contains the token of the LMR, which is shown only once. It allows access to the LMR's own paths,
    and read access to schema and resources."""
    caller = require_unlimited_admin()
    draft = read_json_body(NewLmr)
    with services().engine.begin() as connection:
        lmr, token = create_lmr(connection, draft.name, caller.by)
    return {"id": lmr.id, "name": lmr.name, "token": token}, 201


@routes.route("GET", "/lmrs", "List LMRs", {200: _PAGE} | describe_problems(), query=ListQuery)
def list_(query: ListQuery) -> dict[str, Any]:
    require_reader()
    with services().engine.connect() as connection:
        found = list_lmrs(connection, read_after(query.after), query.limit + 1)
        counts = count_per_lmr(connection, found[: query.limit])
    items = [_lmr_as_dict(lmr, counts[lmr.id]) for lmr in found[: query.limit]]
    return {"items": items, "next": str(items[-1]["id"]) if len(found) > query.limit else None}


@routes.route("GET", "/lmrs/<lmr>", "Get an LMR", {200: LmrShown} | describe_problems(404))
def get(lmr: str) -> dict[str, Any]:
    """Returns the numbers of its subscriptions, resources and events, and its read progress."""
    found = require_lmr_access(lmr, reads=True, anywhere=True)
    with services().engine.connect() as connection:
        return _lmr_as_dict(found, count_per_lmr(connection, [found])[found.id])


@routes.route("DELETE", "/lmrs/<lmr>", "Remove an LMR", {200: LmrChange, 202: Accepted} | describe_problems(404, 429))
def delete(lmr: str) -> Response:
    """Also removes its subscriptions, feed, webhooks and tokens, at all members of the backbone."""
    require_unlimited_admin()
    found = require_lmr_access(lmr, anywhere=True)
    return _answer(change_rules("forget", found, {}, current_caller().by), id=found.id, name=found.name)


@routes.route("POST", "/lmrs/<lmr>/token", "Create a new token for an LMR", {201: LmrToken} | describe_problems(404))
def renew_token(lmr: str) -> tuple[dict[str, Any], int]:
    """The previous tokens are revoked."""
    require_unlimited_admin()
    found = require_lmr_access(lmr)
    with services().engine.begin() as connection:
        token = replace_token(connection, found)
    return {"id": found.id, "name": found.name, "token": token}, 201


@routes.route("POST", "/lmrs/<lmr>/pause", "Pause an LMR", {200: LmrShown} | describe_problems(404))
def pause(lmr: str) -> dict[str, Any]:
    """The LMR receives no new events until it is resumed. It still answers from its cache. Its events are kept for the
    usual retention time."""
    return _hold(lmr, True)


@routes.route("POST", "/lmrs/<lmr>/resume", "Resume an LMR", {200: LmrShown} | describe_problems(404))
def resume(lmr: str) -> dict[str, Any]:
    """The LMR receives the events since it was paused."""
    return _hold(lmr, False)


@routes.route(
    "POST", "/lmrs/<lmr>/refetch", "Force an LMR to take a new snapshot", {200: LmrShown} | describe_problems(404)
)
def refetch(lmr: str) -> dict[str, Any]:
    """The next feed request is answered 410, so that the LMR takes a snapshot. Until then it answers from its cache."""
    require_unlimited_admin()
    found = require_lmr_access(lmr)
    services().feeds.force_refetch(found)
    with services().engine.connect() as connection:
        return _lmr_as_dict(found, count_per_lmr(connection, [found])[found.id])


@routes.route("POST", "/lmrs/<lmr>/adopt", "Become the home of an LMR",
            {200: Adoption} | describe_problems(404, 408, 409, 413, 415, 422, 429, 503),
            body=describe_json_body(AdoptionRequest, {"term": 1, "vector": {}, "buckets": ["0"] * 256}))  # fmt: skip
def adopt(lmr: str) -> dict[str, Any]:
    """An LMR whose home does not answer calls this at another member of the backbone. From then on this MDP filters for
    it, and the other members do not. Only the buckets that differ are fetched: read the feed after `cursor`. 503
    `behind`: this MDP lacks changes that the LMR has."""
    found = require_lmr_access(lmr, anywhere=True)
    return adopt_lmr(found, read_json_body(AdoptionRequest), current_caller().by)


def _hold(name: str, paused: bool) -> dict[str, Any]:
    require_unlimited_admin()
    found = require_lmr_access(name)
    with services().engine.begin() as connection:
        held = set_paused(connection, found, paused)
        return _lmr_as_dict(held, count_per_lmr(connection, [held])[held.id])


# Subscriptions


@routes.route("POST", "/lmrs/<lmr>/subscriptions", "Subscribe",
            {201: SubscriptionShown, 202: Accepted} | describe_problems(404, 408, 409, 413, 415, 422, 429),
            body=_ONE_OR_MANY)  # fmt: skip
def add(lmr: str) -> Response:
    """Subscribes to one rule, or to a list of rules in one transaction (all or none). For a list, the response has
    `items`. The current matches are in the feed when the call returns."""
    found = require_lmr_access(lmr)
    drafts = read_json_items(NewSubscription, services().config.max_document_bytes)
    many = isinstance(drafts, list)
    rules = [(draft.name, draft.rule) for draft in (drafts if isinstance(drafts, list) else [drafts])]
    if not rules:
        raise BadRequest("The list of rules is empty. Send at least one rule.")
    done = change_rules("subscribe", found, {"drafts": rules}, current_caller().by)
    if isinstance(done, PendingJob):
        return accepted_response(done)
    position = done.result["position"]
    token = done.result.get("token")
    items = [
        Subscription(number, name, rule, position, current_caller().by, token=token).as_dict()
        for number, (name, rule) in zip(done.result["ids"], rules, strict=True)
    ]
    return list_response("items", items, {}, {"position": position}, 201) if many else make_response(items[0], 201)


@routes.route("GET", "/lmrs/<lmr>/subscriptions", "List subscriptions", {200: SUBSCRIPTIONS} | describe_problems(404),
            query=ListQuery)  # fmt: skip
def subscriptions(query: ListQuery, lmr: str) -> dict[str, Any]:
    found = require_lmr_access(lmr, reads=True)
    with services().engine.connect() as connection:
        rows = list_subscriptions(connection, found, read_after(query.after), query.limit + 1)
    items = [row.as_dict() for row in rows[: query.limit]]
    return {"items": items, "next": str(items[-1]["id"]) if len(rows) > query.limit else None}


@routes.route("GET", "/lmrs/<lmr>/subscriptions/<number>", "Get a subscription",
            {200: SubscriptionShown} | describe_problems(404))  # fmt: skip
def subscription(lmr: str, number: str) -> dict[str, Any]:
    found = require_lmr_access(lmr, reads=True)
    with services().engine.connect() as connection:
        return get_subscription(connection, found, read_subscription_id(number)).as_dict()


@routes.route("PUT", "/lmrs/<lmr>/subscriptions/<number>", "Change a subscription",
            {200: SubscriptionShown, 202: Accepted} | describe_problems(404, 408, 409, 413, 415, 422, 429),
            body=describe_json_body(NewRule, {"rule": _RULE["rule"]}))  # fmt: skip
def change(lmr: str, number: str) -> Response:
    """Replaces the rule. Only the difference is sent to the LMR."""
    found = require_lmr_access(lmr)
    rule = read_json_body(NewRule).rule
    return _answer(
        change_rules("change", found, {"id": read_subscription_id(number), "rule": rule}, current_caller().by)
    )


@routes.route("POST", "/lmrs/<lmr>/subscriptions/<number>/resume", "Resume a suspended subscription",
            {200: SubscriptionShown, 202: Accepted} | describe_problems(404, 409, 422, 429))  # fmt: skip
def resume_one(lmr: str, number: str) -> Response:
    """Evaluates the rule again and sends the difference to its matches when it was suspended. An active subscription
    does not change. 422 `too-costly`: the rule still exceeds the time limit and stays suspended."""
    found = require_lmr_access(lmr)
    return _answer(change_rules("resume", found, {"id": read_subscription_id(number)}, current_caller().by))


@routes.route("DELETE", "/lmrs/<lmr>/subscriptions/<number>", "Remove a subscription",
            {200: LmrChange, 202: Accepted} | describe_problems(404, 409, 429))  # fmt: skip
def end(lmr: str, number: str) -> Response:
    """Rejected while another rule of the LMR searches this one."""
    found = require_lmr_access(lmr)
    return _answer(
        change_rules("unsubscribe", found, {"ids": [read_subscription_id(number)]}, current_caller().by),
        id=read_subscription_id(number),
    )


def _answer(done: FinishedJob | PendingJob, **known: Any) -> Response:
    """Return the result of a change with values that are already known, or a 202 response if it takes too long."""
    return accepted_response(done) if isinstance(done, PendingJob) else make_response(known | done.result)


def _lmr_as_dict(lmr: Lmr, counts: LmrCounts) -> dict[str, Any]:
    return {
        "id": lmr.id,
        "name": lmr.name,
        "created_at": lmr.created_at.isoformat(),
        "asked_at": lmr.asked_at.isoformat() if lmr.asked_at else None,
        "paused": lmr.paused,
        "by": lmr.by,
        "home": lmr.home,
        "term": lmr.term,
        **asdict(counts),
    }
