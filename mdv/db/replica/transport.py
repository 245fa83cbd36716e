"""Logical replication of the log between the databases of two members. Rows of peers arrive in `replica_inbox`.

Publications, subscriptions and slots cannot be made within transactions with other changes, so these calls need
connections that commit each statement.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from sqlalchemy import Engine

from mdv.backbone.operation import LogRow
from mdv.backbone.vector import Life
from mdv.db.load_sql import load_sql
from mdv.errors import Unavailable

PUBLICATION = "mdv_backbone"
CHANNEL = "mdv_replica_inbox"
CONNECT_SECONDS = 5
MAX_INBOX_ROWS, MAX_INBOX_BYTES = 1000, 8 * 2**20

Database = psycopg.Connection[Any]


class InboxRow(NamedTuple):
    """An operation that has arrived. `subscription`: where from."""

    number: int
    subscription: str
    row: LogRow


@contextmanager
def connect_to_peer(url: str) -> Iterator[Database]:
    """Connect to the database of a peer."""
    try:
        connection = psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_SECONDS)
    except psycopg.Error as error:
        raise Unavailable(f"The database of the member cannot be reached: {error}.") from error
    with connection:
        yield connection


@contextmanager
def connect_here(engine: Engine) -> Iterator[Database]:
    """Connect to the database of this member."""
    url = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_SECONDS) as connection:
        yield connection


def subscription_name(backbone_id: str, publisher: str, subscriber: str) -> str:
    """Return the name of a subscription and of its slot.

    >>> subscription_name("b", "m1", "m2") == subscription_name("b", "m2", "m1")
    False
    """
    return "mdv_bb_" + blake2b(f"{backbone_id}\0{publisher}\0{subscriber}".encode(), digest_size=12).hexdigest()


# The side that publishes


def publish_lives(here: Database, lives: Collection[Life]) -> None:
    """Publish the operations of these lives, and of no others: relays use HTTP."""
    table = sql.SQL("table replica_log (life, seq, chain, body, signature) where (life in ({lives}))").format(
        lives=sql.SQL(", ").join(sql.Literal(life) for life in sorted(lives))
    )
    ((exists,),) = _run(here, "has_publication", name=PUBLICATION).fetchall()
    name = sql.Identifier(PUBLICATION)
    if exists:
        here.execute(sql.SQL("alter publication {name} set {table}").format(name=name, table=table))
    else:
        options = sql.SQL("create publication {name} for {table} with (publish = 'insert')")
        here.execute(options.format(name=name, table=table))


def refuse_without_logical_wal(database: Database) -> None:
    """Raise `Unavailable` unless a database can publish its log."""
    ((level,),) = _run(database, "read_wal_level").fetchall()
    if level != "logical":
        raise Unavailable(f"wal_level of the Postgres of the member is {level}. Set it to logical, and restart it.")


def drop_slot(database: Database, name: str) -> None:
    """Drop the slot of a subscriber that is gone, so that no more WAL is kept for it."""
    if _run(database, "end_slot", name=name).rowcount:
        database.execute("select pg_sleep(0.1)")
    _run(database, "drop_slot", name=name)


# The side that subscribes


def divert_incoming(here: Database) -> None:
    """Let operations that subscriptions bring go to the inbox."""
    for query in ("create_divert_function", "create_divert_trigger", "enable_divert_trigger"):
        here.execute(load_sql("replica_transport")[query].encode())


def list_subscriptions(here: Database) -> set[str]:
    """Return the names of our subscriptions."""
    return {name for (name,) in _run(here, "list_subscriptions").fetchall()}


def subscribe(here: Database, peer: Database, peer_url: str, name: str) -> None:
    """Subscribe to the log of a peer, unless this is done. A slot that was lost is made again: what it lacks comes by
    HTTP."""
    refuse_without_logical_wal(peer)
    found = _run(peer, "find_slot", name=name).fetchone()
    if found is not None and not found[0]:
        drop_slot(peer, name)
    is_subscribed = name in list_subscriptions(here)
    if is_subscribed and found is not None and found[0]:
        here.execute(_alter(name, sql.SQL("connection {url}").format(url=sql.Literal(peer_url))))
        return
    if is_subscribed:
        unsubscribe(here, name)
    if found is None or not found[0]:
        _run(peer, "create_slot", name=name)
    query = sql.SQL(
        "create subscription {name} connection {url} publication {publication}"
        " with (create_slot = false, slot_name = {slot}, copy_data = false)"
    )
    here.execute(query.format(name=sql.Identifier(name), url=sql.Literal(peer_url), slot=sql.Literal(name),
                              publication=sql.Identifier(PUBLICATION)))  # fmt: skip


def unsubscribe(here: Database, name: str) -> None:
    """End a subscription here. The slot at the peer remains."""
    here.execute(_alter(name, sql.SQL("disable")))
    here.execute(_alter(name, sql.SQL("set (slot_name = none)")))
    here.execute(sql.SQL("drop subscription {name}").format(name=sql.Identifier(name)))


def _alter(name: str, change: sql.Composable) -> sql.Composed:
    return sql.SQL("alter subscription {name} {change}").format(name=sql.Identifier(name), change=change)


# The inbox


def listen(here: Database) -> None:
    """Let a connection be notified of operations that arrive."""
    here.execute(sql.SQL("listen {channel}").format(channel=sql.Identifier(CHANNEL)))


def read_inbox(here: Database) -> list[InboxRow]:
    """Return the next operations that have arrived."""
    found = _run(here, "read_inbox", most=MAX_INBOX_ROWS, bytes=MAX_INBOX_BYTES).fetchall()
    return [InboxRow(number, subscription, LogRow(*fields)) for number, subscription, *fields in found]


def delete_from_inbox(here: Database, rows: Collection[InboxRow]) -> None:
    """Forget operations that were processed."""
    _run(here, "delete_from_inbox", numbers=[row.number for row in rows])


def _run(database: Database, query: str, /, **values: object) -> Any:
    return database.execute(load_sql("replica_transport")[query].encode(), values)
