"""A cache behind a real MDP's feed: documents and rules in, the closure out, both checksums equal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from cache_content import content_of
from sqlalchemy import delete

from mdv.db.cache_tables import statements
from mdv.feed import bucket_of
from mdv.lmr.checksum import verify
from mdv.lmr.collect import check
from mdv.lmr.store import Cache
from mdv.lmr.sync import Sync
from mdv.mdp.feed import Feeds
from mdv.mdp.subscribe import create_lmr, subscribe, unsubscribe

if TYPE_CHECKING:
    from conftest import Mdp

SCHEMA = """
:Host a rdfs:Class . :Info a rdfs:Class .
:info a rdf:Property ; rdfs:range :Info ; mdv:reference mdv:{strength} ; mdv:setValued true .
:next a rdf:Property ; mdv:reference mdv:strong ; mdv:setValued true .
:memory a rdf:Property ; rdfs:range xsd:integer .
"""


class Called:
    """An MDP's calls for one LMR, without the network between. Pages are small."""

    def __init__(self, mdp: Mdp, name: str = "local") -> None:
        self.mdp = mdp
        self.feeds = Feeds(mdp.engine, mdp.vocabulary)
        with mdp.engine.begin() as connection:
            self.lmr, _ = create_lmr(connection, name)

    def feed(self, after: str | None, *, wait: float = 0, buckets: Sequence[int] | None = None) -> dict[str, Any]:
        page = self.feeds.read_buckets(self.lmr, buckets, 3) if buckets else self.feeds.read(self.lmr, after, 3)
        answer: dict[str, Any] = json.loads(page.text)
        return answer

    def checksum(self) -> dict[str, Any]:
        position, sums = self.feeds.checksum(self.lmr)
        return {"position": position, "buckets": sums}

    def subscribe(self, rule: str) -> int:
        mdp = self.mdp
        with mdp.engine.begin() as connection:
            (made,) = subscribe(connection, self.lmr, [(None, rule)], mdp.schemas, mdp.vocabulary, mdp.rules)
        return made.id

    def unsubscribe(self, number: int) -> None:
        mdp = self.mdp
        with mdp.engine.begin() as connection:
            unsubscribe(connection, self.lmr, [number], mdp.schemas, mdp.vocabulary, mdp.rules)


def catch_up(sync: Sync) -> None:
    while not sync.step().up_to_date:
        pass


def assert_equal(cache: Cache, mdp: Called) -> None:
    """The MDP's checksum is that of the cache, without anything having been fetched again."""
    found = verify(cache, mdp)
    assert found is not None
    assert found.mended == ()
    assert check(cache) == []


def host(name: str, memory: int, *further: str) -> str:
    links = "".join(f" ; :next <http://d/{other}#host>" for other in further)
    return (
        f"<http://d/{name}#host> a :Host ; :memory {memory} ; :info <http://d/{name}#info>{links} ."
        f" <http://d/{name}#info> a :Info ; :memory {memory + 1} ."
    )


@pytest.fixture
def called(mdp: Mdp) -> Called:
    mdp.put_schema(SCHEMA.replace("{strength}", "strong"))
    return Called(mdp)


def test_cache_holds_what_its_rules_select_and_what_that_reaches(cache: Cache, called: Called) -> None:
    mdp, sync = called.mdp, Sync(cache, called)
    mdp.put_one("http://d/a", host("a", 92, "b"))
    mdp.put_one("http://d/b", host("b", 10, "a"))
    rule = called.subscribe("search Host h register h where h.memory > 64")
    catch_up(sync)
    everything = {f"http://d/{name}" for name in ("a#host", "a#info", "b#host", "b#info")}
    assert content_of(cache).content.keys() == everything
    assert_equal(cache, called)
    mdp.put_schema(SCHEMA.replace("{strength}", "weak"))
    catch_up(sync)
    assert content_of(cache).content.keys() == {"http://d/a#host", "http://d/b#host"}
    assert_equal(cache, called)
    called.unsubscribe(rule)
    catch_up(sync)
    assert content_of(cache).content == {}
    assert_equal(cache, called)


def test_cache_and_mdp_agree_on_a_long_way(cache: Cache, called: Called) -> None:
    """Another LMR is busy meanwhile: the offsets of a feed are not without holes."""
    choice, mdp, sync = Random(3), called.mdp, Sync(cache, called)
    Called(mdp, "other").subscribe("search Host h register h")
    rules: list[int] = []
    for step in range(60):
        number = choice.randrange(10)
        if number < 6:
            batch = {
                f"http://d/{name}": host(name, choice.randrange(100), *choice.sample("abcdef", choice.randrange(3)))
                if choice.random() < 0.85
                else None
                for name in choice.sample("abcdef", choice.randrange(1, 4))
            }
            mdp.put(batch)
        elif number < 8:
            rules.append(called.subscribe(f"search Host h register h where h.memory > {choice.randrange(40, 100)}"))
        elif rules and number < 9:
            called.unsubscribe(rules.pop(choice.randrange(len(rules))))
        else:
            mdp.put_schema(SCHEMA.replace("{strength}", choice.choice(["weak", "strong"])))
        if choice.random() < 0.7:
            catch_up(sync)
            assert_equal(cache, called)
        if step == 30:
            cache.refetch()


def test_damage_is_mended(cache: Cache, called: Called) -> None:
    sync = Sync(cache, called)
    called.mdp.put_one("http://d/a", host("a", 92))
    called.subscribe("search Host h register h")
    catch_up(sync)
    with cache.writing() as connection:
        connection.execute(delete(statements).where(statements.c.value == "93"))
    found = sync.verify()
    assert found is not None
    assert found.mended == (bucket_of("http://d/a#info"),)
    assert_equal(cache, called)
