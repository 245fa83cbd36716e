"""A seeded simulation of a backbone in memory, with oracles.

Each seed is a schedule: members, a topology, changes, polls, messages that are lost, repeated, late and reordered,
partitions, restarts, restores with and without notice, closed members, joins, schemas and rules, leads that are handed
over or lost, truncation. In the end all links work,
and the members come to rest. Replay a failing one with

    python -m tests.support.backbone_simulation --mode orset --seed 17
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mdv.backbone.conflicts import ConflictRules, find_conflicts
from mdv.backbone.cset import CSet
from mdv.backbone.document_state import ReplicatedDocument, digest_of
from mdv.backbone.member import BackboneMember, LocalChange
from mdv.backbone.memory_store import MemoryReplicaStore
from mdv.backbone.messages import BackboneMessage, LogPage, describe
from mdv.backbone.operation import RULES, SCHEMA, LogRow, Operation, decode_operation
from mdv.backbone.orset import AddWinsSet
from mdv.backbone.registers import Register, registers_from_json
from mdv.backbone.replica_store import MemberFacts, MemberStatus, ReplicaStore
from mdv.backbone.replicated_set import SetKind
from mdv.backbone.vector import NO_DOT, Dot, Vector, covers, includes
from mdv.errors import Refused
from mdv.model import Statement, Term

KINDS: dict[str, SetKind] = {"orset": AddWinsSet(), "cset": CSet()}
DOCUMENTS = ("urn:d:1", "urn:d:2")
STATEMENTS = [Statement("urn:s", f"urn:{name}", Term.literal(value)) for name in "pq" for value in "abc"]
CONFLICT_RULES = ConflictRules(
    lambda name: ["urn:p"] if name == "urn:p" else [], lambda statement: statement.object.value == "c"
)
MAX_ROUNDS = 60

Element = tuple[str, Statement]


class SimulationFailed(AssertionError):
    """A schedule broke an invariant."""


@dataclass
class Event:
    """A change that was acknowledged: what it added and removed, and the events that its member knew (bits)."""

    added: frozenset[Element]
    removed: frozenset[Element]
    past: int


class _Store(MemoryReplicaStore):
    """The memory store. It notes the operations that its member has made, and those that it has received."""

    made: dict[Dot, LogRow]
    received: dict[Dot, LogRow]

    def append(self, row: LogRow) -> None:
        super().append(row)
        if row.life == self.facts.life:
            self.made[row.life, row.seq] = row
        else:
            self.received[row.life, row.seq] = row


@dataclass
class Backup:
    store: MemoryReplicaStore
    unserved: dict[Dot, int]
    served: dict[Dot, int]
    step: int


class Schedule:
    """One run. `counts`: how often each kind of step happened."""

    def __init__(self, seed: int, mode: str, trace: bool = False) -> None:
        self.random = random.Random(f"{mode} {seed}")
        self.seed, self.mode, self.kind, self.trace = seed, mode, KINDS[mode], trace
        self.now = 10**13
        self.lives: Counter[str] = Counter()
        self.made: dict[Dot, LogRow] = {}
        self.received: dict[Dot, LogRow] = {}
        self.members: dict[str, BackboneMember] = {}
        self.skew: dict[str, int] = {}
        self.flying: list[tuple[str, BackboneMessage]] = []
        self.blocked: set[frozenset[str]] = set()
        self.events: list[Event] = []
        self.event_of: dict[Dot, int] = {}
        self.unserved: dict[str, dict[Dot, int]] = {}
        self.lost = 0
        self.repeated = 0
        self.backups: dict[str, list[Backup]] = {}
        self.scanned: dict[str, object] = {}
        self.counts: Counter[str] = Counter()
        self.step = 0

    # Set-up

    def member(self, name: str, store: MemoryReplicaStore | None = None) -> BackboneMember:
        def new_life() -> str:
            self.lives[name] += 1
            return f"{name}.{self.lives[name]}"

        if store is None:
            store = self.store(MemberFacts(name, new_life()))
        self.members[name] = BackboneMember(store, self.kind, new_life, page_rows=self.random.choice((1, 2, 100)))
        self.skew.setdefault(name, self.random.choice((0, 0, 0, 30_000_000, -3_600_000_000, 3_600_000_000)))
        self.unserved.setdefault(name, {})
        return self.members[name]

    def store(self, facts: MemberFacts) -> MemoryReplicaStore:
        store = _Store(self.kind, facts)
        store.made, store.received = self.made, self.received
        return store

    def copy_of(self, store: MemoryReplicaStore) -> MemoryReplicaStore:
        copy = store.copy()
        copy.__class__ = _Store
        copy.made, copy.received = self.made, self.received  # type: ignore[attr-defined]
        return copy

    def time_of(self, name: str) -> int:
        return self.now + self.skew[name]

    def found(self) -> None:
        rng = self.random
        count = rng.choice((2, 3, 3, 3, 4))
        self.topology = rng.choice(("mesh", "ring", "star"))
        self.member("m1").found(self.time_of("m1"))
        for number in range(2, count + 1):
            self.join(f"m{number}", with_documents=rng.random() < 0.2)
            self.rest(MAX_ROUNDS, until_empty=False)

    def join(self, name: str, with_documents: bool = False) -> None:
        leads = [one for one in self.members.values() if one.store.facts.table.lead[2] == one.name and one.is_active]
        if not leads:
            return
        self.counts["join"] += 1
        member = self.member(name)
        leads[0].invite(name, self.time_of(leads[0].name) + 10**12)
        if with_documents:
            statements = self.random.sample(STATEMENTS, 3)
            document = ReplicatedDocument(1, digest_of(statements), len(statements), {"n": "own"})
            member.store.write(DOCUMENTS[0], document, {one: self.kind.state_of_row(NO_DOT) for one in statements})
        member.join(name, self.time_of(name))
        for draft in member.store.facts.drafts:
            self.note(name, draft)

    def neighbours(self, name: str) -> list[str]:
        names = sorted(self.members)
        if self.topology == "mesh" or self.members[name].asks_everyone:
            return [other for other in names if other != name]
        if self.topology == "star":
            return names[1:] if name == names[0] else [names[0]]
        at = names.index(name)
        return sorted({names[at - 1], names[(at + 1) % len(names)]} - {name})

    # Steps

    def run(self) -> None:
        self.found()
        rng = self.random
        wild = {name for name in ("close", "restore", "restart", "join", "lead") if rng.random() < 0.3}
        if rng.random() < 0.04:
            wild.add("restore all")
        for self.step in range(rng.randrange(12, 36)):
            self.now += rng.randrange(3_000_000)
            name = rng.choice(list(self.members))
            chance = rng.random()
            if chance < 0.25:
                self.write(name)
            elif chance < 0.28:
                self.change_rules(name)
            elif chance < 0.30:
                self.put_schema(name)
            elif chance < 0.50:
                self.poll(name, rng.choice(self.neighbours(name)))
            elif chance < 0.78:
                for _ in range(rng.randrange(1, 5)):
                    self.deliver_one()
            elif chance < 0.84:
                self.settle(name)
            elif chance < 0.88:
                self.partition()
            elif chance < 0.92:
                self.back_up(name)
            else:
                self.wild_step(name, wild)
        self.blocked = set()
        self.rest(MAX_ROUNDS)
        self.check()

    def wild_step(self, name: str, wild: set[str]) -> None:
        what = self.random.choice(sorted(wild)) if wild else ""
        if what == "close":
            self.close()
        elif what == "restore":
            self.restore(name, noticed=self.random.random() < 0.5)
        elif what == "restart":
            self.restart(name)
        elif what == "lead":
            self.change_lead(name)
        elif what == "join" and len(self.members) < 5:
            wild.discard("join")
            self.join(f"m{len(self.members) + 1}", with_documents=self.random.random() < 0.5)
        elif what == "restore all":
            wild.discard("restore all")
            self.restore_all()

    def write(self, name: str) -> None:
        rng, member, uri = self.random, self.members[name], self.random.choice(DOCUMENTS)
        self.counts["write"] += 1
        if rng.random() < 0.6:
            chosen = [statement for statement in STATEMENTS if rng.random() < 0.35]
            wanted = [statement for statement in chosen if self.is_allowed(name, statement)]
            operation = member.register(uri, wanted, {"n": str(rng.randrange(100))}, self.time_of(name))
        else:
            some = rng.sample(STATEMENTS, 2)
            inserted = [statement for statement in some[:1] if self.is_allowed(name, statement)]
            operation = member.change([LocalChange(uri, inserted, some[1:])], self.time_of(name))
        if operation is not None:
            self.note(name, operation)

    def is_allowed(self, name: str, statement: Statement) -> bool:
        """True if the schema at a member accepts a statement."""
        return statement.object.value != "c" or not is_strict(self.members[name].store.facts.table.schema_text)

    def scan(self, name: str) -> None:
        """Note the documents that a new schema refuses, as a member does when it stores it."""
        store = self.members[name].store
        table = store.facts.table
        if self.scanned.get(name) != (table.schema, table.schema_by) and is_strict(table.schema_text):
            for uri in refused_documents(store):
                store.doubt(uri)
        self.scanned[name] = (table.schema, table.schema_by)

    def change_rules(self, name: str) -> None:
        self.counts["rules"] += 1
        value = self.random.choice((None, self.step))
        self.note(name, self.members[name].change_rules({self.random.choice("ab"): value}, self.time_of(name)))

    def put_schema(self, name: str) -> None:
        member = self.members[name]
        if member.is_active and member.store.facts.table.lead[2] == name:
            self.counts["schema"] += 1
            strictness = "strict" if self.step % 2 else "lax"
            member.put_schema(f"{name} {self.step} {strictness}", self.time_of(name))
            self.scan(name)

    def change_lead(self, name: str) -> None:
        """Let the lead hand over, or another member set the lead although the present one may be there."""
        member, rng = self.members[name], self.random
        table = member.store.facts.table
        other = rng.choice([name, *table.active()])
        try:
            if table.lead[2] == name and member.is_active:
                member.hand_over_lead(other, self.time_of(name))
            else:
                member.set_lead(other, self.time_of(name))
        except Refused:
            return
        self.counts["lead"] += 1
        self.say(f"{name} makes {other} the lead: {member.store.facts.table.lead}")

    def note(self, name: str, operation: Operation) -> None:
        """Note an acknowledged change."""
        added = frozenset((change.uri, one) for change in operation.documents for one, _ in change.inserted)
        removed = frozenset((change.uri, one) for change in operation.documents for one, _ in change.deleted)
        event = len(self.events)
        past = self.known(name)
        self.events.append(Event(added, removed, past))
        if self.members[name].is_active:
            self.event_of[operation.dot] = 1 << event
        else:
            self.unserved[name][operation.dot] = 1 << event
        self.say(f"{name} writes event {event} as {operation.dot}")

    def known(self, name: str) -> int:
        """Return the events that a member knows, as bits."""
        facts = self.members[name].store.facts
        bits = self.known_in(facts.vector)
        for draft in facts.drafts:
            if draft.life != facts.life:
                bits |= self.event_of.get(draft.dot, 0)  # its life was closed before anybody else had it
        for event in self.unserved[name].values():
            bits |= event
        return bits

    def known_in(self, vector: Vector) -> int:
        bits = 0
        for (life, seq), event in self.event_of.items():
            if seq <= vector.get(life, 0):
                bits |= event
        return bits

    def poll(self, name: str, peer: str) -> None:
        self.flying += self.members[name].poll(peer, self.time_of(name))

    def deliver_one(self) -> None:
        if self.flying:
            rng = self.random
            at = rng.randrange(len(self.flying))
            chance = rng.random()
            to, message = self.flying[at] if chance < 0.15 else self.flying.pop(at)
            self.counts["repeated" if chance < 0.15 else "delivered"] += 1
            if chance > 0.9:
                self.counts["dropped"] += 1
            else:
                self.deliver(to, message)

    def deliver(self, to: str, message: BackboneMessage) -> None:
        if frozenset((to, message.sender)) in self.blocked:
            return
        member = self.members[to]
        life, status = member.store.facts.life, member.store.facts.status
        answers = member.receive(message, self.time_of(to))
        self.scan(to)
        if self.trace:
            self.say(f"{to} gets {describe(message)}: {status.name} -> {member.store.facts.status.name}"
                     f" {member.store.facts.vector} answers {[type(one).__name__ for _, one in answers]}")  # fmt: skip
        self.flying += answers
        if self.unserved[to] or member.redone or life != member.store.facts.life:
            self.serve(to)

    def serve(self, name: str) -> None:
        """Note under which operation the unserved changes of a member were repeated or sent."""
        member, unserved = self.members[name], self.unserved[name]
        for dot, repeated in member.redone.items():
            events = 0
            for old in repeated:
                events |= unserved.pop(old, 0) or self.event_of.get(old, 0)
            self.event_of[dot] = events
            self.repeated |= events
        member.redone = {}
        if member.is_active:
            for dot, event in unserved.items():
                self.event_of[dot] = event
            unserved.clear()

    def settle(self, name: str) -> None:
        self.counts["settle"] += 1
        self.members[name].settle()

    def partition(self) -> None:
        self.counts["partition"] += 1
        names = list(self.members)
        away = set(self.random.sample(names, self.random.randrange(len(names))))
        self.blocked = {frozenset((one, other)) for one in away for other in names if other not in away}

    def back_up(self, name: str) -> None:
        member = self.members[name]
        if member.is_active:
            served = {dot: event for dot, event in self.event_of.items() if includes(member.vector, dot)}
            store = self.copy_of(member.store)  # type: ignore[arg-type]
            backup = Backup(store, dict(self.unserved[name]), served, self.step)
            self.backups.setdefault(name, []).append(backup)

    def restart(self, name: str) -> None:
        self.counts["restart"] += 1
        store = self.members[name].store
        self.member(name, store).start()  # type: ignore[arg-type]
        self.say(f"{name} restarts: {store.facts.status}")

    def restore(self, name: str, noticed: bool) -> Backup | None:
        if name not in self.backups:
            return None
        self.counts["restore noticed" if noticed else "restore"] += 1
        backup = self.random.choice(self.backups[name])
        self.lost |= self.known(name)
        self.unserved[name] = dict(backup.unserved)
        self.flying = [(to, message) for to, message in self.flying if message.sender != name and to != name]
        self.forget_unsent(name, backup.store.facts.vector)
        self.event_of = {**backup.served, **self.event_of}
        member = self.member(name, self.copy_of(backup.store))
        if noticed:
            member.return_in_new_life(self.time_of(name))
        else:
            member.start()
        self.say(f"{name} is restored to {member.store.facts.vector}, noticed: {noticed}")
        return backup

    def forget_unsent(self, name: str, kept: Vector) -> None:
        """Forget the operations that nobody has any more: others may get their numbers."""
        others = [member.received for other, member in self.members.items() if other != name]
        rows = [row for _, message in self.flying if isinstance(message, LogPage) for row in message.rows]
        sent = {(row.life, row.seq) for row in rows}

        def is_forgotten(dot: Dot) -> bool:
            return dot not in sent and not any(includes(vector, dot) for vector in (kept, *others))

        for dot in [dot for dot in self.event_of if dot[0].split(".")[0] == name and is_forgotten(dot)]:
            del self.event_of[dot]
        for dot in [dot for dot in self.received if is_forgotten(dot)]:
            del self.received[dot]

    def restore_all(self) -> None:
        if not all(name in self.backups for name in self.members):
            return
        self.counts["restore all"] += 1
        restored = {name: self.restore(name, noticed=True) for name in self.members}
        self.flying = []
        first = max(restored, key=lambda name: restored[name].step)  # type: ignore[union-attr]
        self.members[first].assume_active()
        self.serve(first)

    def close(self) -> None:
        for member in self.members.values():
            facts = member.store.facts
            if member.is_active and facts.table.lead[2] == member.name:
                others = [name for name in facts.table.active() if name != member.name]
                away = self.random.sample(others, self.random.randrange(1, len(others) + 1)) if others else []
                try:
                    messages = member.close(away)
                except Refused:
                    continue
                self.counts["close"] += 1
                self.say(f"{member.name} closes {away}")
                self.flying += messages
                gone = set(away)
                self.blocked = {frozenset((one, other)) for one in gone for other in self.members if other not in gone}
                for _ in range(30):
                    self.deliver_one()

    def rest(self, rounds: int, until_empty: bool = True) -> None:
        """Let all members poll until they are equal and nothing is left to be sent."""
        for number in range(rounds):
            self.now += 6_000_000
            self.invite_again()
            if number == 10:
                self.choose_first()
            for name in self.members:
                for peer in self.neighbours(name):
                    self.poll(name, peer)
                self.deliver_all()
            for name in self.members:
                self.members[name].settle()
            if self.is_at_rest(until_empty):
                return
        states = {name: (one.store.facts.status.name, one.vector, one.waiting) for name, one in self.members.items()}
        raise SimulationFailed(f"the members do not come to rest: {states}")

    def invite_again(self) -> None:
        """Renew invitations that the lead has forgotten, because it was restored."""
        codes = [one.store.facts.code for one in self.members.values() if one.store.facts.code is not None]
        for member in self.members.values():
            if member.is_active and member.store.facts.table.lead[2] == member.name:
                for code in codes:
                    if not member.store.facts.table.is_member(code):
                        member.invite(code, self.time_of(member.name) + 10**12)

    def choose_first(self) -> None:
        """Let one member go first if all were restored, as an operator would: one that has what the others have."""
        members = list(self.members.values())
        if not any(member.is_active for member in members):
            self.counts["chosen"] += 1
            for member in sorted(members, key=lambda one: -sum(covers(one.vector, other.vector) for other in members)):
                try:
                    member.assume_active()
                except Refused:
                    continue
                self.serve(member.name)
                return

    def deliver_all(self) -> None:
        for _ in range(3000):
            if not self.flying:
                return
            self.deliver(*self.flying.pop(0))
        raise SimulationFailed("messages cause messages without end")

    def is_at_rest(self, until_empty: bool) -> bool:
        facts = [member.store.facts for member in self.members.values()]
        first = facts[0].vector
        return all(
            one.status is MemberStatus.ACTIVE and one.vector == first and (one.stable == first or not until_empty)
            for one in facts
        )

    # Oracles

    def check(self) -> None:
        members = list(self.members.values())
        first = members[0]
        expected = self.summary(first)
        for member in members:
            facts = member.store.facts
            if facts.diverged or facts.forked:
                raise SimulationFailed(f"{member.name} found divergence: {facts.diverged} {facts.forked}")
            if self.summary(member) != expected:
                raise SimulationFailed(f"{first.name} and {member.name} differ:\n{expected}\n{self.summary(member)}")
            if isinstance(member.store, MemoryReplicaStore) and member.store.log_size:
                raise SimulationFailed(f"{member.name} keeps operations that are stable")
            if is_strict(facts.table.schema_text):
                missed = set(refused_documents(member.store)) - member.store.doubted  # type: ignore[attr-defined]
                if missed:
                    raise SimulationFailed(f"{member.name} does not note that the schema refuses {missed}")
            for uri, document in member.store.documents():
                statements = member.store.statements(uri)
                if document.digest != digest_of(statements) or document.statements != len(statements):
                    raise SimulationFailed(f"{member.name}: the digest or count of {uri} is wrong")
        self.check_acknowledged(first)
        self.check_last_writers(first)
        if self.mode == "orset":
            self.check_add_wins(first)
        else:
            self.check_counters(first)

    def summary(self, member: BackboneMember) -> dict[str, object]:
        store = member.store
        assert isinstance(store, MemoryReplicaStore)
        summary: dict[str, object] = {"marks": store.marks, "stable": store.facts.stable, "table": store.facts.table,
                                      "registers": store.registers()}  # fmt: skip
        for uri, document in store.documents():
            statements = frozenset(store.statements(uri))
            conflicts = find_conflicts(uri, document, statements, CONFLICT_RULES, self.now)
            summary[uri] = statements, document._replace(last=("", 0)), document.etag, conflicts
        return summary

    def check_acknowledged(self, member: BackboneMember) -> None:
        everywhere = [self.known(name) for name in self.members]
        if len(set(everywhere)) > 1:
            raise SimulationFailed(f"the members know different changes: {[bin(one) for one in everywhere]}")
        missing = ((1 << len(self.events)) - 1) & ~everywhere[0] & ~self.lost
        if missing:
            raise SimulationFailed(f"acknowledged changes are lost: {bin(missing)}")

    def check_last_writers(self, member: BackboneMember) -> None:
        """Compare the schema and the rules with the last of all operations: by term and number, and by time."""
        registers: dict[str, Register] = {}
        schemas = [((0, 0), "", "")]
        for operation in self.operations(member.store.facts.vector):
            data = operation.data or {}
            if operation.kind == RULES:
                for key, one in registers_from_json(data["registers"]).items():
                    registers[key] = max(registers.get(key, one), one, key=lambda register: register[:2])
            elif operation.kind == SCHEMA:
                schemas.append(((data["term"], data["number"]), operation.life, data["schema"]))
        if registers != member.store.registers():
            raise SimulationFailed(f"the last writers are {registers}, not {member.store.registers()}")
        table = member.store.facts.table
        if max(schemas) != (table.schema, table.schema_by, table.schema_text or ""):
            raise SimulationFailed(f"the schema in force is {table.schema}, not {max(schemas)}")

    def check_add_wins(self, member: BackboneMember) -> None:
        """Compare with a naive set: a statement is there if an addition of it is in the past of no deletion."""
        known = self.known(member.name)
        events = [(bit, event) for bit, event in enumerate(self.events) if known >> bit & 1]
        visible = {(uri, one) for uri, _ in member.store.documents() for one in member.store.statements(uri)}
        for element in {element for _, event in events for element in event.added} | visible:
            killers = [(bit, event) for bit, event in events if element in event.removed]
            is_there = any(
                element in event.added and not any(other.past >> bit & 1 for _, other in killers)
                for bit, event in events
            )
            if is_there and element not in visible:
                raise SimulationFailed(f"an acknowledged addition is lost: {element}")
            # A repeated deletion may leave a statement if it is not certain that it had seen all additions.
            if element in visible and not is_there and not any(self.repeated >> bit & 1 for bit, _ in killers):
                raise SimulationFailed(f"a deletion is lost: {element}")

    def check_counters(self, member: BackboneMember) -> None:
        """Compare with the sum of all numbers that were sent."""
        sums: Counter[Element] = Counter()
        for operation in self.operations(member.store.facts.vector):
            for change in operation.documents:
                sums.update({(change.uri, one): number for one, number in change.inserted})
                sums.subtract({(change.uri, one): number for one, number in change.deleted})
        for (uri, one), number in sums.items():
            if member.store.states(uri, [one])[one] != number:
                raise SimulationFailed(f"the counter of {one} is wrong: it should be {number}")

    def operations(self, vector: Vector) -> Iterator[Operation]:
        for life, last in vector.items():
            for seq in range(1, last + 1):
                row = self.received.get((life, seq)) or self.made.get(
                    (life, seq)
                )  # the state may have been transferred
                if row is not None:
                    yield decode_operation(row.body)

    def say(self, text: str) -> None:
        if self.trace:
            print(f"{self.step:3} {text}")


def is_strict(schema: str | None) -> bool:
    """True if a schema refuses the value c."""
    return (schema or "").endswith("strict")


def refused_documents(store: ReplicaStore) -> list[str]:
    """Return the documents that a strict schema refuses."""
    return [uri for uri, _ in store.documents() if any(one.object.value == "c" for one in store.statements(uri))]


def run_schedules(mode: str, seeds: Iterable[int]) -> Counter[str]:
    """Run schedules. Return how often each kind of step happened. Errors name the command that replays the schedule."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        schedule = Schedule(seed, mode)
        try:
            schedule.run()
        except Exception as error:
            command = f"python -m tests.support.backbone_simulation --mode {mode} --seed {seed}"
            raise SimulationFailed(f"{type(error).__name__}: {error}\nReplay with: {command}") from error
        counts += schedule.counts
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=sorted(KINDS), default="orset")
    parser.add_argument("--seed", type=int, help="replay this schedule, with a trace")
    parser.add_argument("--schedules", type=int, default=10_000)
    given = parser.parse_args()
    if given.seed is not None:
        Schedule(given.seed, given.mode, trace=True).run()
        return
    began = time.perf_counter()
    counts = run_schedules(given.mode, range(given.schedules))
    print(f"{given.schedules} schedules in {time.perf_counter() - began:.1f} s: {dict(counts)}")


if __name__ == "__main__":
    main()
