"""The members of a backbone are upgraded one after the other, while the others go on."""

from __future__ import annotations

import pytest

from mdv.db.migrate import downgrade, is_migrated, migrate
from mdv.mdp.replica import now_in_microseconds
from tests.support.replicas import NewDatabase, ReplicaMdp, Replicas

SCHEMA = ":Book a rdfs:Class . :title a rdf:Property . :tag a rdf:Property ; mdv:setValued true ."
BEFORE = "0027"
"""The tables of the first version with a backbone."""
FORGET_FACTS = (
    "update backbone set facts = facts #- '{hold}' #- '{schema_here_by}' #- '{table,schema_by}'",
    "update mdp_state set replica = replica #- '{held_until}'",
)
"""Facts that this version did not write."""


def put(member: ReplicaMdp, number: int, tag: str) -> None:
    member.put_one(f"http://d/{number}", f"<http://d/{number}#x> a :Book ; :title '{number}' ; :tag '{tag}' .")


def stored(member: ReplicaMdp) -> list[object]:
    return member.rows("select uri, version, digest, statements from documents order by uri")


@pytest.mark.full
def test_members_are_upgraded_one_after_the_other(new_database: NewDatabase) -> None:
    replicas = Replicas.found(new_database, "abc")
    replicas["a"].announce(SCHEMA)
    replicas.rest()
    members = list(replicas.members.values())
    for number, member in enumerate(members):
        put(member, number, "early")
    replicas.rest()
    lives = [member.facts.life for member in members]
    for number, old in enumerate(members):
        others = [member for member in members if member is not old]
        downgrade(old.engine, BEFORE)
        for statement in FORGET_FACTS:
            old.run(statement)
        for other in others:
            put(other, 0, f"while {old.name} was away, by {other.name}")
            put(other, 10 + 3 * number, other.name)
        replicas.members = {member.name: member for member in others}
        replicas.rest()
        migrate(old.engine)
        old.restart()
        with old.engine.connect() as connection:
            assert is_migrated(connection)
        with old.replica.member() as member:
            member.start()
        put(old, 100 + number, "after the upgrade")
        replicas.members = {member.name: member for member in members}
        replicas.rest()
        assert stored(members[0]) == stored(members[1]) == stored(members[2])
    assert [member.facts.life for member in members] == lives
    replicas["a"].announce(f"{SCHEMA} :more a rdf:Property .")
    replicas.rest()
    assert {member.one("select max(version) from schema_versions") for member in members} == {2}
    assert members[0].one("select count(*) from documents") == 9


def test_a_start_with_the_facts_of_an_earlier_version(new_database: NewDatabase) -> None:
    replicas = Replicas.found(new_database, "ab")
    replicas["a"].announce(SCHEMA)
    replicas.rest()
    before = replicas["b"].facts
    for statement in FORGET_FACTS:
        replicas["b"].run(statement)
    replicas["b"].restart()
    found = replicas["b"].facts
    assert (found.vector, found.hold, found.schema_here) == (before.vector, None, before.schema_here)
    put(replicas["b"], 1, "x")
    replicas["a"].announce(f"{SCHEMA} :more a rdf:Property .")
    replicas.rest()
    assert stored(replicas["a"]) == stored(replicas["b"])
    assert now_in_microseconds() > found.clock > 0
