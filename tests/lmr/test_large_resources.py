"""Large resources: sent as several events with one offset, staged, and applied with the last of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from sqlalchemy import delete

from mdv.db.cache_tables import statements
from mdv.db.feed import Feed
from mdv.errors import MustRefetch
from mdv.feed import bucket_of
from mdv.lmr.apply import apply
from mdv.lmr.cache import Cache
from mdv.lmr.checksum import verify
from mdv.lmr.garbage_collector import find_problems
from mdv.lmr.sync import Sync
from mdv.mdp.feed import FeedReader
from tests.support.cache_content import content_of
from tests.support.in_process_source import Near
from tests.support.mdp import Mdp

pytestmark = pytest.mark.full

SCHEMA = """
:Host a rdfs:Class .
:next a rdf:Property ; mdv:reference mdv:strong ; mdv:setValued true .
:value a rdf:Property ; mdv:setValued true .
"""
BIG, DOCUMENT = "http://d/big", "http://d/1"
SIZE = 3


class Small(Near):
    """The feed of one LMR with few statements per event; the number may change from answer to answer."""

    def __init__(self, mdp: Mdp, sizes: Sequence[int] = (SIZE,), limit: int = 2000) -> None:
        super().__init__(mdp, mdp.create_lmr("local"), limit)
        self._feeds = [FeedReader(mdp.engine, mdp.vocabulary, size) for size in sizes]
        self.choose: Callable[[Sequence[FeedReader]], FeedReader] = lambda feeds: feeds[0]
        self.answers: list[dict[str, Any]] = []
        mdp.subscribe(self.lmr, "search Host h register h")

    def feed(self, after: str | None, *, wait: float = 0, buckets: Sequence[int] | None = None) -> dict[str, Any]:
        self.mdp.feeds = self.choose(self._feeds)
        self.answers.append(super().feed(after, wait=wait, buckets=buckets))
        return self.answers[-1]

    @property
    def puts(self) -> list[dict[str, Any]]:
        """Return the put events of the large resource so far."""
        return [e for answer in self.answers for e in answer["events"] if e["event"] == "put" and e["resource"] == BIG]


@pytest.fixture
def mdp_(mdp: Mdp) -> Mdp:
    mdp.put_schema(SCHEMA)
    return mdp


def big(count: int, *further: str) -> str:
    values = ", ".join(f"'{number}'" for number in range(count))
    links = "".join(f" ; :next <http://d/{name}>" for name in further)
    return f"<{BIG}> a :Host ; :value {values}{links} ."


def catch_up(sync: Sync) -> None:
    while not sync.step().up_to_date:
        pass


def assert_equal(cache: Cache, source: Near) -> None:
    found = verify(cache, source)
    assert found is not None
    assert found.mended == ()
    assert find_problems(cache) == []


def test_a_large_resource_is_sent_in_pieces_and_visible_after_the_last(cache: Cache, mdp_: Mdp) -> None:
    source = Small(mdp_)
    sync = Sync(cache, source)
    catch_up(sync)
    mdp_.put_one(DOCUMENT, big(20, "x") + " <http://d/x> :value 'small' .")
    begun = len(source.answers)
    while not sync.step().up_to_date:
        assert len(content_of(cache).content) == 0, "an incomplete transaction is visible"
    pieces = source.puts
    assert sum(len(piece["statements"]) for piece in pieces) == 22
    assert [piece["from"] for piece in pieces] == [SIZE * n for n in range(len(pieces))]
    assert all(len(piece["statements"]) <= SIZE for piece in pieces)
    assert [piece.get("more") for piece in pieces] == [True] * (len(pieces) - 1) + [None]
    assert len({(piece["offset"], piece["prev"], piece["tx"]) for piece in pieces}) == 1
    assert not any(piece.get("last") for piece in pieces[:-1])
    assert sorted(name for piece in pieces for name in piece["classes"]) == ["http://v/Host"]
    several = [answer for answer in source.answers[begun:] if len(answer["events"]) > 1]
    assert not any("more" in event for answer in several for event in answer["events"]), "each piece has its own answer"
    assert len(content_of(cache).content[BIG]) == 22
    assert_equal(cache, source)


def test_a_snapshot_with_a_large_resource_is_staged_until_it_is_complete(cache: Cache, mdp_: Mdp) -> None:
    source = Small(mdp_)
    mdp_.put_one(DOCUMENT, big(20))
    mdp_.put_one("http://d/2", "<http://d/y> a :Host .")
    sync = Sync(cache, source)
    catch_up(sync)
    assert len(source.puts) == 7
    assert all(answer["snapshot"] for answer in source.answers)
    assert len(content_of(cache).content[BIG]) == 21
    assert_equal(cache, source)


@pytest.mark.parametrize("snapshot", [True, False])
def test_an_lmr_that_restarts_between_pieces_continues_with_the_next(cache: Cache, mdp_: Mdp, snapshot: bool) -> None:
    source = Small(mdp_)
    if not snapshot:
        catch_up(Sync(cache, source))
    mdp_.put_one(DOCUMENT, big(20))
    while not Sync(cache, source).step().up_to_date:
        pass
    assert [piece["from"] for piece in source.puts] == list(range(0, 21, SIZE))
    assert_equal(cache, source)


def test_pieces_may_be_repeated_with_other_sizes(cache: Cache, mdp_: Mdp) -> None:
    sizes = (3, 2, 7, 1, 5, 1000)
    source, choice = Small(mdp_, sizes), Random(5)
    catch_up(Sync(cache, source))
    source.choose = lambda feeds: choice.choice(feeds)
    for count in (20, 31, 4, 25):
        mdp_.put_one(DOCUMENT, big(count))
        asked: list[str | None] = [cache.state().next_cursor]
        while True:
            page = source.feed(choice.choice(asked))
            with suppress(MustRefetch):  # the answer to a later request, too early
                apply(cache, page)
            asked.append(cache.state().next_cursor)
            if apply(cache, source.feed(asked[-1]), after=asked[-1]).up_to_date:
                break
        assert len(content_of(cache).content[BIG]) == count + 1
    assert_equal(cache, source)


def test_a_statement_made_by_many_documents_is_sent_once(cache: Cache, mdp_: Mdp) -> None:
    source = Small(mdp_, (2,))
    mdp_.put({f"http://d/{number}": big(4) for number in range(30)})
    catch_up(Sync(cache, source))
    assert sum(len(piece["statements"]) for piece in source.puts) == 5
    assert len(content_of(cache).content[BIG]) == 5
    assert_equal(cache, source)


def test_a_resource_that_changes_while_it_is_sent_is_completed_and_sent_again(cache: Cache, mdp_: Mdp) -> None:
    source = Small(mdp_)
    sync = Sync(cache, source)
    catch_up(sync)
    mdp_.put_one(DOCUMENT, big(20))
    sync.step()
    sync.step()
    mdp_.put_one(DOCUMENT, "<http://d/big> a :Host ; :value " + ", ".join(f"'n{n}'" for n in range(12)) + " .")
    while len(content_of(cache).content) == 0:
        sync.step()
    assert len(content_of(cache).content[BIG]) == 21, "as of its transaction"
    catch_up(sync)
    assert len(content_of(cache).content[BIG]) == 13
    assert_equal(cache, source)


@pytest.mark.parametrize("then", ["changed", "deleted", "left", "kept"])
def test_a_feed_compacted_while_a_resource_is_sent_stays_exact(cache: Cache, mdp_: Mdp, then: str) -> None:
    source = Small(mdp_)
    sync = Sync(cache, source)
    catch_up(sync)
    mdp_.put_one(DOCUMENT, big(20))
    sync.step()
    sync.step()
    after = {
        "changed": big(9),
        "deleted": None,
        "left": big(20).replace("a :Host ;", ""),
        "kept": big(20),
    }[then]
    mdp_.put_one(DOCUMENT, after)
    mdp_.put_one("http://d/2", "<http://d/y> a :Host .")
    with mdp_.engine.begin() as connection:
        Feed(connection).compact(source.lmr.id)
    catch_up(sync)
    expected = {"changed": 10, "deleted": None, "left": None, "kept": 21}[then]
    found = content_of(cache).content.get(BIG)
    assert (None if found is None else len(found)) == expected
    assert "http://d/y" in content_of(cache).content
    assert_equal(cache, source)


def test_a_bucket_with_a_large_resource_is_repaired(cache: Cache, mdp_: Mdp) -> None:
    source = Small(mdp_)
    mdp_.put_one(DOCUMENT, big(20))
    sync = Sync(cache, source)
    catch_up(sync)
    with cache.writing() as connection:
        connection.execute(delete(statements).where(statements.c.value == "7"))
    found = sync.verify()
    assert found is not None
    assert found.mended == (bucket_of(BIG),)
    assert len(content_of(cache).content[BIG]) == 21
    assert_equal(cache, source)


def test_an_invalid_cursor_within_a_resource_is_refused(mdp_: Mdp) -> None:
    source = Small(mdp_)
    mdp_.put_one(DOCUMENT, big(20))
    answer = source.feed(None)
    while "-c" not in answer["cursor"]:
        answer = source.feed(answer["cursor"])
    with pytest.raises(MustRefetch, match="Take a snapshot"):
        source.feed(answer["cursor"].rpartition(".")[0] + f".{2**63 - 1}")


def test_cache_and_mdp_agree_over_a_long_walk_with_large_resources(cache: Cache, mdp_: Mdp) -> None:
    choice = Random(11)
    source = Small(mdp_, (1, 2, 3, 8, 1000), limit=3)
    source.choose = lambda feeds: choice.choice(feeds)
    sync = Sync(cache, source)
    for _ in range(50):
        number = choice.randrange(8)
        if number < 5:
            name = choice.choice("abc")
            said = ", ".join(f"'{choice.randrange(30)}'" for _ in range(choice.randrange(1, 15)))
            link = f" ; :next <http://d/{choice.choice('abc')}>" if choice.random() < 0.5 else ""
            kind = "a :Host ; " if choice.random() < 0.7 else ""
            mdp_.put_one(f"http://d/doc{name}", f"<http://d/{name}> {kind}:value {said}{link} .")
        elif number == 5:
            mdp_.put({f"http://d/doc{choice.choice('abc')}": None})
        elif number == 6:
            with mdp_.engine.begin() as connection:
                Feed(connection).compact(source.lmr.id)
        else:
            catch_up(sync)
            assert_equal(cache, source)
        for _ in range(choice.randrange(4)):
            sync.step()
    catch_up(sync)
    assert_equal(cache, source)
