"""LMR pages: list, progress, subscriptions, tokens, and explanations of resources."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from flask import Response, request, url_for
from sqlalchemy import Connection

from mdv.errors import BadRequest, MdvError, TooCostly
from mdv.inspect.eca_log import StatementOrigin, find_origins
from mdv.inspect.explain_rule import explain_rule as explain_rule
from mdv.inspect.sql.lmrs import LmrProgress, list_lmrs_behind, list_newest_rules, read_progress
from mdv.mdp.feed_progress import read_feed_end
from mdv.mdp.lmrs import Lmr, create_lmr, get_lmr, list_lmrs, replace_token, set_paused
from mdv.mdp.subscribe import get_subscription, list_searching_rules, with_suspensions
from mdv.mdp.webhooks import list_webhooks
from mdv.rules.completion import example
from web.job_queue import PendingJob
from web.number_params import read_after, read_subscription_id
from web.once import redirect_once, take_once
from web.pages.base import (
    is_fragment_request,
    pages,
    redirect_to,
    render_fragment,
    render_page,
    require_signed_in,
    require_unlimited_editor,
    require_viewer,
    session,
)
from web.pages.similar import check_subscribed_before
from web.services import services
from web.use_cases.lmrs import change_rules, explain_at_lmr, find_home_url

PAGE_SIZE = 50
MAX_COUNTED_IN_LIST = 1000
"""Counting stops at this number in the list of LMRs."""
MAX_COUNTED = 200_000
"""Counting stops at this number on the page of an LMR."""
MAX_RULES_NAMED = 10
COUNT_SECONDS = 2.0
"""Time limit for counting the matches of a rule."""


def may_change() -> bool:
    """True if the user may change LMRs. Forms are shown only then."""
    found = session()
    if found is None or found.role != "admin":
        return False
    return found.document_prefixes is None and found.resource_prefixes is None


# List


@pages.get("/lmrs")
def lmrs() -> Response:
    require_viewer()
    return _render_list()


@pages.post("/lmrs")
def create_an_lmr() -> Response:
    """Create an LMR. The next page shows its token, once."""
    caller = require_unlimited_editor()
    name = request.form.get("name", "").strip()
    try:
        with services().engine.begin() as connection:
            made, token = create_lmr(connection, name, caller.by)
    except MdvError as error:
        return _render_list(error.problem(), name)
    return _show_token(made, token, is_new=True)


def _render_list(problem: Mapping[str, Any] | None = None, name: str = "") -> Response:
    """Render a page of all LMRs or, with `state=behind`, of those that are behind."""
    state = "behind" if request.args.get("state") == "behind" else ""
    with services().engine.connect() as connection:
        after = read_after(request.args.get("after"))
        found = (list_lmrs_behind if state else list_lmrs)(connection, after, PAGE_SIZE + 1)
        shown = found[:PAGE_SIZE]
        progress = read_progress(connection, [lmr.id for lmr in shown], MAX_COUNTED_IN_LIST) if shown else {}
    more = url_for("pages.lmrs", state=state or None, after=shown[-1].id) if len(found) > PAGE_SIZE else None
    rows = [(lmr, progress[lmr.id]) for lmr in shown if lmr.id in progress]
    return render_page(
        "lmrs.html",
        problem["status"] if problem else 200,
        state=state,
        rows=rows,
        more=more,
        most=MAX_COUNTED_IN_LIST,
        may_change=may_change(),
        problem=problem,
        name=name,
    )


# One LMR


@pages.get("/lmrs/<name>")
def lmr(name: str) -> Response:
    require_signed_in()
    return _render_lmr(_find_lmr(name))


def _render_lmr(lmr: Lmr, problem: Mapping[str, Any] | None = None, draft: Mapping[str, str] | None = None) -> Response:
    before, added = read_after(request.args.get("after")), request.args.get("added", "")
    with services().engine.connect() as connection:
        progress = _progress(connection, lmr)
        feed_end = read_feed_end(connection)
        rules = with_suspensions(connection, list_newest_rules(connection, lmr.id, before or None, PAGE_SIZE + 1))
        schema = services().schemas.now(connection).schema
    more = None
    if len(rules) > PAGE_SIZE:
        more = url_for("pages.lmr", name=lmr.name, after=rules[PAGE_SIZE - 1].id, _anchor="subscriptions")
    subscriptions = rules[:PAGE_SIZE]
    return render_page(
        "lmr.html",
        problem["status"] if problem else 200,
        example=example(schema),
        lmr=lmr,
        progress=progress,
        feed_end=feed_end,
        more=more,
        subscriptions=subscriptions,
        added=next((s for s in subscriptions if str(s.id) == added), None),
        most=MAX_COUNTED,
        may_change=may_change() and lmr.home is None,
        home_url=find_home_url(lmr),
        problem=problem,
        draft=draft or {},
        later=before > 0,
    )


@pages.post("/lmrs/<name>/pause")
def pause_lmr(name: str) -> Response:
    return _set_paused(name, True)


@pages.post("/lmrs/<name>/resume")
def resume_lmr(name: str) -> Response:
    return _set_paused(name, False)


def _set_paused(name: str, paused: bool) -> Response:
    """Pause or resume an LMR. This can be undone, so it needs no confirmation."""
    require_unlimited_editor()
    found = _find_lmr(name)
    with services().engine.begin() as connection:
        set_paused(connection, found, paused)
    return redirect_to("lmr", name=found.name, said="paused" if paused else "resumed")


@pages.get("/lmrs/<name>/checksum")
def lmr_checksum(name: str) -> Response:
    """Compute the expected checksum of the LMR's cache."""
    require_signed_in()
    found = _find_lmr(name)
    position, sums = services().feeds.checksum(found)
    all_of_them = hashlib.sha256(b"".join(number.to_bytes(8, "big") for number in sums)).hexdigest()[:16]
    values: dict[str, Any] = {"lmr": found, "position": position, "digest": all_of_them}
    values["sums"] = [(bucket, number) for bucket, number in enumerate(sums) if number]
    return (
        render_fragment("lmr_checksum_part.html", **values)
        if is_fragment_request()
        else render_page("lmr_checksum.html", **values)
    )


# Actions that need confirmation


@pages.get("/lmrs/<name>/refetch")
def ask_to_refetch(name: str) -> Response:
    require_unlimited_editor()
    found = _find_lmr(name)
    progress = _read_progress(found)
    return render_page("lmr_ask.html", lmr=found, what="refetch", progress=progress, most=MAX_COUNTED)


@pages.post("/lmrs/<name>/refetch")
def refetch_lmr(name: str) -> Response:
    require_unlimited_editor()
    found = _find_lmr(name)
    services().feeds.force_refetch(found)
    return redirect_to("lmr", name=found.name, said="refetch")


@pages.get("/lmrs/<name>/token")
def ask_for_token(name: str) -> Response:
    require_unlimited_editor()
    return render_page("lmr_ask.html", lmr=_find_lmr(name), what="token")


@pages.post("/lmrs/<name>/token")
def renew_lmr_token(name: str) -> Response:
    require_unlimited_editor()
    found = _find_lmr(name)
    with services().engine.begin() as connection:
        token = replace_token(connection, found)
    return _show_token(found, token, is_new=False)


@pages.get("/lmrs/<name>/new-token")
def new_lmr_token(name: str) -> Response:
    """Show the token of an LMR directly after it was created."""
    require_unlimited_editor()
    found = _find_lmr(name)
    once = take_once(_about_token(found)) or {}
    return render_page("lmr_token.html", lmr=found, token=once.get("token"), new=once.get("new"))


def _show_token(lmr: Lmr, token: str, is_new: bool) -> Response:
    return redirect_once(_about_token(lmr), {"token": token, "new": is_new}, "new_lmr_token", name=lmr.name)


def _about_token(lmr: Lmr) -> str:
    return f"lmr-token-{lmr.id}"


@pages.get("/lmrs/<name>/end")
def ask_to_end_lmr(name: str) -> Response:
    require_unlimited_editor()
    found = _find_lmr(name)
    with services().engine.connect() as connection:
        webhooks = len(list_webhooks(connection, found, 0, PAGE_SIZE + 1))
    return render_page(
        "lmr_ask.html",
        lmr=found,
        what="end",
        progress=_read_progress(found),
        most=MAX_COUNTED,
        webhooks=webhooks,
        many=PAGE_SIZE,
    )


@pages.post("/lmrs/<name>/end")
def end_lmr(name: str) -> Response:
    caller = require_unlimited_editor()
    done = change_rules("forget", _find_lmr(name), {}, caller.by)
    return redirect_to("job", job=done.job) if isinstance(done, PendingJob) else redirect_to("lmrs", said="ended")


# Subscriptions


@pages.post("/lmrs/<name>/subscriptions")
def add_subscription(name: str) -> Response:
    caller = require_unlimited_editor()
    found = _find_lmr(name)
    draft = {"rule": _normalise_newlines(request.form.get("rule", "")), "name": request.form.get("name", "").strip()}
    try:
        wanted = (draft["name"] or None, draft["rule"])
        if not draft["rule"].strip():
            raise BadRequest("The rule is empty. Write a rule: search … register … where …")
        check_subscribed_before(found, draft["rule"])
        done = change_rules("subscribe", found, {"drafts": [wanted]}, caller.by)
    except MdvError as error:
        return _render_lmr(found, error.problem(), draft)
    if isinstance(done, PendingJob):
        return redirect_to("job", job=done.job)
    return redirect_to("lmr", name=found.name, added=done.result["ids"][0], _anchor="subscriptions")


@pages.get("/lmrs/<name>/subscriptions/<number>")
def subscription(name: str, number: str) -> Response:
    """Show a subscription that can be changed or removed."""
    require_signed_in()
    found = _find_lmr(name)
    return _render_subscription(found, read_subscription_id(number))


def _render_subscription(
    lmr: Lmr, number: int, problem: Mapping[str, Any] | None = None, rule: str | None = None
) -> Response:
    with services().engine.connect() as connection:
        known = get_subscription(connection, lmr, number)
    return render_page(
        "lmr_subscription.html",
        problem["status"] if problem else 200,
        lmr=lmr,
        subscription=known,
        problem=problem,
        rule=known.rule if rule is None else rule,
        may_change=may_change(),
    )


@pages.post("/lmrs/<name>/subscriptions/<number>")
def change_subscription(name: str, number: str) -> Response:
    """Replace the rule of a subscription. Only the difference is sent to the LMR."""
    caller = require_unlimited_editor()
    found, rule = _find_lmr(name), _normalise_newlines(request.form.get("rule", ""))
    try:
        done = change_rules("change", found, {"id": read_subscription_id(number), "rule": rule}, caller.by)
    except MdvError as error:
        return _render_subscription(found, read_subscription_id(number), error.problem(), rule)
    return (
        redirect_to("job", job=done.job)
        if isinstance(done, PendingJob)
        else redirect_to("subscription", name=found.name, number=number)
    )


@pages.post("/lmrs/<name>/subscriptions/<number>/resume")
def resume_subscription(name: str, number: str) -> Response:
    """Resume a suspended subscription. Only the difference is sent to the LMR."""
    caller = require_unlimited_editor()
    found = _find_lmr(name)
    try:
        done = change_rules("resume", found, {"id": read_subscription_id(number)}, caller.by)
    except TooCostly as error:
        return _render_subscription(found, read_subscription_id(number), error.problem())
    if isinstance(done, PendingJob):
        return redirect_to("job", job=done.job)
    return redirect_to("lmr", name=found.name, said="subscription_resumed", _anchor="subscriptions")


@pages.get("/lmrs/<name>/subscriptions/<number>/end")
def ask_to_end_subscription(name: str, number: str) -> Response:
    require_unlimited_editor()
    found, s = _find_lmr(name), services()
    with s.engine.connect() as connection:
        known = get_subscription(connection, found, read_subscription_id(number))
        searching = list_searching_rules(connection, known)
        matches = None
        if known.suspended is None:
            matches = explain_rule(connection, known.rule, s.schemas, s.rules, found.id, seconds=COUNT_SECONDS).matches
    return render_page(
        "lmr_ask.html",
        lmr=found,
        what="unsubscribe",
        subscription=known,
        matches=matches,
        searching=searching[:MAX_RULES_NAMED],
        others=len(searching) > MAX_RULES_NAMED,
    )


@pages.post("/lmrs/<name>/subscriptions/<number>/end")
def end_subscription(name: str, number: str) -> Response:
    caller = require_unlimited_editor()
    found = _find_lmr(name)
    done = change_rules("unsubscribe", found, {"ids": [read_subscription_id(number)]}, caller.by)
    return (
        redirect_to("job", job=done.job)
        if isinstance(done, PendingJob)
        else redirect_to("lmr", name=found.name, said="unsubscribed")
    )


# Explanations


@pages.get("/lmrs/<name>/explain")
def explain(name: str) -> Response:
    """Explain why an LMR holds a resource or not."""
    require_viewer()
    found, uri = _find_lmr(name), request.args.get("uri", "").strip()
    why, problem = None, None
    origins: list[StatementOrigin] = []
    if uri:
        try:
            why = explain_at_lmr(found, uri)
            with services().engine.connect() as connection:
                origins = find_origins(connection, uri)
        except MdvError as error:
            problem = error.problem()
    return render_page(
        "explain.html",
        problem["status"] if problem else 200,
        lmr=found,
        uri=uri,
        why=why,
        origins=origins,
        problem=problem,
    )


# Helpers


def _find_lmr(name: str) -> Lmr:
    with services().single.connect() as connection:
        return get_lmr(connection, name)


def _read_progress(lmr: Lmr) -> LmrProgress:
    with services().engine.connect() as connection:
        return _progress(connection, lmr)


def _progress(connection: Connection, lmr: Lmr) -> LmrProgress:
    return read_progress(connection, [lmr.id], MAX_COUNTED).get(lmr.id, LmrProgress(0, 0, 0, 0, 0, None, False))


def _normalise_newlines(text: str) -> str:
    """Convert the CRLF line ends that browsers send in forms."""
    return text.replace("\r\n", "\n")
