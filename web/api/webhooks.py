"""/lmrs/L/webhooks: addresses that are told when an LMR's feed goes on, and the messages to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from mdv.db import webhooks as db
from mdv.db.lmrs import Lmr
from mdv.db.webhooks import Delivery, Webhook
from mdv.errors import NotFound, TooMany
from mdv.mdp import webhooks
from mdv.webhooks.address import allowed_addresses, read_url
from mdv.webhooks.send import send
from web.auth import lmr_named
from web.bodies import json_body, json_request
from web.calls import Calls
from web.models import DeliveryQuery, DeliveryShown, Page, WebhookDraft, WebhookSecret, WebhookShown, WebhookTrial
from web.numbers import after_number, webhook_number
from web.openapi import json_answer, page, problems
from web.services import services
from workers.signals import WEBHOOKS

calls = Calls("webhooks", "Addresses that are told when an LMR's feed goes on")

_LIST = "/lmrs/<lmr>/webhooks"
_ONE = _LIST + "/<number>"
_PAGE = json_answer(page({"type": "object"}), "A page")


@calls.call("POST", _LIST, "Add a webhook", {201: WebhookSecret} | problems(404, 408, 409, 413, 415),
            body=json_request(WebhookDraft, {"url": "https://hooks.example/mdv"}))  # fmt: skip
def add(lmr: str) -> tuple[dict[str, Any], int]:
    """When the LMR's feed has gone on, MDV posts `{"type": "feed.advanced", "timestamp": …, "data": {"lmr": …,
    "offset": …, "position": …}}` to the address, signed as Standard Webhooks has it; whoever gets it reads the feed as
    usual. Any answer of 2xx will do; redirects are not followed; all else is tried again for nine hours, and 410 pauses
    the webhook. The secret is in this answer alone."""
    found = lmr_named(lmr)
    target = read_url(json_body(WebhookDraft).url)
    allowed_addresses(target, services().config.webhook_private)
    with services().engine.begin() as connection:
        made = webhooks.add_webhook(connection, found, target.text, _now())
    return _with_secret(made), 201


@calls.call("GET", _LIST, "A page of webhooks", {200: _PAGE} | problems(404), query=Page)
def list_(query: Page, lmr: str) -> dict[str, Any]:
    found = lmr_named(lmr)
    with services().single.connect() as connection:
        rows = db.list_webhooks(connection, found.id, after_number(query.after), query.limit + 1)
    items = [_shown(row) for row in rows[: query.limit]]
    return {"items": items, "next": str(items[-1]["id"]) if len(rows) > query.limit else None}


@calls.call("GET", _ONE, "One webhook", {200: WebhookShown} | problems(404))
def get(lmr: str, number: str) -> dict[str, Any]:
    """Its state, how far it was told, and how long it has been failing."""
    return _shown(_webhook(lmr_named(lmr), number))


@calls.call("DELETE", _ONE, "Delete a webhook", {200: WebhookShown} | problems(404))
def delete(lmr: str, number: str) -> dict[str, Any]:
    """With its messages."""
    found = lmr_named(lmr)
    with services().engine.begin() as connection:
        gone = webhooks.get_webhook(connection, found, webhook_number(number), lock=True)
        webhooks.delete_webhook(connection, found, gone.id)
    return _shown(gone)


@calls.call("POST", _ONE + "/pause", "Pause a webhook", {200: WebhookShown} | problems(404))
def pause(lmr: str, number: str) -> dict[str, Any]:
    """Nothing is sent to it until it is resumed."""
    found = lmr_named(lmr)
    with services().engine.begin() as connection:
        return _shown(webhooks.pause(connection, found, webhook_number(number), db.BY_HAND))


@calls.call("POST", _ONE + "/resume", "Resume a webhook", {200: WebhookShown} | problems(404))
def resume(lmr: str, number: str) -> dict[str, Any]:
    """If the feed has gone on meanwhile, it is told at once."""
    found = lmr_named(lmr)
    with services().engine.begin() as connection:
        resumed = webhooks.resume(connection, found, webhook_number(number), _now())
    services().wake_worker(WEBHOOKS)
    return _shown(resumed)


@calls.call("POST", _ONE + "/rotate", "Give a webhook another secret", {200: WebhookSecret} | problems(404))
def rotate(lmr: str, number: str) -> dict[str, Any]:
    """For a day, messages are signed with the secret of before as well."""
    found = lmr_named(lmr)
    with services().engine.begin() as connection:
        return _with_secret(webhooks.rotate(connection, found, webhook_number(number), _now()))


@calls.call("POST", _ONE + "/test", "Try a webhook", {200: WebhookTrial} | problems(404, 429))
def try_(lmr: str, number: str) -> dict[str, Any]:
    """A signed message of the type `webhook.test` is sent now; the answer tells what came of it, within 15 s."""
    found = lmr_named(lmr)
    webhook, message, now = _webhook(found, number), uuid4(), _now()
    letter = webhooks.trial_letter(webhook, found, message, now)
    with _alone(found):
        answer = send(webhook.url, letter.body, letter.headers, services().config.webhook_private)
    told = {"delivered": answer.is_success, "status": answer.status, "reason": answer.reason}
    return {"id": str(message)} | told


# Messages


@calls.call("GET", _ONE + "/deliveries", "A page of messages", {200: _PAGE} | problems(404), query=DeliveryQuery)
def deliveries(query: DeliveryQuery, lmr: str, number: str) -> dict[str, Any]:
    """The newest first. Those that ended are kept for seven days, 200 of a webhook at most."""
    webhook = _webhook(lmr_named(lmr), number)
    before = None if query.after is None else after_number(query.after)
    with services().single.connect() as connection:
        rows = db.list_deliveries(connection, webhook.id, before, query.limit + 1, query.state)
    items = [_delivery(row) for row in rows[: query.limit]]
    return {"items": items, "next": str(rows[query.limit - 1].number) if len(rows) > query.limit else None}


@calls.call("POST", _ONE + "/deliveries", "Send a message now", {201: DeliveryShown} | problems(404, 409))
def tell(lmr: str, number: str) -> tuple[dict[str, Any], int]:
    """It says how far the feed goes now, whether that was told before or not. One that waits is sent in its place."""
    found = lmr_named(lmr)
    with services().engine.begin() as connection:
        made = webhooks.tell_now(connection, found, webhook_number(number), _now())
    services().wake_worker(WEBHOOKS)
    return _delivery(made), 201


@calls.call("POST", _ONE + "/deliveries/<message>/replay", "Send a dead message again",
            {200: DeliveryShown} | problems(404, 409))  # fmt: skip
def replay(lmr: str, number: str, message: str) -> dict[str, Any]:
    """It gets all its attempts anew, under the same id."""
    found = lmr_named(lmr)
    try:
        wanted = UUID(message)
    except ValueError:
        raise NotFound(f"{message!r} is not the id of a message.") from None
    with services().engine.begin() as connection:
        again = webhooks.replay(connection, found, webhook_number(number), wanted, _now())
    services().wake_worker(WEBHOOKS)
    return _delivery(again)


_trying: set[int] = set()


@contextmanager
def _alone(lmr: Lmr) -> Iterator[None]:
    """One trial of an LMR at a time: a receiver may be slow."""
    if lmr.id in _trying:
        raise TooMany(f"A webhook of {lmr.name} is being tried already: wait for what comes of it.")
    _trying.add(lmr.id)
    try:
        yield
    finally:
        _trying.discard(lmr.id)


def _webhook(lmr: Lmr, number: str) -> Webhook:
    with services().single.connect() as connection:
        return webhooks.get_webhook(connection, lmr, webhook_number(number))


def _now() -> datetime:
    return datetime.now(UTC)


def _text(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def _shown(webhook: Webhook) -> dict[str, Any]:
    return {
        "id": webhook.id,
        "url": webhook.url,
        "state": webhook.state,
        "reason": webhook.reason,
        "told": webhook.told,
        "failures": webhook.failures,
        "failing_since": _text(webhook.failing_since),
        "created_at": _text(webhook.created_at),
        "old_secret_until": _text(webhook.old_secret_until),
    }


def _with_secret(webhook: Webhook) -> dict[str, Any]:
    return _shown(webhook) | {"secret": webhook.secret}


def _delivery(sent: Delivery) -> dict[str, Any]:
    return {
        "id": str(sent.id),
        "offset": sent.offset,
        "position": sent.position,
        "state": sent.state,
        "attempts": sent.attempts,
        "not_before": _text(sent.not_before) if sent.state == "waiting" else None,
        "status": sent.status,
        "reason": sent.reason,
        "created_at": _text(sent.created_at),
        "tried_at": _text(sent.tried_at),
        "ended_at": _text(sent.ended_at),
    }
