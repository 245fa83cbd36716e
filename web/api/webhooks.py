"""/lmrs/L/webhooks: webhooks of an LMR and their deliveries."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from mdv.mdp import webhooks
from mdv.mdp.webhooks import Delivery, Webhook
from web.auth import current_caller, require_lmr_access
from web.json_bodies import describe_json_body, read_json_body
from web.models import DeliveryQuery, DeliveryShown, ListQuery, NewWebhook, WebhookSecret, WebhookShown, WebhookTrial
from web.number_params import read_after, read_webhook_id
from web.openapi import describe_json, describe_problems, page_schema
from web.routing import RouteGroup
from web.services import services
from web.use_cases import webhooks as use_cases

routes = RouteGroup("webhooks", "Webhooks that are called when the feed of an LMR advances")

_LIST = "/lmrs/<lmr>/webhooks"
_ONE = _LIST + "/<number>"
_PAGE = describe_json(page_schema({"type": "object"}), "A page")


@routes.route("POST", _LIST, "Add a webhook", {201: WebhookSecret} | describe_problems(404, 408, 409, 413, 415),
            body=describe_json_body(NewWebhook, {"url": "https://hooks.example/mdv"}))  # fmt: skip
def add(lmr: str) -> tuple[dict[str, Any], int]:
    """When the feed of the LMR advances, MDV posts `{"type": "feed.advanced", "timestamp": …, "data": {"lmr": …,
    "offset": …, "position": …}}` to the URL, signed according to Standard Webhooks. The receiver then reads the feed as
    usual. Any 2xx status confirms the message. Redirects are not followed. Other results are retried for nine hours;
    410 pauses the webhook. The signing secret is shown only in this response."""
    found = require_lmr_access(lmr)
    return _with_secret(use_cases.add_webhook(found, read_json_body(NewWebhook).url, current_caller())), 201


@routes.route("GET", _LIST, "List webhooks", {200: _PAGE} | describe_problems(404), query=ListQuery)
def list_(query: ListQuery, lmr: str) -> dict[str, Any]:
    found = require_lmr_access(lmr)
    with services().single.connect() as connection:
        rows = webhooks.list_webhooks(connection, found, read_after(query.after), query.limit + 1)
    items = [_webhook_as_dict(row) for row in rows[: query.limit]]
    return {"items": items, "next": str(items[-1]["id"]) if len(rows) > query.limit else None}


@routes.route("GET", _ONE, "Get a webhook", {200: WebhookShown} | describe_problems(404))
def get(lmr: str, number: str) -> dict[str, Any]:
    """Returns its state, its progress and its failures."""
    return _webhook_as_dict(use_cases.get_webhook(require_lmr_access(lmr), read_webhook_id(number)))


@routes.route("DELETE", _ONE, "Delete a webhook", {200: WebhookShown} | describe_problems(404))
def delete(lmr: str, number: str) -> dict[str, Any]:
    """Also deletes its messages."""
    found = require_lmr_access(lmr)
    return _webhook_as_dict(use_cases.delete_webhook(found, read_webhook_id(number), current_caller()))


@routes.route("POST", _ONE + "/pause", "Pause a webhook", {200: WebhookShown} | describe_problems(404))
def pause(lmr: str, number: str) -> dict[str, Any]:
    """No messages are sent until the webhook is resumed."""
    return _webhook_as_dict(use_cases.pause_webhook(require_lmr_access(lmr), read_webhook_id(number)))


@routes.route("POST", _ONE + "/resume", "Resume a webhook", {200: WebhookShown} | describe_problems(404))
def resume(lmr: str, number: str) -> dict[str, Any]:
    """If the feed has advanced meanwhile, a message is sent immediately."""
    return _webhook_as_dict(use_cases.resume_webhook(require_lmr_access(lmr), read_webhook_id(number)))


@routes.route("POST", _ONE + "/rotate", "Rotate the secret of a webhook", {200: WebhookSecret} | describe_problems(404))
def rotate(lmr: str, number: str) -> dict[str, Any]:
    """For one day, messages are signed with both the new and the previous secret."""
    found = require_lmr_access(lmr)
    return _with_secret(use_cases.rotate_secret(found, read_webhook_id(number), current_caller()))


@routes.route("POST", _ONE + "/test", "Test a webhook", {200: WebhookTrial} | describe_problems(404, 429))
def test(lmr: str, number: str) -> dict[str, Any]:
    """Sends a signed message of the type `webhook.test` and returns the result within 15 s."""
    message, answer = use_cases.test_webhook(require_lmr_access(lmr), read_webhook_id(number))
    return {
        "id": str(message),
        "delivered": answer.is_success,
        "status": answer.status,
        "reason": answer.reason,
    }


# Messages


@routes.route("GET", _ONE + "/deliveries", "List messages", {200: _PAGE} | describe_problems(404), query=DeliveryQuery)
def deliveries(query: DeliveryQuery, lmr: str, number: str) -> dict[str, Any]:
    """Newest first. Finished messages are kept for seven days, at most 200 per webhook."""
    webhook = use_cases.get_webhook(require_lmr_access(lmr), read_webhook_id(number))
    before = None if query.after is None else read_after(query.after)
    with services().single.connect() as connection:
        rows = webhooks.list_deliveries(connection, webhook, before, query.limit + 1, query.state)
    items = [_delivery_as_dict(row) for row in rows[: query.limit]]
    return {"items": items, "next": str(rows[query.limit - 1].number) if len(rows) > query.limit else None}


@routes.route("POST", _ONE + "/deliveries", "Send a message now", {201: DeliveryShown} | describe_problems(404, 409))
def send_now(lmr: str, number: str) -> tuple[dict[str, Any], int]:
    """Sends the current offset of the feed, even if it was already sent. A waiting message is replaced."""
    return _delivery_as_dict(use_cases.send_now(require_lmr_access(lmr), read_webhook_id(number))), 201


@routes.route("POST", _ONE + "/deliveries/<message>/replay", "Send a dead message again",
            {200: DeliveryShown} | describe_problems(404, 409))  # fmt: skip
def replay(lmr: str, number: str, message: str) -> dict[str, Any]:
    """The message gets a new series of attempts under the same id."""
    return _delivery_as_dict(use_cases.replay_message(require_lmr_access(lmr), read_webhook_id(number), message))


def _text(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def _webhook_as_dict(webhook: Webhook) -> dict[str, Any]:
    return {
        "id": webhook.id,
        "url": webhook.url,
        "state": webhook.state,
        "reason": webhook.reason,
        "told": webhook.delivered,
        "failures": webhook.failures,
        "failing_since": _text(webhook.failing_since),
        "created_at": _text(webhook.created_at),
        "old_secret_until": _text(webhook.old_secret_until),
    }


def _with_secret(webhook: Webhook) -> dict[str, Any]:
    return _webhook_as_dict(webhook) | {"secret": webhook.secret}


def _delivery_as_dict(sent: Delivery) -> dict[str, Any]:
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
