"""The superpeer or peer of this MDP: the core over Postgres, one database transaction at a time.

    lock → events of the MDP, then messages → core → edits, records, outbox → commit

A row of the inbox is deleted in the transaction of its effect, so each has an effect once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence

from sqlalchemy import Connection

from mdv.db.federation.site_store import (
    CHANGE,
    CONNECT,
    END_RULE,
    GRANTS,
    INTRODUCE,
    LEAVE,
    MESSAGE,
    RESTORED,
    RULE,
    SiteRow,
    WaitingRow,
    add_to_outbox,
    change_site,
    delete_from_inbox,
    delete_link,
    list_links,
    read_inbox,
    read_own_inbox,
    read_site,
    restart_links,
    store_error,
)
from mdv.errors import MdvError
from mdv.failpoints import HANDLED_MESSAGE, STEPPED_SITE, hit_failpoint
from mdv.federation.encode import decode, encode
from mdv.federation.messages import FederationMessage, Leave, Outgoing
from mdv.federation.peer import FederationPeer
from mdv.federation.superpeer import AWAY_SECONDS, Superpeer
from mdv.federation.superpeer_state import SuperpeerState
from mdv.mdp.eca.slow_rules import RuleTimedOut
from mdv.mdp.federation.fragment import StoredFragment
from mdv.mdp.federation.grants import read_grants
from mdv.mdp.federation.stored_state import StoredState
from mdv.mdp.provider import Provider
from mdv.mdp.rule_cache import RuleOverBudget
from mdv.mdp.rules.suspend import suspend_over_budget
from mdv.mdp.transaction import Transaction
from mdv.rdf.schema import Schema

STEP_SIZE = 50
"""Messages that are handled in one transaction. More wait, so that other changes of the MDP are not held up."""


class _Core:
    """The core of a superpeer as this process has it, for one version of its records and of the schema."""

    def __init__(self, stored: StoredState, schema: Schema, fragment: StoredFragment) -> None:
        self.stored, self.schema = stored, schema
        self.generation = -1
        self.superpeer = Superpeer(stored.state, schema, FederationPeer(fragment))


class StoredSite:
    """The superpeer or peer of an MDP. `published`: called after a commit that may have added events to feeds."""

    def __init__(
        self, provider: Provider, published: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._provider, self._published, self._clock = provider, published, clock
        self._core: _Core | None = None
        self._out: list[Outgoing] = []

    def step(self, size: int = STEP_SIZE) -> int:
        """Handle what waits, in one transaction. Return how many rows were handled."""
        while True:
            try:
                handled = self._step(size)
            except RuleOverBudget as error:
                self._core = None
                suspend_over_budget(error, self._provider)
                continue
            except RuleTimedOut as error:
                self._core = None
                self._provider.slow_rules.note(error)
                continue
            except BaseException:
                self._core = None  # what it knew of this transaction is wrong
                raise
            if handled:
                self._published()
                hit_failpoint(STEPPED_SITE)
            return handled

    def work(self) -> int:
        """Handle all that waits now. Return how many rows were handled."""
        total = 0
        while handled := self.step():
            total += handled
        return total

    def note_failure(self, error: Exception) -> None:
        """Store why the next row cannot be handled, for people to see."""
        detail = error.detail if isinstance(error, MdvError) else f"{type(error).__name__}: {error}"
        with self._provider.engine.begin() as connection:
            store_error(connection, detail[:1000])

    def _step(self, size: int) -> int:
        with self._provider.engine.begin() as connection:
            tx = Transaction(self._provider, connection)
            tx.lock()
            site = read_site(connection)
            if site is None:
                self._core = None
                return 0
            schema = tx.schema.schema
            epoch = str(tx.state.epoch)
            self._out = []
            is_restored = epoch != site.epoch
            if is_restored:
                restart_links(connection)
            own, others = read_own_inbox(connection), read_inbox(connection, size)
            handler = self._superpeer if site.superpeer is None else self._peer
            has_worked = handler(connection, site, schema, own, others, is_restored)
            if not (own or others or self._out or is_restored or has_worked):
                return 0
            add_to_outbox(connection, ((to, encode(message)) for to, message in self._out))
            delete_from_inbox(connection, [*own, *others])
            is_leaving = site.leaving or any(row.kind == LEAVE for row in own)
            change_site(connection, epoch, tx.schema.version, is_leaving)
            for row in others:
                if site.superpeer is None and row.kind == MESSAGE and isinstance(decode(row.body), Leave):
                    delete_link(connection, row.neighbour)
        if self._core is not None:
            self._core.generation = site.generation + 1
        return len(own) + len(others) or 1

    # A superpeer

    def _superpeer(
        self, connection: Connection, site: SiteRow, schema: Schema, own: Sequence[WaitingRow],
        others: Sequence[WaitingRow], is_restored: bool,
    ) -> bool:  # fmt: skip
        now = self._clock()
        core = self._load(connection, site, schema, now)
        superpeer = core.superpeer
        if is_restored:
            self._send(superpeer.restored(now))
        links = list_links(connection)
        heard = {link.name: link.last_exchange for link in links if link.is_superpeer}
        away = {name for name, at in heard.items() if now - at >= AWAY_SECONDS}
        is_late = superpeer.waits or away & superpeer.state.neighbours != superpeer.state.away
        changes = [decode(row.body) for row in own if row.kind == CHANGE]
        if changes:
            self._send(superpeer.committed_in_order(changes, now))
        for row in own:
            if row.kind != CHANGE:
                self._send(_own_event(superpeer, row, now))
        for row in others:
            self._send(
                superpeer.other_restored(row.neighbour, now)
                if row.kind == RESTORED
                else superpeer.receive(row.neighbour, decode(row.body), now)
            )  # fmt: skip
            hit_failpoint(HANDLED_MESSAGE)
        if is_late:
            self._send(superpeer.tick(now, heard))
        core.stored.store(connection) if own or others or self._out or is_late or is_restored else None
        return is_late and bool(self._out)

    def _load(self, connection: Connection, site: SiteRow, schema: Schema, now: float) -> _Core:
        """Return the core with the state that is stored. It is read again if another process has changed it."""
        fragment = StoredFragment(self._provider, connection, schema)
        known = self._core
        if known is not None and known.generation == site.generation and known.schema is schema:
            known.superpeer.own.fragment = fragment
            return known
        if site.generation == 0:
            state = SuperpeerState(site.name, grants=read_grants(site.grants))
            core = _Core(StoredState(state, is_stored=False), schema, fragment)
        else:
            core = _Core(StoredState.read(connection), schema, fragment)
            self._send(core.superpeer.start(now))
        self._core = core
        return core

    # A peer

    def _peer(
        self, connection: Connection, site: SiteRow, schema: Schema, own: Sequence[WaitingRow],
        others: Sequence[WaitingRow], is_restored: bool,
    ) -> bool:  # fmt: skip
        peer, superpeer = FederationPeer(StoredFragment(self._provider, connection, schema)), site.superpeer or ""

        def send(messages: Iterable[FederationMessage]) -> None:
            self._send((superpeer, message) for message in messages)

        is_introducing = is_restored
        for row in own:
            match row.kind:
                case "change":
                    send(peer.committed(decode(row.body)))
                case "rule":
                    send([peer.add_rule(decode(row.body))])
                case "introduce":
                    is_introducing = True
                case "leave":
                    send([peer.leave()])
        for row in others:
            if row.kind == RESTORED:
                is_introducing = True
            else:
                send(peer.receive(decode(row.body)))
            hit_failpoint(HANDLED_MESSAGE)
        if is_introducing:
            send([peer.leave() if site.leaving else peer.introduce()])
        return False

    def _send(self, messages: Iterable[Outgoing]) -> None:
        self._out += messages


def _own_event(superpeer: Superpeer, row: WaitingRow, now: float) -> Collection[Outgoing]:
    """Handle an event of the MDP itself."""
    match row.kind:
        case "introduce":
            return superpeer.found(now)
        case "rule":
            return superpeer.add_rule(decode(row.body), now)
        case "end-rule":
            return superpeer.end_rule(row.body, now)
        case "connect":
            return superpeer.connect(row.neighbour, now)
        case "grants":
            superpeer.state.grants = decode(row.body)
            return []
        case "leave":
            return superpeer.leave(now)
    raise ValueError(f"{row.kind} is no event of a superpeer")


__all__ = ["CONNECT", "END_RULE", "GRANTS", "INTRODUCE", "MESSAGE", "RULE", "StoredSite"]
