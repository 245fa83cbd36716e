"""How far the feeds are published, and how far LMRs have read them."""

from __future__ import annotations

import time
from typing import NamedTuple

from sqlalchemy import Connection, Engine

from mdv.db.feed import Feed
from mdv.db.lmrs import Lmr, record_cursor, record_request
from mdv.db.state import read_state
from mdv.mdp.feed import Cursor

PROGRESS_WRITE_SECONDS = 1.0
"""Minimum interval between progress updates of a busy LMR."""


class FeedEnd(NamedTuple):
    """The end of all feeds: the position of the last transaction, and the last offset."""

    position: int
    offset: int


def read_feed_end(connection: Connection) -> FeedEnd:
    state = read_state(connection)
    return FeedEnd(state.position, state.last_offset)


def list_published(connection: Connection, after: int) -> list[tuple[int, list[int]]]:
    """Return the published transactions after a position, each with its LMRs."""
    return Feed(connection).published_after(after)


class FeedProgress:
    """Records how far LMRs have read their feeds at one process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._last: dict[int, tuple[float, int]] = {}

    def record(self, lmr: Lmr, after: str | None, idle: bool = False) -> None:
        """Record the cursor of an LMR, at most once per interval, and when it starts to wait (`idle`).

        While it reads a snapshot, only the time of the request is recorded.
        """
        cursor, now = Cursor.read(after) if after is not None else None, time.monotonic()
        if cursor is None or cursor.snapshot is not None:
            with self._engine.connect() as connection:
                record_request(connection, lmr.id)
            return
        when, offset = self._last.get(lmr.id, (float("-inf"), -1))
        if now - when < PROGRESS_WRITE_SECONDS and (not idle or offset == cursor.offset):
            return
        self._last[lmr.id] = now, cursor.offset
        with self._engine.connect() as connection:
            record_cursor(connection, lmr.id, cursor.offset)
