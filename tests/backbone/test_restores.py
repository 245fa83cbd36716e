"""Members whose databases are restored: copies of real databases of different age, noticed or not. The test delivers
the messages. Nothing that another member or a backup has is lost."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import Engine

from mdv.backbone.replica_store import MemberStatus
from mdv.db.epoch import update_epoch
from mdv.embedded import Postgres
from tests.support.replicas import SCHEMA, NewDatabase, ReplicaMdp, Replicas, assert_equal, tags

D = "http://d/1"
X = f"<{D}#x>"

_numbers = itertools.count(1)


class Backups:
    """Copies of the databases of members, and what each contained."""

    def __init__(self, postgres: Postgres, replicas: Replicas) -> None:
        self.replicas = replicas
        self._postgres = postgres
        self._made: list[str] = []
        self._said = 0

    def write(self, name: str) -> str:
        """Add a statement that is like no other to a document. Return its value."""
        self._said += 1
        value = f"{name}{self._said}"
        member = self.replicas[name]
        said = ", ".join(f"'{one}'" for one in sorted({*tags(member), value}))
        member.put_one(D, f"{X} :tag {said} .")
        return value

    def back_up(self, name: str) -> str:
        """Copy the database of a member. Return the name of the copy."""
        copy = f"copy_{next(_numbers)}"
        self._copy(self.replicas[name].engine, copy)
        self._made.append(copy)
        return copy

    def _copy(self, engine: Engine, copy: str) -> None:
        engine.dispose()
        with psycopg.connect(self._postgres.url, autocommit=True) as connection:
            connection.execute(f"create database {copy} template {engine.url.database} strategy file_copy")

    def restore(self, name: str, copy: str, noticed: bool) -> None:
        """Replace the database of a member by a copy, and start its process again."""
        engine = self.replicas[name].engine
        engine.dispose()
        with psycopg.connect(self._postgres.url, autocommit=True) as connection:
            connection.execute(f"drop database {engine.url.database} with (force)")
            connection.execute(f"create database {engine.url.database} template {copy} strategy file_copy")
        if noticed:
            with engine.begin() as connection:
                update_epoch(connection, restored=True)
        member = self.replicas.members[name] = ReplicaMdp(engine, name)
        with member.replica.member() as core:
            core.start()

    def rest(self) -> None:
        """Let all members poll each other until they are active and equal."""
        for _ in range(8):
            for name, peer in itertools.permutations(self.replicas.members, 2):
                self.replicas.pull(name, peer)
            if all(member.facts.status is MemberStatus.ACTIVE for member in self.replicas.members.values()):
                self.replicas.rest()
                return
        states = {name: member.facts.status for name, member in self.replicas.members.items()}
        raise AssertionError(f"The members do not come to rest: {states}")

    def close(self) -> None:
        with psycopg.connect(self._postgres.url, autocommit=True) as connection:
            for name in self._made:
                connection.execute(f"drop database if exists {name} with (force)")


@pytest.fixture(params=["orset", "cset"])
def backups(request: pytest.FixtureRequest, postgres: Postgres, new_database: NewDatabase) -> Iterator[Backups]:
    replicas = Replicas.found(new_database, "abc", str(request.param))
    for member in replicas.members.values():
        member.put_schema(SCHEMA)
    backups = Backups(postgres, replicas)
    backups.write("a")
    backups.rest()
    yield backups
    backups.close()


def check(backups: Backups, *expected: str) -> None:
    backups.rest()
    assert_equal(backups.replicas)
    found = tags(backups.replicas["a"])
    assert found >= set(expected), f"{set(expected) - found} are lost"


@pytest.mark.parametrize("noticed", [True, False])
def test_one_member_is_restored_and_gets_back_what_the_others_had(backups: Backups, noticed: bool) -> None:
    unsent = backups.write("b")
    copy = backups.back_up("b")  # with a change that the others have not seen yet
    backups.rest()
    later = [backups.write(name) for name in "bcb"]
    backups.rest()
    life = backups.replicas["b"].facts.life
    backups.restore("b", copy, noticed)
    meanwhile = backups.write("b")  # accepted although the member does not know yet how much it lacks
    check(backups, unsent, *later, meanwhile)
    assert backups.replicas["b"].facts.life != life
    again = backups.write("b")
    check(backups, again)


def test_an_old_and_a_new_backup_of_the_same_member_are_restored_one_after_the_other(backups: Backups) -> None:
    old = backups.back_up("b")
    values = [backups.write("b")]
    backups.rest()
    new = backups.back_up("b")
    values += [backups.write("b"), backups.write("c")]
    backups.rest()
    for copy, noticed in ((new, False), (old, True), (new, True), (old, False)):
        backups.restore("b", copy, noticed)
        values.append(backups.write("b"))
        check(backups, *values)


@pytest.mark.parametrize("noticed", [True, False])
def test_two_of_three_members_are_restored_from_backups_of_different_age(backups: Backups, noticed: bool) -> None:
    old = backups.back_up("b")
    values = [backups.write(name) for name in "abc"]
    backups.rest()
    newer = backups.back_up("c")
    values += [backups.write(name) for name in "abc"]
    backups.rest()
    backups.restore("b", old, noticed)
    backups.restore("c", newer, not noticed)
    check(backups, *values, backups.write("c"), backups.write("b"))


def test_all_members_are_restored_and_the_one_with_the_latest_backup_goes_first(backups: Backups) -> None:
    copies, values = {}, []
    for name in "abc":
        copies[name] = backups.back_up(name)
        values.append(backups.write(name))
        backups.rest()
    lost = backups.write("c")
    backups.rest()
    for name, copy in copies.items():
        backups.restore(name, copy, noticed=True)
    for name, peer in itertools.permutations("abc", 2):
        backups.replicas.pull(name, peer)
    assert {member.facts.status for member in backups.replicas.members.values()} == {MemberStatus.RETURNING}
    with backups.replicas["c"].replica.member() as core:
        core.assume_active()
    check(backups, *values[:2])  # the backup of c was made after these
    assert lost not in tags(backups.replicas["b"])
    check(backups, *(backups.write(name) for name in "abc"))


def test_a_life_that_two_databases_continue_ends_and_both_histories_remain(backups: Backups) -> None:
    copy = backups.back_up("b")
    first = backups.write("b")
    backups.rest()
    backups.restore("b", copy, noticed=False)
    with backups.replicas["b"].replica.member() as core:
        core.stop_checking()  # no member answers for ten seconds
    second = backups.write("b")  # has the number of the first
    check(backups, first, second)
    assert not any(member.facts.forked for member in backups.replicas.members.values())


def test_a_change_of_a_restored_member_reaches_the_others_after_a_second_restore(backups: Backups) -> None:
    copy = backups.back_up("b")
    values = [backups.write("a")]
    backups.rest()
    backups.restore("b", copy, noticed=True)
    draft = backups.write("b")
    second = backups.back_up("b")  # in the new life, before the state was transferred
    backups.rest()
    values.append(backups.write("b"))
    backups.rest()
    backups.restore("b", second, noticed=False)
    check(backups, *values, draft)
