"""The feeds as stored: events, contents as of a position, snapshots, checksums, and what is not kept any longer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from sqlalchemy import Connection

from mdv.db.copy import array_field
from mdv.db.engine import driver, together
from mdv.db.statements import statements
from mdv.feed import BUCKETS, MODULUS


class Stand(NamedTuple):
    """Where the MDP and one LMR's feed stand: events up to `kept_after` are gone; of one that is `paused`, those after
    are held back."""

    epoch: UUID
    position: int
    last_offset: int
    kept_after: int
    paused: bool


class StoredEvent(NamedTuple):
    """An event as it is stored."""

    offset: int
    tx: int
    kind: int
    resource_id: int | None
    uri: str | None


class StoredSnapshot(NamedTuple):
    """A snapshot that is being fetched."""

    tx: int
    first_offset: int
    events: int


class Progress(NamedTuple):
    """How an LMR gets on: its rules, what it holds and selects, the events kept for it, and those of them that it has
    not asked beyond, the first published `since`. All are counted up to a bound, which they exceed by one at most.
    `lost`: it asked last from a place that is not kept any longer."""

    subscriptions: int
    resources: int
    roots: int
    events: int
    behind: int
    since: datetime | None
    lost: bool


class Feed:
    """The statements about feeds, for one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._session: psycopg.Connection[Any] = driver(connection)
        self._sql = statements("feed")

    def stand(self, lmr: int) -> Stand | None:
        row = self._run("stand", lmr=lmr).fetchone()
        return Stand(*row) if row else None

    def look(self, lmr: int, after: int, most: int) -> tuple[Stand | None, list[StoredEvent]]:
        """Where the MDP and an LMR's feed stand, and the events after an offset: all in one message."""
        with together(self._session):
            see_one_moment_of(self._session)
            stand = self._run("stand", lmr=lmr)
            events = self._run("events", lmr=lmr, after=after, most=most)
        row = stand.fetchone()
        return Stand(*row) if row else None, [StoredEvent(*row) for row in events.fetchall()]

    def lags(self, most: int) -> list[tuple[str, float]]:
        """LMRs by name, each with the age in seconds of the first event that it has not asked beyond."""
        return [(name, age) for name, age in self._run("lags", most=most)]

    def progress(self, lmrs: Collection[int], most: int) -> dict[int, Progress]:
        """How some LMRs get on, by their numbers; nothing is counted beyond `most`."""
        self._run("one_by_one")
        rows = self._run("progress", lmrs=array_field(lmrs), most=most)
        return {number: Progress(*rest) for number, *rest in rows}

    def offset_before(self, lmr: int, offset: int) -> int | None:
        """The offset of the event before, if one is kept."""
        row = self._run("event_before", lmr=lmr, offset=offset).fetchone()
        return row[0] if row else None

    def position_before(self, lmr: int, after: int, tx: int) -> int:
        """The position of which all was told to who has read up to `after`, if transaction `tx` comes next."""
        row = self._run("position_before", lmr=lmr, after=after, tx=tx).fetchone()
        assert row is not None
        return int(row[0])

    def contents(self, wanted: Sequence[tuple[int, int]], type_id: int) -> list[tuple[str | None, str | None]]:
        """Of resources as of positions, the classes and the statements, as JSON."""
        rows = self._run(
            "contents",
            resources=array_field(resource for resource, _ in wanted),
            txs=array_field(tx for _, tx in wanted),
            type=type_id,
        ).fetchall()
        found: list[tuple[str | None, str | None]] = [(None, None)] * len(wanted)
        for number, classes, said in rows:
            found[number - 1] = (classes, said)
        return found

    def schema_at(self, tx: int) -> tuple[int, Any, Any]:
        """Version, statements and prefixes of the schema that held at a position."""
        row = self._run("schema_at", tx=tx).fetchone()
        return (row[0], row[1], row[2]) if row else (0, [], {})

    # Snapshots

    def count_snapshot(self, lmr: int, buckets: Collection[int] | None) -> int:
        row = self._run("count_held", lmr=lmr, buckets=_array(buckets)).fetchone()
        assert row is not None
        return 1 + int(row[0])

    def take_offsets(self, events: int) -> int:
        """The first of so many offsets, which nobody else gets. The caller holds the lock."""
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
    ) -> int:
        """Note what an LMR holds at this moment; the snapshot's number."""
        row = self._run(
            "note_snapshot", lmr=lmr, tx=tx, first_offset=first_offset, events=events,
            whole=buckets is None,
        ).fetchone()  # fmt: skip
        assert row is not None
        self._run("fill_snapshot", snapshot=row[0], lmr=lmr, buckets=_array(buckets))
        return int(row[0])

    def drop_old_snapshots(self, lmr: int) -> None:
        self._run("drop_old_snapshots", lmr=lmr)

    def present_snapshot(self, lmr: int) -> int | None:
        """A snapshot that is still what an LMR holds."""
        row = self._run("present_snapshot", lmr=lmr).fetchone()
        return row[0] if row else None

    def snapshot(self, lmr: int, number: int) -> StoredSnapshot | None:
        row = self._run("find_snapshot", lmr=lmr, snapshot=number).fetchone()
        return StoredSnapshot(*row) if row else None

    def snapshot_page(self, number: int, snapshot: StoredSnapshot, first: int, most: int) -> list[StoredEvent]:
        rows = self._run("snapshot_page", snapshot=number, first=first, most=most).fetchall()
        return [
            StoredEvent(snapshot.first_offset + place, snapshot.tx, kind, resource, uri)
            for place, kind, resource, uri in rows
        ]

    def end_events(self, lmr: int, offset: int) -> None:
        """From now on, whoever has read up to `offset` or less cannot go on. The caller holds the lock."""
        self._run("drop_snapshots", lmr=lmr)
        self._run("end_events", lmr=lmr, offset=offset)

    def drop_events(self, lmr: int) -> None:
        """Drop the events that nobody can ask for any more."""
        self._run("drop_events", lmr=lmr)

    # Checksums

    def checksum(self, lmr: int) -> list[int]:
        sums: dict[int, Decimal] = dict(self._run("checksum", lmr=lmr).fetchall())
        return [int(sums.get(bucket, 0)) % MODULUS for bucket in range(BUCKETS)]

    # News, and what is not kept any longer

    def published_after(self, tx: int) -> list[tuple[int, list[int]]]:
        """Transactions after `tx`, and the LMRs that they concern."""
        return [(row[0], row[1]) for row in self._run("published_after", tx=tx).fetchall()]

    def trim(self, lmr: int, seconds: float, events: int) -> int:
        """Drop what is older, or more, than is to be kept for an LMR; how many events went."""
        row = self._run("boundary", lmr=lmr, seconds=seconds, events=events).fetchone()
        if row is None or row[0] is None:
            return 0
        gone = self._run("trim", lmr=lmr, boundary=row[0]).fetchone()
        return int(gone[0]) if gone else 0

    def trim_publications(self, seconds: float) -> None:
        self._run("trim_publications", seconds=seconds)

    def drop_stale_snapshots(self, seconds: float) -> None:
        self._run("drop_stale_snapshots", seconds=seconds)

    def largest(self, most: int) -> list[tuple[int, int]]:
        """The LMRs with more events than that."""
        return self._run("largest_feeds", most=most).fetchall()

    def compact(self, lmr: int) -> int:
        """Make one transaction of all that is kept for an LMR, without what was superseded in it; how many events are
        left."""
        self._run("by_hash")
        self._run("compact", lmr=lmr)
        row = self._run("count_events", lmr=lmr).fetchone()
        return int(row[0]) if row else 0

    def _run(self, name: str, **values: object) -> psycopg.Cursor[Any]:
        return self._session.execute(self._sql[name], values, prepare=True)


def see_one_moment(connection: Connection) -> None:
    """All that this transaction reads is of one moment, and looked up by index, row after row: a feed is a few rows of
    tables that may be large, or were small when a plan was made."""
    see_one_moment_of(driver(connection))


def see_one_moment_of(session: psycopg.Connection[Any]) -> None:
    """The same for a psycopg connection."""
    session.execute("set transaction isolation level repeatable read")
    session.execute(statements("feed")["pin"], prepare=True)


def _array(numbers: Collection[int] | None) -> str | None:
    return None if numbers is None else array_field(numbers)
