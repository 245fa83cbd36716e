"""/lmrs/L/feed: the feed of an LMR by long poll or server-sent events, and its checksum."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import structlog
from flask import Response, request

from mdv.errors import BadRequest, MdvError, MustRefetch, TooMany, Unauthenticated
from mdv.feed import BUCKET_COUNT, EventKind
from mdv.mdp.feed import EVENT_KINDS, MAX_EVENTS_PER_RESPONSE, FeedResponse, feed_paused_error
from mdv.mdp.lmrs import Lmr
from mdv.metrics import FEED_EVENTS
from web.auth import access_check, require_lmr_access
from web.models import Checksum, FeedQuery
from web.negotiate import negotiate_type
from web.openapi import describe_json, describe_problems, object_schema
from web.routing import RouteGroup
from web.services import MAX_FEED_REQUESTS, Services, services

routes = RouteGroup("feed", "Feeds of LMRs")
log = structlog.get_logger()

EVENTS = "text/event-stream"
KEEP_ALIVE_SECONDS = 15.0
"""An idle stream sends an `up-to-date` event at this interval."""
SEND_SECONDS = 60.0
"""Time limit for a client to accept data. A stream that exceeds it is closed."""
MAX_STREAMS_PER_LMR = 10
"""Concurrent streams of one LMR at one process."""
STREAM_EVENTS, STREAM_BYTES = 200, 512 * 1024
"""Approximate size of the page that a stream holds in memory."""
PAUSED_POLL_SECONDS = 1.0
"""Interval at which a paused feed is read: resuming sends no notification."""

_POLL_SLOTS = "long polls"

_PAGE = object_schema(events="array", cursor="string", position="integer", up_to_date="boolean")
_PAGE["properties"]["events"]["items"] = {
    "type": "object",
    "required": ["event", "offset", "prev", "tx"],
    "properties": {
        "event": {"enum": [kind.value for kind in EVENT_KINDS]},
        "offset": {"type": "integer", "description": "ascending, in commit order"},
        "prev": {
            "type": ["integer", "null"],
            "description": "offset of the previous event; if you have not seen it, events are missing",
        },
        "tx": {"type": "integer", "description": "position of the transaction"},
        "last": {"type": "boolean", "description": "true: the last event of its transaction"},
        "resource": {"type": "string"},
        "classes": {"type": "array", "items": {"type": "string"}, "description": "put only: direct types"},
        "statements": {
            "type": "array",
            "items": {"type": "array"},
            "description": "put only: all statements as [property, value]",
        },
        "from": {
            "type": "integer",
            "description": "put in several parts: number of statements in the previous parts",
        },
        "more": {
            "type": "boolean",
            "description": "true: the next event has the same offset and continues this put",
        },
        "schema": {"type": "object", "description": "schema only: version, statements and prefixes"},
    },
}
_PAGE["properties"]["snapshot"] = {"type": "boolean", "description": "true: the response is part of a snapshot"}
_PAGE["properties"]["vector"] = {
    "type": "object",
    "additionalProperties": {"type": "integer"},
    "description": "in a backbone: changes that this MDP has, by life",
}
_PAGE["properties"]["paused"] = {"type": "boolean", "description": "true: the feed is paused"}
_ANSWER = describe_json(_PAGE, "All transactions up to `position` are in this response or in previous ones")
_ANSWER["content"][EVENTS] = {"schema": {"type": "string"}}


@routes.route(
    "GET", "/lmrs/<lmr>/feed", "Read the feed", {200: _ANSWER} | describe_problems(404, 406, 410, 429), query=FeedQuery
)
def read(query: FeedQuery, lmr: str) -> Response:
    """Returns the events after a cursor, or without a cursor a snapshot, page by page. With `wait`, a response without
    events is sent only after that time. If the feed cannot continue from the cursor, it answers 410: take a snapshot.
    A paused LMR receives no new events.

    `put` contains a whole resource. `match` and `unmatch` say whether a rule of the LMR selects it. `delete` says that
    the MDP no longer has it. A resource with very many statements is sent as several puts with the same offset, each in
    its own response: `from` is the number of statements in the previous parts, and all parts but the last have `more`.
    There is no event for resources that are neither selected nor strongly referenced anymore: the LMR collects them.
    An event with `last` completes its transaction.

    With `Accept: text/event-stream`, the feed is sent as server-sent events: the event name is the kind, the `id` is
    the cursor after the event, and the stream continues from `Last-Event-ID`. A `snapshot` event starts a snapshot:
    discard the previous state. `up-to-date` gives the position at the end of the feed, and every 15 s."""
    with services().feed_requests.slot(f"{lmr} {request.headers.get('Authorization')}") as has_slot:
        if not has_slot:  # before any lookup, so that many such requests stay cheap
            raise TooMany(
                f"{MAX_FEED_REQUESTS} requests for this feed are already in progress. Wait for their responses."
            )
        return _read(query, lmr)


def _read(query: FeedQuery, lmr: str) -> Response:
    found = require_lmr_access(lmr)
    limit = min(query.limit, MAX_EVENTS_PER_RESPONSE)
    if negotiate_type(["application/json", EVENTS]) == EVENTS:
        after = request.headers.get("Last-Event-ID") or query.after
        return _stream(services(), found, after, limit)
    if query.buckets is not None:
        return _json(services().feeds.read_buckets(found, _buckets(query.buckets, query.after), limit))
    page = _wait_for_page(services(), found, query.after, limit, query.wait)
    _log_delivery(found, page)
    return _json(page)


@routes.route(
    "GET", "/lmrs/<lmr>/checksum", "Get the checksum of an LMR's cache", {200: Checksum} | describe_problems(404, 409)
)
def checksum(lmr: str) -> dict[str, Any]:
    """Returns the expected checksum at `position`: 256 buckets by hash of the resource URI, each the sum of the hashes
    of its statements modulo 2^64. Rejected while the feed is paused: the LMR could not reach the position."""
    found = require_lmr_access(lmr)
    if found.paused:
        raise feed_paused_error(found)
    position, sums = services().feeds.checksum(found)
    return {"position": position, "buckets": [str(number) for number in sums]}


def _wait_for_page(s: Services, lmr: Lmr, after: str | None, limit: int, seconds: float) -> FeedResponse:
    """Return the events after a cursor as soon as there are any, at the latest after `seconds`."""
    if after is None or seconds <= 0:
        page = s.feeds.read(lmr, after, limit)
        _record_progress(s, lmr, after, page)
        return page
    deadline = time.monotonic() + min(seconds, s.config.max_wait_seconds)
    is_allowed = access_check(s, lmr)
    with s.feed_notifier.poll(lmr.id) as signal:
        page = s.feeds.read(lmr, after, limit)
        _record_progress(s, lmr, after, page)
        if page.events or page.snapshot:
            return page
        with s.waits.slot(_POLL_SLOTS, s.waits.limit) as may_wait:
            if not may_wait:
                raise TooMany(
                    f"{s.waits.limit:,} requests are already waiting at this process. Try again in a few seconds, or"
                    " read the feed without `wait`."
                )
            while not page.events and not page.snapshot and (left := deadline - time.monotonic()) > 0:
                s.feed_progress.record(lmr, page.cursor, idle=True)
                signalled = signal.wait(min(left, PAUSED_POLL_SECONDS) if page.held else left)
                if s.feed_notifier.closed or signal.is_ended:
                    break
                signal.clear()
                if (signalled or page.held) and not is_allowed():
                    raise Unauthenticated("The token was revoked.")
                page = s.feeds.read(lmr, page.cursor, limit)
    return page


def _record_progress(s: Services, lmr: Lmr, after: str | None, page: FeedResponse) -> None:
    """Record how far an LMR has read. A complete snapshot counts when it is sent: a client that does not receive it
    has no cursor, and takes another one."""
    s.feed_progress.record(lmr, page.cursor if page.snapshot else after)


def _stream(s: Services, lmr: Lmr, after: str | None, limit: int) -> Response:
    # Errors are answered as problems before the stream starts.
    limit = min(limit, STREAM_EVENTS)
    first = s.feeds.read(lmr, after, limit, STREAM_BYTES)
    _record_progress(s, lmr, after, first)
    is_allowed = access_check(s, lmr)
    connection = request.environ.get("gunicorn.socket")
    if connection is not None:  # disconnect clients that do not read
        connection.settimeout(SEND_SECONDS)

    def events() -> Iterator[str]:
        page, send_status, silent_since = first, True, 0.0
        with s.feed_notifier.signal(lmr.id) as signal:
            while True:
                if page.snapshot and page.events and page.events[0][1] is EventKind.SCHEMA:
                    yield "event: snapshot\ndata: {}\n\n"
                _log_delivery(lmr, page)
                for cursor, kind, text in page.events:
                    yield f"id: {cursor}\nevent: {kind}\ndata: {text}\n\n"
                if page.up_to_date and (page.events or send_status):
                    status = json.dumps({"cursor": page.cursor, "position": page.position})
                    yield f"id: {page.cursor}\nevent: up-to-date\ndata: {status}\n\n"
                    silent_since = time.monotonic()
                send_status = False
                if page.up_to_date:
                    left = max(0.0, silent_since + KEEP_ALIVE_SECONDS - time.monotonic())
                    signal.wait(min(left, PAUSED_POLL_SECONDS) if page.held else left)
                    signal.clear()
                    send_status = time.monotonic() >= silent_since + KEEP_ALIVE_SECONDS
                if s.feed_notifier.closed or not is_allowed():
                    return
                try:
                    page = s.feeds.read(lmr, page.cursor, limit, STREAM_BYTES)
                    s.feed_progress.record(lmr, page.cursor)
                except MustRefetch as error:
                    yield f"event: must-refetch\ndata: {json.dumps(error.problem())}\n\n"
                    return
                except MdvError as error:
                    log.info("feed ended", lmr=lmr.name, reason=error.detail)
                    return

    key = f"streams of the LMR {lmr.id}"
    if not s.waits.enter(key, MAX_STREAMS_PER_LMR):
        raise TooMany(
            f"The LMR {lmr.name} already has {MAX_STREAMS_PER_LMR} streams, or too many other requests are waiting."
            " Close a stream, or try again in a few seconds."
        )
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    response = Response(events(), content_type=f"{EVENTS}; charset=utf-8", headers=headers)
    response.call_on_close(lambda: s.waits.leave(key))
    return response


def _log_delivery(lmr: Lmr, page: FeedResponse) -> None:
    """Count and log the delivered events, with the position that identifies the transaction."""
    if page.events:
        FEED_EVENTS.inc(len(page.events))
        log.info("feed events delivered", lmr=lmr.name, position=page.position, events=len(page.events))


def _buckets(text: str, after: str | None) -> list[int]:
    if after is not None:
        raise BadRequest("`buckets` starts a snapshot. Request its further pages with `after` only.")
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() and len(part) < 4 and int(part) < BUCKET_COUNT for part in parts):
        raise BadRequest(f"`buckets` must be numbers below {BUCKET_COUNT}, separated by commas.")
    return sorted({int(part) for part in parts})


def _json(page: FeedResponse) -> Response:
    return Response(page.text, content_type="application/json", headers={"Cache-Control": "no-store"})
