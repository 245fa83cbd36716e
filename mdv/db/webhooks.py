"""Stored webhooks and their messages."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from mdv.db.engine import driver
from mdv.db.load_sql import load_sql
from mdv.db.postgres_copy import array_literal
from mdv.db.tables import lmrs, webhook_deliveries, webhooks

STATES = ("waiting", "delivered", "dead")
PAUSED_BY_ADMIN = "Paused manually."
"""The reason of a webhook that was paused by an administrator or its LMR, not because of failures."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """A URL that is notified of new events in an LMR's feed. `delivered`: up to this offset. `failures` and
    `dead`: failed attempts and dead messages since the last delivery."""

    id: int
    lmr_id: int
    url: str
    secret: str = field(repr=False)
    old_secret: str | None = field(repr=False)
    old_secret_until: datetime | None
    state: str
    reason: str | None
    delivered: int
    failures: int
    failing_since: datetime | None
    dead: int
    created_at: datetime

    def secrets_at(self, now: datetime) -> tuple[str, ...]:
        """Return the secrets that sign messages: the current one, and for some time after a rotation the previous
        one."""
        old = self.old_secret if self.old_secret_until is not None and self.old_secret_until > now else None
        return (self.secret,) if old is None else (self.secret, old)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message and its state. `status` and `reason` are those of the last attempt."""

    id: UUID
    number: int
    offset: int
    position: int
    state: str
    attempts: int
    not_before: datetime
    status: int | None
    reason: str | None
    created_at: datetime
    tried_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Message:
    """A message that a worker has claimed in order to send it."""

    id: UUID
    webhook_id: int
    lmr_id: int
    lmr: str
    url: str
    secret: str = field(repr=False)
    old_secret: str | None = field(repr=False)
    offset: int
    position: int
    attempts: int
    created_at: datetime
    tried_at: datetime


WEBHOOK_COLUMNS: tuple[ColumnElement[Any], ...] = (
    webhooks.c.id, webhooks.c.lmr_id, webhooks.c.url, webhooks.c.secret, webhooks.c.old_secret,
    webhooks.c.old_secret_until, webhooks.c.state, webhooks.c.reason, webhooks.c.told_offset, webhooks.c.failures,
    webhooks.c.failing_since, webhooks.c.dead, webhooks.c.created_at,
)  # fmt: skip
_SENT = webhook_deliveries.c
_DELIVERY: tuple[ColumnElement[Any], ...] = (
    _SENT.id, _SENT.number, _SENT.offset, _SENT.position, _SENT.state, _SENT.attempts, _SENT.not_before,
    _SENT.status, _SENT.reason, _SENT.created_at, _SENT.tried_at, _SENT.ended_at,
)  # fmt: skip


# Webhooks


def add_webhook(connection: Connection, lmr_id: int, url: str, secret: str, now: datetime) -> Webhook:
    """Create a webhook. It is notified of events from now on."""
    offset, _ = read_feed_end(connection, lmr_id)
    new = insert(webhooks).values(
        lmr_id=lmr_id, url=url, secret=secret, told_offset=offset, made_offset=offset, created_at=now
    )
    return Webhook(*connection.execute(new.returning(*WEBHOOK_COLUMNS)).one())


def lock_and_count(connection: Connection, lmr_id: int) -> int | None:
    """Lock an LMR against new webhooks, and return its number of webhooks; None if there is no such LMR."""
    found = connection.execute(select(lmrs.c.id).where(lmrs.c.id == lmr_id).with_for_update(key_share=True)).first()
    if found is None:
        return None
    return connection.execute(select(func.count()).where(webhooks.c.lmr_id == lmr_id)).scalar_one()


def find_webhook(connection: Connection, lmr_id: int, number: int, lock: bool = False) -> Webhook | None:
    """Return a webhook of an LMR. `lock`: other transactions that change it, or its messages, wait."""
    query = select(*WEBHOOK_COLUMNS).where(webhooks.c.id == number, webhooks.c.lmr_id == lmr_id)
    return _hook(connection.execute(query.with_for_update(key_share=True) if lock else query).first())


def list_webhooks(connection: Connection, lmr_id: int, after: int, limit: int) -> list[Webhook]:
    query = select(*WEBHOOK_COLUMNS).where(webhooks.c.lmr_id == lmr_id, webhooks.c.id > after).order_by(webhooks.c.id)
    return [Webhook(*row) for row in connection.execute(query.limit(limit))]


def update_webhook(connection: Connection, number: int, **values: Any) -> Webhook:
    """Update columns of a locked webhook, and return it."""
    changed = update(webhooks).where(webhooks.c.id == number).values(**values)
    return Webhook(*connection.execute(changed.returning(*WEBHOOK_COLUMNS)).one())


def delete_webhook(connection: Connection, lmr_id: int, number: int) -> bool:
    """Delete a webhook and its messages. Return False if it does not exist."""
    statement = delete(webhooks).where(webhooks.c.id == number, webhooks.c.lmr_id == lmr_id)
    return connection.execute(statement).rowcount == 1


def has_active_webhooks(connection: Connection) -> bool:
    """True if there is an active webhook."""
    return connection.execute(select(webhooks.c.id).where(webhooks.c.state == "active").limit(1)).first() is not None


def read_feed_end(connection: Connection, lmr_id: int) -> tuple[int, int]:
    """Return the last offset of an LMR's feed, and its position."""
    row = _run(connection, "feed_end", lmr=lmr_id).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


# Messages


def create_messages(connection: Connection, now: datetime) -> int:
    """Create a message for every webhook that has new events and no waiting message. Return the number of messages."""
    _run(connection, "pin")
    return _run(connection, "create_messages", now=now).rowcount


def claim_message(connection: Connection, now: datetime, lost: datetime, busy: Collection[int]) -> Message | None:
    """Claim the message that has waited longest, except for `busy` LMRs. Other workers do not see it until `lost`."""
    _run(connection, "pin")
    row = _run(connection, "claim", now=now, lost=lost, busy=array_literal(busy)).fetchone()
    return Message(*row) if row else None


def lock_webhook_of(connection: Connection, message: Message) -> Webhook | None:
    """Lock and return the webhook of a claimed message; None if it was deleted."""
    return find_webhook(connection, message.lmr_id, message.webhook_id, lock=True)


def record_attempt(
    connection: Connection,
    message: Message,
    state: str,
    status: int | None,
    reason: str | None,
    now: datetime,
    not_before: datetime | None = None,
) -> bool:
    """Store the outcome of an attempt, and the time of the next one. Return False if another worker has claimed the
    message since: then the outcome of that worker counts."""
    claimed = (_SENT.id == message.id, _SENT.state == "waiting", _SENT.attempts == message.attempts,
               _SENT.tried_at == message.tried_at)  # fmt: skip
    values: dict[str, Any] = {"state": state, "status": status, "reason": reason}
    values |= {"ended_at": now} if not_before is None else {"not_before": not_before}
    return connection.execute(update(webhook_deliveries).where(*claimed).values(**values)).rowcount == 1


def add_message(connection: Connection, webhook: Webhook, now: datetime) -> Delivery:
    """Create a message with the current end of the feed, for a locked webhook."""
    offset, position = read_feed_end(connection, webhook.lmr_id)
    new = insert(webhook_deliveries).values(
        webhook_id=webhook.id, offset=offset, position=position, not_before=now, created_at=now
    )
    made = Delivery(*connection.execute(new.returning(*_DELIVERY)).one())
    update_webhook(connection, webhook.id, made_offset=offset)
    return made


def reset_message(connection: Connection, message_id: UUID, now: datetime) -> Delivery:
    """Reset the attempts of a message, and send it again now."""
    again = update(webhook_deliveries).where(_SENT.id == message_id)
    again = again.values(state="waiting", attempts=0, not_before=now, ended_at=None)
    return Delivery(*connection.execute(again.returning(*_DELIVERY)).one())


def find_waiting_message(connection: Connection, webhook_id: int) -> Delivery | None:
    """Return the message of a webhook that is waiting or being sent."""
    query = select(*_DELIVERY).where(_SENT.webhook_id == webhook_id, _SENT.state == "waiting")
    return _delivery(connection.execute(query).first())


def find_delivery(connection: Connection, webhook_id: int, message_id: UUID) -> Delivery | None:
    query = select(*_DELIVERY).where(_SENT.webhook_id == webhook_id, _SENT.id == message_id)
    return _delivery(connection.execute(query).first())


def list_deliveries(
    connection: Connection, webhook_id: int, before: int | None, limit: int, state: str | None = None
) -> list[Delivery]:
    """Return a page of a webhook's messages, newest first."""
    query = select(*_DELIVERY).where(_SENT.webhook_id == webhook_id).order_by(_SENT.number.desc()).limit(limit)
    if before is not None:
        query = query.where(_SENT.number < before)
    if state is not None:
        query = query.where(_SENT.state == state)
    return [Delivery(*row) for row in connection.execute(query)]


def trim_deliveries(connection: Connection, webhook_id: int, most: int) -> None:
    """Delete all but the last `most` messages of a webhook."""
    _run(connection, "trim_deliveries", webhook=webhook_id, most=most)


def delete_old_deliveries(connection: Connection, before: datetime) -> int:
    """Delete messages that ended before a time. Return their number."""
    return _run(connection, "delete_old", before=before).rowcount


def _hook(row: Any) -> Webhook | None:
    return Webhook(*row) if row else None


def _delivery(row: Any) -> Delivery | None:
    return Delivery(*row) if row else None


def _run(connection: Connection, name: str, **values: object) -> psycopg.Cursor[Any]:
    return driver(connection).execute(load_sql("webhooks")[name], values)
