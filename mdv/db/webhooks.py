"""Webhooks as stored: addresses, and the messages to them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from mdv.db.copy import array_field
from mdv.db.engine import driver
from mdv.db.statements import statements
from mdv.db.tables import lmrs, webhook_deliveries, webhooks

STATES = ("waiting", "delivered", "dead")
BY_HAND = "Somebody has paused it."
"""The reason of a webhook that was not paused for its failures."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """An address that is told when an LMR's feed goes on. `told`: the offset up to which it was; `failures`: since
    anything was delivered, and `dead`: the messages that died since then."""

    id: int
    lmr_id: int
    url: str
    secret: str = field(repr=False)
    old_secret: str | None = field(repr=False)
    old_secret_until: datetime | None
    state: str
    reason: str | None
    told: int
    failures: int
    failing_since: datetime | None
    dead: int
    created_at: datetime

    def secrets_at(self, now: datetime) -> tuple[str, ...]:
        """What signs its messages: the secret, and for some time after a rotation the one before."""
        old = self.old_secret if self.old_secret_until is not None and self.old_secret_until > now else None
        return (self.secret,) if old is None else (self.secret, old)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message and what became of it so far. `status` and `reason` are those of the last attempt."""

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
    """A message that a worker has taken, to send it now."""

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


_HOOK: tuple[ColumnElement[Any], ...] = (
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
    """A new webhook, which is told of what comes from now on."""
    offset, _ = newest(connection, lmr_id)
    new = insert(webhooks).values(
        lmr_id=lmr_id, url=url, secret=secret, told_offset=offset, made_offset=offset, created_at=now
    )
    return Webhook(*connection.execute(new.returning(*_HOOK)).one())


def lock_and_count(connection: Connection, lmr_id: int) -> int | None:
    """How many webhooks an LMR has; nobody adds another meanwhile. None where there is no such LMR."""
    found = connection.execute(select(lmrs.c.id).where(lmrs.c.id == lmr_id).with_for_update(key_share=True)).first()
    if found is None:
        return None
    return connection.execute(select(func.count()).where(webhooks.c.lmr_id == lmr_id)).scalar_one()


def find_webhook(connection: Connection, lmr_id: int, number: int, lock: bool = False) -> Webhook | None:
    """One webhook of an LMR. `lock`: whoever else wants to change it, or its messages, waits."""
    query = select(*_HOOK).where(webhooks.c.id == number, webhooks.c.lmr_id == lmr_id)
    return _hook(connection.execute(query.with_for_update(key_share=True) if lock else query).first())


def list_webhooks(connection: Connection, lmr_id: int, after: int, limit: int) -> list[Webhook]:
    query = select(*_HOOK).where(webhooks.c.lmr_id == lmr_id, webhooks.c.id > after).order_by(webhooks.c.id)
    return [Webhook(*row) for row in connection.execute(query.limit(limit))]


def change_webhook(connection: Connection, number: int, **values: Any) -> Webhook:
    """Let a locked webhook be otherwise in some columns."""
    changed = update(webhooks).where(webhooks.c.id == number).values(**values)
    return Webhook(*connection.execute(changed.returning(*_HOOK)).one())


def delete_webhook(connection: Connection, lmr_id: int, number: int) -> bool:
    """Forget a webhook and its messages; False where there is none."""
    gone = delete(webhooks).where(webhooks.c.id == number, webhooks.c.lmr_id == lmr_id)
    return connection.execute(gone).rowcount == 1


def any_active(connection: Connection) -> bool:
    """Whether anybody is to be told at all."""
    return connection.execute(select(webhooks.c.id).where(webhooks.c.state == "active").limit(1)).first() is not None


def newest(connection: Connection, lmr_id: int) -> tuple[int, int]:
    """The last offset of an LMR's feed, and the position there."""
    row = _run(connection, "newest", lmr=lmr_id).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


# Messages


def make_messages(connection: Connection, now: datetime) -> int:
    """Make a message for every webhook that is due one; how many."""
    _run(connection, "pin")
    return _run(connection, "make_messages", now=now).rowcount


def claim(connection: Connection, now: datetime, lost: datetime, busy: Collection[int]) -> Message | None:
    """Take the message that has waited longest, of none of the `busy` LMRs. Who else looks for messages does not see it
    before `lost`."""
    _run(connection, "pin")
    row = _run(connection, "claim", now=now, lost=lost, busy=array_field(busy)).fetchone()
    return Message(*row) if row else None


def lock_for(connection: Connection, message: Message) -> Webhook | None:
    """The webhook of a message that was taken, locked; None where it is gone."""
    return find_webhook(connection, message.lmr_id, message.webhook_id, lock=True)


def note_attempt(
    connection: Connection,
    message: Message,
    state: str,
    status: int | None,
    reason: str | None,
    now: datetime,
    not_before: datetime | None = None,
) -> bool:
    """Write down what came of an attempt at a message, and when the next one is; False where another worker has taken
    it meanwhile, so that its outcome counts."""
    mine = (_SENT.id == message.id, _SENT.state == "waiting", _SENT.attempts == message.attempts,
            _SENT.tried_at == message.tried_at)  # fmt: skip
    values: dict[str, Any] = {"state": state, "status": status, "reason": reason}
    values |= {"ended_at": now} if not_before is None else {"not_before": not_before}
    return connection.execute(update(webhook_deliveries).where(*mine).values(**values)).rowcount == 1


def add_message(connection: Connection, webhook: Webhook, now: datetime) -> Delivery:
    """A message that tells how far the feed of a locked webhook goes now."""
    offset, position = newest(connection, webhook.lmr_id)
    new = insert(webhook_deliveries).values(
        webhook_id=webhook.id, offset=offset, position=position, not_before=now, created_at=now
    )
    made = Delivery(*connection.execute(new.returning(*_DELIVERY)).one())
    change_webhook(connection, webhook.id, made_offset=offset)
    return made


def try_again(connection: Connection, message_id: UUID, now: datetime) -> Delivery:
    """Let a message have all its attempts anew, beginning now."""
    again = update(webhook_deliveries).where(_SENT.id == message_id)
    again = again.values(state="waiting", attempts=0, not_before=now, ended_at=None)
    return Delivery(*connection.execute(again.returning(*_DELIVERY)).one())


def waiting_message(connection: Connection, webhook_id: int) -> Delivery | None:
    """The message of a webhook that waits, or is on its way."""
    query = select(*_DELIVERY).where(_SENT.webhook_id == webhook_id, _SENT.state == "waiting")
    return _delivery(connection.execute(query).first())


def find_delivery(connection: Connection, webhook_id: int, message_id: UUID) -> Delivery | None:
    query = select(*_DELIVERY).where(_SENT.webhook_id == webhook_id, _SENT.id == message_id)
    return _delivery(connection.execute(query).first())


def list_deliveries(
    connection: Connection, webhook_id: int, before: int | None, limit: int, state: str | None = None
) -> list[Delivery]:
    """A page of a webhook's messages, the newest first."""
    query = select(*_DELIVERY).where(_SENT.webhook_id == webhook_id).order_by(_SENT.number.desc()).limit(limit)
    if before is not None:
        query = query.where(_SENT.number < before)
    if state is not None:
        query = query.where(_SENT.state == state)
    return [Delivery(*row) for row in connection.execute(query)]


def trim_one(connection: Connection, webhook_id: int, most: int) -> None:
    """Keep only the last `most` messages of a webhook."""
    _run(connection, "trim_one", webhook=webhook_id, most=most)


def trim_old(connection: Connection, before: datetime) -> int:
    """Forget the messages that ended before a moment; how many."""
    return _run(connection, "trim_old", before=before).rowcount


def _hook(row: Any) -> Webhook | None:
    return Webhook(*row) if row else None


def _delivery(row: Any) -> Delivery | None:
    return Delivery(*row) if row else None


def _run(connection: Connection, name: str, **values: object) -> psycopg.Cursor[Any]:
    return driver(connection).execute(statements("webhooks")[name], values)
