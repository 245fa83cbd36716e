"""The overview: what there is, what happens, what needs attention."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from flask import Response, stream_with_context, url_for

from mdv.db.batch import running
from mdv.db.figures import Minute, read_figures
from mdv.db.jobs import NEWEST, last_news, list_jobs
from mdv.db.status import Status, read_status
from mdv.errors import Unavailable
from mdv.mdp.status import workers_heard
from web.pages.frame import page, pages, part, visitor
from web.pages.jobs import lmr_names
from web.services import services

HOUR = 3600.0
RECENT = 12
LATE_SECONDS = 30.0
"""An LMR that is so far behind, and a job that has waited for so long, deserve a look."""
STREAM_SECONDS = 300.0
LOOK_SECONDS = 1.0
SIGN_SECONDS = 15.0
MOST_STREAMS = 200
"""Pages that wait for news in one process; others are loaded again by hand."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Something that somebody should look at, and where."""

    words: str
    link: str


@pages.get("/")
def overview() -> Response:
    visitor()
    return page("overview.html", **_now(), charts=_charts())


@pages.get("/overview/now")
def overview_now() -> Response:
    """The part of the overview that is fetched anew when something happens."""
    visitor()
    return part("overview_now.html", **_now())


@pages.get("/overview/events")
def overview_events() -> Response:
    """Rings when something was published: the page then looks by itself."""
    visitor()
    if _open.count >= MOST_STREAMS:
        raise Unavailable("Too many pages wait for news; this one can be loaded again by hand.")

    def ring() -> Iterator[str]:
        with _open:
            yield from _rings()

    return Response(stream_with_context(ring()), content_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


class _Open:
    """The streams that are open in this process."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self.count -= 1


_open = _Open()


def _rings() -> Iterator[str]:
    yield "retry: 3000\n\n"
    ends, heard, seen = time.monotonic() + STREAM_SECONDS, time.monotonic(), _last_news()
    while time.monotonic() < ends and not services().watch.closed:
        time.sleep(LOOK_SECONDS)
        if (now := _last_news()) != seen:
            seen, heard = now, time.monotonic()
            yield "event: news\ndata: 1\n\n"
        elif time.monotonic() - heard > SIGN_SECONDS:
            heard = time.monotonic()
            yield ": nothing new\n\n"


def _now() -> dict[str, Any]:
    with services().engine.connect() as connection:
        status = read_status(connection)
        recent = list_jobs(connection, None, NEWEST, RECENT)
        batches = running(connection)
        names = lmr_names(connection, recent)
    return {
        "status": status,
        "recent": recent,
        "lmr_names": names,
        "batches": batches,
        "attention": list(_attention(status)),
    }


_seen: tuple[float, tuple[int, int]] = (0.0, (0, 0))
"""When this process looked for news, and what it saw: one look serves all streams."""


def _last_news() -> tuple[int, int]:
    """Something that changes whenever something happens."""
    global _seen
    if time.monotonic() - _seen[0] > LOOK_SECONDS / 2:
        with services().single.connect() as connection:
            _seen = time.monotonic(), last_news(connection)
    return _seen[1]


def _attention(status: Status) -> Iterator[Attention]:
    if status.queue.dead:
        yield Attention(f"{status.queue.dead:,} changes failed inside MDV and were set aside.",
                        url_for("pages.jobs", state="dead"))  # fmt: skip
    if (status.queue.oldest_seconds or 0) > LATE_SECONDS:
        yield Attention(
            f"A change has waited for {status.queue.oldest_seconds:,.0f} s.", url_for("pages.jobs", state="queued")
        )
    workers = workers_heard(services().redis)
    if workers is None:
        yield Attention("Redis does not answer: changes are carried out, but later.", "/readyz")
    elif not workers:
        yield Attention("No worker was heard of: changes wait until one starts (`mdv worker`).", url_for("pages.jobs"))
    for lmr in status.behind[:5]:
        if lmr.paused:
            yield Attention(f"The LMR {lmr.name} is paused, and is not told what happens.",
                            url_for("pages.lmr", name=lmr.name))  # fmt: skip
        elif lmr.must_refetch:
            yield Attention(f"The LMR {lmr.name} is so far behind that it has to fetch everything anew.",
                            url_for("pages.lmr", name=lmr.name))  # fmt: skip
        elif lmr.since and (datetime.now(UTC) - lmr.since).total_seconds() > LATE_SECONDS:
            yield Attention(f"The LMR {lmr.name} has not asked for {lmr.events:,}{'+' if lmr.more else ''} events.",
                            url_for("pages.lmr", name=lmr.name))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure over the last hour, minute by minute."""

    title: str
    unit: str
    minutes: list[tuple[datetime, float]]

    @property
    def points(self) -> str:
        return json.dumps([[round(at.timestamp()) for at, _ in self.minutes], [value for _, value in self.minutes]])


def _charts() -> list[Chart]:
    with services().engine.connect() as connection:
        found = {minute.at: minute for minute in read_figures(connection, HOUR)}
    last = datetime.now(UTC).replace(second=0, microsecond=0)
    times = [last - timedelta(minutes=before) for before in range(59, -1, -1)]
    minutes = [found.get(at, Minute(at)) for at in times]
    figures = (
        ("Documents a minute", "documents", "documents"),
        ("Milliseconds a document takes", "ms", "each_ms"),
        ("Seconds behind, the furthest LMR", "s", "lag"),
    )
    return [
        Chart(title, unit, [(minute.at, round(getattr(minute, name), 2)) for minute in minutes])
        for title, unit, name in figures
    ]
