"""Pages of the provider's own rules: change, resume and remove them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Response, request

from mdv.errors import MdvError
from mdv.mdp.subscribe import PROVIDER_AS_OWNER, get_subscription, list_searching_rules
from web.job_queue import PendingJob
from web.number_params import read_subscription_id
from web.pages.base import pages, redirect_to, render_page, require_unlimited_editor
from web.services import services
from web.use_cases.lmrs import change_rules

MAX_RULES_NAMED = 20
"""Maximum number of searching rules that are named."""


@pages.get("/rules/own/<number>")
def provider_rule(number: str) -> Response:
    """Show a rule of the provider that can be changed or removed."""
    require_unlimited_editor()
    return _render(read_subscription_id(number))


@pages.post("/rules/own/<number>")
def change_provider_rule(number: str) -> Response:
    """Replace the text of a rule."""
    rule = request.form.get("rule", "").replace("\r\n", "\n")
    return _change("change", number, {"id": read_subscription_id(number), "rule": rule}, "rule_changed", rule)


@pages.post("/rules/own/<number>/resume")
def resume_provider_rule(number: str) -> Response:
    return _change("resume", number, {"id": read_subscription_id(number)}, "rule_resumed")


@pages.get("/rules/own/<number>/end")
def ask_to_end_provider_rule(number: str) -> Response:
    require_unlimited_editor()
    with services().engine.connect() as connection:
        known = get_subscription(connection, PROVIDER_AS_OWNER, read_subscription_id(number))
        searching = list_searching_rules(connection, known)
    return render_page(
        "provider_rule_end.html",
        rule=known,
        searching=searching[:MAX_RULES_NAMED],
        others=len(searching) > MAX_RULES_NAMED,
    )


@pages.post("/rules/own/<number>/end")
def end_provider_rule(number: str) -> Response:
    caller = require_unlimited_editor()
    done = change_rules("unsubscribe", PROVIDER_AS_OWNER, {"ids": [read_subscription_id(number)]}, caller.by)
    if isinstance(done, PendingJob):
        return redirect_to("job", job=done.job)
    return redirect_to("registered_rules", said="rule_removed")


def _change(kind: str, number: str, options: dict[str, Any], said: str, rule: str | None = None) -> Response:
    """Run a change of a rule. An error is shown with the text that was sent."""
    caller = require_unlimited_editor()
    try:
        done = change_rules(kind, PROVIDER_AS_OWNER, options, caller.by)
    except MdvError as error:
        return _render(read_subscription_id(number), error.problem(), rule)
    if isinstance(done, PendingJob):
        return redirect_to("job", job=done.job)
    return redirect_to("provider_rule", number=number, said=said)


def _render(number: int, problem: Mapping[str, Any] | None = None, text: str | None = None) -> Response:
    with services().engine.connect() as connection:
        known = get_subscription(connection, PROVIDER_AS_OWNER, number)
    return render_page(
        "provider_rule.html",
        problem["status"] if problem else 200,
        rule=known,
        text=known.rule if text is None else text,
        problem=problem,
    )
