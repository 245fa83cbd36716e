"""The exchange of messages over a link: what arrives goes to the inbox, what leaves stays in the outbox until it is
acknowledged. The core is not involved, so any process of the MDP can do it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from sqlalchemy import Connection

from mdv.db.federation.site_store import (
    MESSAGE,
    RESTORED,
    LinkRow,
    SiteRow,
    acknowledge,
    add_to_inbox,
    count_inbox,
    lock_link,
    read_outbox,
    read_site,
    store_link,
)
from mdv.errors import BadRequest, LinkHasGap, NotFound, SiteWasRestored, Unauthenticated
from mdv.federation.encode import UnreadableMessage, decode
from mdv.federation.link import FederationLink, LinkExchange, LinkGap, OtherEpoch
from mdv.federation.messages import FederationMessage, MessageToPeer, PeerMessage, SuperpeerMessage

MAX_MESSAGES = 200
MAX_BYTES = 4 * 2**20
"""Of the messages of one exchange."""
MAX_WAITING = 10_000
"""Messages that wait to be handled. Then no more are accepted, and the others keep theirs."""

PEER_MESSAGES: tuple[type, ...] = cast(Any, PeerMessage).__args__
TO_PEER_MESSAGES: tuple[type, ...] = cast(Any, MessageToPeer).__args__
SUPERPEER_MESSAGES: tuple[type, ...] = cast(Any, SuperpeerMessage).__args__


class ExchangeBody(NamedTuple):
    """A call or its answer as it travels. `messages`: each as JSON text."""

    sender: str
    epoch: str
    peer_epoch: str | None
    first: int
    messages: tuple[str, ...]
    have: int

    def to_json(self) -> str:
        return json.dumps(self._asdict(), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, body: bytes | str) -> ExchangeBody:
        """Return the exchange in a body. Raise `BadRequest`.

        >>> one = ExchangeBody("lib-a", "e1", None, 1, ("{}",), 0)
        >>> ExchangeBody.from_json(one.to_json()) == one
        True
        """
        try:
            given = json.loads(body)
            found = cls(
                given["sender"], given["epoch"], given["peer_epoch"], given["first"], tuple(given["messages"]),
                given["have"],
            )  # fmt: skip
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise BadRequest(f"The exchange is malformed ({type(error).__name__}: {error}).") from None
        texts = [found.sender, found.epoch, *found.messages, found.peer_epoch or ""]
        numbers = [found.first, found.have]
        if not all(type(one) is str for one in texts) or not all(type(one) is int and one >= 0 for one in numbers):
            raise BadRequest("The exchange is malformed: send texts and numbers.")
        return found


def make_exchange(connection: Connection, site: SiteRow, link: LinkRow) -> ExchangeBody:
    """Return the next call over a link, or the answer to one. It can be sent any number of times."""
    messages: list[str] = []
    size = 0
    for body in read_outbox(connection, link.name, MAX_MESSAGES):
        size += len(body)
        if messages and size > MAX_BYTES:
            break
        messages.append(body)
    return ExchangeBody(
        site.name, site.epoch, link.peer_epoch, link.acknowledged + 1, tuple(messages), link.received
    )  # fmt: skip


def accept_exchange(connection: Connection, exchange: ExchangeBody, now: float | None = None) -> LinkRow:
    """Store the new messages of an exchange, and delete those that it acknowledges. Return the link.

    Raise `LinkHasGap` or `SiteWasRestored`: nothing is stored then.
    """
    site = read_site(connection)
    if site is None:
        raise NotFound("This MDP is in no federation.")
    row = lock_link(connection, exchange.sender)
    if row is None:
        raise Unauthenticated(f"{exchange.sender!r} is not a neighbour in the federation.")
    now = time.time() if now is None else now
    link = FederationLink(site.name, site.epoch, row.peer_epoch, row.acknowledged, [], row.received)
    given = LinkExchange(
        exchange.sender, exchange.epoch, exchange.peer_epoch, exchange.first,
        cast("tuple[FederationMessage, ...]", exchange.messages), exchange.have,
    )  # fmt: skip
    inbox: list[tuple[str, str, str]] = []
    if link.is_restored(given):
        link.restart(exchange.epoch)
        inbox.append((RESTORED, row.name, json.dumps(exchange.epoch)))
    before = link.acknowledged
    try:
        new = cast("Sequence[str]", link.accept(given, now))
    except LinkGap as gap:
        raise LinkHasGap(f"The messages of {row.name} have a gap: {gap}.", expected=gap.expected) from None
    except OtherEpoch as other:
        raise SiteWasRestored(f"The link to {row.name} starts again: {other}.", epoch=other.epoch) from None
    if new and count_inbox(connection, MAX_WAITING) >= MAX_WAITING:
        link.received -= len(new)  # they come again
        new = []
    for text in new:
        check_message(text, row, site)
        inbox.append((MESSAGE, row.name, text))
    add_to_inbox(connection, inbox)
    if link.acknowledged > before:
        acknowledge(connection, row.name, link.acknowledged - before)
    row = row._replace(
        peer_epoch=link.peer_epoch, acknowledged=link.acknowledged, received=link.received, last_exchange=now,
        error=None,
    )  # fmt: skip
    store_link(connection, row)
    return row


def restart_link(connection: Connection, name: str, epoch: str) -> None:
    """Start a link again after its other side has answered that it was restored, and has another epoch."""
    row = lock_link(connection, name)
    if row is not None and row.peer_epoch != epoch:
        add_to_inbox(connection, [(RESTORED, name, json.dumps(epoch))])
        store_link(connection, row._replace(peer_epoch=epoch, acknowledged=0, received=0))


def check_message(text: str, link: LinkRow, site: SiteRow) -> None:
    """Raise `BadRequest` unless a neighbour of this kind may send this message."""
    try:
        message = decode(text)
    except UnreadableMessage as error:
        raise BadRequest(str(error)) from None
    if site.superpeer is not None:
        allowed = TO_PEER_MESSAGES
    else:
        allowed = SUPERPEER_MESSAGES if link.is_superpeer else PEER_MESSAGES
    if type(message) not in allowed:
        raise BadRequest(f"{link.name} must not send {type(message).__name__}.")
