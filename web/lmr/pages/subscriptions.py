"""Pages of subscriptions. They are read from the MDP with a short timeout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Response, request, url_for

from mdv.errors import BadRequest, MdvError, TooCostly, Unavailable
from mdv.rules.completion import example
from web.lmr.actions import add_subscription, change_subscription, end_subscription, resume_subscription
from web.lmr.pages.base import may_change, pages, redirect_to, render_page, require_editor, require_viewer
from web.lmr.services import lmr, mdp_request_slot
from web.number_params import read_after, read_subscription_id

PAGE_SIZE = 50
MDP_TIMEOUT_SECONDS = 5.0
"""Timeout of read requests to the MDP."""


@pages.get("/subscriptions")
def subscriptions() -> Response:
    require_viewer()
    rule = _normalise_newlines(request.args.get("rule", ""))
    return _render_list(draft={"rule": rule, "name": ""} if rule else None)


@pages.post("/subscriptions")
def subscribe() -> Response:
    """Subscribe, and continue when the first matches are in the cache."""
    require_editor()
    draft = {"rule": _normalise_newlines(request.form.get("rule", "")), "name": request.form.get("name", "").strip()}
    before = lmr().counter.counts(refresh=True).resources
    try:
        if not draft["rule"].strip():
            raise BadRequest("The rule is empty. Write a rule: search … register … where …")
        made = add_subscription(draft["rule"], draft["name"] or None)
    except MdvError as error:
        return _render_list(error.problem(), draft)
    came = max(0, lmr().counter.counts(refresh=True).resources - before)
    return redirect_to("subscriptions", added=made["id"], came=came)


def _render_list(problem: Mapping[str, Any] | None = None, draft: Mapping[str, str] | None = None) -> Response:
    after, unreachable = request.args.get("after"), None
    read_after(after)
    found: Mapping[str, Any] = {"items": [], "next": None}
    try:
        with mdp_request_slot():
            found = lmr().mdp.subscriptions(after, PAGE_SIZE, MDP_TIMEOUT_SECONDS)
    except Unavailable as error:
        unreachable = error.problem()
    more = url_for("pages.subscriptions", after=found["next"]) if found.get("next") else None
    status = problem["status"] if problem else 503 if unreachable else 200
    return render_page(
        "lmr_own_subscriptions.html",
        status,
        subscriptions=found["items"],
        more=more,
        unreachable=unreachable,
        later=after,
        problem=problem,
        draft=draft or {},
        may_change=may_change(),
        done=_last_action(),
        mdp=lmr().mdp.url,
        example=_example(),
    )


def _example() -> str:
    with lmr().cache.reading() as connection:
        return example(lmr().cache.schema(connection).schema)


def _last_action() -> dict[str, int]:
    """Return the ids and counts of the last action, from the URL."""
    parameters = ((name, request.args.get(name, "")) for name in ("added", "came", "changed", "resumed", "ended"))
    return {name: int(text) for name, text in parameters if text.isascii() and text.isdecimal() and len(text) < 19}


@pages.get("/subscriptions/<number>")
def subscription(number: str) -> Response:
    """Show a subscription that can be changed or removed."""
    require_viewer()
    return _render_subscription(number)


def _render_subscription(number: str, problem: Mapping[str, Any] | None = None, rule: str | None = None) -> Response:
    known = _read_subscription(number)
    return render_page(
        "lmr_own_subscription.html",
        problem["status"] if problem else 200,
        subscription=known,
        problem=problem,
        rule=known["rule"] if rule is None else rule,
        may_change=may_change(),
    )


@pages.post("/subscriptions/<number>")
def change(number: str) -> Response:
    """Replace the rule of a subscription. Only the difference is transferred."""
    require_editor()
    rule = _normalise_newlines(request.form.get("rule", ""))
    try:
        if not rule.strip():
            raise BadRequest("The rule is empty. Write a rule: search … register … where …")
        change_subscription(number, rule)
    except MdvError as error:
        return _render_subscription(number, error.problem(), rule)
    return redirect_to("subscriptions", changed=read_subscription_id(number))


@pages.post("/subscriptions/<number>/resume")
def resume(number: str) -> Response:
    """Resume a suspended subscription, and continue when the difference is in the cache."""
    require_editor()
    try:
        resume_subscription(number)
    except TooCostly as error:
        return _render_subscription(number, error.problem())
    return redirect_to("subscriptions", resumed=read_subscription_id(number))


@pages.get("/subscriptions/<number>/end")
def ask_to_end(number: str) -> Response:
    require_editor()
    return render_page("lmr_own_end.html", subscription=_read_subscription(number), problem=None)


@pages.post("/subscriptions/<number>/end")
def end(number: str) -> Response:
    """Remove a subscription, and continue when its resources have left the cache."""
    require_editor()
    try:
        end_subscription(number)
    except MdvError as error:
        problem = error.problem()
        return render_page(
            "lmr_own_end.html", problem["status"], subscription=_read_subscription(number), problem=problem
        )
    return redirect_to("subscriptions", ended=read_subscription_id(number))


def _read_subscription(number: str) -> dict[str, Any]:
    with mdp_request_slot():
        return lmr().mdp.subscription(str(read_subscription_id(number)), MDP_TIMEOUT_SECONDS)


def _normalise_newlines(text: str) -> str:
    """Convert the CRLF line ends that browsers send in forms."""
    return text.replace("\r\n", "\n")
