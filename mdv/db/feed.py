"""Stored feeds: events, contents as of a position, snapshots, checksums and retention."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from sqlalchemy import Connection

from mdv.db.engine import driver, pipelined
from mdv.db.load_sql import load_sql
from mdv.db.postgres_copy import array_literal
from mdv.feed import BUCKET_COUNT, CHECKSUM_MODULUS


class FeedState(NamedTuple):
    """The state of the MDP and of one LMR's feed. Events up to `kept_after` are deleted. If it is `paused`, later ones
    are held back. `home`: the member where the LMR is at home; None: here. `vector`: of this member as JSON; None
    without a backbone."""

    epoch: UUID
    position: int
    last_offset: int
    kept_after: int
    paused: bool
    home: str | None = None
    vector: str | None = None


class StoredEvent(NamedTuple):
    """A stored event."""

    offset: int
    tx: int
    kind: int
    resource_id: int | None
    uri: str | None


class StoredPiece(NamedTuple):
    """A piece of a large resource: its number of statements, the hash of the last one, whether it is the last piece,
    and its classes and statements as JSON."""

    statements: int
    last_hash: int
    is_last: bool
    classes: str | None
    said: str


class StoredSnapshot(NamedTuple):
    """A snapshot that an LMR is fetching."""

    tx: int
    first_offset: int
    events: int


class Feed:
    """Reads and changes feeds in one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._session: psycopg.Connection[Any] = driver(connection)
        self._sql = load_sql("feed")

    def stand(self, lmr: int) -> FeedState | None:
        row = self._run("stand", lmr=lmr).fetchone()
        return FeedState(*row) if row else None

    def look(self, lmr: int, after: int, most: int) -> tuple[FeedState | None, list[StoredEvent]]:
        """Return the state of an LMR's feed, and the events after an offset, in one round trip."""
        with pipelined(self._session):
            use_feed_snapshot_on(self._session)
            stand = self._run("stand", lmr=lmr)
            events = self._run("events", lmr=lmr, after=after, most=most)
        row = stand.fetchone()
        return FeedState(*row) if row else None, [StoredEvent(*row) for row in events.fetchall()]

    def lags(self, most: int) -> list[tuple[str, float]]:
        """Return the names of LMRs, each with the age of its first unread event in seconds."""
        return [(name, age) for name, age in self._run("lags", most=most)]

    def offset_before(self, lmr: int, offset: int) -> int | None:
        """Return the offset of the previous event, if it is retained."""
        row = self._run("event_before", lmr=lmr, offset=offset).fetchone()
        return row[0] if row else None

    def position_before(self, lmr: int, after: int, tx: int) -> int:
        """Return the last position that an LMR has read completely, if it has read up to `after` and the next
        transaction is `tx`."""
        row = self._run("position_before", lmr=lmr, after=after, tx=tx).fetchone()
        assert row is not None
        return int(row[0])

    def contents(
        self, wanted: Sequence[tuple[int, ...]], type_id: int, most: int, most_bytes: int
    ) -> list[tuple[str | None, str | None] | None]:
        """Return the classes and statements of resources, each as of a position, as JSON; None for a resource that has
        more than `most` rows or `most_bytes` bytes of values."""
        rows = self._run(
            "contents",
            resources=array_literal(resource for resource, _ in wanted),
            txs=array_literal(tx for _, tx in wanted),
            type=type_id,
            most=most,
            bytes=most_bytes,
        ).fetchall()
        found: list[tuple[str | None, str | None] | None] = [(None, None)] * len(wanted)
        for number, is_large, classes, statements in rows:
            found[number - 1] = None if is_large else (classes, statements)
        return found

    def pieces(
        self, resource: int, tx: int, first: int, type_id: int, size: int, size_bytes: int, most: int
    ) -> list[StoredPiece]:
        """Return the next pieces of a resource as of a position, at most `most`, starting with the hash `first`; none
        if it has no statement from there on."""
        rows = size * most + 1
        while True:
            found = self._run(
                "pieces", resource=resource, tx=tx, first=first, type=type_id, size=size, bytes=size_bytes, rows=rows,
                pieces=most,
            ).fetchall()  # fmt: skip
            if found or not self._run("has_statements", resource=resource, tx=tx, first=first).fetchone():
                return [StoredPiece(*row) for row in found]
            rows *= 2  # many documents contain the same statement

    def notice_reasons(self, wanted: Sequence[tuple[int, int, int]]) -> list[tuple[int, str]]:
        """Return the IDs of subscriptions and the reasons of notices, each given as rule, kind and position."""
        rules, kinds, txs = zip(*wanted, strict=True)
        rows = self._run(
            "reasons_of_notices", rules=array_literal(rules), kinds=array_literal(kinds), txs=array_literal(txs)
        ).fetchall()
        return [(subscription, reason or "") for _, subscription, reason in sorted(rows)]

    def schema_at(self, tx: int) -> tuple[int, Any, Any]:
        """Return the version, statements and prefixes of the schema at a position."""
        row = self._run("schema_at", tx=tx).fetchone()
        return (row[0], row[1], row[2]) if row else (0, [], {})

    # Snapshots

    def count_snapshot(self, lmr: int, buckets: Collection[int] | None, has_rules: bool) -> int:
        """Return the number of events of a snapshot. `has_rules`: with the suspended rules."""
        row = self._run("count_held", lmr=lmr, buckets=_array(buckets), rules=has_rules).fetchone()
        assert row is not None
        return 1 + int(row[0])

    def take_offsets(self, events: int) -> int:
        """Reserve offsets and return the first. The caller holds the lock."""
        row = self._run("take_offsets", events=events).fetchone()
        assert row is not None
        return int(row[0])

    def make_snapshot(
        self,
        lmr: int,
        tx: int,
        first_offset: int,
        events: int,
        buckets: Collection[int] | None,
        has_rules: bool,
    ) -> int:
        """Store the current closure of an LMR as a snapshot, and return its ID."""
        row = self._run(
            "insert_snapshot", lmr=lmr, tx=tx, first_offset=first_offset, events=events,
            whole=buckets is None,
        ).fetchone()  # fmt: skip
        assert row is not None
        self._run("fill_snapshot", snapshot=row[0], lmr=lmr, buckets=_array(buckets), rules=has_rules)
        return int(row[0])

    def drop_old_snapshots(self, lmr: int) -> None:
        self._run("drop_old_snapshots", lmr=lmr)

    def current_snapshot(self, lmr: int) -> int | None:
        """Return the ID of a snapshot that is still up to date; None if there is none."""
        row = self._run("current_snapshot", lmr=lmr).fetchone()
        return row[0] if row else None

    def snapshot(self, lmr: int, number: int) -> StoredSnapshot | None:
        row = self._run("find_snapshot", lmr=lmr, snapshot=number).fetchone()
        return StoredSnapshot(*row) if row else None

    def snapshot_page(self, number: int, snapshot: StoredSnapshot, first: int, most: int) -> list[StoredEvent]:
        rows = self._run("snapshot_page", snapshot=number, first=first, most=most).fetchall()
        return [
            StoredEvent(snapshot.first_offset + index, snapshot.tx, kind, resource, uri)
            for index, kind, resource, uri in rows
        ]

    def expire_events(self, lmr: int, offset: int) -> None:
        """Invalidate cursors up to `offset`. The caller holds the lock."""
        self._run("drop_snapshots", lmr=lmr)
        self._run("expire_events", lmr=lmr, offset=offset)

    def drop_events(self, lmr: int) -> None:
        """Delete events that no valid cursor can reach."""
        self._run("drop_events", lmr=lmr)

    # Checksums

    def checksum(self, lmr: int) -> list[int]:
        sums: dict[int, Decimal] = dict(self._run("checksum", lmr=lmr).fetchall())
        return [int(sums.get(bucket, 0)) % CHECKSUM_MODULUS for bucket in range(BUCKET_COUNT)]

    # Notification and retention

    def published_after(self, tx: int) -> list[tuple[int, list[int]]]:
        """Return the published transactions after `tx`, each with its LMRs."""
        return [(row[0], row[1]) for row in self._run("published_after", tx=tx).fetchall()]

    def trim(self, lmr: int, seconds: float, events: int) -> int:
        """Delete events of an LMR that exceed the limits of age or number. Return the number of deleted events."""
        row = self._run("boundary", lmr=lmr, seconds=seconds, events=events).fetchone()
        if row is None or row[0] is None:
            return 0
        deleted = self._run("trim", lmr=lmr, boundary=row[0]).fetchone()
        return int(deleted[0]) if deleted else 0

    def trim_publications(self, seconds: float) -> None:
        self._run("trim_publications", seconds=seconds)

    def drop_stale_snapshots(self, seconds: float) -> None:
        self._run("drop_stale_snapshots", seconds=seconds)

    def largest(self, most: int) -> list[tuple[int, int]]:
        """Return the LMRs with more than `most` events, with their number of events."""
        return self._run("largest_feeds", most=most).fetchall()

    def compact(self, lmr: int) -> int:
        """Compact the feed of an LMR: combine its events into one transaction and delete superseded ones. Return the
        number of remaining events."""
        self._run("by_hash")
        self._run("compact", lmr=lmr)
        row = self._run("count_events", lmr=lmr).fetchone()
        return int(row[0]) if row else 0

    def _run(self, name: str, **values: object) -> psycopg.Cursor[Any]:
        return self._session.execute(self._sql[name], values, prepare=True)


def use_feed_snapshot(connection: Connection) -> None:
    """Make this transaction read one snapshot, with index lookups and nested loops only. A feed is a few rows of large
    tables; a plan that was made while they were small would be slow later."""
    use_feed_snapshot_on(driver(connection))


def use_feed_snapshot_on(session: psycopg.Connection[Any]) -> None:
    """Do the same as `use_feed_snapshot` for a psycopg connection."""
    session.execute("set transaction isolation level repeatable read")
    session.execute(load_sql("feed")["pin"], prepare=True)


def _array(numbers: Collection[int] | None) -> str | None:
    return None if numbers is None else array_literal(numbers)
