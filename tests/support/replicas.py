"""Members of a backbone for tests: real databases in one process. Messages are delivered by the test."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import permutations
from typing import Any

import psycopg
import sqlalchemy
from sqlalchemy import Engine

from mdv.backbone.replica_store import MemberFacts, MemberStatus
from mdv.db.engine import make_engine
from mdv.db.epoch import update_epoch
from mdv.embedded import Postgres
from mdv.mdp.put_schema import put_schema
from mdv.mdp.replica import Replica, now_in_microseconds
from mdv.mdp.replicated_rules import carry_out_rules
from mdv.mdp.replicated_schema import announce_schema, store_schema_in_force
from mdv.mdp.schemas import read_schema_document
from tests.support.mdp import Mdp

NewDatabase = Callable[[], Engine]

SCHEMA = ":Book a rdfs:Class . :title a rdf:Property . :tag a rdf:Property ; mdv:setValued true ."
DOCUMENT = "http://d/1"


class ReplicaMdp(Mdp):
    """An MDP that is a member of a backbone."""

    def __init__(self, engine: Engine, name: str) -> None:
        super().__init__(engine)
        self.name = name
        self.replica = Replica(self.provider)

    @property
    def facts(self) -> MemberFacts:
        with self.engine.connect() as connection:
            facts = self.replica.facts(connection)
        assert facts is not None
        return facts

    def announce(self, turtle: str) -> None:
        """Put a schema in force at all members, as the lead."""
        document = read_schema_document((self.PREFIXES + turtle).encode(), "text/turtle")
        with self.engine.begin() as connection:
            put_schema(connection, document, self.provider)
            announce_schema(connection, self.provider)

    def store_schema(self) -> bool:
        """Store the schema of the backbone, as `mdv replicate` does. Return True if there was a new one."""
        return store_schema_in_force(self.replica, self.provider)

    def carry_out_rules(self) -> list[str]:
        """Carry out the rules of other members, as `mdv replicate` does. Return the keys of those that are invalid."""
        with self.engine.begin() as connection:
            return carry_out_rules(connection, self.provider)

    def restart(self) -> None:
        """Forget what the process has in memory."""
        self.replica = Replica(self.provider)


class Replicas:
    """Members that exchange messages. `lost`: called with every message; True if it is lost."""

    def __init__(self, members: Iterable[ReplicaMdp]) -> None:
        self.members = {member.name: member for member in members}

    @classmethod
    def found(cls, new_database: NewDatabase, names: Iterable[str], mode: str = "orset") -> Replicas:
        """Return connected members without documents. The first is the lead."""
        first, *others = [ReplicaMdp(new_database(), name) for name in names]
        replicas = cls([first])
        replicas.start(first, mode)
        for other in others:
            replicas.join(other, mode)
        return replicas

    def start(self, first: ReplicaMdp, mode: str) -> None:
        """Let a member found the backbone."""
        first.replica.create(first.name, f"http://{first.name}", mode)
        with first.replica.member() as member:
            member.found(now_in_microseconds())

    def join(self, other: ReplicaMdp, mode: str) -> None:
        self.members[other.name] = other
        lead = next(iter(self.members.values()))
        other.replica.create(other.name, f"http://{other.name}", mode)
        with lead.replica.member() as member:
            member.invite(f"code of {other.name}", now_in_microseconds() + 10**9)
        with other.replica.member() as member:
            member.join(f"code of {other.name}", now_in_microseconds())
        for _ in range(10):
            for name, peer in permutations(reversed(self.members), 2):
                self.pull(name, peer)
            if other.facts.status is MemberStatus.ACTIVE:
                return
        raise AssertionError(f"{other.name} has not become a member.")

    def __getitem__(self, name: str) -> ReplicaMdp:
        return self.members[name]

    def pull(self, name: str, peer: str) -> None:
        """Let a member poll a peer, and deliver all messages that follow."""
        with self[name].replica.member() as member:
            messages = member.poll(peer, now_in_microseconds())
        while messages:
            to, message = messages.pop(0)
            messages += self[to].replica.receive(message)

    def rest(self) -> None:
        """Let everybody poll everybody until nothing changes."""
        self._rest()
        for member in self.members.values():
            member.store_schema()
            member.carry_out_rules()

    def _rest(self) -> None:
        for _ in range(10):
            before = [member.facts.vector for member in self.members.values()]
            for name in self.members:
                for peer in self.members:
                    if peer != name:
                        self.pull(name, peer)
            after = [member.facts.vector for member in self.members.values()]
            if before == after and all(vector == after[0] for vector in after):
                return
        raise AssertionError(f"The members do not come to rest: {after}")

    def settle(self) -> None:
        for member in self.members.values():
            member.replica.settle()


class Databases:
    """Makes databases, and drops them in the end."""

    def __init__(self, postgres: Postgres, template: str, prefix: str) -> None:
        self._postgres, self._template, self._prefix = postgres, template, prefix
        self.count = 0
        self._stack = ExitStack()

    def new(self) -> Engine:
        self.count += 1
        name = f"{self._prefix}_{self.count}"
        with psycopg.connect(self._postgres.url, autocommit=True) as connection:
            connection.execute(f"create database {name} template {self._template} strategy file_copy")
        url = sqlalchemy.make_url(self._postgres.url).set(database=name)
        engine = make_engine(url.render_as_string(hide_password=False))
        with engine.begin() as connection:
            update_epoch(connection, restored=True)  # copies of a template have the same
        self._stack.callback(self._drop, name)
        self._stack.callback(engine.dispose)
        return engine

    def _drop(self, name: str) -> None:
        with psycopg.connect(self._postgres.url, autocommit=True) as connection:
            connection.execute(f"drop database {name} with (force)")

    def close(self) -> None:
        self._stack.close()


def said(member: ReplicaMdp, uri: str = DOCUMENT) -> set[tuple[str, str]]:
    """The properties and values of a document."""
    return set(
        member.rows(
            "select v.uri, coalesce(f.value, t.uri) from filter_data f join documents d on d.id = f.document_id"
            " join vocabulary v on v.id = f.property_id left join resources t on t.id = f.target_id where d.uri = :uri",
            uri=uri,
        )
    )


def tags(member: ReplicaMdp, uri: str = DOCUMENT) -> set[str]:
    return {value for name, value in said(member, uri) if name == "http://v/tag"}


def replicated(member: ReplicaMdp) -> list[Any]:
    """What all members must agree on."""
    return [
        *member.rows("select uri, version, present, digest, statements, prefixes from documents order by uri"),
        *sorted(
            member.rows(
                "select d.uri, s.uri, v.uri, t.uri, f.value, f.lang, y.uri from filter_data f"
                " join documents d on d.id = f.document_id join resources s on s.id = f.resource_id"
                " join vocabulary v on v.id = f.property_id left join resources t on t.id = f.target_id"
                " left join vocabulary y on y.id = f.datatype_id"
            ),
            key=str,
        ),
    ]


def assert_equal(replicas: Replicas) -> None:
    first, *others = replicas.members.values()
    for other in others:
        assert replicated(other) == replicated(first)
        with first.engine.connect() as one, other.engine.connect() as two:
            assert other.replica.sums(two) == first.replica.sums(one)
            assert other.replica.conflicts(two) == first.replica.conflicts(one)
