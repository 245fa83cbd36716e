"""Caches with very large resources: the work of applying a change is proportional to the change.

No time is measured. On SQLite the steps of its virtual machine are counted; on Postgres the rows and index entries
that are read. Four times as much to apply may take six times as many, never sixteen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event, text

from mdv.lmr.apply import apply
from mdv.lmr.cache import Cache
from mdv.model import Term
from tests.support.cache_content import assert_cache_holds
from tests.support.cache_urls import Urls
from tests.support.naive_mdp import LABEL, OWNS, NaiveMdp, Said

TIMES = 4
MOST_GROWTH = 1.5 * TIMES
STEPS = 100
"""This many steps of SQLite's virtual machine are counted as one."""

HUB, ROOT, START = "http://a/hub", "http://a/root", "http://a/start"


def values(count: int, first: int) -> Said:
    return frozenset((LABEL, Term.literal(str(number))) for number in range(first, first + count))


def refers_to(*targets: str) -> Said:
    return frozenset((OWNS, Term.uri(target)) for target in targets)


def named(count: int) -> list[str]:
    return [f"http://a/r{number}" for number in range(count)]


def all_values(mdp: NaiveMdp, count: int) -> None:
    mdp.store[ROOT], mdp.chosen = values(count, 0), {ROOT}
    mdp.commit()
    mdp.store[ROOT] = values(count, count)


def few_values(mdp: NaiveMdp, count: int) -> None:
    mdp.store[ROOT], mdp.chosen = values(count, 0), {ROOT}
    mdp.commit()
    mdp.store[ROOT] = values(count, 10)


def refer(mdp: NaiveMdp, count: int) -> None:
    """Very many resources refer to one resource."""
    mdp.store[HUB] = values(1, 0)
    mdp.store |= {uri: refers_to(HUB) | values(1, 0) for uri in named(count)}
    mdp.chosen = set(named(count))
    mdp.commit()


def the_target_of_referrers(mdp: NaiveMdp, count: int) -> None:
    refer(mdp, count)
    mdp.store[HUB] = values(1, 1)


def the_referrers(mdp: NaiveMdp, count: int) -> None:
    refer(mdp, count)
    mdp.store |= {uri: refers_to(HUB) | values(1, 1) for uri in named(count)}


def referrers_that_go(mdp: NaiveMdp, count: int) -> None:
    refer(mdp, count)
    mdp.store = {HUB: mdp.store[HUB]}


def referrers_unmatched(mdp: NaiveMdp, count: int) -> None:
    refer(mdp, count)
    mdp.chosen = set()


def one_that_refers_to_many(mdp: NaiveMdp, count: int) -> None:
    mdp.store |= {uri: values(1, 0) for uri in named(count)} | {ROOT: refers_to(*named(count))}
    mdp.chosen = {ROOT}
    mdp.commit()
    mdp.store[ROOT] = refers_to(*named(count // 2))


def a_ring_beside_a_hub(mdp: NaiveMdp, count: int) -> None:
    """A ring of resources loses its root; each also refers to a resource that is kept by another reference."""
    count //= 4  # each step around the ring runs a query
    ring = named(count)
    mdp.store[HUB] = values(1, 0)
    mdp.store |= {uri: refers_to(HUB, after) for uri, after in zip(ring, [*ring[1:], ring[0]], strict=True)}
    mdp.store[START] = refers_to(ring[0])
    mdp.chosen = {START}
    mdp.commit()
    mdp.store[ROOT] = refers_to(HUB)  # added last, so that it is the last referrer of the hub
    mdp.chosen = {START, ROOT}
    mdp.commit()
    mdp.chosen = {ROOT}


def work(cache: Cache, act: Callable[[], object]) -> int:
    """Count the steps of SQLite, or the rows read by Postgres, in the transactions of `act`."""
    counted = [0]

    def count_steps(connection: Any, *_: object) -> None:
        def step() -> None:
            counted[0] += 1

        connection.set_progress_handler(step, STEPS)

    def rows_read(connection: Any) -> int:
        read = """select sum(pg_stat_get_xact_tuples_returned(oid)) from pg_class
                  where relkind in ('r', 'i') and relnamespace = 'public'::regnamespace"""
        return int(connection.execute(text(read)).scalar_one() or 0)

    def at_begin(connection: Any) -> None:
        counted[0] -= rows_read(connection)

    def at_commit(connection: Any) -> None:
        counted[0] += rows_read(connection)

    is_sqlite = cache.engine.dialect.name == "sqlite"
    listeners = [("checkout", count_steps)] if is_sqlite else [("begin", at_begin), ("commit", at_commit)]
    for name, listener in listeners:
        event.listen(cache.engine, name, listener)
    try:
        act()
    finally:
        for name, listener in listeners:
            event.remove(cache.engine, name, listener)
    return counted[0]


@pytest.mark.parametrize(
    "change",
    [all_values, few_values, the_target_of_referrers, the_referrers, referrers_that_go, referrers_unmatched,
     one_that_refers_to_many, a_ring_beside_a_hub],
)  # fmt: skip
def test_the_work_of_applying_is_proportional_to_the_change(
    cache_urls: Urls, change: Callable[[NaiveMdp, int], None]
) -> None:
    found = []
    for count in (300, TIMES * 300):
        with cache_urls() as url, Cache.open(url) as cache:
            mdp = NaiveMdp()
            for page in mdp.snapshot():
                apply(cache, page)
            change(mdp, count)
            offset = len(mdp.log)
            for last in sorted(e.offset for e in mdp.log if e.last):
                apply(cache, mdp.page(cache.state().applied_offset, last - cache.state().applied_offset))
            mdp.commit()
            told = mdp.page(offset, len(mdp.log))
            found.append(work(cache, lambda cache=cache, told=told: apply(cache, told)))  # type: ignore[misc]
            assert_cache_holds(cache, mdp.states[-1], {})
    assert found[1] < MOST_GROWTH * max(found[0], 100), found
