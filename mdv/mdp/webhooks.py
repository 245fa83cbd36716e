"""Webhooks: an LMR's feed has gone on, says a message to an address; whoever gets it reads the feed as usual.

A message says how far the feed goes, and nothing of what is in it. There is one at a time for each webhook: while it is
tried again, what comes in makes no second one, and when it has ended, the next tells the newest offset. So a receiver
that was away hears of everything with one message, and one that hears twice loses nothing.
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
from mdv.webhooks.send import Answer
from mdv.webhooks.sign import make_secret, signed

MOST_WEBHOOKS = 10
"""Of one LMR."""
WAITS = (5.0, 30.0, 120.0, 600.0, 1800.0, 7200.0, 21600.0)
"""Seconds after the first, second … failed attempt; after one more the message is dead, nine hours later."""
MOST_DEAD = 3
"""Messages that die in a row before a webhook is paused. That is a day of failures, and counts none of the time in
which there was nothing to tell."""
OLD_SECRET = timedelta(hours=24)
KEPT = timedelta(days=7)
KEPT_MESSAGES = 200
GONE = 410


# What an LMR, or an admin for it, does


def add_webhook(connection: Connection, lmr: Lmr, url: str, now: datetime) -> Webhook:
    """A webhook for an address that was found good. It is told of what comes from now on."""
    has = db.lock_and_count(connection, lmr.id)
    if has is None:
        raise NotFound(f"There is no LMR {lmr.name} any more.")
    if has >= MOST_WEBHOOKS:
        raise Conflict(f"The LMR {lmr.name} has {has} webhooks, and may have no more: delete one first.")
    return db.add_webhook(connection, lmr.id, url, make_secret(), now)


def get_webhook(connection: Connection, lmr: Lmr, number: int, lock: bool = False) -> Webhook:
    found = db.find_webhook(connection, lmr.id, number, lock)
    if found is None:
        raise NotFound(f"The LMR {lmr.name} has no webhook {number}.")
    return found


def delete_webhook(connection: Connection, lmr: Lmr, number: int) -> None:
    """End a webhook; its messages go with it."""
    if not db.delete_webhook(connection, lmr.id, number):
        raise NotFound(f"The LMR {lmr.name} has no webhook {number}.")


def pause(connection: Connection, lmr: Lmr, number: int, reason: str) -> Webhook:
    """Send nothing to an address until it is resumed."""
    found = get_webhook(connection, lmr, number, lock=True)
    if found.state == "paused":
        return found
    return db.change_webhook(connection, number, state="paused", reason=reason)


def resume(connection: Connection, lmr: Lmr, number: int, now: datetime) -> Webhook:
    """Send to an address again. What it was not told, it is told now."""
    found = get_webhook(connection, lmr, number, lock=True)
    if found.state == "active":
        return found
    fresh: dict[str, Any] = {"state": "active", "reason": None, "failures": 0, "failing_since": None, "dead": 0}
    waiting = db.waiting_message(connection, number)
    if waiting is not None:
        db.try_again(connection, waiting.id, now)
    else:
        fresh["made_offset"] = found.told
    return db.change_webhook(connection, number, **fresh)


def rotate(connection: Connection, lmr: Lmr, number: int, now: datetime) -> Webhook:
    """Another secret. For a day the one before signs as well, so that the receiver can change over."""
    found = get_webhook(connection, lmr, number, lock=True)
    return db.change_webhook(
        connection, number, secret=make_secret(), old_secret=found.secret, old_secret_until=now + OLD_SECRET
    )


def tell_now(connection: Connection, lmr: Lmr, number: int, now: datetime) -> Delivery:
    """A message that says how far the feed goes now, told before or not. One that waits is sent now instead."""
    webhook = _active(connection, lmr, number)
    waiting = db.waiting_message(connection, number)
    return db.try_again(connection, waiting.id, now) if waiting else db.add_message(connection, webhook, now)


def replay(connection: Connection, lmr: Lmr, number: int, message: UUID, now: datetime) -> Delivery:
    """Give a dead message all its attempts again, under the same id."""
    _active(connection, lmr, number)
    found = db.find_delivery(connection, number, message)
    if found is None:
        raise NotFound(f"The webhook {number} has no message {message}, or it is not kept any more.")
    if found.state != "dead":
        how = "was delivered" if found.state == "delivered" else "waits for its next attempt"
        raise Conflict(f"The message {message} is not dead: it {how}. A message of now can be sent in its place.")
    waiting = db.waiting_message(connection, number)
    if waiting is not None:
        raise Conflict(f"The message {waiting.id} waits to be sent, and tells all that {message} does.")
    return db.try_again(connection, message, now)


def _active(connection: Connection, lmr: Lmr, number: int) -> Webhook:
    webhook = get_webhook(connection, lmr, number, lock=True)
    if webhook.state != "active":
        raise Conflict(f"The webhook {number} is paused ({webhook.reason}): resume it first.")
    return webhook


# What is sent


@dataclass(frozen=True, slots=True)
class Letter:
    """A body and the headers that sign it."""

    body: bytes
    headers: dict[str, str]


def letter_of(message: Message, now: datetime) -> Letter:
    """A message as it is sent: the same body at every attempt, signed anew."""
    data = {"lmr": message.lmr, "offset": message.offset, "position": message.position}
    keys = (message.secret,) if message.old_secret is None else (message.secret, message.old_secret)
    return _letter(message.id, "feed.advanced", message.created_at, data, keys, now)


def trial_letter(webhook: Webhook, lmr: Lmr, message: UUID, now: datetime) -> Letter:
    """A message that says nothing, to try whether it arrives."""
    return _letter(message, "webhook.test", now, {"lmr": lmr.name}, webhook.secrets_at(now), now)


def _letter(
    message: UUID, kind: str, made: datetime, data: dict[str, Any], keys: tuple[str, ...], now: datetime
) -> Letter:
    moment = made.astimezone(UTC).isoformat().replace("+00:00", "Z")
    body = json.dumps({"type": kind, "timestamp": moment, "data": data}, ensure_ascii=False).encode()
    return Letter(body, signed(str(message), int(now.timestamp()), body, keys))


# What came of it


def settle(
    connection: Connection, message: Message, answer: Answer, now: datetime, chance: Callable[[], float]
) -> str | None:
    """Write down what came of an attempt: the message is `delivered`, `waiting` for the next one, or `dead`. None where
    somebody else has it by now."""
    webhook = db.lock_for(connection, message)
    if webhook is None:
        return None
    if answer.is_success:
        if not db.note_attempt(connection, message, "delivered", answer.status, None, now):
            return None
        told = max(webhook.told, message.offset)
        db.change_webhook(connection, webhook.id, told_offset=told, failures=0, failing_since=None, dead=0)
        db.trim_one(connection, webhook.id, KEPT_MESSAGES)
        return "delivered"
    seconds = None if answer.status == GONE else wait_after(message.attempts, answer.retry_after, chance)
    state, next_at = ("dead", None) if seconds is None else ("waiting", now + timedelta(seconds=seconds))
    if not db.note_attempt(connection, message, state, answer.status, answer.reason, now, next_at):
        return None
    dead = webhook.dead + (state == "dead")
    failed: dict[str, Any] = {"failures": webhook.failures + 1, "failing_since": webhook.failing_since or now}
    if webhook.state == "active" and answer.status == GONE:
        failed |= {"state": "paused", "reason": "The receiver answered 410: it is gone for good."}
    elif webhook.state == "active" and dead >= MOST_DEAD:
        failed |= {"state": "paused", "reason": f"{dead} messages died in a row, the last so: {answer.reason}"}
    db.change_webhook(connection, webhook.id, dead=dead, **failed)
    if state == "dead":
        db.trim_one(connection, webhook.id, KEPT_MESSAGES)
    return state


def wait_after(attempts: int, asked: float | None, chance: Callable[[], float]) -> float | None:
    """The seconds until the next attempt, after so many; None where there is none. What the receiver asks for is
    heeded, within the longest time that we would wait ourselves.

    >>> [wait_after(n, None, lambda: 0.5) for n in (1, 2, 7, 8)]
    [5.0, 30.0, 21600.0, None]
    >>> wait_after(1, 90, lambda: 0.0), wait_after(1, 10**6, lambda: 1.0)
    (90, 21600.0)
    """
    if attempts > len(WAITS):
        return None
    # Receivers that failed together are not asked again together.
    own = WAITS[attempts - 1] * (0.8 + 0.4 * chance())
    return max(own, min(asked or 0, WAITS[-1]))


def is_spent(message: Message) -> bool:
    """Whether a message has had all its attempts, of the last of which nobody ever told."""
    return message.attempts > len(WAITS) + 1
