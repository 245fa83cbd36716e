"""/lmrs: local metadata repositories and their subscriptions."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from flask import Response, make_response

from mdv.db import lmrs as db
from mdv.db.lmrs import Lmr, LmrCounts
from mdv.errors import BadRequest
from mdv.mdp.subscribe import Subscription, create_lmr, get_subscription
from web.auth import Caller, lmr_named, reader, whole_admin
from web.bodies import json_body, json_request
from web.calls import Calls
from web.models import (
    Accepted,
    Drafts,
    LmrChange,
    LmrCreated,
    LmrDraft,
    LmrShown,
    LmrToken,
    NewRule,
    Page,
    SubscriptionShown,
)
from web.numbers import after_number, subscription_number
from web.openapi import json_answer, page, problems
from web.queue import carried_out, lmr_uri
from web.services import services

calls = Calls("lmrs", "Local metadata repositories: who they are, and what they want")

_RULE = {"rule": "search CycleProvider c register c where c.serverInformation.memory > 64", "name": "large"}
_PAGE = json_answer(page({"type": "object"}), "A page")
_ONE_OR_MANY = {
    "required": True,
    "content": {"application/json": {"schema": Drafts.model_json_schema(), "example": _RULE}},
}


@calls.call("POST", "/lmrs", "Create an LMR", {201: LmrCreated} | problems(408, 409, 413, 415),
            body=json_request(LmrDraft, {"name": "library"}))  # fmt: skip
def create() -> tuple[dict[str, Any], int]:
    """The answer holds its token, which is shown this once: it opens the LMR's own paths, and reading of schema and
    resources."""
    whole_admin()
    draft = json_body(LmrDraft)
    with services().engine.begin() as connection:
        lmr, token = create_lmr(connection, draft.name)
    return {"id": lmr.id, "name": lmr.name, "token": token}, 201


@calls.call("GET", "/lmrs", "A page of LMRs", {200: _PAGE} | problems(), query=Page)
def list_(query: Page) -> dict[str, Any]:
    reader()
    with services().engine.connect() as connection:
        found = db.list_lmrs(connection, after_number(query.after), query.limit + 1)
        counts = db.count_for(connection, found[: query.limit])
    items = [_shown(lmr, counts[lmr.id]) for lmr in found[: query.limit]]
    return {"items": items, "next": str(items[-1]["id"]) if len(found) > query.limit else None}


@calls.call("GET", "/lmrs/<lmr>", "One LMR", {200: LmrShown} | problems(404))
def get(lmr: str) -> dict[str, Any]:
    """What it subscribes and holds, and how far it has read its feed."""
    found = lmr_named(lmr, reads=True)
    with services().engine.connect() as connection:
        return _shown(found, db.count_for(connection, [found])[found.id])


@calls.call("DELETE", "/lmrs/<lmr>", "End an LMR", {200: LmrChange, 202: Accepted} | problems(404, 429))
def delete(lmr: str) -> Response:
    """With its subscriptions, its feed and its token."""
    whole_admin()
    found = lmr_named(lmr)
    status = change_rules("forget", found, {})
    return status if isinstance(status, Response) else make_response({"id": found.id, "name": found.name, **status})


@calls.call("POST", "/lmrs/<lmr>/token", "Give an LMR another token", {201: LmrToken} | problems(404))
def renew_token(lmr: str) -> tuple[dict[str, Any], int]:
    """Those that it had are revoked."""
    whole_admin()
    found = lmr_named(lmr)
    return {"id": found.id, "name": found.name, "token": another_token(found)}, 201


def another_token(lmr: Lmr) -> str:
    """A new token of an LMR, whose others are revoked."""
    with services().engine.begin() as connection:
        db.revoke_lmr_tokens(connection, lmr)
        return db.create_lmr_token(connection, lmr)


@calls.call("POST", "/lmrs/<lmr>/pause", "Pause an LMR", {200: LmrShown} | problems(404))
def pause(lmr: str) -> dict[str, Any]:
    """Its feed tells it of nothing new until it is resumed. It answers from its cache meanwhile; what it is not told is
    kept as long as for any LMR."""
    return _hold(lmr, True)


@calls.call("POST", "/lmrs/<lmr>/resume", "Resume an LMR", {200: LmrShown} | problems(404))
def resume(lmr: str) -> dict[str, Any]:
    """It is told of what was held back."""
    return _hold(lmr, False)


@calls.call("POST", "/lmrs/<lmr>/refetch", "Let an LMR fetch everything anew", {200: LmrShown} | problems(404))
def refetch(lmr: str) -> dict[str, Any]:
    """At its next call it is told to take a snapshot. It answers from its cache until it has that."""
    whole_admin()
    found = lmr_named(lmr)
    services().feeds.let_refetch(found)
    with services().engine.connect() as connection:
        return _shown(found, db.count_for(connection, [found])[found.id])


def _hold(name: str, paused: bool) -> dict[str, Any]:
    whole_admin()
    found = lmr_named(name)
    with services().engine.begin() as connection:
        held = db.hold(connection, found, paused)
        return _shown(held, db.count_for(connection, [held])[held.id])


# Subscriptions


@calls.call("POST", "/lmrs/<lmr>/subscriptions", "Subscribe",
            {201: SubscriptionShown, 202: Accepted} | problems(404, 408, 409, 413, 415, 422, 429),
            body=_ONE_OR_MANY)  # fmt: skip
def add(lmr: str) -> Response:
    """One rule, or a list of them in one transaction, all or none: then the answer is a list of `items`. Present
    matches are in the feed when it answers."""
    found = lmr_named(lmr)
    drafts = json_body(Drafts, services().config.max_document_bytes).root
    many = isinstance(drafts, list)
    wanted = [(draft.name, draft.rule) for draft in (drafts if isinstance(drafts, list) else [drafts])]
    if not wanted:
        raise BadRequest("The list holds no rule.")
    status = change_rules("subscribe", found, {"drafts": wanted})
    if isinstance(status, Response):
        return status
    items = [
        {"id": number, "name": name, "rule": rule, "position": status["position"]}
        for number, (name, rule) in zip(status["ids"], wanted, strict=True)
    ]
    return make_response({"items": items, "position": status["position"]} if many else items[0], 201)


@calls.call("GET", "/lmrs/<lmr>/subscriptions", "A page of subscriptions", {200: _PAGE} | problems(404), query=Page)
def subscriptions(query: Page, lmr: str) -> dict[str, Any]:
    found = lmr_named(lmr, reads=True)
    with services().engine.connect() as connection:
        rows = db.rules_of(connection, found.id, after_number(query.after), query.limit + 1)
    items = [_subscription(Subscription(*row)) for row in rows[: query.limit]]
    return {"items": items, "next": str(items[-1]["id"]) if len(rows) > query.limit else None}


@calls.call("GET", "/lmrs/<lmr>/subscriptions/<number>", "One subscription",
            {200: SubscriptionShown} | problems(404))  # fmt: skip
def subscription(lmr: str, number: str) -> dict[str, Any]:
    found = lmr_named(lmr, reads=True)
    with services().engine.connect() as connection:
        return _subscription(get_subscription(connection, found, subscription_number(number)))


@calls.call("PUT", "/lmrs/<lmr>/subscriptions/<number>", "Change a subscription",
            {200: SubscriptionShown, 202: Accepted} | problems(404, 408, 409, 413, 415, 422, 429),
            body=json_request(NewRule, {"rule": _RULE["rule"]}))  # fmt: skip
def change(lmr: str, number: str) -> Response:
    """Only the difference is sent."""
    found = lmr_named(lmr)
    rule = json_body(NewRule).rule
    status = change_rules("change", found, {"id": subscription_number(number), "rule": rule})
    return status if isinstance(status, Response) else make_response({**status, "rule": rule})


@calls.call("DELETE", "/lmrs/<lmr>/subscriptions/<number>", "End a subscription",
            {200: LmrChange, 202: Accepted} | problems(404, 409, 429))  # fmt: skip
def end(lmr: str, number: str) -> Response:
    """Refused while another subscription of the LMR searches it."""
    found = lmr_named(lmr)
    status = change_rules("unsubscribe", found, {"ids": [subscription_number(number)]})
    return status if isinstance(status, Response) else make_response({"id": subscription_number(number), **status})


def change_rules(kind: str, lmr: Lmr, asked: dict[str, Any]) -> dict[str, Any] | Response:
    """What a change of an LMR's rules did, once a worker has carried it out; an answer where that takes too long."""
    uri = lmr_uri(lmr.id)
    caller = Caller(uri, "lmr", lmr=lmr.id)
    body = json.dumps(asked).encode()
    return carried_out(kind, uri, caller, {"lmr": lmr.id}, body, "application/json")


def _shown(lmr: Lmr, counts: LmrCounts) -> dict[str, Any]:
    return {
        "id": lmr.id,
        "name": lmr.name,
        "created_at": lmr.created_at.isoformat(),
        "asked_at": lmr.asked_at.isoformat() if lmr.asked_at else None,
        "paused": lmr.paused,
        **asdict(counts),
    }


def _subscription(found: Subscription) -> dict[str, Any]:
    return asdict(found)
