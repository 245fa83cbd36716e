"""LMRs: who they are, how they get on, what they want, and why something is, or is not, with them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from flask import Response, request, url_for
from sqlalchemy import Connection

from mdv.db import lmrs as db
from mdv.db.feed import Feed, Progress
from mdv.db.graph import Graph
from mdv.db.lmrs import Lmr
from mdv.db.state import read_state
from mdv.db.webhooks import list_webhooks
from mdv.errors import BadRequest, MdvError
from mdv.mdp.explain import explain as explain_rule
from mdv.mdp.subscribe import Subscription, create_lmr, get_lmr, get_subscription
from mdv.rules.words import example
from web.api.lmrs import another_token, change_rules
from web.api.why import told_why
from web.numbers import after_number, subscription_number
from web.pages.frame import go, is_part, member, page, pages, part, session, visitor, whole_editor
from web.services import services

ON_A_PAGE = 50
MOST_IN_A_LIST = 1000
"""In a list of LMRs, nothing is counted beyond that;"""
MOST_COUNTED = 200_000
"""and on the page of one beyond this."""
MOST_NAMED = 10
COUNT_SECONDS = 2.0
"""What a rule matches is counted for no longer."""


def may_change() -> bool:
    """Whether who is there may change LMRs: forms are for those alone."""
    found = session()
    if found is None or found.role != "admin":
        return False
    return found.document_prefixes is None and found.resource_prefixes is None


# All of them


@pages.get("/lmrs")
def lmrs() -> Response:
    visitor()
    return _list()


@pages.post("/lmrs")
def create_an_lmr() -> Response:
    """The answer shows the new LMR's token: this page alone, this once."""
    whole_editor()
    name = request.form.get("name", "").strip()
    try:
        with services().engine.begin() as connection:
            made, token = create_lmr(connection, name)
    except MdvError as error:
        return _list(error.problem(), name)
    return page("lmr_token.html", 201, lmr=made, token=token, new=True)


def _list(problem: Mapping[str, Any] | None = None, name: str = "") -> Response:
    with services().engine.connect() as connection:
        after = after_number(request.args.get("after"))
        found = db.list_lmrs(connection, after, ON_A_PAGE + 1)
        shown = found[:ON_A_PAGE]
        progress = Feed(connection).progress([lmr.id for lmr in shown], MOST_IN_A_LIST) if shown else {}
    more = url_for("pages.lmrs", after=shown[-1].id) if len(found) > ON_A_PAGE else None
    rows = [(lmr, progress[lmr.id]) for lmr in shown if lmr.id in progress]
    return page("lmrs.html", problem["status"] if problem else 200, rows=rows, more=more, most=MOST_IN_A_LIST,
                may_change=may_change(), problem=problem, name=name)  # fmt: skip


# One


@pages.get("/lmrs/<name>")
def lmr(name: str) -> Response:
    member()
    return _one(_found(name))


def _one(lmr: Lmr, problem: Mapping[str, Any] | None = None, draft: Mapping[str, str] | None = None) -> Response:
    before, added = after_number(request.args.get("after")), request.args.get("added", "")
    with services().engine.connect() as connection:
        progress = _progress(connection, lmr)
        state = read_state(connection)
        rules = db.newest_rules(connection, lmr.id, before or None, ON_A_PAGE + 1)
        schema = services().schemas.now(connection).schema
    more = None
    if len(rules) > ON_A_PAGE:
        more = url_for("pages.lmr", name=lmr.name, after=rules[ON_A_PAGE - 1][0], _anchor="subscriptions")
    subscriptions = [Subscription(*rule) for rule in rules[:ON_A_PAGE]]
    return page(
        "lmr.html", problem["status"] if problem else 200, example=example(schema), lmr=lmr, progress=progress,
        state=state, more=more,
        subscriptions=subscriptions, added=next((s for s in subscriptions if str(s.id) == added), None),
        most=MOST_COUNTED, may_change=may_change(), problem=problem, draft=draft or {}, later=before > 0,
    )  # fmt: skip


@pages.post("/lmrs/<name>/pause")
def pause_lmr(name: str) -> Response:
    return _hold(name, True)


@pages.post("/lmrs/<name>/resume")
def resume_lmr(name: str) -> Response:
    return _hold(name, False)


def _hold(name: str, paused: bool) -> Response:
    """What can be undone is not asked about."""
    whole_editor()
    found = _found(name)
    with services().engine.begin() as connection:
        db.hold(connection, found, paused)
    return go("lmr", name=found.name, said="paused" if paused else "resumed")


@pages.get("/lmrs/<name>/checksum")
def lmr_checksum(name: str) -> Response:
    """What the LMR's cache should add up to: it is worked out now, from all that it holds."""
    member()
    found = _found(name)
    position, sums = services().feeds.checksum(found)
    all_of_them = hashlib.sha256(b"".join(number.to_bytes(8, "big") for number in sums)).hexdigest()[:16]
    values: dict[str, Any] = {"lmr": found, "position": position, "digest": all_of_them}
    values["sums"] = [(bucket, number) for bucket, number in enumerate(sums) if number]
    return part("lmr_checksum_part.html", **values) if is_part() else page("lmr_checksum.html", **values)


# What is asked about first


@pages.get("/lmrs/<name>/refetch")
def ask_to_refetch(name: str) -> Response:
    whole_editor()
    found = _found(name)
    progress = _look(found)
    return page("lmr_ask.html", lmr=found, what="refetch", progress=progress, most=MOST_COUNTED)


@pages.post("/lmrs/<name>/refetch")
def refetch_lmr(name: str) -> Response:
    whole_editor()
    found = _found(name)
    services().feeds.let_refetch(found)
    return go("lmr", name=found.name, said="refetch")


@pages.get("/lmrs/<name>/token")
def ask_for_token(name: str) -> Response:
    whole_editor()
    return page("lmr_ask.html", lmr=_found(name), what="token")


@pages.post("/lmrs/<name>/token")
def renew_lmr_token(name: str) -> Response:
    whole_editor()
    found = _found(name)
    return page("lmr_token.html", 201, lmr=found, token=another_token(found), new=False)


@pages.get("/lmrs/<name>/end")
def ask_to_end_lmr(name: str) -> Response:
    whole_editor()
    found = _found(name)
    with services().engine.connect() as connection:
        webhooks = len(list_webhooks(connection, found.id, 0, ON_A_PAGE + 1))
    return page("lmr_ask.html", lmr=found, what="end", progress=_look(found), most=MOST_COUNTED, webhooks=webhooks,
                many=ON_A_PAGE)  # fmt: skip


@pages.post("/lmrs/<name>/end")
def end_lmr(name: str) -> Response:
    whole_editor()
    done = change_rules("forget", _found(name), {})
    return _see_job(done) if isinstance(done, Response) else go("lmrs", said="ended")


# Subscriptions


@pages.post("/lmrs/<name>/subscriptions")
def add_subscription(name: str) -> Response:
    whole_editor()
    found = _found(name)
    draft = {"rule": _lines(request.form.get("rule", "")), "name": request.form.get("name", "").strip()}
    try:
        wanted = (draft["name"] or None, draft["rule"])
        if not draft["rule"].strip():
            raise BadRequest("Write a rule: search …, register …, where ….")
        done = change_rules("subscribe", found, {"drafts": [wanted]})
    except MdvError as error:
        return _one(found, error.problem(), draft)
    if isinstance(done, Response):
        return _see_job(done)
    return go("lmr", name=found.name, added=done["ids"][0], _anchor="subscriptions")


@pages.get("/lmrs/<name>/subscriptions/<number>")
def subscription(name: str, number: str) -> Response:
    """A rule, to be changed or ended."""
    member()
    found = _found(name)
    return _subscription(found, subscription_number(number))


def _subscription(lmr: Lmr, number: int, problem: Mapping[str, Any] | None = None, rule: str | None = None) -> Response:
    with services().engine.connect() as connection:
        known = get_subscription(connection, lmr, number)
    return page("lmr_subscription.html", problem["status"] if problem else 200, lmr=lmr, subscription=known,
                problem=problem, rule=known.rule if rule is None else rule, may_change=may_change())  # fmt: skip


@pages.post("/lmrs/<name>/subscriptions/<number>")
def change_subscription(name: str, number: str) -> Response:
    """Only the difference is sent."""
    whole_editor()
    found, rule = _found(name), _lines(request.form.get("rule", ""))
    try:
        done = change_rules("change", found, {"id": subscription_number(number), "rule": rule})
    except MdvError as error:
        return _subscription(found, subscription_number(number), error.problem(), rule)
    return _see_job(done) if isinstance(done, Response) else go("subscription", name=found.name, number=number)


@pages.get("/lmrs/<name>/subscriptions/<number>/end")
def ask_to_end_subscription(name: str, number: str) -> Response:
    whole_editor()
    found, s = _found(name), services()
    with s.engine.connect() as connection:
        known = get_subscription(connection, found, subscription_number(number))
        searching = [rule for _, rule in Graph(connection).searching([known.id])]
        matches = explain_rule(connection, known.rule, s.schemas, s.rules, found.id, seconds=COUNT_SECONDS).matches
    return page("lmr_ask.html", lmr=found, what="unsubscribe", subscription=known, matches=matches,
                searching=searching[:MOST_NAMED], others=len(searching) > MOST_NAMED)  # fmt: skip


@pages.post("/lmrs/<name>/subscriptions/<number>/end")
def end_subscription(name: str, number: str) -> Response:
    whole_editor()
    found = _found(name)
    done = change_rules("unsubscribe", found, {"ids": [subscription_number(number)]})
    return _see_job(done) if isinstance(done, Response) else go("lmr", name=found.name, said="unsubscribed")


# Why


@pages.get("/lmrs/<name>/explain")
def explain(name: str) -> Response:
    """Why a resource is, or is not, at an LMR."""
    visitor()
    found, uri = _found(name), request.args.get("uri", "").strip()
    why, problem = None, None
    if uri:
        try:
            why = told_why(found, uri)
        except MdvError as error:
            problem = error.problem()
    return page("explain.html", problem["status"] if problem else 200, lmr=found, uri=uri, why=why, problem=problem)


# What they share


def _found(name: str) -> Lmr:
    with services().single.connect() as connection:
        return get_lmr(connection, name)


def _look(lmr: Lmr) -> Progress:
    with services().engine.connect() as connection:
        return _progress(connection, lmr)


def _progress(connection: Connection, lmr: Lmr) -> Progress:
    return Feed(connection).progress([lmr.id], MOST_COUNTED).get(lmr.id, Progress(0, 0, 0, 0, 0, None, False))


def _see_job(accepted: Response) -> Response:
    """A change takes longer than anybody waits: its job says how it goes."""
    return go("job", job=accepted.get_json()["job"])


def _lines(text: str) -> str:
    """A text as it was written: browsers end lines otherwise."""
    return text.replace("\r\n", "\n")
