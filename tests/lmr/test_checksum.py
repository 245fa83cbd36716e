"""Comparing with the MDP, and fetching again what differs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from cache_content import assert_cache_holds
from naive_mdp import LABEL, OWNS, URIS, NaiveMdp
from sqlalchemy import delete, insert, update

from mdv.db.cache_tables import resources, statements
from mdv.errors import Unavailable
from mdv.feed import Page, bucket_of
from mdv.lmr.apply import apply
from mdv.lmr.checksum import checksum, verify
from mdv.lmr.local import put_local
from mdv.lmr.store import Cache
from mdv.model import Statement, Term


class Asked:
    """The naive MDP, asked one call after the other; something may happen there between two calls."""

    def __init__(self, mdp: NaiveMdp, between: Callable[[], None] = lambda: None, size: int = 2) -> None:
        self.mdp, self.between, self.size = mdp, between, size
        self.buckets: list[Sequence[int]] = []
        self._pages: dict[str, Page] = {}

    def feed(self, after: str | None, *, wait: float = 0, buckets: Sequence[int] | None = None) -> dict[str, Any]:
        self.between()
        if buckets is not None:
            self.buckets.append(tuple(buckets))
        if after is None:
            first, *rest = self.mdp.snapshot(buckets, self.size)
            for before, page in zip([first, *rest], rest, strict=False):
                self._pages[before.cursor] = page
            return told(first)
        return told(self._pages[after] if after in self._pages else self.mdp.page(int(after), self.size))

    def checksum(self) -> dict[str, Any]:
        state = self.mdp.states[-1]
        answer = {"position": state.position, "buckets": [str(number) for number in state.sums()]}
        self.between()
        return answer


def told(page: Page) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(json.dumps(page._asdict() | {"events": [e.as_dict() for e in page.events]}))
    return body


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
def test_buckets_that_differ_are_fetched_again_and_only_they(cache: Cache, damage: Callable[[Cache], str]) -> None:
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


def test_cache_that_is_right_is_left_alone(cache: Cache) -> None:
    mdp = world()
    begin(cache, mdp)
    asked = Asked(mdp)
    assert verify(cache, asked) == (mdp.position, ())
    assert asked.buckets == []


def test_cache_is_compared_and_mended_at_the_right_positions_while_the_mdp_goes_on(cache: Cache) -> None:
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
    assert set(found.mended) <= {bucket_of(URIS[2]), bucket_of(URIS[3])}
    state = next(state for state in mdp.states if state.position == cache.state().position)
    assert_cache_holds(cache, state, {})
    assert cache.state().position < mdp.position, "nothing after the position of the buckets was applied"
    while cache.state().position < mdp.position:
        apply(cache, mdp.page(int(cache.state().next_cursor or 0), 5))
    assert_cache_holds(cache, mdp.states[-1], {})


def test_cache_without_a_state_is_not_compared(cache: Cache) -> None:
    assert verify(cache, Asked(world())) is None


def test_feed_that_does_not_come_to_its_position_is_given_up(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    mdp = world()
    begin(cache, mdp)
    asked = Asked(mdp)
    monkeypatch.setattr(asked, "checksum", lambda: {"position": 99, "buckets": ["0"] * 256})
    monkeypatch.setattr("mdv.lmr.checksum.MOST_PAGES", 3)
    with pytest.raises(Unavailable):
        verify(cache, asked)


def test_sums_do_not_leave_the_numbers_of_the_database(cache: Cache) -> None:
    mdp = NaiveMdp({URIS[0]: frozenset((LABEL, Term.literal(str(number))) for number in range(3000))}, {URIS[0]})
    begin(cache, mdp)
    assert checksum(cache) == (mdp.position, mdp.states[-1].sums())
