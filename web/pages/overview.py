"""The overview page: sizes, recent jobs, alerts, charts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from flask import Response, stream_with_context, url_for

from mdv.errors import Unavailable
from mdv.inspect.overview import ListedSuspension, read_overview
from mdv.inspect.sql.jobs import last_activity
from mdv.inspect.sql.minute_metrics import fill_minutes, read_metrics
from mdv.inspect.sql.status import Status
from mdv.mdp.worker_heartbeats import list_live_workers
from web.pages.base import pages, render_fragment, render_page, require_viewer
from web.pages.first_schema import is_schema_missing
from web.services import services

HOUR_SECONDS = 3600.0
MAX_RECENT_JOBS = 12
ALERT_AFTER_SECONDS = 30.0
"""An LMR that is behind, or a job that waits, for longer than this raises an alert."""
STREAM_SECONDS = 300.0
POLL_SECONDS = 1.0
KEEP_ALIVE_SECONDS = 15.0
MAX_SUSPENDED_SHOWN = 5
"""Maximum number of suspended rules that are listed."""
STREAM_SLOTS = "pages with live updates"
MAX_STREAMS = 200
"""Open pages with live updates per process. Further pages must be reloaded manually."""


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert and the page with details."""

    text: str
    link: str


@pages.get("/")
def overview() -> Response:
    require_viewer()
    return render_page("overview.html", **_current_values(), charts=_charts())


@pages.get("/overview/now")
def overview_now() -> Response:
    """Return the fragment of the overview that is refreshed after changes."""
    require_viewer()
    return render_fragment("overview_now.html", **_current_values())


@pages.get("/overview/events")
def overview_events() -> Response:
    """Stream an event after changes. The page then reloads its fragment."""
    require_viewer()
    s = services()
    if not s.waits.enter(STREAM_SLOTS, MAX_STREAMS):
        raise Unavailable("Too many pages have live updates. Reload this page manually.")
    response = Response(
        stream_with_context(_change_events()), content_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )
    response.call_on_close(lambda: s.waits.leave(STREAM_SLOTS))
    return response


def _change_events() -> Iterator[str]:
    yield "retry: 3000\n\n"
    ends, last_sent, last_change = time.monotonic() + STREAM_SECONDS, time.monotonic(), _last_change()
    while time.monotonic() < ends and not services().feed_notifier.closed:
        time.sleep(POLL_SECONDS)
        if (now := _last_change()) != last_change:
            last_change, last_sent = now, time.monotonic()
            yield "event: change\ndata: 1\n\n"
        elif time.monotonic() - last_sent > KEEP_ALIVE_SECONDS:
            last_sent = time.monotonic()
            yield ": nothing new\n\n"


def _current_values() -> dict[str, Any]:
    with services().engine.connect() as connection:
        found = read_overview(connection, MAX_RECENT_JOBS, MAX_SUSPENDED_SHOWN)
    return {
        "status": found.status,
        "schema_missing": is_schema_missing(),
        "recent": found.recent_jobs,
        "lmr_names": found.lmr_names,
        "batches": found.batches,
        "alerts": [*_alerts(found.status), *_suspended(found.suspended, found.status.suspended)],
    }


_last_check: tuple[float, tuple[int, int]] = (0.0, (0, 0))
"""Time and result of the last check for changes, shared by all streams of this process."""


def _last_change() -> tuple[int, int]:
    """Return a value that changes with every job."""
    global _last_check
    if time.monotonic() - _last_check[0] > POLL_SECONDS / 2:
        with services().single.connect() as connection:
            _last_check = time.monotonic(), last_activity(connection)
    return _last_check[1]


def _alerts(status: Status) -> Iterator[Alert]:
    if status.queue.dead:
        yield Alert(f"{status.queue.dead:,} jobs failed with internal errors (dead letters).",
                        url_for("pages.jobs", state="dead"))  # fmt: skip
    if (status.queue.oldest_seconds or 0) > ALERT_AFTER_SECONDS:
        yield Alert(
            f"The oldest job has been waiting for {status.queue.oldest_seconds:,.0f} s.",
            url_for("pages.jobs", state="queued"),
        )
    workers = list_live_workers(services().redis)
    if workers is None:
        yield Alert("Redis is unavailable. Changes are still processed, but with a delay.", "/readyz")
    elif not workers:
        yield Alert("No worker is running. Changes wait until one is started (`mdv worker`).", url_for("pages.jobs"))
    for lmr in status.behind[:5]:
        if lmr.paused:
            yield Alert(f"The LMR {lmr.name} is paused and receives no events.",
                            url_for("pages.lmr", name=lmr.name))  # fmt: skip
        elif lmr.must_refetch:
            yield Alert(f"The LMR {lmr.name} is too far behind and has to take a new snapshot.",
                            url_for("pages.lmr", name=lmr.name))  # fmt: skip
        elif lmr.since and (datetime.now(UTC) - lmr.since).total_seconds() > ALERT_AFTER_SECONDS:
            unread = f"{lmr.events:,}{'+' if lmr.more else ''} unread events"
            yield Alert(
                f"The LMR {lmr.name} has {unread}. Remove it if it is no longer used.",
                url_for("pages.lmr", name=lmr.name),
            )


def _suspended(some: Sequence[ListedSuspension], count: int) -> Iterator[Alert]:
    """Yield alerts for the first suspended rules, and one with the total if there are more."""
    for rule in some:
        rule_label = f"Rule {rule.rule_id} of the LMR {rule.lmr}" if rule.lmr else f"The provider's rule {rule.rule_id}"
        link = url_for("pages.subscription", name=rule.lmr, number=rule.rule_id) if rule.lmr else None
        yield Alert(f"{rule_label} has been suspended since position {rule.position:,}: it exceeded the time limit.",
                        link or url_for("pages.rules", id=rule.rule_id))  # fmt: skip
    if count > len(some):
        yield Alert(f"{count:,} rules are suspended in total.", url_for("pages.registered_rules", state="suspended"))


@dataclass(frozen=True, slots=True)
class MinuteChart:
    """A metric of the last hour, one value per minute."""

    title: str
    unit: str
    minutes: list[tuple[datetime, float]]

    @property
    def points(self) -> str:
        return json.dumps([[round(at.timestamp()) for at, _ in self.minutes], [value for _, value in self.minutes]])


def _charts() -> list[MinuteChart]:
    with services().engine.connect() as connection:
        minutes = fill_minutes(read_metrics(connection, HOUR_SECONDS), datetime.now(UTC))
    series = (
        ("Documents per minute", "documents", "documents"),
        ("Milliseconds per document", "ms", "ms_per_document"),
        ("Largest LMR lag in seconds", "s", "lag"),
    )
    return [
        MinuteChart(title, unit, [(minute.at, round(getattr(minute, name), 2)) for minute in minutes])
        for title, unit, name in series
    ]
