"""The feed of an LMR: an ordered log of events, read page by page.

A cursor stores how far an LMR has read: the epoch of the MDP, and an offset in the feed or in a snapshot. A response
ends at the end of a transaction. A transaction that is too large for one response is continued in the next one.

A paused feed responds as if there were no new events. Only a snapshot that was started before can be read to its end.
A request for a new snapshot gets a cursor that starts it when the feed is resumed.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from sys import getsizeof
from threading import Lock, Semaphore
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Engine

from mdv.db.feed import Feed, FeedState, StoredEvent, use_feed_snapshot
from mdv.db.lmrs import Lmr
from mdv.db.state import lock_state, read_state
from mdv.db.vocabulary import Vocabulary
from mdv.errors import BadRequest, Conflict, MustRefetch, NotFound, NotHome
from mdv.feed import EventKind
from mdv.model import RDF_TYPE, RDFS_RESOURCE

DEFAULT_EVENTS_PER_RESPONSE = 1000
MAX_EVENTS_PER_RESPONSE = 10_000
MAX_BYTES_PER_RESPONSE = 8 * 1024 * 1024
"""A response is not larger than this, unless a single event is."""
MAX_CONCURRENT_SNAPSHOTS = 4
"""How many snapshots one process takes at the same time."""
DEFERRED_SNAPSHOT = 0
"""The reserved id of a snapshot that will start when the feed is resumed."""
CONTENTS_PER_READ = 100
"""How many contents are read at a time. A small number keeps a response close to its limit."""
MAX_STATEMENTS_PER_EVENT = 10_000
"""A resource with more statement rows is sent in pieces: several events, each in a separate response."""
MAX_VALUE_BYTES_PER_EVENT = 16 * 1024 * 1024
"""The same limit for the bytes of its values. It is approximate, since a statement is never split."""
VALUE_BYTES_PER_PIECE = 1024 * 1024
"""The approximate size of a piece, in bytes of values."""
PIECES_PER_READ = 8
"""How many pieces of a large resource are read at once. Each read scans all statements of the resource."""
FIRST_HASH, LAST_HASH = -(2**63), 2**63 - 1

EVENT_KINDS = (
    EventKind.SCHEMA,
    EventKind.DELETE,
    EventKind.PUT,
    EventKind.UNMATCH,
    EventKind.MATCH,
    EventKind.SUSPENDED,
    EventKind.RESUMED,
)
"""The kinds of events, by their numbers in the database."""
PUT_NUMBER = EVENT_KINDS.index(EventKind.PUT)
SCHEMA_NUMBER = EVENT_KINDS.index(EventKind.SCHEMA)
NOTICE_NUMBERS = (EVENT_KINDS.index(EventKind.SUSPENDED), EVENT_KINDS.index(EventKind.RESUMED))
"""The events about rules."""


class PieceStart(NamedTuple):
    """The start of the next piece of a large resource: the transaction as of which the resource is sent, the number of
    statements sent before, and the first statement hash of the piece."""

    tx: int
    start: int
    first_hash: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a feed has been read, and the offset of the last event that was received (`seen`).

    With `snapshot`, `offset` counts the events of that snapshot. `position`: within a transaction, the last position
    that was received completely; after compaction, it can be far below the transaction's own. `piece`: within a large
    resource, the start of its next piece.

    >>> Cursor.read(str(Cursor("0123456789ab", 7, 5)))
    Cursor(epoch='0123456789ab', offset=7, seen=5, snapshot=None, position=None, piece=None)
    """

    epoch: str
    offset: int
    seen: int
    snapshot: int | None = None
    position: int | None = None
    piece: PieceStart | None = None

    def __str__(self) -> str:
        snapshot = f"-s{self.snapshot}" if self.snapshot is not None else ""
        position = f"-p{self.position}" if self.position is not None else ""
        piece = "-c{}.{}.{}".format(*self.piece) if self.piece is not None else ""
        return f"{self.epoch}-{self.offset}-{self.seen}{snapshot}{position}{piece}"

    @classmethod
    def read(cls, text: str) -> Cursor:
        found = _CURSOR.fullmatch(text)
        if found is None:
            raise BadRequest(f"{text[:80]!r} is not a cursor. Set `after` to the `cursor` of a response of this feed.")
        epoch, *numbers = found.groups()
        offset, seen, snapshot, position, *place = (int(number) if number is not None else None for number in numbers)
        tx, start, first_hash = place
        piece = None
        if tx is not None and start is not None and first_hash is not None:
            piece = PieceStart(tx, start, min(max(first_hash, FIRST_HASH), LAST_HASH))
        return cls(epoch, offset or 0, seen or 0, snapshot, position, piece)


_CURSOR = re.compile(
    r"([0-9a-f]{12})-([0-9]{1,18})-([0-9]{1,18})(?:-s([0-9]{1,18})|-p([0-9]{1,18}))?"
    r"(?:-c([0-9]{1,18})\.([0-9]{1,18})\.(-?[0-9]{1,19}))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class FeedResponse:
    """A response: events as JSON, each with the cursor after it; the last cursor; and whether it is up to date."""

    events: tuple[tuple[str, EventKind, str], ...]
    """Cursor, kind and JSON text of each event."""
    cursor: str
    position: int
    up_to_date: bool
    snapshot: bool = False
    held: bool = False
    """True if the feed is paused and has new events."""
    vector: str | None = None
    """The vector of this member of the backbone as JSON, when the response was read."""

    @property
    def text(self) -> str:
        """The response as JSON."""
        events = ",".join(event for _, _, event in self.events)
        snapshot = ',"snapshot":true' if self.snapshot else ""
        held = ',"paused":true' if self.held else ""
        vector = f',"vector":{self.vector}' if self.vector is not None else ""
        return (
            f'{{"events":[{events}],"cursor":"{self.cursor}","position":{self.position},'
            f'"up_to_date":{"true" if self.up_to_date else "false"}{snapshot}{held}{vector}}}'
        )


class FeedReader:
    """Reads the feeds of all LMRs in one process. Contents are cached, because many LMRs get the same ones."""

    def __init__(self, engine: Engine, vocabulary: Vocabulary, max_statements: int = MAX_STATEMENTS_PER_EVENT) -> None:
        self._engine = engine
        self._vocabulary = vocabulary
        self._contents = _Contents(max_statements)
        self._lock = Lock()
        self._snapshot_slots = Semaphore(MAX_CONCURRENT_SNAPSHOTS)
        self._snapshot_locks: dict[int, tuple[Lock, int]] = {}

    def read(
        self, lmr: Lmr, after: str | None, limit: int = DEFAULT_EVENTS_PER_RESPONSE, most_bytes: int | None = None
    ) -> FeedResponse:
        """Return the events after a cursor, or without a cursor the first page of a new snapshot."""
        cursor = Cursor.read(after) if after is not None else None
        if cursor is None or cursor.snapshot == DEFERRED_SNAPSHOT:
            if (held := self._held_snapshot(lmr)) is not None:
                return held
            cursor = self._take_snapshot(lmr, None)
        return self._read(lmr, cursor, limit, most_bytes or MAX_BYTES_PER_RESPONSE)

    def read_buckets(
        self, lmr: Lmr, buckets: Collection[int], limit: int = DEFAULT_EVENTS_PER_RESPONSE
    ) -> FeedResponse:
        """Return the first page of a new snapshot of some checksum buckets."""
        if self._held_snapshot(lmr) is not None:
            raise feed_paused_error(lmr)
        return self._read(lmr, self._take_snapshot(lmr, buckets), limit, MAX_BYTES_PER_RESPONSE)

    def _read(self, lmr: Lmr, cursor: Cursor, limit: int, most_bytes: int) -> FeedResponse:
        with self._engine.begin() as connection:
            feed = Feed(connection)
            after = cursor.offset if cursor.snapshot is None else 0
            state, found = feed.look(lmr.id, after, limit + 1 if cursor.snapshot is None else 0)
            if state is None:
                raise _deleted_error(lmr)
            refuse_dormant(lmr, state)
            if cursor.epoch != cursor_epoch(state.epoch, lmr.id):
                raise MustRefetch("This cursor is from another LMR or from another epoch of the MDP. Take a snapshot.")
            if cursor.snapshot is not None:
                page = self._read_snapshot(connection, lmr, cursor, state, limit, most_bytes)
            else:
                page = self._read_events(connection, lmr, cursor, state, found, limit, most_bytes)
        return page if state.vector is None or page.held else replace(page, vector=state.vector)

    def _read_events(
        self,
        connection: Connection,
        lmr: Lmr,
        cursor: Cursor,
        state: FeedState,
        found: Sequence[StoredEvent],
        limit: int,
        most_bytes: int,
    ) -> FeedResponse:
        if cursor.offset < state.kept_after:
            raise MustRefetch("The events after this cursor have been deleted. Take a snapshot.")
        if cursor.offset > state.last_offset:
            raise MustRefetch("This cursor is ahead of the feed. Take a snapshot.")
        feed = Feed(connection)
        if state.paused and found:
            position = cursor.position
            if position is None:
                position = feed.position_before(lmr.id, cursor.offset, found[0].tx)
            return FeedResponse((), str(cursor), position, True, held=True)
        page = _complete_transactions(found, limit)
        contents, page = self._fill(connection, page, found[len(page) :], most_bytes)
        before = None
        if found:
            before = max(feed.offset_before(lmr.id, found[0].offset) or 0, cursor.seen) or None
        if found and not page:
            is_continued = cursor.offset == found[0].offset - 1
            piece, after = self._piece(connection, found[0], cursor.piece if is_continued else None)
            if after is not None:
                position = cursor.position
                if position is None:
                    position = feed.position_before(lmr.id, cursor.offset, found[0].tx)
                next_cursor = str(Cursor(cursor.epoch, found[0].offset - 1, cursor.seen, None, position, after))
                event = (next_cursor, EventKind.PUT, _serialise_event(found[0], piece, before, False))
                return FeedResponse((event,), next_cursor, position, False)
            contents, page = [piece], found[:1]
        more = len(page) < len(found)
        following = found[len(page)].tx if more else None
        if more and page[-1].tx == following and cursor.position is None:
            cursor = replace(cursor, position=feed.position_before(lmr.id, cursor.offset, following))
        events = _serialise_events(page, contents, before, following, cursor, None)
        if not more:
            seen = page[-1].offset if page else cursor.seen
            return FeedResponse(tuple(events), str(Cursor(cursor.epoch, state.last_offset, seen)), state.position, True)
        position = cursor.position if page[-1].tx == following else page[-1].tx
        assert position is not None
        return FeedResponse(tuple(events), events[-1][0], position, False)

    def _fill(
        self, connection: Connection, page: Sequence[StoredEvent], rest: Sequence[StoredEvent], most_bytes: int
    ) -> tuple[list[str], Sequence[StoredEvent]]:
        """Return the contents of events as JSON, and the page, which is shortened if they are too large.

        The page also ends before a resource that is sent in pieces. If that is the first event, the page is empty.
        """
        contents: list[str] = []
        size = 0
        for start in range(0, len(page), CONTENTS_PER_READ):
            chunk = page[start : start + CONTENTS_PER_READ]
            for content in self._contents.read(connection, chunk, self._type_id()):
                size += 0 if content is None else len(content) if content.isascii() else len(content.encode())
                if content is None or (size > most_bytes and contents):
                    page = _complete_transactions([*page, *rest], len(contents)) if contents else []
                    return contents[: len(page)], page
                contents.append(content)
        return contents, page

    def _piece(
        self, connection: Connection, event: StoredEvent, place: PieceStart | None
    ) -> tuple[str, PieceStart | None]:
        """Return the next piece of a large resource as JSON, and the start of the piece after it, if any."""
        if place is None or place.tx != event.tx:
            place = PieceStart(event.tx, 0, FIRST_HASH)
        return self._contents.read_piece(connection, event, place, self._type_id())

    def _type_id(self) -> int:
        return self._vocabulary.ids([RDF_TYPE])[RDF_TYPE]

    def force_refetch(self, lmr: Lmr) -> None:
        """Invalidate all cursors of an LMR, so that it must take a snapshot.

        The lock is held only while an offset beyond all cursors is taken.
        """
        with self._engine.begin() as connection:
            lock_state(connection)
            feed = Feed(connection)
            feed.expire_events(lmr.id, feed.take_offsets(1))
        with self._engine.begin() as connection:
            Feed(connection).drop_events(lmr.id)

    # Snapshots

    def _held_snapshot(self, lmr: Lmr) -> FeedResponse | None:
        """Return the response to a request for a new snapshot if the feed is paused, else None."""
        with self._engine.begin() as connection:
            state = _feed_state(Feed(connection), lmr)
        refuse_dormant(lmr, state)
        if not state.paused:
            return None
        return FeedResponse(
            (), str(Cursor(cursor_epoch(state.epoch, lmr.id), 0, 0, DEFERRED_SNAPSHOT)), 0, True, held=True
        )

    def _take_snapshot(self, lmr: Lmr, buckets: Collection[int] | None) -> Cursor:
        """Take a snapshot of an LMR's closure at one position. Reuse an existing one if there were no events since.

        Snapshots of one LMR are taken one at a time, so that many requests for one LMR do not block others. Writers are
        blocked only while the resources are counted.
        """
        with self._snapshot_lock(lmr.id):
            if buckets is None:
                with self._engine.begin() as connection:
                    known = Feed(connection).current_snapshot(lmr.id)
                    epoch = read_state(connection).epoch
                if known is not None:
                    return Cursor(cursor_epoch(epoch, lmr.id), 0, 0, known)
            # Each snapshot takes two connections. The limit prevents a deadlock on the connection pool.
            with self._snapshot_slots:
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
            mdp_state = lock_state(writer)
            with reader.begin():
                use_feed_snapshot(reader)
                _feed_state(Feed(reader), lmr)
                count = Feed(reader).count_snapshot(lmr.id, buckets, buckets is None)
                first = Feed(writer).take_offsets(count)
                writer.commit()
                number = Feed(reader).make_snapshot(lmr.id, mdp_state.position, first, count, buckets, buckets is None)
        # In a new transaction: another process may drop the same snapshots, which conflicts only with an older view.
        with self._engine.begin() as connection:
            Feed(connection).drop_old_snapshots(lmr.id)
        return Cursor(cursor_epoch(mdp_state.epoch, lmr.id), 0, 0, number)

    def take_differences(self, lmr: Lmr, sums: Sequence[int]) -> tuple[str, int, list[int]]:
        """Take a snapshot of the buckets whose checksums differ from those of a cache, at one position. Return the
        cursor of its first page, the position, and the buckets. A cache that swaps them in is exact there."""
        with self._snapshot_lock(lmr.id), self._snapshot_slots:
            with self._engine.connect() as reader, self._engine.begin() as writer:
                mdp_state = lock_state(writer)
                with reader.begin():
                    use_feed_snapshot(reader)
                    feed = Feed(reader)
                    refuse_dormant(lmr, _feed_state(feed, lmr))
                    # The sums take long, so more offsets than necessary are taken before, and the lock is released.
                    first = Feed(writer).take_offsets(feed.count_snapshot(lmr.id, None, True))
                    writer.commit()
                    buckets = [n for n, (ours, theirs) in enumerate(zip(feed.checksum(lmr.id), sums, strict=True))
                               if ours != theirs]  # fmt: skip
                    count = feed.count_snapshot(lmr.id, buckets, True)
                    number = feed.make_snapshot(lmr.id, mdp_state.position, first, count, buckets, True)
            with self._engine.begin() as connection:
                Feed(connection).drop_old_snapshots(lmr.id)
        cursor = Cursor(cursor_epoch(mdp_state.epoch, lmr.id), 0, 0, number)
        return str(cursor), mdp_state.position, buckets

    def _read_snapshot(
        self, connection: Connection, lmr: Lmr, cursor: Cursor, state: FeedState, limit: int, most_bytes: int
    ) -> FeedResponse:
        feed = Feed(connection)
        assert cursor.snapshot is not None
        snapshot = feed.snapshot(lmr.id, cursor.snapshot)
        if snapshot is None or cursor.offset >= snapshot.events:
            raise MustRefetch("This snapshot has been deleted. Take a new one.")
        page: Sequence[StoredEvent] = feed.snapshot_page(cursor.snapshot, snapshot, cursor.offset, limit)
        first = page[0]
        contents, page = self._fill(connection, page, (), most_bytes)
        before = snapshot.first_offset + cursor.offset - 1 if cursor.offset else None
        if not page:
            piece, after = self._piece(connection, first, cursor.piece)
            if after is not None:
                next_cursor = str(Cursor(cursor.epoch, cursor.offset, 0, cursor.snapshot, None, after))
                event = (next_cursor, EventKind.PUT, _serialise_event(first, piece, before, False))
                return FeedResponse((event,), next_cursor, snapshot.tx - 1, False, True)
            contents, page = [piece], [first]
        end = cursor.offset + len(page)
        more = end < snapshot.events
        following = snapshot.tx if more else None
        events = _serialise_events(page, contents, before, following, cursor, snapshot.first_offset)
        if more:
            return FeedResponse(
                tuple(events), str(Cursor(cursor.epoch, end, 0, cursor.snapshot)), snapshot.tx - 1, False, True
            )
        last = snapshot.first_offset + snapshot.events - 1
        finished = Cursor(cursor.epoch, last, last)
        events[-1] = (str(finished), *events[-1][1:])
        return FeedResponse(tuple(events), str(finished), snapshot.tx, state.position == snapshot.tx, True)

    def checksum(self, lmr: Lmr) -> tuple[int, list[int]]:
        """Return the position, and the checksums of the buckets at that position."""
        with self._engine.begin() as connection:
            use_feed_snapshot(connection)
            feed = Feed(connection)
            state = _feed_state(feed, lmr)
            refuse_dormant(lmr, state)
            return state.position, feed.checksum(lmr.id)


class _Contents:
    """A cache of resources at positions, as JSON."""

    MOST_BYTES = 16 * 1024 * 1024

    def __init__(self, max_statements: int) -> None:
        self._max_statements = max_statements
        self._known: OrderedDict[tuple[int, ...], str] = OrderedDict()
        self._places: dict[tuple[int, ...], PieceStart | None] = {}
        self._bytes = 0
        self._lock = Lock()

    def read(self, connection: Connection, events: Sequence[StoredEvent], type_id: int) -> list[str | None]:
        """Return the content of each event; None for a resource that is sent in pieces."""
        wanted: dict[tuple[int, ...], None] = {
            (e.resource_id, e.tx): None for e in events if e.kind == PUT_NUMBER and e.resource_id is not None
        }
        by_resource: dict[tuple[int, ...], str | None] = {}
        with self._lock:
            by_resource |= {key: self._known[key] for key in wanted if key in self._known}
        missing = [key for key in wanted if key not in by_resource]
        if missing:
            most = self._max_statements
            contents = Feed(connection).contents(missing, type_id, most, MAX_VALUE_BYTES_PER_EVENT)
            by_key = dict(zip(missing, contents, strict=True))
            fresh = {key: _content(*content) for key, content in by_key.items() if content is not None}
            by_resource |= dict.fromkeys(missing) | fresh
            self._cache(fresh)
        found = [by_resource.get((event.resource_id or 0, event.tx), "") for event in events]
        for place, event in enumerate(events):
            if event.kind == SCHEMA_NUMBER:
                version, statements, prefixes = Feed(connection).schema_at(event.tx)
                schema = {"version": version, "statements": statements, "prefixes": prefixes}
                found[place] = f',"schema":{json.dumps(schema, ensure_ascii=False)}'
            elif event.kind != PUT_NUMBER:
                found[place] = ""
        notices = [(place, event) for place, event in enumerate(events) if event.kind in NOTICE_NUMBERS]
        if notices:
            reasons = Feed(connection).notice_reasons([(e.resource_id or 0, e.kind, e.tx) for _, e in notices])
            for (place, _), reason in zip(notices, reasons, strict=True):
                found[place] = f',"rule":{reason[0]},"reason":{json.dumps(reason[1], ensure_ascii=False)}'
        return found

    def read_piece(
        self, connection: Connection, event: StoredEvent, place: PieceStart, type_id: int
    ) -> tuple[str, PieceStart | None]:
        """Return the content of the piece at `place`, and the start of the next piece.

        The following pieces are read in the same query, which takes no longer, and cached.
        """
        assert event.resource_id is not None
        key = (event.resource_id, *place)
        with self._lock:
            if key in self._known:
                return self._known[key], self._places[key]
        size = self._max_statements
        found = Feed(connection).pieces(
            event.resource_id, place.tx, place.first_hash, type_id, size, VALUE_BYTES_PER_PIECE, PIECES_PER_READ
        )
        if not found:
            raise MustRefetch("This cursor points to no statement of its resource. Take a snapshot.")
        fresh: dict[tuple[int, ...], str] = {}
        places: dict[tuple[int, ...], PieceStart | None] = {}
        for piece in found:
            at = (event.resource_id, *place)
            fresh[at] = _content(piece.classes or "[]", piece.said) + f',"from":{place.start}'
            if not piece.is_last:
                place = PieceStart(place.tx, place.start + piece.statements, piece.last_hash + 1)
                fresh[at] += ',"more":true'
            places[at] = None if piece.is_last else place
        with self._lock:
            self._places |= places
        self._cache(fresh)
        return fresh[key], places[key]

    def _cache(self, fresh: Mapping[tuple[int, ...], str]) -> None:
        with self._lock:
            for key, content in fresh.items():
                if key not in self._known:
                    self._known[key] = content
                    self._bytes += _weight(content)
            while self._bytes > self.MOST_BYTES:
                key, dropped = self._known.popitem(last=False)
                self._places.pop(key, None)
                self._bytes -= _weight(dropped)


def _weight(content: str) -> int:
    """Return the approximate memory that a cached content takes, with its key."""
    return getsizeof(content) + 300


def _content(classes: str | None, statements: str | None) -> str:
    return f',"classes":{classes or _NO_CLASS},"statements":{statements or "[]"}'


_NO_CLASS = json.dumps([RDFS_RESOURCE])


def _complete_transactions(found: Sequence[StoredEvent], most: int) -> Sequence[StoredEvent]:
    """Return the first `most` events, without a last transaction that is incomplete, if there are earlier ones."""
    page = found[:most]
    if len(found) == len(page) or found[most].tx != page[-1].tx:
        return page
    begun = next((n for n, event in enumerate(page) if event.tx == page[-1].tx), 0)
    return page[:begun] if begun else page


def _serialise_events(
    page: Sequence[StoredEvent],
    contents: Sequence[str],
    before: int | None,
    following: int | None,
    cursor: Cursor,
    first_offset: int | None,
) -> list[tuple[str, EventKind, str]]:
    """Return events as JSON, each with its cursor and kind.

    `cursor`: the cursor before them. `following`: the transaction of the next event. `first_offset`: the first offset
    of the snapshot, if it is one.
    """
    written = []
    position = cursor.position
    for place, (event, content) in enumerate(zip(page, contents, strict=True)):
        after = page[place + 1].tx if place + 1 < len(page) else following
        text = _serialise_event(event, content, before, after != event.tx)
        if first_offset is not None:
            next_cursor = Cursor(cursor.epoch, event.offset - first_offset + 1, 0, cursor.snapshot)
        elif after == event.tx:
            next_cursor = Cursor(cursor.epoch, event.offset, event.offset, position=position)
        else:
            next_cursor, position = Cursor(cursor.epoch, event.offset, event.offset), event.tx
        written.append((str(next_cursor), EVENT_KINDS[event.kind], text))
        before = event.offset
    return written


def _serialise_event(event: StoredEvent, content: str, before: int | None, is_last: bool) -> str:
    """Return an event as JSON. `before`: the previous offset. `is_last`: it is the last event of its transaction."""
    resource = "" if event.uri is None else f',"resource":{json.dumps(event.uri, ensure_ascii=False)}'
    return (
        f'{{"event":"{EVENT_KINDS[event.kind]}","offset":{event.offset},"prev":{"null" if before is None else before},'
        f'"tx":{event.tx}{resource}{content}{_LAST if is_last else ""}}}'
    )


_LAST = ',"last":true'


def _feed_state(feed: Feed, lmr: Lmr) -> FeedState:
    state = feed.stand(lmr.id)
    if state is None:
        raise _deleted_error(lmr)
    return state


def refuse_dormant(lmr: Lmr, state: FeedState) -> None:
    """Raise `NotHome` if an LMR is at home at another member of the backbone."""
    if state.home is not None:
        raise NotHome(
            f"The LMR {lmr.name} is at home at {state.home}, another member of the backbone.", home=state.home
        )


def feed_paused_error(lmr: Lmr) -> Conflict:
    """Return the error for comparing or repairing a cache while its feed is paused."""
    return Conflict(f"The feed of the LMR {lmr.name} is paused. Resume it first; then its cache can be compared.")


def _deleted_error(lmr: Lmr) -> NotFound:
    return NotFound(f"The LMR {lmr.name} has been deleted.")


def cursor_epoch(epoch: UUID, lmr: int) -> str:
    """Return the epoch in the cursors of an LMR: a hash of the MDP's epoch and the LMR's id.

    >>> cursor_epoch(UUID("01234567-89ab-cdef-0123-456789abcdef"), 7)
    'd433708c0280'
    """
    return sha256(f"{epoch}:{lmr}".encode()).hexdigest()[:12]
