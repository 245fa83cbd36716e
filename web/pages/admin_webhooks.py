"""Administration of webhooks: add, pause, test, rotate and remove them, and replay their messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flask import Response, request, url_for

from mdv.errors import MdvError, NotFound
from mdv.inspect.sql.administration import find_lmr_of_webhook, list_all_webhooks
from mdv.mdp.lmrs import Lmr, get_lmr, list_lmrs
from mdv.mdp.webhooks import MAX_WEBHOOKS_PER_LMR, find_waiting_message, get_webhook, list_deliveries, message_body
from web.number_params import read_after, read_webhook_id
from web.once import redirect_once, take_once
from web.pages.base import pages, redirect_to, render_page, require_administrator
from web.services import services
from web.use_cases import webhooks as use_cases

PAGE_SIZE = 50
MAX_LMRS_OFFERED = 200
"""Maximum number of LMRs that are offered for completion."""
STATES = ("waiting", "delivered", "dead")


# List


@pages.get("/admin/webhooks")
def webhooks() -> Response:
    require_administrator()
    return _render_list()


@pages.post("/admin/webhooks")
def add_webhook() -> Response:
    """Add a webhook. The next page shows its secret, once."""
    caller = require_administrator()
    name, url = request.form.get("lmr", "").strip(), request.form.get("url", "").strip()
    try:
        made = use_cases.add_webhook(_find_lmr(name), url, caller)
    except MdvError as error:
        return _render_list(error.problem(), {"lmr": name, "url": url})
    return redirect_once(f"webhook-{made.id}", {"secret": made.secret}, "webhook", number=made.id)


def _render_list(problem: Mapping[str, Any] | None = None, draft: Mapping[str, str] | None = None) -> Response:
    after, chosen = read_after(request.args.get("after")), request.args.get("lmr", "").strip()
    with services().single.connect() as connection:
        lmr = get_lmr(connection, chosen) if chosen else None
        found = list_all_webhooks(connection, after, PAGE_SIZE + 1, lmr.id if lmr else None)
        offered = list_lmrs(connection, 0, MAX_LMRS_OFFERED)
    shown, kept = found[:PAGE_SIZE], lmr.name if lmr else None
    return render_page(
        "admin_webhooks.html",
        problem["status"] if problem else 200,
        webhooks=shown,
        more=url_for("pages.webhooks", after=shown[-1][1].id, lmr=kept) if len(found) > PAGE_SIZE else None,
        first=url_for("pages.webhooks", lmr=kept) if after else None,
        lmr=lmr,
        lmrs=offered,
        most=MAX_WEBHOOKS_PER_LMR,
        problem=problem,
        draft=draft or {"lmr": kept or ""},
    )


# One webhook


@pages.get("/admin/webhooks/<number>")
def webhook(number: str) -> Response:
    """Show a webhook with its messages and, once, what a form left: a new secret, or the result of a test."""
    require_administrator()
    lmr, found = _find(number)
    return _render_webhook(lmr, found, once=take_once(f"webhook-{found}") or {})


def _render_webhook(
    lmr: Lmr, number: int, problem: Mapping[str, Any] | None = None, once: Mapping[str, Any] | None = None
) -> Response:
    before, state = read_after(request.args.get("after")), request.args.get("state", "")
    state = state if state in STATES else ""
    with services().single.connect() as connection:
        found = get_webhook(connection, lmr, number)
        waiting = find_waiting_message(connection, number)
        sent = list_deliveries(connection, found, before or None, PAGE_SIZE + 1, state or None)
    shown, kept = sent[:PAGE_SIZE], state or None
    rows = [(one, message_body(lmr.name, one.offset, one.position, one.created_at).decode()) for one in shown]
    more = (
        url_for("pages.webhook", number=number, after=shown[-1].number, state=kept) if len(sent) > PAGE_SIZE else None
    )
    return render_page(
        "admin_webhook.html",
        problem["status"] if problem else 200,
        lmr=lmr,
        webhook=found,
        waiting=waiting,
        deliveries=rows,
        state=state,
        states=STATES,
        more=more,
        first=url_for("pages.webhook", number=number, state=kept) if before else None,
        problem=problem,
        secret=(once or {}).get("secret"),
        test=(once or {}).get("test"),
    )


@pages.post("/admin/webhooks/<number>/pause")
def pause_webhook(number: str) -> Response:
    """Pause a webhook. This can be undone, so it needs no confirmation."""
    return _change(number, use_cases.pause_webhook, "webhook_paused")


@pages.post("/admin/webhooks/<number>/resume")
def resume_webhook(number: str) -> Response:
    return _change(number, use_cases.resume_webhook, "webhook_resumed")


@pages.post("/admin/webhooks/<number>/send")
def send_webhook_message(number: str) -> Response:
    return _change(number, use_cases.send_now, "message_sent")


@pages.post("/admin/webhooks/<number>/deliveries/<message>/replay")
def replay_webhook_message(number: str, message: str) -> Response:
    return _change(number, lambda lmr, found: use_cases.replay_message(lmr, found, message), "message_replayed")


def _change(number: str, change: Callable[[Lmr, int], object], said: str) -> Response:
    require_administrator()
    lmr, found = _find(number)
    try:
        change(lmr, found)
    except MdvError as error:
        return _render_webhook(lmr, found, error.problem())
    return redirect_to("webhook", number=found, said=said)


@pages.post("/admin/webhooks/<number>/test")
def test_a_webhook(number: str) -> Response:
    """Send a test message. The next page shows the answer of the receiver."""
    require_administrator()
    lmr, found = _find(number)
    try:
        _, answer = use_cases.test_webhook(lmr, found)
    except MdvError as error:
        return _render_webhook(lmr, found, error.problem())
    result = {"delivered": answer.is_success, "status": answer.status, "reason": answer.reason}
    return redirect_once(f"webhook-{found}", {"test": result}, "webhook", number=found)


# Actions that need confirmation


@pages.get("/admin/webhooks/<number>/rotate")
def ask_to_rotate_secret(number: str) -> Response:
    return _ask(number, "rotate")


@pages.post("/admin/webhooks/<number>/rotate")
def rotate_webhook_secret(number: str) -> Response:
    """Set a new secret. The next page shows it, once."""
    caller = require_administrator()
    lmr, found = _find(number)
    rotated = use_cases.rotate_secret(lmr, found, caller)
    return redirect_once(f"webhook-{found}", {"secret": rotated.secret}, "webhook", number=found)


@pages.get("/admin/webhooks/<number>/remove")
def ask_to_remove_webhook(number: str) -> Response:
    return _ask(number, "remove")


@pages.post("/admin/webhooks/<number>/remove")
def remove_webhook(number: str) -> Response:
    caller = require_administrator()
    lmr, found = _find(number)
    use_cases.delete_webhook(lmr, found, caller)
    return redirect_to("webhooks", said="webhook_removed")


def _ask(number: str, what: str) -> Response:
    require_administrator()
    lmr, found = _find(number)
    return render_page("admin_webhook_ask.html", lmr=lmr, webhook=use_cases.get_webhook(lmr, found), what=what)


# Helpers


def _find(number: str) -> tuple[Lmr, int]:
    """Return the LMR of a webhook, and the webhook's id."""
    wanted = read_webhook_id(number)
    with services().single.connect() as connection:
        name = find_lmr_of_webhook(connection, wanted)
        if name is None:
            raise NotFound(f"There is no webhook {wanted}.")
        return get_lmr(connection, name), wanted


def _find_lmr(name: str) -> Lmr:
    with services().single.connect() as connection:
        return get_lmr(connection, name)
