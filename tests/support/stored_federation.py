"""A federation of MDPs in the test process: each with a database of its own. Messages are exchanged directly."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Engine

from mdv.db.federation.record_store import read_records
from mdv.db.federation.site_store import count_inbox, list_links, read_link, read_site
from mdv.federation.records import state_of
from mdv.federation.superpeer_state import SagaState, SuperpeerState
from mdv.mdp.eca.change_rules import EcaDraft
from mdv.mdp.federation.exchange import ExchangeBody, accept_exchange, make_exchange, restart_link
from mdv.mdp.federation.global_rules import add_federated_rules
from mdv.mdp.federation.members import (
    NewNeighbour,
    accept_neighbour,
    connect_superpeer,
    found_federation,
    invite,
    join_as_peer,
    set_grants,
)
from mdv.mdp.federation.stored_site import StoredSite
from tests.support.eca_system import statements
from tests.support.mdp import Mdp

OPEN = (("prefix", "", "read-write"),)


class FederatedMdp(Mdp):
    """An MDP with its site."""

    def __init__(self, engine: Engine, clock: Callable[[], float]) -> None:
        super().__init__(engine)
        self.clock = clock
        self.restart()

    def restart(self) -> None:
        """Forget what the process knows."""
        self.site = StoredSite(self.provider, clock=self.clock)

    def state(self) -> SuperpeerState:
        with self.engine.connect() as connection:
            return state_of(read_records(connection))

    def outcomes(self) -> dict[str, str]:
        """Return the states of the transactions of this superpeer that a copy runs in."""
        return {one.id: one.state.value for one in self.state().transactions.values() if one.shared is not None}

    def said(self, document: str) -> set[tuple[str, str, str]]:
        return statements(self, document)

    def everything(self) -> set[tuple[str, str, str]]:
        rows = self.rows(
            "select distinct r.uri, v.uri, coalesce(f.value, t.uri) from filter_data f"
            " join resources r on r.id = f.resource_id join vocabulary v on v.id = f.property_id"
            " left join resources t on t.id = f.target_id"
        )
        return {(s, p.removeprefix("http://v/"), o) for s, p, o in rows}


class StoredFederation:
    """MDPs by name. `now`: the time of all sites."""

    def __init__(self, new_database: Callable[[], Engine]) -> None:
        self._new_database = new_database
        self.mdps: dict[str, FederatedMdp] = {}
        self.now = 1_000_000.0
        self.cut: set[frozenset[str]] = set()

    def __getitem__(self, name: str) -> FederatedMdp:
        return self.mdps[name]

    def close(self) -> None:
        for one in self.mdps.values():
            one.engine.dispose()

    def _start(self, name: str, schema: str) -> FederatedMdp:
        mdp = self.mdps[name] = FederatedMdp(self._new_database(), lambda: self.now)
        mdp.put_schema(schema)
        return mdp

    def superpeer(self, name: str, schema: str, documents: dict[str, str | None], grants: object = OPEN) -> None:
        mdp = self._start(name, schema)
        if documents:
            mdp.put(documents)
        found_federation(mdp.provider, name, "")
        set_grants(mdp.provider, grants)  # type: ignore[arg-type]

    def peer(self, name: str, superpeer: str, schema: str, documents: dict[str, str | None]) -> None:
        mdp = self._start(name, schema)
        if documents:
            mdp.put(documents)
        code = invite(self[superpeer].provider)
        join_as_peer(mdp.provider, name, "http://127.0.0.1:1", code, self._introducing(superpeer))

    def connect(self, one: str, other: str) -> None:
        code = invite(self[other].provider)
        connect_superpeer(self[one].provider, "http://127.0.0.1:1", code, self._introducing(other))

    def _introducing(self, name: str) -> Callable[[NewNeighbour], object]:
        return lambda new: accept_neighbour(self[name].provider, new)  # type: ignore[return-value]

    def rule(self, name: str, *texts: str) -> list[str | None]:
        """Register global or LOCAL rules. Return the IDs of the global ones."""
        mdp = self[name]
        with mdp.engine.begin() as connection:
            _, shared, _ = add_federated_rules(connection, [EcaDraft(text) for text in texts], mdp.provider)
        return [one["id"] for one in shared]

    # Messages

    def call(self, caller: str, other: str) -> bool:
        """Send a call over a link, and take the answer. Return whether a message arrived."""
        if frozenset((caller, other)) in self.cut:
            return False
        there = self._take(other, self._make(caller, other))
        return self._take(caller, self._make(other, caller)) or there

    def _make(self, name: str, neighbour: str) -> ExchangeBody:
        with self[name].engine.connect() as connection:
            site, link = read_site(connection), read_link(connection, neighbour)
            assert site is not None and link is not None
            return ExchangeBody.from_json(make_exchange(connection, site, link).to_json())

    def _take(self, name: str, exchange: ExchangeBody) -> bool:
        with self[name].engine.begin() as connection:
            before = count_inbox(connection)
            accept_exchange(connection, exchange, self.now)
            return count_inbox(connection) > before

    def links(self) -> list[tuple[str, str]]:
        found = []
        for name, mdp in self.mdps.items():
            with mdp.engine.connect() as connection:
                found += [(name, link.name) for link in list_links(connection) if link.url is not None]
        return found

    def rest(self, rounds: int = 200) -> None:
        """Let all sites work and exchange messages until nothing is left."""
        for _ in range(rounds):
            worked = sum(mdp.site.work() for mdp in self.mdps.values())
            moved = [self.call(*link) for link in self.links() if link[1] in self.mdps]
            if not worked and not any(moved):
                return
        raise AssertionError("the sites do not come to rest")

    def rest_after_restore(self, name: str) -> None:
        """Let the neighbours of a restored site start their links again, as `OtherEpoch` asks them to."""
        epoch = self[name].one("select epoch from federation")
        for other, mdp in self.mdps.items():
            if other != name:
                with mdp.engine.begin() as connection:
                    restart_link(connection, name, epoch)
        self.rest()

    def compensated(self) -> set[str]:
        """Return all transactions that were compensated."""
        found = set()
        for mdp in self.mdps.values():
            if mdp.one("select superpeer from federation") is None:
                found |= {one.id for one in mdp.state().transactions.values() if one.state is SagaState.COMPENSATED}
        return found
