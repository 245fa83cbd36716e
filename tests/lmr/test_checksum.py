"""Comparing the cache with the MDP, and fetching differing buckets again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import delete, insert, update

from mdv.db.cache_tables import resources, statements
from mdv.errors import Unavailable
from mdv.feed import bucket_of
from mdv.lmr.apply import apply
from mdv.lmr.cache import Cache
from mdv.lmr.checksum import checksum, verify
from mdv.lmr.local_documents import put_local
from mdv.model import Statement, Term
from tests.support.cache_content import assert_cache_holds
from tests.support.naive_mdp import LABEL, OWNS, URIS, Asked, NaiveMdp


def world() -> NaiveMdp:
    store = {uri: frozenset({(LABEL, Term.literal(uri)), (OWNS, Term.uri(URIS[1]))}) for uri in URIS}
    return NaiveMdp(store, set(URIS[:6]))


def begin(cache: Cache, mdp: NaiveMdp) -> None:
    for page in mdp.snapshot():
        apply(cache, page)


def forget_a_statement(cache: Cache) -> str:
    with cache.writing() as connection:
        connection.execute(delete(statements).where(statements.c.value == URIS[2]))
    return URIS[2]


def forget_a_mark(cache: Cache) -> str:
    with cache.writing() as connection:
        connection.execute(update(resources).where(resources.c.uri == URIS[3]).values(selected=False))
    return URIS[3]


def add_a_resource(cache: Cache) -> str:
    with cache.writing() as connection:
        stray = {"uri": "http://stray/", "bucket": bucket_of("http://stray/"), "present": True, "selected": True}
        connection.execute(insert(resources).values(id=999, referrers=0, **stray))
    return "http://stray/"


@pytest.mark.parametrize("damage", [forget_a_statement, forget_a_mark, add_a_resource])
def test_only_differing_buckets_are_fetched_again(cache: Cache, damage: Callable[[Cache], str]) -> None:
    mdp = world()
    begin(cache, mdp)
    put_local(cache, "http://local/1", f'<{URIS[2]}> <{LABEL}> "mine" .'.encode(), "text/turtle")
    damaged = bucket_of(damage(cache))
    asked = Asked(mdp)
    found = verify(cache, asked)
    assert found is not None
    assert found.mended == (damaged,)
    assert asked.buckets == [(damaged,)]
    local = {"http://local/1": {Statement(URIS[2], LABEL, Term.literal("mine"))}}
    assert_cache_holds(cache, mdp.states[-1], local)


def test_a_correct_cache_is_left_unchanged(cache: Cache) -> None:
    mdp = world()
    begin(cache, mdp)
    asked = Asked(mdp)
    assert verify(cache, asked) == (mdp.position, ())
    assert asked.buckets == []


def test_a_cache_is_compared_and_repaired_at_the_right_positions_while_the_mdp_changes(cache: Cache) -> None:
    mdp = world()
    begin(cache, mdp)
    forget_a_statement(cache)
    forget_a_mark(cache)
    numbers = iter(range(1000))

    def between() -> None:
        for _ in range(2):
            number = next(numbers)
            mdp.store[URIS[number % 6]] = frozenset({(LABEL, Term.literal(str(number))), (OWNS, Term.uri(URIS[7]))})
            mdp.commit()

    asked = Asked(mdp, between, size=5)
    found = verify(cache, asked)
    assert found is not None
    assert set(found.mended) == {bucket_of(URIS[2]), bucket_of(URIS[3])}
    state = next(state for state in mdp.states if state.position == cache.state().position)
    assert_cache_holds(cache, state, {})
    assert cache.state().position < mdp.position, "nothing after the position of the buckets was applied"
    while cache.state().position < mdp.position:
        apply(cache, mdp.page(int(cache.state().next_cursor or 0), 5))
    assert_cache_holds(cache, mdp.states[-1], {})


def test_cache_without_a_state_is_not_compared(cache: Cache) -> None:
    assert verify(cache, Asked(world())) is None


def test_verification_stops_if_the_feed_does_not_reach_its_position(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    mdp = world()
    begin(cache, mdp)
    asked = Asked(mdp)
    monkeypatch.setattr(asked, "checksum", lambda: {"position": 99, "buckets": ["0"] * 256})
    monkeypatch.setattr("mdv.lmr.checksum.MAX_PAGES", 3)
    with pytest.raises(Unavailable):
        verify(cache, asked)


def test_checksums_do_not_overflow_the_integers_of_the_database(cache: Cache) -> None:
    mdp = NaiveMdp({URIS[0]: frozenset((LABEL, Term.literal(str(number))) for number in range(3000))}, {URIS[0]})
    begin(cache, mdp)
    assert checksum(cache) == (mdp.position, mdp.states[-1].sums())
