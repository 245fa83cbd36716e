"""Administration of the provider's own rules: list and add them. `provider_rules` changes and removes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Response, request, url_for

from mdv.errors import BadRequest, MdvError
from mdv.mdp.subscribe import PROVIDER_AS_OWNER, list_subscriptions
from mdv.rules.completion import example
from web.job_queue import PendingJob
from web.number_params import read_after
from web.pages.base import pages, redirect_to, render_page, require_administrator
from web.services import services
from web.use_cases.lmrs import change_rules

PAGE_SIZE = 50


@pages.get("/admin/rules")
def provider_rules() -> Response:
    require_administrator()
    return _render_list()


@pages.post("/admin/rules")
def add_provider_rule() -> Response:
    caller = require_administrator()
    rule, name = request.form.get("rule", "").replace("\r\n", "\n"), request.form.get("name", "").strip()
    try:
        if not rule.strip():
            raise BadRequest("The rule is empty. Write a rule: search … register … where …")
        done = change_rules("subscribe", PROVIDER_AS_OWNER, {"drafts": [(name or None, rule)]}, caller.by)
    except MdvError as error:
        return _render_list(error.problem(), {"rule": rule, "name": name})
    if isinstance(done, PendingJob):
        return redirect_to("job", job=done.job)
    return redirect_to("provider_rule", number=done.result["ids"][0], said="rule_added")


def _render_list(problem: Mapping[str, Any] | None = None, draft: Mapping[str, str] | None = None) -> Response:
    after, s = read_after(request.args.get("after")), services()
    with s.engine.connect() as connection:
        found = list_subscriptions(connection, PROVIDER_AS_OWNER, after, PAGE_SIZE + 1)
        schema = s.schemas.now(connection).schema
    shown = found[:PAGE_SIZE]
    return render_page(
        "admin_rules.html",
        problem["status"] if problem else 200,
        rules=shown,
        more=url_for("pages.provider_rules", after=shown[-1].id) if len(found) > PAGE_SIZE else None,
        first=url_for("pages.provider_rules") if after else None,
        example=example(schema),
        problem=problem,
        draft=draft or {},
    )
