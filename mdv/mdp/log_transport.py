"""The optional transport within a site: the logs of peers by logical replication of Postgres.

    replica_log of the peer → subscription → replica_inbox here → the same apply as for HTTP

Only operations come this way. Reports, promises, states and relays stay with HTTP, which also brings what a
subscription has missed; so nothing is lost if one fails.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

import psycopg
import structlog
from sqlalchemy import Engine

from mdv.backbone.replica_store import MemberFacts
from mdv.backbone.vector import Life
from mdv.db.replica.transport import (
    InboxRow,
    connect_here,
    connect_to_peer,
    delete_from_inbox,
    divert_incoming,
    drop_slot,
    list_subscriptions,
    listen,
    publish_lives,
    read_inbox,
    refuse_without_logical_wal,
    subscribe,
    subscription_name,
    unsubscribe,
)
from mdv.errors import MdvError

log = structlog.get_logger()

RETRY_SECONDS = 15.0
LISTEN_SECONDS = 1.0

Accept = Callable[[list[tuple[str, InboxRow]]], object]
"""Processes operations with the names of the members that they come from."""


class LogTransport:
    """The subscriptions of this member. `databases`: the URLs of the databases of peers, by name."""

    def __init__(self, engine: Engine, databases: Mapping[str, str], accept: Accept) -> None:
        self._engine, self._databases, self._accept = engine, databases, accept
        self._published: frozenset[Life] = frozenset()
        self._names: dict[str, str] = {}
        """The members by the names of their subscriptions."""
        self._removed: set[str] = set()
        self._retry_at: dict[str, float] = {}
        self._reasons: dict[str, str] = {}
        self._is_tidy = False
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def subscribed(self, peer: str) -> bool:
        """True if operations of a peer come by a subscription."""
        return peer in self._names.values()

    def tend(self, facts: MemberFacts | None) -> None:
        """Publish the log of this member, and subscribe to those of its peers. Called once a second."""
        if facts is None or not self._databases:
            if not self._is_tidy or self._names:
                self._try("all", self._forget)
            return
        self._is_tidy = False
        if self._thread is None:
            self._ended.clear()
            self._thread = threading.Thread(target=self._receive, name="inbox", daemon=True)
            self._thread.start()
        self._try(facts.name, lambda: self._publish(facts))
        for peer in self._databases.keys() & {one for one in facts.table.members if facts.table.is_member(one)}:
            if peer != facts.name and not self.subscribed(peer):
                self._try(peer, lambda peer=peer: self._subscribe(facts, peer))  # type: ignore[misc]

    def stop(self) -> None:
        """End the thread. The subscriptions stay: what arrives meanwhile waits in the inbox."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(2 * LISTEN_SECONDS)
            self._thread = None

    def _try(self, what: str, step: Callable[[], None]) -> None:
        """Take a step. After a failure, try again later."""
        if time.monotonic() < self._retry_at.get(what, 0.0):
            return
        try:
            step()
        except (psycopg.Error, MdvError) as error:
            self._retry_at[what], reason = time.monotonic() + RETRY_SECONDS, str(error).strip()
            if self._reasons.get(what) != reason:
                log.warning("a log is not replicated by Postgres", member=what, reason=reason)
            self._reasons[what] = reason

    def _publish(self, facts: MemberFacts) -> None:
        lives = frozenset(facts.table.lives_of(facts.name) | {facts.life})
        removed = {name for name, member in facts.table.members.items() if member.is_removed}
        if lives == self._published and removed == self._removed:
            return
        with connect_here(self._engine) as here:
            refuse_without_logical_wal(here)
            publish_lives(here, lives)
            for name in removed:
                drop_slot(here, subscription_name(facts.table.backbone_id, facts.name, name))
        self._published, self._removed = lives, removed

    def _subscribe(self, facts: MemberFacts, peer: str) -> None:
        name, url = subscription_name(facts.table.backbone_id, peer, facts.name), self._databases[peer]
        with connect_here(self._engine) as here, connect_to_peer(url) as there:
            divert_incoming(here)
            subscribe(here, there, url, name)
        self._names[name] = peer
        log.info("the log of a member is replicated by Postgres", member=peer)

    def _forget(self) -> None:
        """End the subscriptions of a member that has left, or that uses HTTP alone now."""
        self.stop()
        names, self._names, self._published = dict(self._names), {}, frozenset()
        with connect_here(self._engine) as here:
            for name in list_subscriptions(here):
                unsubscribe(here, name)
                if name in names:
                    self._try(name, lambda name=name: self._drop_slot_of(names[name], name))  # type: ignore[misc]
        self._is_tidy = True

    def _drop_slot_of(self, peer: str, name: str) -> None:
        with connect_to_peer(self._databases[peer]) as there:
            drop_slot(there, name)

    # The inbox

    def _receive(self) -> None:
        """Process what arrives."""
        while not self._ended.is_set():
            try:
                with connect_here(self._engine) as here:
                    listen(here)
                    while not self._ended.is_set():
                        self._drain(here)
                        list(here.notifies(timeout=LISTEN_SECONDS, stop_after=1))
            except Exception as error:  # nothing is lost: the rows stay, and HTTP brings them, too
                log.warning("the inbox of the backbone cannot be read", reason=str(error).strip())
                self._ended.wait(LISTEN_SECONDS)

    def _drain(self, here: psycopg.Connection[object]) -> None:
        while (rows := read_inbox(here)) and not self._ended.is_set():
            known = [(self._names[row.subscription], row) for row in rows if row.subscription in self._names]
            if known:
                self._accept(known)
            delete_from_inbox(here, rows)
