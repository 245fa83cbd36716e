"""A cache behind a real MDP's feed: documents and rules in, the closure out, both checksums equal."""

from __future__ import annotations

from random import Random

import pytest
from sqlalchemy import delete

from mdv.db.cache_tables import statements
from mdv.feed import bucket_of
from mdv.lmr.cache import Cache
from mdv.lmr.checksum import verify
from mdv.lmr.garbage_collector import find_problems
from mdv.lmr.sync import Sync
from tests.support.cache_content import content_of
from tests.support.in_process_source import Near
from tests.support.mdp import Mdp

SCHEMA = """
:Host a rdfs:Class . :Info a rdfs:Class .
:info a rdf:Property ; rdfs:range :Info ; mdv:reference mdv:{strength} ; mdv:setValued true .
:next a rdf:Property ; mdv:reference mdv:strong ; mdv:setValued true .
:memory a rdf:Property ; rdfs:range xsd:integer .
"""


class Called(Near):
    """The API of an MDP for one LMR, without a network. Pages are small."""

    def __init__(self, mdp: Mdp, name: str = "local") -> None:
        super().__init__(mdp, mdp.create_lmr(name), 3)

    def subscribe(self, rule: str) -> int:
        (made,) = self.mdp.subscribe(self.lmr, rule)
        return made.id

    def unsubscribe(self, number: int) -> None:
        self.mdp.unsubscribe(self.lmr, number)


def catch_up(sync: Sync) -> None:
    while not sync.step().up_to_date:
        pass


def assert_equal(cache: Cache, mdp: Called) -> None:
    """Check that the MDP's checksum equals that of the cache, without fetching anything again."""
    found = verify(cache, mdp)
    assert found is not None
    assert found.mended == ()
    assert find_problems(cache) == []


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


def test_the_cache_holds_the_selected_resources_and_those_they_reach(cache: Cache, called: Called) -> None:
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


@pytest.mark.full
def test_cache_and_mdp_agree_over_a_long_walk(cache: Cache, called: Called) -> None:
    """Another LMR is active, so that the offsets of the feed have gaps."""
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


def test_a_damaged_cache_is_repaired(cache: Cache, called: Called) -> None:
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
