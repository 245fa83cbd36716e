"""Applying the feed: cases that the state machine does not reach."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import literal_column, select

from mdv.db.cache_tables import statements
from mdv.feed import FeedPage
from mdv.lmr import apply as apply_module
from mdv.lmr.apply import FeedGap, apply
from mdv.lmr.cache import Cache
from mdv.model import Term
from tests.support.cache_content import assert_cache_holds, content_of
from tests.support.naive_mdp import KNOWS, LABEL, OWNS, URIS, NaiveMdp, Said


def labels(*values: str) -> Said:
    return frozenset((LABEL, Term.literal(value)) for value in values)


def body(page: FeedPage) -> bytes:
    """A page as it is transmitted."""
    return json.dumps(page._asdict() | {"events": [event.as_dict() for event in page.events]}).encode()


def rows(cache: Cache) -> list[object]:
    """Return the physical locations of the statements: a rewritten row has a new location."""
    place = literal_column("rowid" if cache.engine.dialect.name == "sqlite" else "ctid::text")
    with cache.reading() as connection:
        return sorted(connection.execute(select(place).select_from(statements)).scalars())


def begin(cache: Cache, mdp: NaiveMdp) -> None:
    for page in mdp.snapshot():
        apply(cache, page)


def test_pages_are_accepted_as_json(cache: Cache) -> None:
    mdp = NaiveMdp({URIS[0]: labels("x", "ÄΩ\t\\N\n'%s")}, {URIS[0]})
    for page in mdp.snapshot():
        apply(cache, json.loads(body(page)))
    mdp.store[URIS[1]] = frozenset({(LABEL, Term.literal("hi", "en")), (LABEL, Term.literal("1", None, "http://a/t"))})
    mdp.chosen.add(URIS[1])
    mdp.commit()
    apply(cache, json.loads(body(mdp.page(0, 9))))
    assert_cache_holds(cache, mdp.states[-1], {})


def test_a_put_of_an_unchanged_resource_writes_nothing(cache: Cache) -> None:
    mdp = NaiveMdp({URIS[0]: labels("x", "y")}, {URIS[0]})
    begin(cache, mdp)
    before = rows(cache)
    mdp.commit(extra=[URIS[0]])
    assert apply(cache, mdp.page(0, 9)).events == 1
    assert rows(cache) == before


@pytest.mark.parametrize("change", [1, 19, 21, 300])
def test_only_the_changed_statements_of_a_large_resource_are_written(cache: Cache, change: int) -> None:
    many = [str(number) for number in range(300)]
    mdp = NaiveMdp({URIS[0]: labels(*many) | {(OWNS, Term.uri(URIS[1]))}, URIS[1]: labels("x")}, {URIS[0]})
    begin(cache, mdp)
    mdp.store[URIS[0]] = labels(*many[change:], "new") | {(OWNS, Term.uri(URIS[1]))}
    mdp.commit()
    apply(cache, mdp.page(0, 9))
    assert_cache_holds(cache, mdp.states[-1], {})


@pytest.mark.parametrize("many", [apply_module.FULL_MARK_THRESHOLD, 1])
def test_a_transaction_of_many_pages_becomes_visible_when_it_is_complete(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(apply_module, "EVENTS_PER_CHUNK", 7)
    monkeypatch.setattr(apply_module, "FULL_MARK_THRESHOLD", many)
    monkeypatch.setattr("mdv.db.cache.EVENTS_PER_STAGED_ROW", 3)
    names = [f"http://many/{number}" for number in range(60)]
    mdp = NaiveMdp()
    begin(cache, mdp)
    for here, there in zip(names, [*names[1:], names[0]], strict=True):  # one large cycle
        mdp.store[here] = frozenset({(OWNS, Term.uri(there))})
    mdp.chosen = {names[30]}
    mdp.commit()
    for start in range(0, len(mdp.log), 11):
        assert content_of(cache).content == {}
        apply(cache, mdp.page(start, 11))
    assert_cache_holds(cache, mdp.states[-1], {})
    mdp.chosen = set()
    mdp.commit()
    apply(cache, mdp.page(int(cache.state().next_cursor or 0), 99))
    assert content_of(cache).content == {}


def test_events_are_applied_up_to_a_position_and_the_rest_later(cache: Cache) -> None:
    mdp = NaiveMdp({URIS[0]: labels("0")}, {URIS[0]})
    begin(cache, mdp)
    for value in "123":
        mdp.store[URIS[0]] = labels(value)
        mdp.commit()
    apply(cache, mdp.page(0, 9), until=mdp.position - 1)
    assert cache.state().position == mdp.position - 1
    assert_cache_holds(cache, mdp.states[-2], {})
    apply(cache, mdp.page(int(cache.state().next_cursor or 0), 9))
    assert cache.state().position == mdp.position
    assert_cache_holds(cache, mdp.states[-1], {})


def test_page_for_another_cursor_is_dropped(cache: Cache) -> None:
    mdp = NaiveMdp({URIS[0]: labels("0")}, {URIS[0]})
    begin(cache, mdp)
    mdp.store[URIS[0]] = labels("1")
    mdp.commit()
    before = cache.state()
    assert not apply(cache, mdp.page(0, 9), after="elsewhere").moved
    assert cache.state() == before
    assert apply(cache, mdp.page(0, 9), after=before.next_cursor).moved


def test_a_snapshot_without_its_first_page_is_a_gap(cache: Cache) -> None:
    mdp = NaiveMdp({URIS[0]: labels("0")}, {URIS[0]})
    _, second, *_ = mdp.snapshot(size=1)
    with pytest.raises(FeedGap):
        apply(cache, second)


def test_reference_that_becomes_strong_waits_for_its_target(cache: Cache) -> None:
    mdp = NaiveMdp({URIS[0]: frozenset({(KNOWS, Term.uri(URIS[1]))})}, {URIS[0]})
    begin(cache, mdp)
    mdp.strong = frozenset({KNOWS})
    mdp.commit()
    mdp.store[URIS[1]] = labels("late")
    mdp.commit()
    apply(cache, mdp.page(0, 99))
    assert content_of(cache).content.keys() == {URIS[0], URIS[1]}
    assert_cache_holds(cache, mdp.states[-1], {})
