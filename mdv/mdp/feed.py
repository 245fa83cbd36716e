"""The feed of an LMR: what it is told, in order, page by page.

A cursor says up to where somebody has read: the MDP's life (epoch), and an offset, or a place in a snapshot. An answer
ends where a transaction ends; one that is too large for an answer is continued in the next.

A feed that is paused answers as if nothing were new. Only a snapshot that was begun before is handed out to its end;
who wants to begin one gets a cursor that begins it when the feed is resumed.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from sys import getsizeof
from threading import Lock, Semaphore
from uuid import UUID

from sqlalchemy import Connection, Engine

from mdv.db.feed import Feed, Stand, StoredEvent, see_one_moment
from mdv.db.lmrs import Lmr
from mdv.db.state import lock_state, read_state
from mdv.db.vocabulary import Vocabulary
from mdv.errors import BadRequest, Conflict, MustRefetch, NotFound
from mdv.feed import Kind
from mdv.model import RDF_TYPE, RDFS_RESOURCE

DEFAULT_EVENTS = 1000
MAX_EVENTS = 10_000
MAX_BYTES = 8 * 1024 * 1024
"""An answer has no more than that, unless a single event has."""
SNAPSHOTS = 4
"""So many are made at a time by one process."""
LATER = 0
"""The number of the snapshot that begins when a feed is resumed; no other has it."""
CHUNK = 500
"""Contents are read so many at a time, so that an answer stays near its limit."""

KINDS = (Kind.SCHEMA, Kind.DELETE, Kind.PUT, Kind.UNMATCH, Kind.MATCH)
"""By their numbers in the database."""
PUT = KINDS.index(Kind.PUT)
SCHEMA = KINDS.index(Kind.SCHEMA)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Up to where somebody has read, and the offset of the last event that they have seen. With `snapshot`, `offset`
    counts the events of that snapshot. `position`: amid a transaction, that of which they had all before it; what was
    compacted began long before its own.

    >>> Cursor.read(str(Cursor("0123456789ab", 7, 5)))
    Cursor(epoch='0123456789ab', offset=7, seen=5, snapshot=None, position=None)
    """

    epoch: str
    offset: int
    seen: int
    snapshot: int | None = None
    position: int | None = None

    def __str__(self) -> str:
        snapshot = f"-s{self.snapshot}" if self.snapshot is not None else ""
        position = f"-p{self.position}" if self.position is not None else ""
        return f"{self.epoch}-{self.offset}-{self.seen}{snapshot}{position}"

    @classmethod
    def read(cls, text: str) -> Cursor:
        found = _CURSOR.fullmatch(text)
        if found is None:
            raise BadRequest(f"{text[:80]!r} is no cursor: `after` takes the `cursor` of an answer of this feed.")
        epoch, *numbers = found.groups()
        offset, seen, snapshot, position = (int(number) if number is not None else None for number in numbers)
        return cls(epoch, offset or 0, seen or 0, snapshot, position)


_CURSOR = re.compile(r"([0-9a-f]{12})-([0-9]{1,18})-([0-9]{1,18})(?:-s([0-9]{1,18})|-p([0-9]{1,18}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class FeedPage:
    """An answer: events, each as JSON with the cursor behind it; where it ends; and whether there is no more."""

    events: tuple[tuple[str, Kind, str], ...]
    """Cursor, kind and text of each."""
    cursor: str
    position: int
    up_to_date: bool
    snapshot: bool = False
    held: bool = False
    """The feed is paused, and there is something that it does not tell."""

    @property
    def text(self) -> str:
        """The answer as JSON."""
        events = ",".join(event for _, _, event in self.events)
        snapshot = ',"snapshot":true' if self.snapshot else ""
        held = ',"paused":true' if self.held else ""
        return (
            f'{{"events":[{events}],"cursor":"{self.cursor}","position":{self.position},'
            f'"up_to_date":{"true" if self.up_to_date else "false"}{snapshot}{held}}}'
        )


class Feeds:
    """The feeds of all LMRs, as one process reads them. What many LMRs are sent is remembered for a while."""

    def __init__(self, engine: Engine, vocabulary: Vocabulary) -> None:
        self._engine = engine
        self._vocabulary = vocabulary
        self._contents = _Contents()
        self._lock = Lock()
        self._few_at_a_time = Semaphore(SNAPSHOTS)
        self._snapshot_locks: dict[int, tuple[Lock, int]] = {}

    def read(self, lmr: Lmr, after: str | None, limit: int = DEFAULT_EVENTS, most_bytes: int | None = None) -> FeedPage:
        """The events after a cursor; without one, the beginning of a snapshot."""
        cursor = Cursor.read(after) if after is not None else None
        if cursor is None or cursor.snapshot == LATER:
            if (held := self._held_snapshot(lmr)) is not None:
                return held
            cursor = self._take_snapshot(lmr, None)
        return self._read(lmr, cursor, limit, most_bytes or MAX_BYTES)

    def read_buckets(self, lmr: Lmr, buckets: Collection[int], limit: int = DEFAULT_EVENTS) -> FeedPage:
        """The beginning of a snapshot of some buckets alone."""
        if self._held_snapshot(lmr) is not None:
            raise paused(lmr)
        return self._read(lmr, self._take_snapshot(lmr, buckets), limit, MAX_BYTES)

    def _read(self, lmr: Lmr, cursor: Cursor, limit: int, most_bytes: int) -> FeedPage:
        with self._engine.begin() as connection:
            feed = Feed(connection)
            after = cursor.offset if cursor.snapshot is None else 0
            stand, found = feed.look(lmr.id, after, limit + 1 if cursor.snapshot is None else 0)
            if stand is None:
                raise _no_more(lmr)
            if cursor.epoch != name_epoch(stand.epoch, lmr.id):
                raise MustRefetch("This cursor is another LMR's, or from another life of the MDP: take a snapshot.")
            if cursor.snapshot is not None:
                return self._read_snapshot(connection, lmr, cursor, stand, limit, most_bytes)
            return self._read_events(connection, lmr, cursor, stand, found, limit, most_bytes)

    def _read_events(
        self,
        connection: Connection,
        lmr: Lmr,
        cursor: Cursor,
        stand: Stand,
        found: Sequence[StoredEvent],
        limit: int,
        most_bytes: int,
    ) -> FeedPage:
        if cursor.offset < stand.kept_after:
            raise MustRefetch("What came after this cursor is not kept any more: take a snapshot.")
        if cursor.offset > stand.last_offset:
            raise MustRefetch("This cursor is ahead of the feed: take a snapshot.")
        feed = Feed(connection)
        if stand.paused and found:
            position = cursor.position
            if position is None:
                position = feed.position_before(lmr.id, cursor.offset, found[0].tx)
            return FeedPage((), str(cursor), position, True, held=True)
        page = _whole(found, limit)
        contents, page = self._fill(connection, page, found[len(page) :], most_bytes)
        more = len(page) < len(found)
        following = found[len(page)].tx if more else None
        before = max(feed.offset_before(lmr.id, page[0].offset) or 0, cursor.seen) or None if page else None
        if more and page[-1].tx == following and cursor.position is None:
            cursor = replace(cursor, position=feed.position_before(lmr.id, cursor.offset, following))
        events = _written(page, contents, before, following, cursor, None)
        if not more:
            seen = page[-1].offset if page else cursor.seen
            return FeedPage(tuple(events), str(Cursor(cursor.epoch, stand.last_offset, seen)), stand.position, True)
        position = cursor.position if page[-1].tx == following else page[-1].tx
        assert position is not None
        return FeedPage(tuple(events), events[-1][0], position, False)

    def _fill(
        self, connection: Connection, page: Sequence[StoredEvent], rest: Sequence[StoredEvent], most_bytes: int
    ) -> tuple[list[str], Sequence[StoredEvent]]:
        """What events say beyond their resource, as JSON; the page ends earlier where that is too much."""
        contents: list[str] = []
        size = 0
        for start in range(0, len(page), CHUNK):
            chunk = page[start : start + CHUNK]
            for said in self._contents.read(connection, chunk, self._vocabulary.ids([RDF_TYPE])[RDF_TYPE]):
                size += len(said) if said.isascii() else len(said.encode())
                if size > most_bytes and contents:
                    page = _whole([*page, *rest], len(contents))
                    return contents[: len(page)], page
                contents.append(said)
        return contents, page

    def let_refetch(self, lmr: Lmr) -> None:
        """Let an LMR fetch everything anew: what was told so far cannot be gone on from. Everybody waits only until an
        offset is taken that no cursor has passed."""
        with self._engine.begin() as connection:
            lock_state(connection)
            feed = Feed(connection)
            feed.end_events(lmr.id, feed.take_offsets(1))
        with self._engine.begin() as connection:
            Feed(connection).drop_events(lmr.id)

    # Snapshots

    def _held_snapshot(self, lmr: Lmr) -> FeedPage | None:
        """The answer to who wants to begin a snapshot while the feed is paused."""
        with self._engine.begin() as connection:
            stand = _stand(Feed(connection), lmr)
        if not stand.paused:
            return None
        return FeedPage((), str(Cursor(name_epoch(stand.epoch, lmr.id), 0, 0, LATER)), 0, True, held=True)

    def _take_snapshot(self, lmr: Lmr, buckets: Collection[int] | None) -> Cursor:
        """Note what an LMR holds, at one position; unless it was noted before, and nothing was told since. Of one LMR
        one at a time: however many ask, others do not wait for them. Whoever writes waits only while it is counted."""
        with self._snapshot_lock(lmr.id):
            if buckets is None:
                with self._engine.begin() as connection:
                    known = Feed(connection).present_snapshot(lmr.id)
                    epoch = read_state(connection).epoch
                if known is not None:
                    return Cursor(name_epoch(epoch, lmr.id), 0, 0, known)
            # Each takes two connections; were there none left for the second, all would wait for each other.
            with self._few_at_a_time:
                return self._make_snapshot(lmr, buckets)

    @contextmanager
    def _snapshot_lock(self, lmr: int) -> Iterator[None]:
        with self._lock:
            lock, waiting = self._snapshot_locks.get(lmr, (None, 0))
            lock = lock or Lock()
            self._snapshot_locks[lmr] = lock, waiting + 1
        try:
            with lock:
                yield
        finally:
            with self._lock:
                _, waiting = self._snapshot_locks[lmr]
                if waiting > 1:
                    self._snapshot_locks[lmr] = lock, waiting - 1
                else:
                    del self._snapshot_locks[lmr]

    def _make_snapshot(self, lmr: Lmr, buckets: Collection[int] | None) -> Cursor:
        with self._engine.connect() as reader, self._engine.begin() as writer:
            state = lock_state(writer)
            with reader.begin():
                see_one_moment(reader)
                _stand(Feed(reader), lmr)
                count = Feed(reader).count_snapshot(lmr.id, buckets)
                first = Feed(writer).take_offsets(count)
                writer.commit()
                number = Feed(reader).make_snapshot(lmr.id, state.position, first, count, buckets)
        # Another process may drop the same ones, which is no conflict where each statement sees what is there now.
        with self._engine.begin() as connection:
            Feed(connection).drop_old_snapshots(lmr.id)
        return Cursor(name_epoch(state.epoch, lmr.id), 0, 0, number)

    def _read_snapshot(
        self, connection: Connection, lmr: Lmr, cursor: Cursor, stand: Stand, limit: int, most_bytes: int
    ) -> FeedPage:
        feed = Feed(connection)
        assert cursor.snapshot is not None
        snapshot = feed.snapshot(lmr.id, cursor.snapshot)
        if snapshot is None or cursor.offset >= snapshot.events:
            raise MustRefetch("This snapshot is not kept any more: take another one.")
        page: Sequence[StoredEvent] = feed.snapshot_page(cursor.snapshot, snapshot, cursor.offset, limit)
        contents, page = self._fill(connection, page, (), most_bytes)
        end = cursor.offset + len(page)
        more = end < snapshot.events
        before = snapshot.first_offset + cursor.offset - 1 if cursor.offset else None
        following = snapshot.tx if more else None
        events = _written(page, contents, before, following, cursor, snapshot.first_offset)
        if more:
            return FeedPage(
                tuple(events), str(Cursor(cursor.epoch, end, 0, cursor.snapshot)), snapshot.tx - 1, False, True
            )
        last = snapshot.first_offset + snapshot.events - 1
        finished = Cursor(cursor.epoch, last, last)
        events[-1] = (str(finished), *events[-1][1:])
        return FeedPage(tuple(events), str(finished), snapshot.tx, stand.position == snapshot.tx, True)

    def checksum(self, lmr: Lmr) -> tuple[int, list[int]]:
        """The position, and the sums of the buckets there."""
        with self._engine.begin() as connection:
            see_one_moment(connection)
            feed = Feed(connection)
            return _stand(feed, lmr).position, feed.checksum(lmr.id)


class _Contents:
    """What resources were at positions, as JSON: many LMRs are told the same."""

    MOST_BYTES = 16 * 1024 * 1024

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int], str] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def read(self, connection: Connection, events: Sequence[StoredEvent], type_id: int) -> list[str]:
        """What each event says besides its resource."""
        wanted = {(e.resource_id, e.tx): None for e in events if e.kind == PUT and e.resource_id is not None}
        with self._lock:
            said = {key: self._known[key] for key in wanted if key in self._known}
        missing = [key for key in wanted if key not in said]
        if missing:
            contents = Feed(connection).contents(missing, type_id)
            fresh = {key: _content(*content) for key, content in zip(missing, contents, strict=True)}
            said |= fresh
            self._remember(fresh)
        found = [said.get((event.resource_id or 0, event.tx), "") for event in events]
        for place, event in enumerate(events):
            if event.kind == SCHEMA:
                version, statements, prefixes = Feed(connection).schema_at(event.tx)
                schema = {"version": version, "statements": statements, "prefixes": prefixes}
                found[place] = f',"schema":{json.dumps(schema, ensure_ascii=False)}'
            elif event.kind != PUT:
                found[place] = ""
        return found

    def _remember(self, fresh: dict[tuple[int, int], str]) -> None:
        with self._lock:
            for key, content in fresh.items():
                if key not in self._known:
                    self._known[key] = content
                    self._bytes += _weight(content)
            while self._bytes > self.MOST_BYTES:
                _, dropped = self._known.popitem(last=False)
                self._bytes -= _weight(dropped)


def _weight(content: str) -> int:
    """What it takes to remember a content, with its key and its place."""
    return getsizeof(content) + 300


def _content(classes: str | None, statements: str | None) -> str:
    return f',"classes":{classes or _NO_CLASS},"statements":{statements or "[]"}'


_NO_CLASS = json.dumps([RDFS_RESOURCE])


def _whole(found: Sequence[StoredEvent], most: int) -> Sequence[StoredEvent]:
    """The first `most` events, without the beginning of a transaction that goes on after them, if there is another."""
    page = found[:most]
    if len(found) == len(page) or found[most].tx != page[-1].tx:
        return page
    begun = next((n for n, event in enumerate(page) if event.tx == page[-1].tx), 0)
    return page[:begun] if begun else page


def _written(
    page: Sequence[StoredEvent],
    contents: Sequence[str],
    before: int | None,
    following: int | None,
    cursor: Cursor,
    first_offset: int | None,
) -> list[tuple[str, Kind, str]]:
    """Events as JSON, each with its cursor and kind, where `cursor` is before them. `following` is the transaction of
    the event after them, `first_offset` that of the snapshot."""
    written = []
    position = cursor.position
    for place, (event, content) in enumerate(zip(page, contents, strict=True)):
        after = page[place + 1].tx if place + 1 < len(page) else following
        kind = KINDS[event.kind]
        resource = "" if event.uri is None else f',"resource":{json.dumps(event.uri, ensure_ascii=False)}'
        text = (
            f'{{"event":"{kind}","offset":{event.offset},"prev":{"null" if before is None else before},'
            f'"tx":{event.tx}{resource}{content}{"" if after == event.tx else _LAST}}}'
        )
        if first_offset is not None:
            behind = Cursor(cursor.epoch, event.offset - first_offset + 1, 0, cursor.snapshot)
        elif after == event.tx:
            behind = Cursor(cursor.epoch, event.offset, event.offset, position=position)
        else:
            behind, position = Cursor(cursor.epoch, event.offset, event.offset), event.tx
        written.append((str(behind), kind, text))
        before = event.offset
    return written


_LAST = ',"last":true'


def _stand(feed: Feed, lmr: Lmr) -> Stand:
    stand = feed.stand(lmr.id)
    if stand is None:
        raise _no_more(lmr)
    return stand


def paused(lmr: Lmr) -> Conflict:
    """Why a cache is not compared or mended now: it would wait for what is held back."""
    return Conflict(f"The feed of the LMR {lmr.name} is paused: its cache can be compared once it is resumed.")


def _no_more(lmr: Lmr) -> NotFound:
    return NotFound(f"There is no LMR {lmr.name} any more.")


def name_epoch(epoch: UUID, lmr: int) -> str:
    """How cursors name a life of the MDP, and the LMR whose they are.

    >>> name_epoch(UUID("01234567-89ab-cdef-0123-456789abcdef"), 7)
    'd433708c0280'
    """
    return sha256(f"{epoch}:{lmr}".encode()).hexdigest()[:12]
