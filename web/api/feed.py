"""/lmrs/L/feed: what an LMR is told, by long-poll or as server-sent events; and its checksum."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from flask import Response, request

from mdv.db.lmrs import Lmr, note_asked
from mdv.errors import BadRequest, MdvError, MustRefetch, TooMany, Unauthenticated
from mdv.feed import BUCKETS, Kind
from mdv.figures import FEED_EVENTS
from mdv.mdp.feed import KINDS, MAX_EVENTS, Cursor, FeedPage, paused
from web.auth import lmr_named, same_caller
from web.calls import Calls
from web.models import Checksum, FeedQuery
from web.negotiate import wanted_type
from web.openapi import json_answer, problems, record
from web.services import Services, services

calls = Calls("feed", "What an LMR is told")
log = structlog.get_logger()

EVENTS = "text/event-stream"
KEEP_ALIVE = 15.0
"""Seconds after which a silent stream says that it is still there, and how far the MDP is."""
SEND_SECONDS = 60.0
"""A stream whose reader takes nothing for that long is ended."""
MOST_STREAMS = 10
"""Of one LMR, at one process."""
STREAM_EVENTS, STREAM_BYTES = 200, 512 * 1024
"""What a stream holds in memory at a time, about."""
HELD_SECONDS = 1.0
"""How often a feed that is held back is looked at: nothing rings when it is resumed."""
NOTED_SECONDS = 1.0
"""How far a busy LMR has read is noted no more often."""

_PAGE = record(events="array", cursor="string", position="integer", up_to_date="boolean")
_PAGE["properties"]["events"]["items"] = {
    "type": "object",
    "required": ["event", "offset", "prev", "tx"],
    "properties": {
        "event": {"enum": [kind.value for kind in KINDS]},
        "offset": {"type": "integer", "description": "ascending, in the order of commits"},
        "prev": {
            "type": ["integer", "null"],
            "description": "the offset before: if it was not seen, events are missing",
        },
        "tx": {"type": "integer", "description": "the position of the transaction that it belongs to"},
        "last": {"type": "boolean", "description": "true: it completes its transaction"},
        "resource": {"type": "string"},
        "classes": {"type": "array", "items": {"type": "string"}, "description": "of a put: its direct types"},
        "statements": {"type": "array", "items": {"type": "array"}, "description": "of a put: [property, value], all"},
        "schema": {"type": "object", "description": "of a schema: version, statements and prefixes"},
    },
}
_PAGE["properties"]["snapshot"] = {"type": "boolean", "description": "true: this is all there is, not a change"}
_PAGE["properties"]["paused"] = {"type": "boolean", "description": "true: what is new is held back"}
_ANSWER = json_answer(_PAGE, "Every transaction up to `position` is in this answer, or was in one before")
_ANSWER["content"][EVENTS] = {"schema": {"type": "string"}}


@calls.call("GET", "/lmrs/<lmr>/feed", "The feed", {200: _ANSWER} | problems(404, 406, 410, 429), query=FeedQuery)
def read(query: FeedQuery, lmr: str) -> Response:
    """Events after a cursor; without one a snapshot, page by page. With `wait`, an answer without events comes only
    after that time. A cursor that the feed cannot go on from is answered 410: take a snapshot. While the LMR is paused
    nothing is new.

    `put` tells a resource whole; `match` and `unmatch`, whether some rule of the LMR selects it; `delete`, that it is
    gone from the MDP. What is neither selected nor strongly referenced any more is not told: whoever keeps a copy
    collects it. An event with `last` completes its transaction.

    With `Accept: text/event-stream` the same as server-sent events, each named by its kind, its `id` the cursor behind
    it, going on from `Last-Event-ID`. An event `snapshot` stands before those of a snapshot: forget what you have.
    `up-to-date` says the position when there is no more, and every 15 s."""
    found = lmr_named(lmr)
    limit = min(query.limit, MAX_EVENTS)
    if wanted_type(["application/json", EVENTS]) == EVENTS:
        after = request.headers.get("Last-Event-ID") or query.after
        return _stream(services(), found, after, limit)
    if query.buckets is not None:
        return _json(services().feeds.read_buckets(found, _buckets(query.buckets, query.after), limit))
    page = _wait_for_page(services(), found, query.after, limit, query.wait)
    _hand_out(found, page)
    return _json(page)


@calls.call("GET", "/lmrs/<lmr>/checksum", "The checksum of an LMR's cache", {200: Checksum} | problems(404, 409))
def checksum(lmr: str) -> dict[str, Any]:
    """256 buckets by hash of the resource's URI, each the sum of the hashes of its statements, modulo 2^64, as it
    should be at the LMR when it stands at `position`. Refused while its feed is paused: it cannot come there."""
    found = lmr_named(lmr)
    if found.paused:
        raise paused(found)
    position, sums = services().feeds.checksum(found)
    return {"position": position, "buckets": [str(number) for number in sums]}


def _wait_for_page(s: Services, lmr: Lmr, after: str | None, limit: int, seconds: float) -> FeedPage:
    """The events after a cursor, once there are any, or after so many seconds."""
    if after is None or seconds <= 0:
        page = s.feeds.read(lmr, after, limit)
        _note(s, lmr, after)
        return page
    deadline = time.monotonic() + min(seconds, s.config.max_wait_seconds)
    is_allowed = same_caller(s, lmr)
    with s.watch.bell(lmr.id) as bell:
        page = s.feeds.read(lmr, after, limit)
        _note(s, lmr, after)
        while not page.events and not page.snapshot and (left := deadline - time.monotonic()) > 0:
            _note(s, lmr, page.cursor, idle=True)
            rung = bell.wait(min(left, HELD_SECONDS) if page.held else left)
            if s.watch.closed:
                break
            bell.clear()
            if (rung or page.held) and not is_allowed():
                raise Unauthenticated("This token was revoked.")
            page = s.feeds.read(lmr, page.cursor, limit)
    return page


def _stream(s: Services, lmr: Lmr, after: str | None, limit: int) -> Response:
    if _streams[lmr.id] >= MOST_STREAMS:
        raise TooMany(f"The LMR {lmr.name} has {MOST_STREAMS} streams already: end one, or go on with one of them.")
    # What is wrong with the request is answered as a problem; the stream begins when nothing is.
    limit = min(limit, STREAM_EVENTS)
    first = s.feeds.read(lmr, after, limit, STREAM_BYTES)
    _note(s, lmr, after)
    is_allowed = same_caller(s, lmr)
    connection = request.environ.get("gunicorn.socket")
    if connection is not None:  # whoever does not read is not waited for
        connection.settimeout(SEND_SECONDS)

    def events() -> Iterator[str]:
        page, told, silent_since = first, True, 0.0
        with s.watch.bell(lmr.id) as bell, _counted(lmr):
            while True:
                if page.snapshot and page.events and page.events[0][1] is Kind.SCHEMA:
                    yield "event: snapshot\ndata: {}\n\n"
                _hand_out(lmr, page)
                for cursor, kind, text in page.events:
                    yield f"id: {cursor}\nevent: {kind}\ndata: {text}\n\n"
                if page.up_to_date and (page.events or told):
                    stand = json.dumps({"cursor": page.cursor, "position": page.position})
                    yield f"id: {page.cursor}\nevent: up-to-date\ndata: {stand}\n\n"
                    silent_since = time.monotonic()
                told = False
                if page.up_to_date:
                    left = max(0.0, silent_since + KEEP_ALIVE - time.monotonic())
                    bell.wait(min(left, HELD_SECONDS) if page.held else left)
                    bell.clear()
                    told = time.monotonic() >= silent_since + KEEP_ALIVE
                if s.watch.closed or not is_allowed():
                    return
                try:
                    page = s.feeds.read(lmr, page.cursor, limit, STREAM_BYTES)
                    _note(s, lmr, page.cursor)
                except MustRefetch as error:
                    yield f"event: must-refetch\ndata: {json.dumps(error.problem())}\n\n"
                    return
                except MdvError as error:
                    log.info("a feed ended", lmr=lmr.name, reason=error.detail)
                    return

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return Response(events(), content_type=f"{EVENTS}; charset=utf-8", headers=headers)


_streams: Counter[int] = Counter()


@contextmanager
def _counted(lmr: Lmr) -> Iterator[None]:
    _streams[lmr.id] += 1
    try:
        yield
    finally:
        _streams[lmr.id] -= 1


_noted: dict[int, tuple[float, int]] = {}


def _note(s: Services, lmr: Lmr, after: str | None, idle: bool = False) -> None:
    """How far an LMR has read, for whoever looks after it: now and then, and (`idle`) when it begins to wait."""
    if after is None:
        return
    cursor, now = Cursor.read(after), time.monotonic()
    when, offset = _noted.get(lmr.id, (float("-inf"), -1))
    recent = now - when < NOTED_SECONDS
    if cursor.snapshot is not None or (recent and (not idle or offset == cursor.offset)):
        return
    _noted[lmr.id] = now, cursor.offset
    with s.single.connect() as connection:
        note_asked(connection, lmr.id, cursor.offset)


def _hand_out(lmr: Lmr, page: FeedPage) -> None:
    """What an LMR is told is counted, and said in the log: a position leads from there to the change that made it."""
    if page.events:
        FEED_EVENTS.inc(len(page.events))
        log.info("fed", lmr=lmr.name, position=page.position, events=len(page.events))


def _buckets(text: str, after: str | None) -> list[int]:
    if after is not None:
        raise BadRequest("`buckets` begins a snapshot; its pages are asked for with `after` alone.")
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() and len(part) < 4 and int(part) < BUCKETS for part in parts):
        raise BadRequest(f"`buckets` takes numbers below {BUCKETS}, with commas between.")
    return sorted({int(part) for part in parts})


def _json(page: FeedPage) -> Response:
    return Response(page.text, content_type="application/json", headers={"Cache-Control": "no-store"})
