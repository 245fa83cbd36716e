"""The feed's guarantees: no event is lost, repeated or torn, also with concurrent writers, readers and compaction.

An event with a smaller offset is never committed after one with a greater offset, for this reason: offsets are given
out from `mdp_state`, in the transaction that holds the lock on its only row until it commits (`lock_state`). Another
writer learns the last offset only when it has that lock, hence after the commit. So there is no order of commits other
than that of the offsets, and no reader can see the greater without the smaller. A mutant that reads in the order of
offsets while commits have another order is impossible, unless the lock is removed. The tests below show that the lock
is taken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mdv.db.engine import make_engine
from mdv.db.feed import Feed
from mdv.db.lmrs import Lmr
from mdv.errors import MdvError, MustRefetch, NotFound
from mdv.feed import Event, EventKind, FeedPage
from mdv.lmr.cache import Cache
from mdv.lmr.checksum import checksum
from mdv.lmr.garbage_collector import find_problems
from mdv.lmr.sync import Sync
from mdv.mdp import feed as feed_
from mdv.mdp import retention as tend_
from mdv.mdp.feed import Cursor
from mdv.mdp.register import register
from mdv.mdp.retention import apply_retention
from mdv.mdp.subscribe import delete_lmr
from mdv.model import Statement
from tests.support.in_process_source import Near
from tests.support.mdp import Mdp

SCHEMA = """
:Host a rdfs:Class .
:next a rdf:Property ; mdv:reference mdv:strong ; mdv:setValued true .
:memory a rdf:Property ; rdfs:range xsd:integer .
:name a rdf:Property ; rdfs:range xsd:string .
"""
D = "http://d/"
EVERY = "search Host h register h"
LONG = 1e9
"""Seconds for which everything is kept."""


@pytest.fixture
def mdp(mdp: Mdp) -> Mdp:
    mdp.put_schema(SCHEMA)
    return mdp


@pytest.fixture
def lmr(mdp: Mdp) -> Lmr:
    lmr = mdp.create_lmr("north")
    mdp.subscribe(lmr, EVERY)
    return lmr


def host(name: str, memory: int, *following: str) -> str:
    links = "".join(f" ; :next <{D}{other}>" for other in following)
    return f"<{D}{name}> a :Host ; :memory {memory}{links} ."


class Reader:
    """Reads a feed and checks its guarantees."""

    def __init__(self, mdp: Mdp, lmr: Lmr, limit: int) -> None:
        self.mdp, self.lmr, self.limit = mdp, lmr, limit
        self.cursor: str | None = None
        self.offset: int | None = None
        self.position = 0
        self.begun: list[Event] = []
        self.transactions: list[list[Event]] = []
        self.selected: set[str] = set()
        self.said: dict[str, frozenset[Statement]] = {}

    def read(self) -> FeedPage:
        page = self.mdp.feed(self.lmr, self.cursor, self.limit)
        for event in page.events:
            if self.offset is not None:
                assert event.offset > self.offset, "offsets ascend, and no event is repeated"
                assert event.prev == self.offset or (event.prev is None and page.snapshot), "the chain is unbroken"
            self.offset = event.offset
            self.begun.append(event)
            if event.last:
                self.apply()
        assert page.position >= self.position
        assert all(events[0].tx <= page.position for events in self.transactions)
        if self.begun and not page.snapshot:
            assert page.position < self.begun[0].tx, "a position is given before all of it was sent"
        self.cursor, self.position = page.cursor, page.position
        return page

    def apply(self) -> None:
        events, self.begun = self.begun, []
        assert len({event.tx for event in events}) == 1
        assert not self.transactions or events[0].tx > self.transactions[-1][0].tx, "a transaction comes once, complete"
        self.transactions.append(events)
        for event in events:
            if event.kind is EventKind.PUT:
                assert event.statements
                self.said[event.resource] = frozenset(event.statements)
            elif event.kind is EventKind.MATCH:
                self.selected.add(event.resource)
            elif event.kind is not EventKind.SCHEMA:
                self.selected.discard(event.resource)
                if event.kind is EventKind.DELETE:
                    self.said.pop(event.resource, None)

    def catch_up(self) -> None:
        while not self.read().up_to_date:
            pass
        assert not self.begun

    def held(self) -> dict[str, frozenset[Statement]]:
        """Return its selected resources and their statements. Every resource with statements is or was selected."""
        return {uri: said for uri, said in self.said.items() if uri in self.selected}


def processes(database_url: str, mdp: Mdp, number: int) -> list[Mdp]:
    """Several processes on one database."""
    return [type(mdp)(make_engine(database_url)) for _ in range(number)]


def write(mdp: Mdp, first: int, documents: int = 12) -> None:
    """Register documents, change some and delete some, one transaction each; others may change the same ones."""
    for number in range(documents):
        shared, own = f"shared{number % 4}", f"own{first}.{number % 5}"
        batch: dict[str, str | None] = {
            D + own: host(own, number, shared),
            D + shared: host(shared, first * 100 + number),
        }
        mdp.put(batch)
        if number % 5 == 4:
            mdp.put({D + own: None})


def without_prev(transactions: Iterable[list[Event]]) -> list[list[Event]]:
    """A feed begins with a snapshot, which each reader takes for itself."""
    return [[event._replace(prev=None) for event in events] for events in transactions]


def run_all(calls: Iterable[Callable[[], object]]) -> None:
    """Run concurrently; raise the first error."""
    some = list(calls)
    with ThreadPoolExecutor(len(some)) as pool:
        for future in [pool.submit(call) for call in some]:
            future.result()


# -- concurrency


def test_every_reader_sees_every_event_once_with_concurrent_writers(database_url: str, mdp: Mdp) -> None:
    several = processes(database_url, mdp, 3)
    lmrs = [mdp.create_lmr(name) for name in ("north", "south")]
    mdp.subscribe(lmrs[0], EVERY)
    mdp.subscribe(lmrs[1], "search Host h register h where h.memory > 50")
    readers = [
        Reader(process, lmr, limit) for lmr in lmrs for process, limit in zip(several, (1, 3, 1000), strict=True)
    ]
    for reader in readers:
        reader.catch_up()
    done = threading.Event()

    def follow(reader: Reader) -> None:
        while not done.is_set():
            reader.read()
        reader.catch_up()

    def work() -> None:
        try:
            run_all([lambda process=process, n=n: write(process, n) for n, process in enumerate(several)])
        finally:
            done.set()

    run_all([work, *[lambda reader=reader: follow(reader) for reader in readers]])
    for lmr in lmrs:
        mine = [reader for reader in readers if reader.lmr is lmr]
        stored = mdp.rows('select "offset" from feed where lmr_id = :lmr order by "offset"', lmr=lmr.id)
        for reader in mine:
            offsets = [event.offset for events in reader.transactions[1:] for event in events]
            assert offsets == [offset for (offset,) in stored][-len(offsets) :]
            assert offsets, "nothing was written"
            assert without_prev(reader.transactions[1:]) == without_prev(mine[0].transactions[1:])
            assert reader.position == mdp.one("select position from mdp_state")
        fresh = Reader(mdp, lmr, 1000)
        fresh.catch_up()
        assert all(reader.held() == fresh.held() for reader in mine)


def test_a_writer_waits_for_the_previous_one_so_that_offsets_are_committed_in_order(
    database_url: str, mdp: Mdp, lmr: Lmr
) -> None:
    first, second = processes(database_url, mdp, 2)
    reader = Reader(mdp, lmr, 1000)
    reader.catch_up()
    with ThreadPoolExecutor(1) as pool:
        with first.engine.begin() as connection:
            register(connection, [first.prepare(D + "1", host("a", 1))], first.provider)
            behind = pool.submit(second.put_one, D + "2", host("b", 2))
            while not mdp.one("select count(*) from pg_locks where not granted"):
                assert not behind.done(), "it did not wait"
            assert reader.read().events == (), "uncommitted events are not visible"
        behind.result()
    reader.catch_up()
    assert [event.resource for events in reader.transactions[1:] for event in events] == [D + "a"] * 2 + [D + "b"] * 2


def test_a_snapshot_taken_during_writes_continues_to_the_state_of_other_readers(database_url: str, mdp: Mdp) -> None:
    several = processes(database_url, mdp, 3)
    lmr = mdp.create_lmr("north")
    mdp.subscribe(lmr, EVERY)
    follower = Reader(mdp, lmr, 1000)
    follower.catch_up()
    done = threading.Event()
    late: list[Reader] = []

    def snapshots() -> None:
        while not done.is_set():
            reader = Reader(several[2], lmr, 3)
            while not reader.transactions:
                reader.read()
            late.append(reader)

    def work() -> None:
        try:
            run_all([lambda process=process, n=n: write(process, n) for n, process in enumerate(several[:2])])
        finally:
            done.set()

    run_all([work, snapshots])
    states = {follower.transactions[0][0].tx: follower.held()}
    while True:
        read = len(follower.transactions)
        page = mdp.feed(lmr, follower.cursor, 1)
        for event in page.events:
            follower.begun.append(event)
            if event.last:
                follower.apply()
                states[event.tx] = follower.held()
        follower.cursor = page.cursor
        if page.up_to_date and len(follower.transactions) == read:
            break
    assert late
    for reader in late:
        position = reader.transactions[0][0].tx
        assert reader.held() == states[max(tx for tx in states if tx <= position)], (
            "the snapshot does not match its position"
        )
        reader.catch_up()
        assert reader.held() == follower.held()


def test_snapshots_of_one_lmr_can_be_taken_concurrently(database_url: str, mdp: Mdp, lmr: Lmr) -> None:
    mdp.put({f"{D}{number}": host(str(number), number) for number in range(20)})
    several = processes(database_url, mdp, 4)

    def take(process: Mdp) -> None:
        for _ in range(6):
            try:
                assert process.feed(lmr, None, 1000).up_to_date
            except MustRefetch:
                continue  # two younger ones were taken before it was read

    run_all([lambda process=process: take(process) for process in several])
    assert mdp.feed(lmr, None, 1000).up_to_date
    assert mdp.one("select count(*) from snapshots") == 2


# -- pages


def test_pages_of_any_size_neither_tear_nor_lose_transactions(
    mdp: Mdp, lmr: Lmr, monkeypatch: pytest.MonkeyPatch
) -> None:
    beginning = mdp.feed(lmr).cursor
    for first in range(3):
        write(mdp, first, 6)
        mdp.put({f"{D}many{n}": host(f"many{n}", first) for n in range(15)})
    whole = Reader(mdp, lmr, 10_000)
    whole.cursor = beginning
    whole.catch_up()
    assert len(whole.transactions) > 15
    sizes = set()
    cuts = [
        (1, 1000, 500),
        (300, 1000, 1),
        (300, 7, 4),
        (2000, 1000, 4),
        (2000, 2, 500),
        (10**9, 1, 500),
        (10**9, 7, 1),
    ]
    for most_bytes, limit, chunk in cuts:
        monkeypatch.setattr(feed_, "MAX_BYTES_PER_RESPONSE", most_bytes)
        monkeypatch.setattr(feed_, "CONTENTS_PER_READ", chunk)
        reader = Reader(type(mdp)(mdp.engine), lmr, limit)
        reader.cursor = beginning
        pages = [reader.read()]
        while not pages[-1].up_to_date:
            pages.append(reader.read())
            assert pages[-1].events, "a page without events although more follow"
        assert reader.transactions == whole.transactions
        sizes.add(len(pages))
    assert len(sizes) > 3, "all pages have the same size"


def test_a_snapshot_is_the_same_with_any_page_size(mdp: Mdp, lmr: Lmr, monkeypatch: pytest.MonkeyPatch) -> None:
    mdp.put({f"{D}{n}": host(str(n), n) for n in range(9)})
    whole = Reader(mdp, lmr, 1000)
    whole.catch_up()
    for most_bytes, limit in ((1, 1000), (300, 1000), (10**9, 1), (10**9, 4)):
        monkeypatch.setattr(feed_, "MAX_BYTES_PER_RESPONSE", most_bytes)
        reader = Reader(mdp, lmr, limit)
        reader.catch_up()
        assert reader.held() == whole.held()
        assert len(reader.transactions) == 1


def test_an_event_larger_than_the_response_limit_is_delivered(mdp: Mdp, lmr: Lmr) -> None:
    reader = Reader(mdp, lmr, 1000)
    reader.catch_up()
    text = "x" * 10_000_000
    prepared = mdp.prepare(D + "1", f"<{D}a> a :Host ; :name '{text}' . {host('b', 1)} {host('c', 2)}")
    assert not [answer for answer in mdp.register_batch([prepared]) if isinstance(answer, MdvError)]
    pages = [reader.read()]
    while not pages[-1].up_to_date:
        pages.append(reader.read())
    assert len(pages) > 1
    assert text in {statement.object.value for statement in reader.said[D + "a"]}
    assert reader.selected == {D + "a", D + "b", D + "c"}


# -- retention


def kept_after(mdp: Mdp, lmr: Lmr) -> int:
    return int(mdp.one("select kept_after from lmrs where id = :lmr", lmr=lmr.id))


def offsets(mdp: Mdp, lmr: Lmr) -> list[int]:
    rows = mdp.rows('select "offset" from feed where lmr_id = :lmr order by "offset"', lmr=lmr.id)
    return [offset for (offset,) in rows]


def test_retention_by_count_removes_whole_transactions_and_old_cursors_must_refetch(mdp: Mdp, lmr: Lmr) -> None:
    cursors = [mdp.feed(lmr).cursor]
    for number in range(5):
        mdp.put({f"{D}{number}.{n}": host(f"{number}.{n}", n) for n in range(2)})
        cursors.append(mdp.feed(lmr, cursors[-1]).cursor)
    every = offsets(mdp, lmr)
    assert apply_retention(mdp.engine, LONG, 100) == 0
    assert kept_after(mdp, lmr) == 0, "nothing was deleted"
    gone = apply_retention(mdp.engine, LONG, 9)
    kept = offsets(mdp, lmr)
    assert kept == every[gone:]
    assert gone > 0
    assert len(kept) >= 9, "a transaction is not torn to keep less"
    assert kept_after(mdp, lmr) == every[gone - 1], "it moves to the last removed event, and no further"
    assert len({tx for (tx,) in mdp.rows('select tx from feed where "offset" <= :last', last=every[gone - 1])}) == 0
    for cursor in cursors:
        if Cursor.read(cursor).offset < kept_after(mdp, lmr):
            with pytest.raises(MustRefetch):
                mdp.feed(lmr, cursor)
        else:
            reader = Reader(mdp, lmr, 3)
            reader.cursor = cursor
            reader.catch_up()
    assert apply_retention(mdp.engine, LONG, 9) == 0, "the second call has nothing to do"


def test_retention_by_age_removes_events_and_old_cursors_must_refetch(mdp: Mdp, lmr: Lmr) -> None:
    beginning = mdp.feed(lmr).cursor
    mdp.put_one(D + "1", host("a", 1))
    middle = mdp.feed(lmr, beginning).cursor
    mdp.run("update publications set at = at - interval '2 hours'")
    mdp.put_one(D + "2", host("b", 2))
    every = offsets(mdp, lmr)
    assert apply_retention(mdp.engine, 3 * 3600, 10**6) == 0
    assert apply_retention(mdp.engine, 3600, 10**6) == 2
    assert offsets(mdp, lmr) == every[2:]
    assert kept_after(mdp, lmr) == every[1]
    assert [event.resource for event in mdp.feed(lmr, middle).events] == [D + "b", D + "b"]
    with pytest.raises(MustRefetch):
        mdp.feed(lmr, beginning)
    assert mdp.one("select count(*) from publications") == 1


def test_an_lmr_without_events_keeps_its_cursor_under_retention(mdp: Mdp, lmr: Lmr) -> None:
    quiet = mdp.create_lmr("quiet")
    cursor = mdp.feed(quiet).cursor
    for number in range(5):
        mdp.put_one(f"{D}{number}", host(str(number), number))
    assert apply_retention(mdp.engine, LONG, 0) == 10
    assert kept_after(mdp, quiet) == 0
    page = mdp.feed(quiet, cursor)
    assert (page.events, page.up_to_date) == ((), True)


def compact(mdp: Mdp, lmr: Lmr) -> None:
    with mdp.engine.begin() as connection:
        Feed(connection).compact(lmr.id)


def rows_of(mdp: Mdp, lmr: Lmr) -> list[tuple[object, ...]]:
    return mdp.rows('select "offset", tx, kind, resource_id from feed where lmr_id = :lmr order by 1', lmr=lmr.id)


def test_compaction_is_idempotent(mdp: Mdp, lmr: Lmr) -> None:
    beginning = mdp.feed(lmr).cursor
    write(mdp, 1)
    before = rows_of(mdp, lmr)
    compact(mdp, lmr)
    once = rows_of(mdp, lmr)
    assert len(once) < len(before)
    assert len({row[1] for row in once}) == 1, "it is one transaction"
    compact(mdp, lmr)
    assert rows_of(mdp, lmr) == once
    reader, fresh = Reader(mdp, lmr, 2), Reader(mdp, lmr, 1000)
    reader.cursor = beginning
    reader.catch_up()
    fresh.catch_up()
    assert reader.held() == fresh.held()


def test_compaction_drops_resources_that_entered_and_left_again(mdp: Mdp, lmr: Lmr) -> None:
    """The resource may have changed or gone since, and no event was sent for it."""
    beginning = mdp.feed(lmr).cursor
    mdp.put({D + "1": host("a", 1, "b"), D + "2": f"<{D}b> :name 'b' ."})
    mdp.put_one(D + "1", host("a", 1))
    mdp.put_one(D + "2", None)
    compact(mdp, lmr)
    events = mdp.feed(lmr, beginning).events
    assert sorted((event.kind.value, event.resource) for event in events) == [("match", D + "a"), ("put", D + "a")]


def test_a_compacted_position_is_given_only_after_all_its_events_were_sent(mdp: Mdp, lmr: Lmr) -> None:
    """A client that waits for a position reads the changes up to it."""
    mdp.put_one(D + "0", host("z", 0))
    page = mdp.feed(lmr)
    before = page.position
    for name in "abcd":
        mdp.put_one(D + name, host(name, 1))
    mdp.put({D + "a": host("a", 2), D + "b": host("b", 2)})
    compact(mdp, lmr)
    pages = [mdp.feed(lmr, page.cursor, 2)]
    while not pages[-1].up_to_date:
        pages.append(mdp.feed(lmr, pages[-1].cursor, 2))
    assert len(pages) > 2
    assert [page.position for page in pages[:-1]] == [before] * (len(pages) - 1)
    assert pages[-1].position == mdp.one("select position from mdp_state")


def test_a_snapshot_is_dropped_by_the_third_one_and_after_an_hour(
    mdp: Mdp, lmr: Lmr, monkeypatch: pytest.MonkeyPatch
) -> None:
    mdp.put({D + name: host(name, 1) for name in "abc"})
    first = mdp.feed(lmr, None, 2)
    mdp.put({D + "a": host("a", 2)})
    second = mdp.feed(lmr, None, 2)
    assert mdp.feed(lmr, first.cursor, 2).events
    mdp.put({D + "a": host("a", 3)})
    third = mdp.feed(lmr, None, 2)
    with pytest.raises(MustRefetch):
        mdp.feed(lmr, first.cursor)
    assert mdp.feed(lmr, second.cursor).events
    apply_retention(mdp.engine, LONG, 10**6)
    assert mdp.feed(lmr, third.cursor).events
    monkeypatch.setattr(tend_, "SNAPSHOT_TTL_SECONDS", 0.0)
    apply_retention(mdp.engine, LONG, 10**6)
    with pytest.raises(MustRefetch):
        mdp.feed(lmr, third.cursor)
    assert mdp.one("select count(*) from snapshot_events") == 0


def test_cursor_beyond_the_end_of_a_snapshot_must_refetch(mdp: Mdp, lmr: Lmr) -> None:
    mdp.put({D + name: host(name, 1) for name in "abc"})
    cursor = Cursor.read(mdp.feed(lmr, None, 2).cursor)
    with pytest.raises(MustRefetch):
        mdp.feed(lmr, str(Cursor(cursor.epoch, 7, 0, cursor.snapshot)))


def test_a_deleted_lmr_has_no_feed_and_no_snapshot(mdp: Mdp, lmr: Lmr) -> None:
    with mdp.engine.begin() as connection:
        delete_lmr(connection, lmr, mdp.provider)
    with pytest.raises(NotFound):
        mdp.feed(lmr)
    assert mdp.one("select count(*) from snapshots") == 0


def test_retention_and_compaction_of_several_lmrs_keep_all_closures(
    mdp: Mdp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One LMR is current, one is behind, one never read; all have their closure in the end."""
    monkeypatch.setattr(tend_, "MIN_EVENTS_TO_COMPACT", 15)
    monkeypatch.setattr(tend_, "LMRS_PER_PAGE", 2)
    rules = {"north": EVERY, "south": "search Host h register h where h.memory > 300", "west": EVERY, "none": None}
    lmrs = {name: mdp.create_lmr(name) for name in rules}
    for name, rule in rules.items():
        if rule:
            mdp.subscribe(lmrs[name], rule)
    caches = {name: Cache.open(f"sqlite:///{tmp_path / name}.db") for name in rules}
    syncs = {name: Sync(cache, Near(mdp, lmrs[name], 2)) for name, cache in caches.items()}
    gone = 0
    for first in range(5):
        write(mdp, first, 7)
        for name, steps in (("north", 10**6), ("south", 3), ("west", 0 if first < 4 else 1), ("none", 1)):
            for _ in range(steps):
                if syncs[name].step().up_to_date:
                    break
        gone += apply_retention(mdp.engine, LONG, 40)
        assert all(len(offsets(mdp, lmr)) <= 40 + 20 for lmr in lmrs.values())
    assert gone > 0
    for name, sync in syncs.items():
        while not sync.step().up_to_date:
            pass
        assert checksum(caches[name]) == mdp.feeds.checksum(lmrs[name]), name
        assert find_problems(caches[name]) == []
        caches[name].close()


def test_a_long_feed_without_table_statistics_is_compacted(mdp: Mdp) -> None:
    """Joined row by row it would take minutes; the limit is one minute."""
    lmr = mdp.create_lmr("young")
    mdp.run(
        'insert into feed (lmr_id, "offset", tx, kind, resource_id)'
        f" select {lmr.id}, n, n, 3 + n % 2, n % 100 from generate_series(1, 40000) n"
    )
    with mdp.engine.begin() as connection:
        assert Feed(connection).compact(lmr.id) == 100


def test_the_cache_of_event_contents_is_bounded(mdp: Mdp, lmr: Lmr, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.mdp.feed._Contents.MOST_BYTES", 20_000)
    for round_ in range(3):
        mdp.put({f"{D}{n}": f"<#a> a :Host ; :name '{'x' * 500}{round_}' ." for n in range(40)})
        assert len(mdp.feed(lmr).events) >= 80
    contents = mdp.feeds._contents
    assert 0 < contents._bytes <= 20_000
    assert contents._bytes == sum(map(feed_._weight, contents._known.values()))
