"""Subscriptions: what this LMR wants. The MDP keeps them, so it is asked, and nobody waits long for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Response, request, url_for

from mdv.errors import BadRequest, MdvError, Unavailable
from mdv.rules.words import example
from web.lmr.acts import add_subscription, change_subscription, end_subscription
from web.lmr.pages.frame import editor, go, may_change, page, pages, visitor
from web.lmr.services import asking_mdp, lmr
from web.numbers import after_number, subscription_number

ON_A_PAGE = 50
PATIENCE = 5.0
"""Seconds for which the MDP is waited for, where something is only looked at."""


@pages.get("/subscriptions")
def subscriptions() -> Response:
    visitor()
    rule = _lines(request.args.get("rule", ""))
    return _list(draft={"rule": rule, "name": ""} if rule else None)


@pages.post("/subscriptions")
def subscribe() -> Response:
    """Subscribe, and go on when the first matches are here."""
    editor()
    draft = {"rule": _lines(request.form.get("rule", "")), "name": request.form.get("name", "").strip()}
    before = lmr().counter.counts(anew=True).resources
    try:
        if not draft["rule"].strip():
            raise BadRequest("Write a rule: search …, register …, where ….")
        made = add_subscription(draft["rule"], draft["name"] or None)
    except MdvError as error:
        return _list(error.problem(), draft)
    came = max(0, lmr().counter.counts(anew=True).resources - before)
    return go("subscriptions", added=made["id"], came=came)


def _list(problem: Mapping[str, Any] | None = None, draft: Mapping[str, str] | None = None) -> Response:
    after, away = request.args.get("after"), None
    after_number(after)
    found: Mapping[str, Any] = {"items": [], "next": None}
    try:
        with asking_mdp():
            found = lmr().mdp.subscriptions(after, ON_A_PAGE, PATIENCE)
    except Unavailable as error:
        away = error.problem()
    more = url_for("pages.subscriptions", after=found["next"]) if found.get("next") else None
    status = problem["status"] if problem else 503 if away else 200
    return page(
        "lmr_own_subscriptions.html", status, subscriptions=found["items"], more=more, away=away, later=after,
        problem=problem, draft=draft or {}, may_change=may_change(), done=_done(), mdp=lmr().mdp.url,
        example=_example(),
    )  # fmt: skip


def _example() -> str:
    with lmr().cache.reading() as connection:
        return example(lmr().cache.schema(connection).schema)


def _done() -> dict[str, int]:
    """What was just done, by its numbers."""
    told = ((name, request.args.get(name, "")) for name in ("added", "came", "changed", "ended"))
    return {name: int(text) for name, text in told if text.isascii() and text.isdecimal() and len(text) < 19}


@pages.get("/subscriptions/<number>")
def subscription(number: str) -> Response:
    """A rule, to be changed or ended."""
    visitor()
    return _one(number)


def _one(number: str, problem: Mapping[str, Any] | None = None, rule: str | None = None) -> Response:
    known = _known(number)
    return page("lmr_own_subscription.html", problem["status"] if problem else 200, subscription=known, problem=problem,
                rule=known["rule"] if rule is None else rule, may_change=may_change())  # fmt: skip


@pages.post("/subscriptions/<number>")
def change(number: str) -> Response:
    """Only the difference is sent."""
    editor()
    rule = _lines(request.form.get("rule", ""))
    try:
        if not rule.strip():
            raise BadRequest("Write a rule: search …, register …, where ….")
        change_subscription(number, rule)
    except MdvError as error:
        return _one(number, error.problem(), rule)
    return go("subscriptions", changed=subscription_number(number))


@pages.get("/subscriptions/<number>/end")
def ask_to_end(number: str) -> Response:
    editor()
    return page("lmr_own_end.html", subscription=_known(number), problem=None)


@pages.post("/subscriptions/<number>/end")
def end(number: str) -> Response:
    """End a subscription, and go on when what only it held is gone."""
    editor()
    try:
        end_subscription(number)
    except MdvError as error:
        problem = error.problem()
        return page("lmr_own_end.html", problem["status"], subscription=_known(number), problem=problem)
    return go("subscriptions", ended=subscription_number(number))


def _known(number: str) -> dict[str, Any]:
    with asking_mdp():
        return lmr().mdp.subscription(str(subscription_number(number)), PATIENCE)


def _lines(text: str) -> str:
    """A text as it was written: browsers end lines otherwise."""
    return text.replace("\r\n", "\n")
