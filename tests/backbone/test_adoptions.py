"""LMRs that change their home: in any order of steps, and killed at every point of an adoption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from mdv.errors import Behind, MustRefetch, NotHome
from mdv.failpoints import ADOPTION_FAILPOINTS
from mdv.lmr.apply import apply
from mdv.lmr.cache import Cache
from mdv.lmr.change_home import get_adopted
from mdv.lmr.checksum import checksum
from tests.support.adopting import NearHome, follow, the_lmr
from tests.support.cache_content import content_of
from tests.support.replicas import NewDatabase, ReplicaMdp, Replicas

SCHEMA = ":Book a rdfs:Class . :tag a rdf:Property ; mdv:setValued true . :next mdv:reference mdv:strong ."
ROOT = Path(__file__).parents[2]
TAGS = "pqr"


class AdoptedCache:
    """A cache, the member where its LMR is at home, and the naive content that it must have."""

    def __init__(self, url: str, replicas: Replicas, home: str) -> None:
        self.cache, self.replicas, self.home = Cache.open(url), replicas, home

    def read(self) -> None:
        """Read the feed to its end."""
        while True:
            cursor = self.cache.state().next_cursor
            try:
                if apply(self.cache, NearHome(self.replicas[self.home]).feed(cursor), after=cursor).up_to_date:
                    return
            except MustRefetch:
                self.cache.refetch()

    def adopt(self, name: str) -> bool:
        """Let a member become the home. Return False if it lacks changes."""
        try:
            get_adopted(self.cache, self.home, NearHome(self.replicas[name]), accept_older=False)
        except Behind:
            return False
        self.home = name
        return True

    def check(self, tags: set[str]) -> None:
        """Compare the cache with the documents of its home: all resources with one of the tags, and those that they
        refer to strongly."""
        rows = self.replicas[self.home].rows(
            "select r.uri, p.uri, coalesce(t.uri, f.value) from filter_data f join resources r on r.id = f.resource_id"
            " join vocabulary p on p.id = f.property_id left join resources t on t.id = f.target_id"
        )
        values: dict[str, set[tuple[str, str]]] = {}
        for uri, name, value in rows:
            values.setdefault(uri, set()).add((name.rpartition("/")[2], value))
        selected = {uri for uri, said in values.items() if any(("tag", tag) in said for tag in tags)}
        held, todo = set(selected), list(selected)
        while todo:
            targets = {value for name, value in values[todo.pop()] if name == "next" and value in values} - held
            held |= targets
            todo += targets
        found = content_of(self.cache)
        assert found.selected == selected
        assert {uri: {(name.rpartition("/")[2], term.value) for name, term in said}
                for uri, said in found.content.items()} == {uri: values[uri] for uri in held}  # fmt: skip


def make_members(new_database: NewDatabase, names: str) -> Replicas:
    replicas = Replicas.found(new_database, names)
    for member in replicas.members.values():
        member.put_schema(SCHEMA)
    first = next(iter(replicas.members.values()))
    first.create_lmr("roaming")
    first.subscribe(the_lmr(first), rule_of("p"))
    settle(replicas)
    return replicas


def rule_of(tag: str) -> str:
    return f"search rdfs:Resource r register r where r.tag? = '{tag}'"


def settle(replicas: Replicas) -> None:
    """Exchange everything, and follow the definitions, until nothing changes."""
    for _ in range(3):
        replicas.rest()
        for member in replicas.members.values():
            follow(member)
    replicas.rest()


def document(uri: str, tag: str, target: str) -> str:
    return f"<{uri}#r> :tag '{tag}' ; :next <{target}#r> ."


class AdoptionMachine(RuleBasedStateMachine):
    """Three members and one LMR. After each step the cache is exact over the documents of its home."""

    new_database: NewDatabase

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.replicas = make_members(type(self).new_database, "abc")
        self.lmr = AdoptedCache(f"sqlite:///{self.folder.name}/cache.db", self.replicas, "a")
        self.tags_of: dict[int, str] = {1: "p"}
        """The tags that are subscribed, by subscription."""
        self.lmr.read()

    def teardown(self) -> None:
        settle(self.replicas)
        self.lmr.read()
        self.check()
        homes = {member.name: the_lmr(member).home for member in self.replicas.members.values()}
        assert homes == {name: None if name == self.lmr.home else self.lmr.home for name in homes}
        for name in homes.keys() - {self.lmr.home}:
            member = self.replicas[name]
            for table in ("rules", "lmr_resources", "feed", "lmr_rules"):
                assert member.one(f"select count(*) from {table}") == 0, (name, table)
        self.lmr.cache.close()
        self.folder.cleanup()

    @rule(name=st.sampled_from("abc"), number=st.integers(0, 4), tag=st.sampled_from(TAGS), other=st.integers(0, 4))
    def put(self, name: str, number: int, tag: str, other: int) -> None:
        uri = f"http://d/{number}"
        self.replicas[name].put_one(uri, document(uri, tag, f"http://d/{other}"))

    @rule(name=st.sampled_from("abc"), number=st.integers(0, 4))
    def delete(self, name: str, number: int) -> None:
        uri = f"http://d/{number}"
        if self.replicas[name].one("select count(*) from documents where present and uri = '" + uri + "'"):
            self.replicas[name].put_one(uri, None)

    @rule(name=st.sampled_from("abc"), peer=st.sampled_from("abc"))
    def pull(self, name: str, peer: str) -> None:
        if name != peer:
            self.replicas.pull(name, peer)

    @rule(name=st.sampled_from("abc"))
    def follow(self, name: str) -> None:
        follow(self.replicas[name])

    @rule(name=st.sampled_from("abc"))
    def adopt(self, name: str) -> None:
        if name != self.lmr.home and self.lmr.adopt(name):
            self.check()

    @rule(tag=st.sampled_from(TAGS))
    def subscribe(self, tag: str) -> None:
        home = self.replicas[self.lmr.home]
        (made,) = home.subscribe(the_lmr(home), rule_of(tag))
        assert made.id not in self.tags_of
        self.tags_of[made.id] = tag

    @rule(data=st.data())
    def unsubscribe(self, data: Any) -> None:
        home = self.replicas[self.lmr.home]
        known = sorted(self.tags_of.keys() & self.rules_at(home).keys())
        if known:
            number = data.draw(st.sampled_from(known))
            home.unsubscribe(the_lmr(home), number)
            del self.tags_of[number]

    @invariant()
    def is_exact(self) -> None:
        self.lmr.read()
        self.check()

    def check(self) -> None:
        home = self.replicas[self.lmr.home]
        found = self.rules_at(home)
        assert found == {number: self.tags_of[number] for number in found}
        if covers_all(self.replicas, home):
            assert found.keys() == self.tags_of.keys()
        self.lmr.check(set(found.values()))
        assert checksum(self.lmr.cache)[1] == home.feeds.checksum(the_lmr(home))[1]

    def rules_at(self, home: ReplicaMdp) -> dict[int, str]:
        rows = home.rows("select coalesce(m.lasting_id, r.id), r.text from rules r left join lmr_rules m"
                         " on m.rule_id = r.id")  # fmt: skip
        return {number: text.rpartition("= '")[2][0] for number, text in rows}


def covers_all(replicas: Replicas, home: ReplicaMdp) -> bool:
    vectors = [member.facts.vector for member in replicas.members.values()]
    return all(vector == vectors[0] for vector in vectors) and the_lmr(home).home is None


def test_a_cache_is_exact_at_every_step(new_database: NewDatabase) -> None:
    machine = type("Machine", (AdoptionMachine,), {"new_database": staticmethod(new_database)})
    run_state_machine_as_test(machine, settings=settings(max_examples=3, stateful_step_count=12, deadline=None))


@pytest.fixture
def two(new_database: NewDatabase) -> Iterator[Replicas]:
    yield make_members(new_database, "ab")


@pytest.mark.full
def test_an_adoption_is_whole_at_every_kill(two: Replicas, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'cache.db'}"
    lmr = AdoptedCache(url, two, "a")
    numbers = count()
    for point, home in zip(ADOPTION_FAILPOINTS, "baba", strict=True):
        for member in two.members.values():
            uri = f"http://d/{next(numbers)}"
            member.put_one(uri, document(uri, "p", "http://d/0"))
        settle(two)
        lmr.read()
        uri = f"http://d/{next(numbers)}"
        two[home].put_one(uri, document(uri, "p", "http://d/0"))  # so that a bucket differs
        before, is_announced = content_of(lmr.cache), two[home].facts.seq
        assert adopt_in_process(two[home], url, f"{point}:1") == -signal.SIGKILL, point
        assert content_of(lmr.cache) == before, "the LMR serves what it had"
        is_committed = ADOPTION_FAILPOINTS.index(point) >= 2
        assert (the_lmr(two[home]).home is None) == is_committed
        assert (two[home].facts.seq > is_announced) == is_committed
        assert bool(two[home].one("select count(*) from lmr_resources")) == is_committed
        assert adopt_in_process(two[home], url, "nothing:1") == 0
        lmr.home = home
        lmr.check({"p"})
        settle(two)
        lmr.read()
        lmr.check({"p"})
    lmr.cache.close()


def adopt_in_process(member: ReplicaMdp, cache_url: str, die_at: str) -> int:
    url = member.engine.url.render_as_string(hide_password=False)
    command = [sys.executable, "-m", "tests.support.adopting", url, member.name, cache_url]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "MDV_DIE_AT": die_at}, check=False).returncode


def test_requests_to_a_member_that_is_not_the_home_are_refused(two: Replicas) -> None:
    b = two["b"]
    with pytest.raises(NotHome, match="at home at a"):
        b.feeds.read(the_lmr(b), None)
    with pytest.raises(NotHome):
        b.feeds.checksum(the_lmr(b))
