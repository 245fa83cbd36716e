"""The rows of a federation: what this MDP is in it, its links, and the messages that wait."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.db.engine import driver
from mdv.db.load_sql import load_sql

MESSAGE, RESTORED = "message", "restored"
"""Kinds of the inbox that come from a neighbour."""
CHANGE, INTRODUCE, RULE, END_RULE, CONNECT, GRANTS, LEAVE = (
    "change", "introduce", "rule", "end-rule", "connect", "grants", "leave"
)  # fmt: skip
"""Kinds that come from the MDP itself."""


class SiteRow(NamedTuple):
    """What this MDP is in a federation. `superpeer`: of a peer; None for a superpeer."""

    name: str
    superpeer: str | None
    url: str
    private_key: bytes
    epoch: str
    generation: int
    schema_version: int
    grants: list[list[str]]
    leaving: bool
    error: str | None


class LinkRow(NamedTuple):
    """A link. `waiting`: the number of messages that the neighbour has not acknowledged, if it was counted."""

    name: str
    is_superpeer: bool
    url: str | None
    public_key: str
    peer_epoch: str | None
    acknowledged: int
    received: int
    last_exchange: float
    error: str | None
    waiting: int = 0


class WaitingRow(NamedTuple):
    """Something to be handled. `kind`: one of the constants above."""

    number: int
    kind: str
    neighbour: str
    body: str


def execute(connection: Connection, query: str, /, **values: object) -> Any:
    return driver(connection).execute(load_sql("federation")[query], values, prepare=True)


# The site


def read_site(connection: Connection) -> SiteRow | None:
    """Return what this MDP is in a federation; None if it is in none."""
    row = execute(connection, "read_site").fetchone()
    if row is None:
        return None
    name, superpeer, url, private_key, *others = row
    return SiteRow(name, superpeer, url, bytes(private_key), *others)


def insert_site(
    connection: Connection, name: str, superpeer: str | None, url: str, private_key: bytes, epoch: str
) -> None:
    """Make this MDP a superpeer, or a peer of one."""
    execute(connection, "insert_site", name=name, superpeer=superpeer, url=url, private_key=private_key, epoch=epoch)
    execute(connection, "set_federated", federated=1)


def change_site(connection: Connection, epoch: str, schema_version: int, leaving: bool) -> None:
    """Note that the records have changed, and what they belong to."""
    execute(connection, "change_site", epoch=epoch, schema_version=schema_version, leaving=leaving)


def forget_federation(connection: Connection) -> None:
    """Delete all that concerns the federation."""
    execute(connection, "forget_federation")
    execute(connection, "set_federated", federated=0)


def store_grants(connection: Connection, grants: Sequence[Sequence[str]]) -> None:
    execute(connection, "store_grants", grants=_json([list(one) for one in grants]))


def store_error(connection: Connection, error: str | None) -> None:
    execute(connection, "store_error", error=error)


# Invitations


def insert_invitation(connection: Connection, code: str, seconds: float) -> None:
    execute(connection, "insert_invitation", digest=_digest(code), seconds=seconds)


def use_invitation(connection: Connection, code: str) -> bool:
    """Use up the code of an invitation. Return False if there is none, or it has expired."""
    row = execute(connection, "use_invitation", digest=_digest(code)).fetchone()
    return row is not None and bool(row[0])


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=32).digest()


# Links


def list_links(connection: Connection) -> list[LinkRow]:
    """Return all links, with the numbers of their messages that wait."""
    return [LinkRow(*row) for row in execute(connection, "list_links").fetchall()]


def lock_link(connection: Connection, name: str) -> LinkRow | None:
    """Return a link. Its exchanges are handled one at a time."""
    row = execute(connection, "lock_link", name=name).fetchone()
    return None if row is None else LinkRow(*row)


def read_link(connection: Connection, name: str) -> LinkRow | None:
    row = execute(connection, "read_link", name=name).fetchone()
    return None if row is None else LinkRow(*row)


def insert_link(
    connection: Connection, name: str, is_superpeer: bool, url: str | None, public_key: str, now: float
) -> None:
    execute(connection, "insert_link", name=name, is_superpeer=is_superpeer, url=url, public_key=public_key, now=now)


def store_link(connection: Connection, link: LinkRow) -> None:
    """Store the state of a link after an exchange."""
    execute(
        connection, "store_link", name=link.name, peer_epoch=link.peer_epoch, acknowledged=link.acknowledged,
        received=link.received, last_exchange=link.last_exchange,
    )  # fmt: skip


def store_link_error(connection: Connection, name: str, error: str) -> None:
    execute(connection, "store_link_error", name=name, error=error)


def delete_link(connection: Connection, name: str) -> None:
    """Delete a link with the messages that wait for it."""
    execute(connection, "delete_link", name=name)


def restart_links(connection: Connection) -> None:
    """Start all links again, in another life of this database."""
    execute(connection, "restart_links")
    execute(connection, "drop_messages")


# Messages


def add_to_inbox(connection: Connection, rows: Iterable[tuple[str, str, str]]) -> None:
    """Add items to the inbox: kind, neighbour and body."""
    listed = [{"kind": kind, "neighbour": neighbour, "body": body} for kind, neighbour, body in rows]
    if listed:
        execute(connection, "insert_inbox", rows=_json(listed))


def read_own_inbox(connection: Connection) -> list[WaitingRow]:
    """Return all events of the MDP itself, in order."""
    return [WaitingRow(*row) for row in execute(connection, "read_own_inbox").fetchall()]


def read_inbox(connection: Connection, limit: int) -> list[WaitingRow]:
    """Return the first messages of neighbours."""
    return [WaitingRow(*row) for row in execute(connection, "read_inbox", limit=limit).fetchall()]


def delete_from_inbox(connection: Connection, rows: Iterable[WaitingRow]) -> None:
    execute(connection, "delete_inbox", numbers=[row.number for row in rows])


def count_inbox(connection: Connection, limit: int = 1_000_000) -> int:
    """Return the number of rows that wait, up to a limit."""
    return int(execute(connection, "count_inbox", limit=limit).fetchone()[0])


def count_pending_rules(connection: Connection) -> int:
    """Return the number of rules that were registered here and not handled."""
    return int(execute(connection, "count_pending_rules").fetchone()[0])


def add_to_outbox(connection: Connection, rows: Iterable[tuple[str, str]]) -> None:
    """Add messages for neighbours."""
    listed = [{"neighbour": neighbour, "body": body} for neighbour, body in rows]
    if listed:
        execute(connection, "insert_outbox", rows=_json(listed))


def read_outbox(connection: Connection, name: str, limit: int) -> list[str]:
    """Return the first messages that a neighbour has not acknowledged."""
    return [body for (body,) in execute(connection, "read_outbox", name=name, limit=limit).fetchall()]


def acknowledge(connection: Connection, name: str, count: int) -> None:
    """Delete the first messages for a neighbour, which has them."""
    execute(connection, "acknowledge", name=name, count=count)


def neighbours_with_messages(connection: Connection) -> set[str]:
    return {name for (name,) in execute(connection, "find_neighbours_with_messages").fetchall()}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
