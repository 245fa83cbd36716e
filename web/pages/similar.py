"""Subscribe to similar resources: propose rules for a resource or a filter, and subscribe an LMR to one."""

from __future__ import annotations

from typing import Any

from flask import Response, request

from mdv.errors import BadRequest, Conflict, MdvError
from mdv.inspect.propose import Proposal, propose
from mdv.mdp.lmrs import Lmr, get_lmr, list_lmrs
from mdv.mdp.subscribe import find_subscription, get_subscription
from web.job_queue import PendingJob
from web.number_params import read_subscription_id
from web.pages.base import pages, redirect_to, render_page, require_signed_in, require_unlimited_editor, require_viewer
from web.services import services
from web.use_cases.lmrs import change_rules

MAX_LMRS_LISTED = 200


@pages.get("/like")
def like() -> Response:
    require_viewer()
    return _render(request.args.to_dict())


@pages.post("/like")
def subscribe_like() -> Response:
    caller = require_unlimited_editor()
    form = request.form.to_dict()
    try:
        return subscribe_to(form.get("lmr", "").strip(), form.get("rule", "").replace("\r\n", "\n"), caller.by)
    except MdvError as error:
        return _render(form, error)


@pages.get("/like/subscribed")
def subscribed() -> Response:
    require_signed_in()
    with services().engine.connect() as connection:
        lmr = get_lmr(connection, request.args.get("lmr", ""))
        subscription = get_subscription(connection, lmr, read_subscription_id(request.args.get("id", "")))
    return render_page("like_subscribed.html", lmr=lmr, subscription=subscription, uri=request.args.get("uri", ""))


def subscribe_to(name: str, rule: str, by: str, rule_name: str | None = None) -> Response:
    """Subscribe an LMR to a rule with an optional name, and redirect to the result. `by`: the caller.

    A second subscription to the same rule has to be confirmed: the form then has the field `again`.
    """
    if not rule:
        raise BadRequest("The rule is missing. Choose or write one.")
    if not name:
        raise BadRequest("The LMR is missing. Choose one.")
    with services().single.connect() as connection:
        lmr = get_lmr(connection, name)
    check_subscribed_before(lmr, rule)
    done = change_rules("subscribe", lmr, {"drafts": [(rule_name, rule)]}, by)
    if isinstance(done, PendingJob):
        return redirect_to("job", job=done.job)
    return redirect_to("subscribed", lmr=lmr.name, id=done.result["ids"][0], uri=request.form.get("uri", ""))


def check_subscribed_before(lmr: Lmr, rule: str) -> None:
    """Raise `Conflict` if an LMR has this rule already, unless the form confirms a second subscription."""
    if request.form.get("again"):
        return
    with services().engine.connect() as connection:
        existing = find_subscription(connection, lmr, rule, services().schemas, services().rules)
    if existing is not None:
        raise Conflict(
            f"The LMR {lmr.name} already has this rule as subscription {existing}. A second subscription sends nothing"
            " new.",
            subscription=existing,
        )


def _render(form: dict[str, str], error: MdvError | None = None) -> Response:
    uri, class_ = form.get("uri", "").strip(), form.get("class", "").strip()
    if not uri and not class_:
        raise BadRequest("The parameter `uri` or `class` is missing: /like?uri=…")
    with services().engine.connect() as connection:
        lmrs = list_lmrs(connection, 0, MAX_LMRS_LISTED + 1)
    proposals: list[Proposal] = []
    try:
        with services().engine.connect() as connection:
            values: dict[str, Any] = {form["property"]: {"op": form.get("op", "="), "value": form.get("value", "")}
                                      } if form.get("property") else {}  # fmt: skip
            schemas = services().schemas
            proposals = propose(connection, schemas, uri) if uri else propose(connection, schemas, None, class_, values)
    except MdvError as problem:
        error = error or problem
    return render_page(
        "like.html",
        error.status if error else 200,
        uri=uri,
        form=form,
        proposals=proposals,
        lmrs=lmrs[:MAX_LMRS_LISTED],
        more=len(lmrs) > MAX_LMRS_LISTED,
        problem=error.problem() if error else None,
        chosen=form.get("rule", "").replace("\r\n", "\n") or _preselected_rule(proposals, uri),
    )


def _preselected_rule(proposals: list[Proposal], uri: str) -> str:
    """Return the proposal to preselect: for a resource, the first rule that also selects others but not its class."""
    narrow = [proposal for proposal in proposals[:-1] if proposal.selects != 1] if uri else []
    return (narrow or proposals)[0].rule if proposals else ""
