"""Webhooks: a message to a URL tells a receiver that an LMR's feed has new events. The receiver then reads the feed.

A message contains the newest offset of the feed and no events. A webhook has at most one message at a time: while it is
being retried, new events do not create another one. When it has ended, the next message contains the newest offset. So
one message is enough for a receiver that was unavailable, and receiving a message twice does no harm.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from mdv.db import webhooks as db
from mdv.db.lmrs import Lmr
from mdv.db.webhooks import Delivery, Message, Webhook
from mdv.errors import Conflict, NotFound
from mdv.webhooks.send import WebhookResponse
from mdv.webhooks.sign import make_secret, signature_headers

__all__ = [
    "MAX_WEBHOOKS_PER_LMR",
    "Delivery",
    "SignedMessage",
    "Webhook",
    "add_webhook",
    "delete_webhook",
    "find_waiting_message",
    "get_webhook",
    "has_no_attempts_left",
    "list_deliveries",
    "list_webhooks",
    "message_body",
    "pause_webhook",
    "record_attempt",
    "resume_webhook",
    "retry_dead_message",
    "retry_delay",
    "rotate_secret",
    "send_now",
    "sign_message",
    "sign_test_message",
]

MAX_WEBHOOKS_PER_LMR = 10
RETRY_DELAYS_SECONDS = (5.0, 30.0, 120.0, 600.0, 1800.0, 7200.0, 21600.0)
"""The delay after the first, second … failed attempt. After one more failure, about nine hours later, the message is a
dead letter."""
MAX_DEAD_MESSAGES_IN_A_ROW = 3
"""A webhook is paused after this many dead messages in a row. That is about a day of failures, not counting the time
without new events."""
OLD_SECRET_VALIDITY = timedelta(hours=24)
MESSAGE_RETENTION = timedelta(days=7)
MAX_KEPT_MESSAGES = 200
HTTP_GONE = 410


# Operations of an LMR or an administrator


def add_webhook(connection: Connection, lmr: Lmr, url: str, now: datetime) -> Webhook:
    """Add a webhook for a URL that has been checked. It is notified of events from now on."""
    has = db.lock_and_count(connection, lmr.id)
    if has is None:
        raise NotFound(f"The LMR {lmr.name} has been deleted.")
    if has >= MAX_WEBHOOKS_PER_LMR:
        raise Conflict(f"The LMR {lmr.name} has {has} webhooks, which is the maximum. Delete one first.")
    return db.add_webhook(connection, lmr.id, url, make_secret(), now)


def get_webhook(connection: Connection, lmr: Lmr, number: int, lock: bool = False) -> Webhook:
    found = db.find_webhook(connection, lmr.id, number, lock)
    if found is None:
        raise NotFound(f"The LMR {lmr.name} has no webhook {number}.")
    return found


def list_webhooks(connection: Connection, lmr: Lmr, after: int, limit: int) -> list[Webhook]:
    """Return up to `limit` webhooks of an LMR with an id greater than `after`."""
    return db.list_webhooks(connection, lmr.id, after, limit)


def list_deliveries(
    connection: Connection, webhook: Webhook, before: int | None, limit: int, state: str | None = None
) -> list[Delivery]:
    """Return a page of a webhook's messages, newest first."""
    return db.list_deliveries(connection, webhook.id, before, limit, state)


def find_waiting_message(connection: Connection, number: int) -> Delivery | None:
    """Return the message of a webhook that is waiting or being sent; None if there is none."""
    return db.find_waiting_message(connection, number)


def delete_webhook(connection: Connection, lmr: Lmr, number: int) -> None:
    """Delete a webhook with its messages."""
    if not db.delete_webhook(connection, lmr.id, number):
        raise NotFound(f"The LMR {lmr.name} has no webhook {number}.")


def pause_webhook(connection: Connection, lmr: Lmr, number: int, reason: str = db.PAUSED_BY_ADMIN) -> Webhook:
    """Pause a webhook: nothing is sent until it is resumed."""
    found = get_webhook(connection, lmr, number, lock=True)
    if found.state == "paused":
        return found
    return db.update_webhook(connection, number, state="paused", reason=reason)


def resume_webhook(connection: Connection, lmr: Lmr, number: int, now: datetime) -> Webhook:
    """Resume a webhook. If there were events meanwhile, a message is sent now."""
    found = get_webhook(connection, lmr, number, lock=True)
    if found.state == "active":
        return found
    fresh: dict[str, Any] = {"state": "active", "reason": None, "failures": 0, "failing_since": None, "dead": 0}
    waiting = db.find_waiting_message(connection, number)
    if waiting is not None:
        db.reset_message(connection, waiting.id, now)
    else:
        fresh["made_offset"] = found.delivered
    return db.update_webhook(connection, number, **fresh)


def rotate_secret(connection: Connection, lmr: Lmr, number: int, now: datetime) -> Webhook:
    """Set a new secret. The old one also signs for a day, so that the receiver can switch."""
    found = get_webhook(connection, lmr, number, lock=True)
    return db.update_webhook(
        connection, number, secret=make_secret(), old_secret=found.secret, old_secret_until=now + OLD_SECRET_VALIDITY
    )


def send_now(connection: Connection, lmr: Lmr, number: int, now: datetime) -> Delivery:
    """Send a message with the newest offset now, even if it was sent before. A waiting message is sent instead."""
    webhook = _active(connection, lmr, number)
    waiting = db.find_waiting_message(connection, number)
    return db.reset_message(connection, waiting.id, now) if waiting else db.add_message(connection, webhook, now)


def retry_dead_message(connection: Connection, lmr: Lmr, number: int, message: UUID, now: datetime) -> Delivery:
    """Retry a dead message with all attempts, with the same id."""
    _active(connection, lmr, number)
    found = db.find_delivery(connection, number, message)
    if found is None:
        raise NotFound(f"The webhook {number} has no message {message}. Old messages are deleted.")
    if found.state != "dead":
        how = "was delivered" if found.state == "delivered" else "waits for its next attempt"
        raise Conflict(f"The message {message} is not dead: it {how}. Send a new message instead.")
    waiting = db.find_waiting_message(connection, number)
    if waiting is not None:
        raise Conflict(f"The message {waiting.id} is waiting to be sent and replaces {message}.")
    return db.reset_message(connection, message, now)


def _active(connection: Connection, lmr: Lmr, number: int) -> Webhook:
    webhook = get_webhook(connection, lmr, number, lock=True)
    if webhook.state != "active":
        raise Conflict(f"The webhook {number} is paused ({webhook.reason}). Resume it first.")
    return webhook


# Messages


@dataclass(frozen=True, slots=True)
class SignedMessage:
    """A body with signature headers."""

    body: bytes
    headers: dict[str, str]


def sign_message(message: Message, now: datetime) -> SignedMessage:
    """Return a message as it is sent. Every attempt has the same body and a new signature."""
    body = message_body(message.lmr, message.offset, message.position, message.created_at)
    keys = (message.secret,) if message.old_secret is None else (message.secret, message.old_secret)
    return _signed_message(message.id, body, keys, now)


def message_body(lmr: str, offset: int, position: int, created_at: datetime) -> bytes:
    """Return the payload of a message: the feed of the LMR has advanced.

    >>> json.loads(message_body("library", 17, 4, datetime(2031, 1, 31, tzinfo=UTC)))["data"]
    {'lmr': 'library', 'offset': 17, 'position': 4}
    """
    return _body("feed.advanced", created_at, {"lmr": lmr, "offset": offset, "position": position})


def sign_test_message(webhook: Webhook, lmr: Lmr, message: UUID, now: datetime) -> SignedMessage:
    """Return a test message, to check that the receiver gets it."""
    body = _body("webhook.test", now, {"lmr": lmr.name})
    return _signed_message(message, body, webhook.secrets_at(now), now)


def _body(kind: str, made: datetime, data: dict[str, Any]) -> bytes:
    moment = made.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return json.dumps({"type": kind, "timestamp": moment, "data": data}, ensure_ascii=False).encode()


def _signed_message(message: UUID, body: bytes, keys: tuple[str, ...], now: datetime) -> SignedMessage:
    return SignedMessage(body, signature_headers(str(message), int(now.timestamp()), body, keys))


# Results of attempts


def record_attempt(
    connection: Connection, message: Message, response: WebhookResponse, now: datetime, chance: Callable[[], float]
) -> str | None:
    """Record the result of an attempt. Return the state of the message: `delivered`, `waiting` for the next attempt, or
    `dead`; None if another process has claimed it meanwhile."""
    webhook = db.lock_webhook_of(connection, message)
    if webhook is None:
        return None
    if response.is_success:
        if not db.record_attempt(connection, message, "delivered", response.status, None, now):
            return None
        delivered = max(webhook.delivered, message.offset)
        db.update_webhook(connection, webhook.id, told_offset=delivered, failures=0, failing_since=None, dead=0)
        db.trim_deliveries(connection, webhook.id, MAX_KEPT_MESSAGES)
        return "delivered"
    seconds = None if response.status == HTTP_GONE else retry_delay(message.attempts, response.retry_after, chance)
    state, next_at = ("dead", None) if seconds is None else ("waiting", now + timedelta(seconds=seconds))
    if not db.record_attempt(connection, message, state, response.status, response.reason, now, next_at):
        return None
    dead = webhook.dead + (state == "dead")
    failed: dict[str, Any] = {"failures": webhook.failures + 1, "failing_since": webhook.failing_since or now}
    if webhook.state == "active" and response.status == HTTP_GONE:
        failed |= {"state": "paused", "reason": "The receiver responded with 410 (gone)."}
    elif webhook.state == "active" and dead >= MAX_DEAD_MESSAGES_IN_A_ROW:
        failed |= {
            "state": "paused",
            "reason": f"{dead} messages in a row could not be delivered. The last error: {response.reason}",
        }
    db.update_webhook(connection, webhook.id, dead=dead, **failed)
    if state == "dead":
        db.trim_deliveries(connection, webhook.id, MAX_KEPT_MESSAGES)
    return state


def retry_delay(attempts: int, retry_after: float | None, chance: Callable[[], float]) -> float | None:
    """Return the seconds until the next attempt, after `attempts` attempts; None if there is no next one.

    A Retry-After of the receiver is respected, up to our longest delay.

    >>> [retry_delay(n, None, lambda: 0.5) for n in (1, 2, 7, 8)]
    [5.0, 30.0, 21600.0, None]
    >>> retry_delay(1, 90, lambda: 0.0), retry_delay(1, 10**6, lambda: 1.0)
    (90, 21600.0)
    """
    if attempts > len(RETRY_DELAYS_SECONDS):
        return None
    # Jitter: receivers that failed together are not retried together.
    own = RETRY_DELAYS_SECONDS[attempts - 1] * (0.8 + 0.4 * chance())
    return max(own, min(retry_after or 0, RETRY_DELAYS_SECONDS[-1]))


def has_no_attempts_left(message: Message) -> bool:
    """True if a message has had all its attempts and the result of the last one was never recorded."""
    return message.attempts > len(RETRY_DELAYS_SECONDS) + 1
