"""Change and test the webhooks of an LMR."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID, uuid4

import structlog

from mdv.accounts.callers import Caller
from mdv.errors import NotFound, TooMany
from mdv.mdp import webhooks
from mdv.mdp.lmrs import Lmr
from mdv.mdp.webhooks import Delivery, Webhook
from mdv.webhooks.address import allowed_addresses, parse_url
from mdv.webhooks.send import WebhookResponse, send
from web.services import services
from workers.messages import WEBHOOKS_TASK

log = structlog.get_logger()


class WebhookTest(NamedTuple):
    """The id of a test message, and the answer of the receiver."""

    message: UUID
    answer: WebhookResponse


def add_webhook(lmr: Lmr, url: str, caller: Caller) -> Webhook:
    """Check a URL, and add a webhook for it. Its secret is in the result."""
    target = parse_url(url)
    allowed_addresses(target, services().config.webhook_private)
    with services().engine.begin() as connection:
        made = webhooks.add_webhook(connection, lmr, target.text, _now())
    log.info("webhook added", webhook=made.id, lmr=lmr.name, by=caller.by)
    return made


def get_webhook(lmr: Lmr, number: int) -> Webhook:
    with services().single.connect() as connection:
        return webhooks.get_webhook(connection, lmr, number)


def delete_webhook(lmr: Lmr, number: int, caller: Caller) -> Webhook:
    """Delete a webhook with its messages. Return it."""
    with services().engine.begin() as connection:
        webhook = webhooks.get_webhook(connection, lmr, number, lock=True)
        webhooks.delete_webhook(connection, lmr, number)
    log.info("webhook deleted", webhook=number, lmr=lmr.name, by=caller.by)
    return webhook


def pause_webhook(lmr: Lmr, number: int) -> Webhook:
    with services().engine.begin() as connection:
        return webhooks.pause_webhook(connection, lmr, number)


def resume_webhook(lmr: Lmr, number: int) -> Webhook:
    """Resume a webhook. If there were events meanwhile, a message is sent now."""
    with services().engine.begin() as connection:
        resumed = webhooks.resume_webhook(connection, lmr, number, _now())
    services().wake_worker(WEBHOOKS_TASK)
    return resumed


def rotate_secret(lmr: Lmr, number: int, caller: Caller) -> Webhook:
    """Set a new secret, which is in the result."""
    with services().engine.begin() as connection:
        rotated = webhooks.rotate_secret(connection, lmr, number, _now())
    log.info("webhook secret rotated", webhook=number, lmr=lmr.name, by=caller.by)
    return rotated


def test_webhook(lmr: Lmr, number: int) -> WebhookTest:
    """Send a test message, and wait for the answer of the receiver."""
    webhook, message, now = get_webhook(lmr, number), uuid4(), _now()
    letter = webhooks.sign_test_message(webhook, lmr, message, now)
    with _test_slot(lmr):
        answer = send(webhook.url, letter.body, letter.headers, services().config.webhook_private)
    return WebhookTest(message, answer)


def send_now(lmr: Lmr, number: int) -> Delivery:
    """Send a message with the newest offset now."""
    with services().engine.begin() as connection:
        made = webhooks.send_now(connection, lmr, number, _now())
    services().wake_worker(WEBHOOKS_TASK)
    return made


def replay_message(lmr: Lmr, number: int, message: str) -> Delivery:
    """Retry a dead message with all attempts, with the same id."""
    try:
        wanted = UUID(message)
    except ValueError:
        raise NotFound(f"{message!r} is not the id of a message.") from None
    with services().engine.begin() as connection:
        again = webhooks.retry_dead_message(connection, lmr, number, wanted, _now())
    services().wake_worker(WEBHOOKS_TASK)
    return again


_testing: set[int] = set()


@contextmanager
def _test_slot(lmr: Lmr) -> Iterator[None]:
    """Allow one test per LMR at a time: a receiver may be slow."""
    if lmr.id in _testing:
        raise TooMany(f"A webhook of {lmr.name} is already being tested. Wait for the result.")
    _testing.add(lmr.id)
    try:
        yield
    finally:
        _testing.discard(lmr.id)


def _now() -> datetime:
    return datetime.now(UTC)
