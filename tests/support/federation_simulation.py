"""A seeded simulation of a federation in memory, with oracles.

Each seed is a schedule: superpeers in a line, a ring or a star, peers, rules, changes, messages that are late,
repeated, lost and reordered, cuts, restarts, restores. In the end all links work, and the sites come to rest. In mode
`commuting`, the union of all fragments is compared with the central oracle. In mode `failing`, actions fail, cuts
outlast the time limits, and sites leave; the compensated transactions are compared with the closure of the abort
graph. Replay a failing one with

    python -m tests.support.federation_simulation --mode commuting --seed 17
"""

from __future__ import annotations

import argparse
import itertools
import random
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from copy import deepcopy

from mdv.federation.encode import decode, decode_record, encode
from mdv.federation.link import FederationLink, LinkExchange, LinkGap, OtherEpoch
from mdv.federation.peer import FederationPeer
from mdv.federation.privileges import Grant, GrantKind, Privilege
from mdv.federation.records import records_of, state_of
from mdv.federation.relevance import nodes_of_rule
from mdv.federation.site import PeerSite, SuperpeerSite
from mdv.federation.superpeer import Superpeer
from mdv.federation.superpeer_state import OWN_STORE, SagaState, SuperpeerState
from mdv.model import Statement
from mdv.rdf.schema import Schema
from mdv.rdftl.model import EcaRule
from tests.support.federation_fragment import MemoryFragment, mentioned, present_nodes
from tests.support.federation_world import (
    SCHEMA,
    commuting_rule,
    dynamic_statements,
    failing_rule,
    static_statements,
    without_coupling,
)
from tests.support.rdftl_oracle import Registration, State, exec_sched

MODES = ("commuting", "failing")
ALL = (Grant(GrantKind.PREFIX, "", Privilege.READ_WRITE),)
MAX_ROUNDS = 300
CRASHING_ROUNDS = 30
"""Rounds in which sites still crash. Each crash begins evaluations again."""
QUICK_ROUND = 0.1
"""Seconds between the exchanges of a commuting world, where no time limit is to be reached."""


class SimulationFailed(AssertionError):
    """A schedule broke an invariant."""


class SimulatedFederation:
    """Sites in memory, and the exchanges between them."""

    def __init__(self, schema: Schema = SCHEMA, rng: random.Random | None = None) -> None:
        self.schema = schema
        self.random = rng or random.Random(0)
        self.now = 1000.0
        self.superpeers: dict[str, SuperpeerSite] = {}
        self.peers: dict[str, PeerSite] = {}
        self.fragments: dict[str, MemoryFragment] = {}
        self.home: dict[str, str] = {}
        self.flying: list[tuple[str, LinkExchange]] = []
        self.cut: set[frozenset[str]] = set()
        self.counts: Counter[str] = Counter()
        self.transactions = 0
        self.backups: dict[str, tuple[MemoryFragment, dict[str, FederationLink], SuperpeerState | None]] = {}
        self.lives = 1
        self.has_lost_history = False
        """A superpeer has left, or a site was restored: some arcs of the abort graph are not known any more."""
        self.crashes = 0.03
        """The share of exchanges that kill their receiver."""
        self.max_depth = 100

    # Set-up

    def add_superpeer(self, name: str, statements: Iterable[Statement] = (), grants: tuple[Grant, ...] = ALL) -> None:
        fragment = self.fragments[name] = self._fragment(name, statements)
        state = SuperpeerState(name, grants=grants, max_depth=self.max_depth)
        site = SuperpeerSite(Superpeer(state, self.schema, FederationPeer(fragment)), {}, f"{name}-1")
        self.superpeers[name] = site
        site._send(site.superpeer.found(self.now))

    def add_peer(self, name: str, superpeer: str, statements: Iterable[Statement] = ()) -> None:
        fragment = self.fragments[name] = self._fragment(name, statements)
        self.superpeers[superpeer].connect(name, self.now, is_superpeer=False)
        self.peers[name] = PeerSite(name, superpeer, FederationPeer(fragment), FederationLink(name, f"{name}-1"))
        self.home[name] = superpeer
        self.peers[name].join()

    def connect(self, one: str, other: str) -> None:
        self.superpeers[one].connect(other, self.now, is_superpeer=True)
        self.superpeers[other].connect(one, self.now, is_superpeer=True)

    def _fragment(self, name: str, statements: Iterable[Statement]) -> MemoryFragment:
        said = frozenset(statements)
        return MemoryFragment(self.schema, {f"urn:d:{name}": said} if said else {})

    def site(self, name: str) -> SuperpeerSite | PeerSite:
        return self.superpeers.get(name) or self.peers[name]

    @property
    def sites(self) -> list[str]:
        return [*self.superpeers, *self.peers]

    # Changes

    def register(self, name: str, statements: Iterable[Statement], uri: str | None = None) -> str:
        """Register a document at a site. Return its transaction."""
        self.transactions += 1
        transaction = f"T{self.transactions}"
        change = self.fragments[name].register(transaction, uri or f"urn:d:{name}:own", statements)
        self.site(name).committed(change, self.now)
        return transaction

    def add_rule(self, name: str, rule: EcaRule) -> None:
        self.site(name).add_rule(rule, self.now)

    def leave(self, name: str) -> None:
        """Let a peer leave, once all its messages have arrived."""
        peer = self.peers[name]
        self.cut.discard(frozenset((name, peer.superpeer)))
        peer.leave()
        self._drain(name)
        del self.peers[name], self.superpeers[peer.superpeer].links[name]

    def leave_superpeer(self, name: str) -> None:
        """Let a superpeer leave. Its peers leave with it."""
        for peer in [one for one in self.peers.values() if one.superpeer == name]:
            self.leave(peer.name)
        self.cut = {pair for pair in self.cut if name not in pair}
        self.superpeers[name].leave(self.now)
        self._drain(name)
        del self.superpeers[name]
        for other in self.superpeers.values():
            other.links.pop(name, None)

    def _drain(self, name: str) -> None:
        """Deliver all messages of a site that leaves. Its links may lose some exchanges."""
        for _ in range(100):
            site = self.site(name)
            for neighbour in site.links:
                self.send(name, neighbour)
                self.send(neighbour, name)
            self.deliver_all()
            if not any(link.outbox for link in self.site(name).links.values()):
                return
        raise SimulationFailed(f"{name} cannot leave")

    # The network

    def send(self, name: str, neighbour: str, limit: int = 100) -> None:
        """Let a site call a neighbour."""
        self.flying.append((neighbour, self.site(name).links[neighbour].exchange(limit)))

    def deliver_one(self, at: int) -> None:
        to, exchange = self.flying.pop(at)
        if frozenset((to, exchange.sender)) in self.cut or to not in self.sites:
            return
        site = self.site(to)
        if exchange.sender not in site.links:
            return
        if self.random.random() < 0.05:
            exchange = exchange._replace(messages=decode(encode(exchange.messages)))
        if self.random.random() < self.crashes:
            self.counts["crash"] += 1
            self.crash(to, exchange)
            return
        try:
            site.receive(exchange, self.now)
        except LinkGap:
            self.counts["gap"] += 1
        except OtherEpoch as other:
            if exchange.sender in self.sites:
                self.site(exchange.sender).other_restored(to, other.epoch, self.now)

    def deliver_all(self) -> None:
        while self.flying:
            self.deliver_one(0)

    def crash(self, name: str, exchange: LinkExchange) -> None:
        """Kill a site while it handles an exchange, before it commits."""
        site = self.site(name)
        memo = {id(self.schema): self.schema}
        fragment = self.fragments[name]
        saved = deepcopy((fragment, site.links, getattr(site, "superpeer", None) and self._state(name)), memo)
        with suppress(LinkGap, OtherEpoch):
            site.receive(exchange, self.now)
        self.fragments[name] = saved[0]
        self._start(name, saved[0], saved[1], saved[2])

    def restart(self, name: str) -> None:
        """Restart a site: what it stores is kept, and what it has in memory alone is lost."""
        self.counts["restart"] += 1
        links = {key: decode_record(encode(link)) for key, link in self.site(name).links.items()}
        state = self._state(name)
        if state is not None:
            stored = state_of(records_of(state))
            if stored != state:
                raise SimulationFailed(f"{name}: the records differ from the state")
            state = stored
        self._start(name, self.fragments[name], links, state)

    def back_up(self, name: str) -> None:
        memo = {id(self.schema): self.schema}
        stored = self.fragments[name], self.site(name).links, self._state(name)
        self.backups[name] = deepcopy(stored, memo)

    def restore(self, name: str) -> None:
        """Restore a site from its backup, unless its links have changed since."""
        fragment, links, state = self.backups[name]
        if links.keys() != self.site(name).links.keys():
            return
        self.counts["restore"] += 1
        self.lives += 1
        self.flying = [(to, one) for to, one in self.flying if name not in (to, one.sender)]
        copy = deepcopy((fragment, links, state), {id(self.schema): self.schema})
        self.fragments[name] = copy[0]
        self._build(name, *copy)
        self.site(name).restore(f"{name}-{self.lives}", self.now)

    def _state(self, name: str) -> SuperpeerState | None:
        return self.superpeers[name].superpeer.state if name in self.superpeers else None

    def _start(
        self, name: str, fragment: MemoryFragment, links: dict[str, FederationLink], state: SuperpeerState | None
    ) -> None:
        self._build(name, fragment, links, state)
        self.site(name).start(self.now)

    def _build(
        self, name: str, fragment: MemoryFragment, links: dict[str, FederationLink], state: SuperpeerState | None
    ) -> None:
        if name in self.superpeers:
            assert state is not None
            superpeer = Superpeer(state, self.schema, FederationPeer(fragment))
            self.superpeers[name] = SuperpeerSite(superpeer, links, self.superpeers[name].epoch)
        else:
            home = self.peers[name].superpeer
            self.peers[name] = PeerSite(name, home, FederationPeer(fragment), links[home])

    def rest(self, rounds: int = MAX_ROUNDS, seconds: float = 1.0) -> None:
        """Let all sites exchange messages until none is left."""
        self.cut.clear()
        crashes = self.crashes
        for number in range(rounds):
            self.crashes = crashes if number < CRASHING_ROUNDS else 0.0
            self.now += seconds
            for name in self.sites:
                for neighbour in list(self.site(name).links):
                    self.send(name, neighbour)
                self.deliver_all()
            for name in self.sites:
                self.site(name).tick(self.now)
            if self.is_at_rest():
                self.crashes = crashes
                return
        raise SimulationFailed(f"the sites do not come to rest: {self.unfinished()}")

    def is_at_rest(self) -> bool:
        return not any(link.outbox for name in self.sites for link in self.site(name).links.values()) and not any(
            self.unfinished()
        )

    def unfinished(self) -> list[str]:
        """Return what has not ended yet."""
        found = []
        for site in self.superpeers.values():
            state = site.superpeer.state
            found += [f"{state.name}: pull {id_}" for id_ in state.pulls]
            found += [f"{state.name}: change of {one.change.transaction}" for one in state.queue]
            found += [f"{state.name}: reaction to {one.transaction}" for one in state.reactions.values()]
            found += [
                f"{state.name}: {one.id} {one.state.value}"
                for one in state.transactions.values()
                if one.state in (SagaState.RUNNING, SagaState.COMPENSATING)
            ]
            found += [f"{state.name}: abort {key}" for key in (*state.abort_requests, *state.sent_aborts)]
        return found

    # What there is

    def union(self) -> frozenset[Statement]:
        return frozenset().union(*(fragment.state.stated for fragment in self.fragments.values()))

    def state_of(self, name: str) -> SuperpeerState:
        return self.superpeers[name].superpeer.state

    def group(self, superpeer: str) -> dict[str, MemoryFragment]:
        """Return the fragments of a group by the name of the peer there."""
        peers = [name for name in self.peers if self.home[name] == superpeer]
        return {OWN_STORE: self.fragments[superpeer], **{name: self.fragments[name] for name in peers}}

    def outcomes(self) -> dict[str, SagaState]:
        """Return the states of all transactions."""
        every = [site.superpeer.state.transactions.values() for site in self.superpeers.values()]
        return {one.id: one.state for some in every for one in some}

    # Invariants

    def check(self) -> None:
        self.check_rules()
        self.check_aborts()
        for name, fragment in self.fragments.items():
            if len(set(fragment.executed)) != len(fragment.executed):
                raise SimulationFailed(f"{name} ran a copy twice: {fragment.executed}")

    def check_rules(self) -> None:
        """Compare the indexes, the rules and their annotations with the fragments."""
        every = {
            rule.id: rule
            for site in self.superpeers.values()
            for rule in site.superpeer.state.rules.values()
            if rule.origin == site.name
        }
        for site in self.superpeers.values():
            state, group = site.superpeer.state, self.group(site.name)
            for peer, fragment in group.items():
                if state.index.nodes[peer] != present_nodes(fragment.state):
                    raise SimulationFailed(f"{site.name}: the annotated schema of {peer} is wrong")
                if state.index.resources[peer] != mentioned(fragment.state):
                    raise SimulationFailed(f"{site.name}: the resource index of {peer} is wrong")
            present = frozenset().union(*(present_nodes(fragment.state) for fragment in group.values()))
            for other in self.superpeers.values():
                entry = other.superpeer.state.presence[site.name]
                if entry.nodes != present:
                    raise SimulationFailed(f"{other.name} does not know the presence of {site.name}")
            if not state.rules.keys() <= every.keys():
                raise SimulationFailed(f"{site.name} has rules that have ended: {state.rules.keys() - every.keys()}")
            for rule in every.values():
                nodes = nodes_of_rule(rule.rule, self.schema)
                wanted = rule.origin == site.name or nodes.is_e_relevant(present)
                if wanted != (rule.id in state.rules):
                    raise SimulationFailed(f"{site.name}: rule {rule.id} is {'missing' if wanted else 'too much'}")
                if wanted and state.annotations[rule.id] != self.annotation(rule.rule, group):
                    raise SimulationFailed(f"{site.name}: the annotations of {rule.id} are wrong")

    def annotation(self, rule: EcaRule, group: dict[str, MemoryFragment]) -> tuple[frozenset[str], ...]:
        """Return the peers that are relevant to the parts of a rule, naively."""
        nodes = nodes_of_rule(rule, self.schema)
        found: tuple[set[str], set[str], set[str]] = (set(), set(), set())
        for peer, fragment in group.items():
            present, known = present_nodes(fragment.state), mentioned(fragment.state).keys()
            if nodes.event <= present and nodes.event_resources <= known:
                found[0].add(peer)
            if nodes.condition & present:
                found[1].add(peer)
            if nodes.actions <= present and nodes.action_resources <= known:
                found[2].add(peer)
        return tuple(frozenset(one) for one in found)

    def abort_closure(self) -> set[str]:
        """Return what must be compensated: what failed itself, with all that depends on it."""
        arcs: dict[str, set[str]] = {}
        todo: list[str] = []
        states = [site.superpeer.state for site in self.superpeers.values()]
        by_name = {state.name: state for state in states}

        def transactions(target: str, superpeer: str) -> list[str]:
            state = by_name.get(superpeer)
            if state is None:
                return []
            local = state.local_copies.get(target)
            return local.transactions if local else [target] if target in state.transactions else []

        for state in states:
            for one in state.transactions.values():
                arcs[one.id] = {id_ for arc in one.arcs for id_ in transactions(*arc)}
                todo += [one.id] if one.failed_itself else []
            for placed in state.copies.values():
                todo += [id_ for name in placed.given_up for id_ in transactions(placed.shared.id, name)]
        found: set[str] = set()
        while todo:
            one_id = todo.pop()
            if one_id not in found:
                found.add(one_id)
                todo += arcs[one_id]
        return {id_ for id_ in found if self.outcomes()[id_] is not SagaState.REFUSED}

    def check_aborts(self) -> None:
        outcomes = self.outcomes()
        compensated = {id_ for id_, state in outcomes.items() if state is SagaState.COMPENSATED}
        expected = self.abort_closure()
        if compensated != expected and not self.has_lost_history:
            raise SimulationFailed(f"compensated {sorted(compensated)}, not {sorted(expected)}")
        undone = {id_ for fragment in self.fragments.values() for id_ in fragment.compensated}
        if not undone <= compensated and not self.has_lost_history:
            raise SimulationFailed(f"undone, but not compensated: {sorted(undone - compensated)}")
        staying = {*self.superpeers, *self.peers}
        for name, fragment in self.fragments.items():
            left = {id_ for id_, _ in fragment.executed} & compensated - undone
            if left and name in staying:
                raise SimulationFailed(f"{name} has not undone {sorted(left)}")


class Schedule(SimulatedFederation):
    """One run of the simulation. `counts`: how often each kind of step happened."""

    def __init__(self, seed: int, mode: str) -> None:
        super().__init__(SCHEMA, random.Random(f"{mode} {seed}"))
        self.seed, self.mode = seed, mode
        self.rules: list[EcaRule] = []
        self.history: list[Registration] = []
        if mode == "failing":
            self.max_depth = 6

    def run(self) -> None:
        rng = self.random
        self.found()
        steps = rng.randrange(20, 60)
        if self.mode == "commuting":
            for _ in range(rng.randrange(1, 6)):
                self.new_rule()
                self.disturb(rng.randrange(4))
            self.rest(seconds=QUICK_ROUND)
            self.check_rules()
        for _ in range(steps):
            self.step()
        self.rest(seconds=QUICK_ROUND if self.mode == "commuting" else 7.0)
        self.check()
        if self.mode == "commuting":
            self.check_union()

    def found(self) -> None:
        rng = self.random
        superpeers = [f"S{n + 1}" for n in range(rng.choice((2, 3, 3, 4)))]
        peers = {f"p{n + 1}": rng.choice(superpeers) for n in range(rng.choice((0, 1, 2, 3)))}
        said = static_statements(rng, len(superpeers) + len(peers))
        self.initial = {f"urn:d:{name}": frozenset(one) for name, one in zip([*superpeers, *peers], said, strict=True)}
        for name in superpeers:
            self.add_superpeer(name, self.initial[f"urn:d:{name}"], self.grants())
        pairs = list(itertools.pairwise(superpeers))
        shape = rng.choice(("line", "ring", "star"))
        if shape == "star":
            pairs = [(superpeers[0], other) for other in superpeers[1:]]
        if shape == "ring" and len(superpeers) > 2:
            pairs.append((superpeers[-1], superpeers[0]))
        for one, other in pairs:
            self.connect(one, other)
        for name, superpeer in peers.items():
            self.add_peer(name, superpeer, self.initial[f"urn:d:{name}"])
        self.counts[shape] += 1
        if rng.random() < 0.5 or self.mode == "commuting":
            self.rest()

    def grants(self) -> tuple[Grant, ...]:
        rng = self.random
        if self.mode == "commuting" or rng.random() < 0.5:
            return ALL
        kinds = [
            Grant(GrantKind.PROPERTY, "http://v/tag0", rng.choice([*Privilege])),
            Grant(GrantKind.CLASS, "http://v/Item", rng.choice([*Privilege])),
            Grant(GrantKind.RESOURCE, "http://v/hub", rng.choice([*Privilege])),
            Grant(GrantKind.PREFIX, "http://v/", rng.choice([*Privilege])),
        ]
        return tuple(rng.sample(kinds, rng.randrange(len(kinds) + 1)))

    def step(self) -> None:
        rng = self.random
        chance = rng.random()
        self.now += rng.random() * 0.1
        if self.mode == "failing" and rng.random() < 0.1:
            self.back_up(rng.choice(self.sites))
        if chance < 0.15:
            self.change()
        elif chance < 0.85:
            self.disturb(rng.randrange(1, 8))
        elif chance < 0.9:
            self.cut_some()
        elif chance < 0.95:
            self.restart(rng.choice(self.sites))
        elif self.mode == "failing":
            self.wild_step()
        for name in self.sites:
            self.site(name).tick(self.now)

    def wild_step(self) -> None:
        chance = self.random.random()
        if chance < 0.55:
            self.new_rule()
        elif chance < 0.7:
            self.counts["long cut"] += 1
            self.now += self.random.choice((8.0, 40.0, 400.0))
        elif chance < 0.78 and self.peers:
            self.counts["leave"] += 1
            self.leave(self.random.choice([*self.peers]))
        elif chance < 0.82:
            self.lose_superpeer()
        elif chance < 0.95:
            self.restore_one()
        elif self.rules:
            self.counts["rule ended"] += 1
            site = self.random.choice([*self.superpeers.values()])
            own = [rule.id for rule in site.superpeer.state.rules.values() if rule.origin == site.name]
            if own:
                site.end_rule(self.random.choice(own), self.now)

    def restore_one(self) -> None:
        """Restore a site from a backup of some steps before."""
        name = self.random.choice(self.sites)
        if name in self.backups:
            self.has_lost_history = True
            self.restore(name)

    def lose_superpeer(self) -> None:
        """Let a superpeer leave that connects no others."""
        ends = [name for name in self.superpeers if len(self.state_of(name).neighbours) == 1]
        if len(self.superpeers) > 2 and ends:
            self.counts["superpeer left"] += 1
            self.has_lost_history = True
            self.leave_superpeer(self.random.choice(ends))

    def new_rule(self) -> None:
        self.counts["rule"] += 1
        make = commuting_rule if self.mode == "commuting" else failing_rule
        rule = make(self.random, len(self.rules))
        self.rules.append(rule)
        self.add_rule(self.random.choice(self.sites), rule)

    def change(self) -> None:
        self.counts["change"] += 1
        name = self.random.choice(self.sites)
        uri = f"urn:d:{name}:own"
        kept = {one for one in self.fragments[name].state.documents.get(uri, ()) if not one.property.endswith("noise")}
        statements = frozenset(kept | dynamic_statements(self.random))
        self.history.append(Registration(uri, statements))
        self.register(name, statements, uri)

    def disturb(self, deliveries: int) -> None:
        """Send some exchanges, and deliver some in any order: late, twice, or not at all."""
        rng = self.random
        for _ in range(2):
            name = rng.choice(self.sites)
            links = [*self.site(name).links]
            if links:
                self.send(name, rng.choice(links), rng.choice((1, 2, 100)))
        for _ in range(deliveries):
            if self.flying:
                at, chance = rng.randrange(len(self.flying)), rng.random()
                if chance < 0.1:
                    self.counts["lost"] += 1
                    self.flying.pop(at)
                    continue
                if chance < 0.25:
                    self.counts["repeated"] += 1
                    self.flying.append(self.flying[at])
                self.counts["delivered"] += 1
                self.deliver_one(at)

    def cut_some(self) -> None:
        self.counts["cut"] += 1
        pairs = [frozenset((name, other)) for name in self.sites for other in self.site(name).links]
        self.cut = set(self.random.sample(pairs, self.random.randrange(len(pairs) + 1)))

    def check_union(self) -> None:
        """Compare the union of the fragments with the result of one central engine."""
        state = State(dict(self.initial), self.schema)
        rules = without_coupling(self.rules)
        for one in self.history:
            state = State(exec_sched(one, rules, state).documents, self.schema)
        missing, surplus = state.stated - self.union(), self.union() - state.stated
        if missing or surplus:
            raise SimulationFailed(f"the union lacks {sorted(missing)} and has {sorted(surplus)} too much")


def run_schedules(mode: str, seeds: Iterable[int]) -> Counter[str]:
    """Run schedules. Return how often each kind of step happened. Errors name the command that replays the schedule."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        schedule = Schedule(seed, mode)
        try:
            schedule.run()
        except Exception as error:
            command = f"python -m tests.support.federation_simulation --mode {mode} --seed {seed}"
            raise SimulationFailed(f"{type(error).__name__}: {error}\nReplay with: {command}") from error
        counts += schedule.counts
        counts["transactions"] += len(schedule.outcomes())
        counts["compensated"] += sum(state is SagaState.COMPENSATED for state in schedule.outcomes().values())
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=MODES, default="commuting")
    parser.add_argument("--seed", type=int, help="replay this schedule")
    parser.add_argument("--schedules", type=int, default=1_000)
    given = parser.parse_args()
    if given.seed is not None:
        Schedule(given.seed, given.mode).run()
        return
    began = time.perf_counter()
    counts = run_schedules(given.mode, range(given.schedules))
    print(f"{given.schedules} schedules in {time.perf_counter() - began:.1f} s: {dict(counts)}")


if __name__ == "__main__":
    main()
