"""Pages of event-condition-action rules: list, one rule, changes of its state, removal."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from flask import Response, request, url_for

from mdv.errors import BadRequest, MdvError
from mdv.inspect.eca_rules import RULE_STATES, StoredEcaRule, count_rules, find_rule, list_sets
from mdv.inspect.eca_runs import list_runs
from mdv.inspect.sql.eca_pages import find_listed_rules
from web.job_queue import PendingJob
from web.number_params import read_after
from web.pages.base import pages, redirect_to, render_page, require_editor, require_viewer, session
from web.pages.eca_editor import check_values, editor_words, marks_of
from web.services import services
from web.use_cases.eca import change_eca_rules, replace_eca_rule

PAGE_SIZE = 50
RECENT_RUNS = 10
NEWEST = 2**62
MAX_SETS_LISTED = 200
STATES = {"enable": "active", "disable": "disabled", "shadow": "shadow"}
"""The state that each button of the page gives a rule."""


@pages.get("/event-rules")
def eca_rules() -> Response:
    """List rules by ID; with `holding`, those whose name or text contains it; also by `state` and `set`."""
    require_viewer()
    after = read_after(request.args.get("after"))
    given = {name: request.args.get(name, "").strip() for name in ("holding", "state", "set")}
    with services().engine.connect() as connection:
        counts = count_rules(connection)
        sets = list_sets(connection, MAX_SETS_LISTED)
        found = find_listed_rules(
            connection, after, PAGE_SIZE + 1, given["holding"], given["state"], given["set"]
        )  # fmt: skip
    kept: dict[str, Any] = {name: value or None for name, value in given.items()}
    more = url_for("pages.eca_rules", after=found[PAGE_SIZE - 1].id, **kept) if len(found) > PAGE_SIZE else None
    return render_page(
        "eca_rules.html",
        rules=found[:PAGE_SIZE],
        counts=counts,
        total=sum(counts.values()),
        sets=sets,
        states=RULE_STATES,
        more=more,
        first=url_for("pages.eca_rules", **kept) if after else None,
        given=given,
    )


@pages.get("/event-rules/rule/<name>")
def eca_rule(name: str) -> Response:
    """Show a rule, given by its name or ID."""
    require_viewer()
    return render_rule(_find(name))


@pages.post("/event-rules/rule/<name>")
def change_eca_rule(name: str) -> Response:
    """Replace the text of a rule."""
    caller = require_editor()
    text = request.form.get("text", "").replace("\r\n", "\n")
    rule = _find(name)
    try:
        done = replace_eca_rule(caller, str(rule.id), text)
    except MdvError as error:
        return render_rule(rule, error, text)
    if isinstance(done, PendingJob):
        return redirect_to("job", job=done.job)
    return redirect_to("eca_rule", name=rule.id, said="rule_changed")


@pages.post("/event-rules/rule/<name>/state")
def change_eca_state(name: str) -> Response:
    """Enable or disable a rule, or set it to shadow."""
    caller = require_editor()
    verb = request.form.get("state", "")
    if verb not in STATES:
        raise BadRequest(f"{verb[:20]!r} is not a change of the state. Use one of {', '.join(STATES)}.")
    done = change_eca_rules("state", caller, rule=str(_find(name).id), state=STATES[verb])
    if isinstance(done, PendingJob):
        return redirect_to("job", job=done.job)
    return redirect_to("eca_rule", name=done.result["id"], said=f"eca_{STATES[verb]}")


@pages.get("/event-rules/rule/<name>/remove")
def ask_to_remove_eca_rule(name: str) -> Response:
    require_editor()
    return render_page("eca_rule_remove.html", rule=_find(name))


@pages.post("/event-rules/rule/<name>/remove")
def remove_eca_rule(name: str) -> Response:
    caller = require_editor()
    done = change_eca_rules("remove", caller, rule=str(_find(name).id))
    if isinstance(done, PendingJob):
        return redirect_to("job", job=done.job)
    return redirect_to("eca_rules", said="rule_removed")


def render_rule(rule: StoredEcaRule, error: MdvError | None = None, text: str | None = None) -> Response:
    """Render the page of a rule. `text`: what was sent, if it was refused with `error`."""
    text = rule.text if text is None else text
    values = check_values(text, str(rule.id))
    if error is not None:
        values |= {"problem": error.problem(), "marks": marks_of(None, error.problem()) or values["marks"]}
    user = session()
    with services().engine.connect() as connection:
        runs = list_runs(connection, NEWEST, RECENT_RUNS, rule=rule.id)
    return render_page(
        "eca_rule.html",
        error.status if error else 200,
        rule=rule,
        text=text,
        last_fired=datetime.fromisoformat(rule.last_fired) if rule.last_fired else None,
        may=user is not None and user.role == "admin",
        words=editor_words(),
        runs=runs,
        **values,
    )


def _find(name: str) -> StoredEcaRule:
    with services().engine.connect() as connection:
        return find_rule(connection, name)
