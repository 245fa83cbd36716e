"""The overview page: sizes, alerts, charts, recent activity."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from flask import Response, request, stream_with_context, url_for

from mdv.errors import Unavailable
from mdv.inspect.activity import ListedBurst
from mdv.inspect.overview import ListedSuspension, Overview, read_overview
from mdv.inspect.sql.batch_runs import ListedRun
from mdv.inspect.sql.jobs import MAX_FAILED_COUNTED, last_activity
from mdv.inspect.sql.minute_metrics import TIME_RANGES, IntervalMetrics, TimeRange, fill_intervals, read_metrics
from mdv.inspect.sql.status import BEHIND_AFTER_SECONDS, MAX_ROWS_COUNTED, RowCount, Status
from mdv.mdp.worker_heartbeats import list_live_workers
from web.pages.base import pages, render_fragment, render_page, require_viewer
from web.pages.first_schema import is_schema_missing
from web.services import services
from web.template_filters import counted

MAX_ACTIVITIES = 12
ALERT_AFTER_SECONDS = 30.0
"""A job that waits for longer than this raises an alert."""
STREAM_SECONDS = 300.0
POLL_SECONDS = 1.0
KEEP_ALIVE_SECONDS = 15.0
MAX_SUSPENDED_SHOWN = 5
"""Maximum number of suspended rules that are listed."""
MAX_LMRS_SHOWN = 5
"""Maximum number of LMRs with an alert."""
STREAM_SLOTS = "pages with live updates"
MAX_STREAMS = 200
"""Open pages with live updates per process. Further pages must be reloaded manually."""


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert and the page with details."""

    text: str
    link: str


@dataclass(frozen=True, slots=True)
class Tile:
    """A number of things, and the page that lists them. `more`: there are more. `is_bad`: there should be none."""

    count: RowCount
    name: str
    link: str
    more: bool = False
    is_bad: bool = False


@pages.get("/")
def overview() -> Response:
    require_viewer()
    range_ = _time_range()
    return render_page(
        "overview.html", **_current_values(range_), charts=_charts(range_), time_range=range_, ranges=TIME_RANGES
    )


@pages.get("/overview/now")
def overview_now() -> Response:
    """Return the fragment of the overview that is refreshed after changes."""
    require_viewer()
    return render_fragment("overview_now.html", **_current_values(_time_range()), is_refresh=True)


@pages.get("/overview/charts")
def overview_charts() -> Response:
    """Return the charts, which are refreshed less often."""
    require_viewer()
    return render_fragment("overview_charts.html", charts=_charts(_time_range()))


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


def _time_range() -> TimeRange:
    """Return the time range of the request, by default the shortest."""
    return TIME_RANGES.get(request.args.get("range", ""), TIME_RANGES["1h"])


def _current_values(range_: TimeRange) -> dict[str, Any]:
    with services().engine.connect() as connection:
        found = read_overview(connection, range_.seconds, MAX_ACTIVITIES, MAX_SUSPENDED_SHOWN)
    return {
        "status": found.status,
        "tiles": _tiles(found, range_),
        "schema_missing": is_schema_missing(),
        "activities": [(_kind_of(activity), activity) for activity in found.activities],
        "lmr_names": found.lmr_names,
        "alerts": [*_alerts(found.status), *_suspended(found.suspended, found.status.suspended)],
    }


def _kind_of(activity: object) -> str:
    return "burst" if isinstance(activity, ListedBurst) else "run" if isinstance(activity, ListedRun) else "job"


_last_check: tuple[float, tuple[int, int]] = (0.0, (0, 0))
"""Time and result of the last check for changes, shared by all streams of this process."""


def _last_change() -> tuple[int, int]:
    """Return a value that changes with every job."""
    global _last_check
    if time.monotonic() - _last_check[0] > POLL_SECONDS / 2:
        with services().single.connect() as connection:
            _last_check = time.monotonic(), last_activity(connection)
    return _last_check[1]


# Tiles and alerts


def _tiles(found: Overview, range_: TimeRange) -> list[Tile]:
    """Return the tiles. Each page shows as many rows as its tile says."""
    status = found.status
    failed_link = url_for("pages.jobs", state="failed", range=range_.name)
    resource_class: dict[str, Any] = {"class": "rdfs:Resource"}
    exact = {
        "suspended": RowCount(status.suspended, True),
        "lmrs": RowCount(status.lmrs, True),
        "behind": RowCount(found.lmrs_behind, True),
        "waiting": RowCount(status.queue.waiting, True),
        "failed": RowCount(found.failed, True),
    }
    return [
        Tile(status.documents, "documents", url_for("pages.documents")),
        Tile(status.resources, "resources", url_for("pages.instances", **resource_class)),
        Tile(status.rules, "rules", url_for("pages.registered_rules")),
        Tile(exact["suspended"], "rules suspended", url_for("pages.registered_rules", state="suspended"),
             is_bad=status.suspended > 0),
        Tile(exact["lmrs"], "LMRs", url_for("pages.lmrs")),
        Tile(exact["behind"], "LMRs behind", url_for("pages.lmrs", state="behind"),
             more=found.lmrs_behind >= MAX_ROWS_COUNTED, is_bad=found.lmrs_behind > 0),
        Tile(exact["waiting"], "jobs waiting", url_for("pages.jobs", state="queued"), more=status.queue.more),
        Tile(exact["failed"], f"jobs failed in {range_.label}", failed_link,
             more=found.failed >= MAX_FAILED_COUNTED, is_bad=found.failed > 0),
    ]  # fmt: skip


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
    for lmr in status.behind[:MAX_LMRS_SHOWN]:
        if lmr.paused:
            yield Alert(f"The LMR {lmr.name} is paused and receives no events.",
                            url_for("pages.lmr", name=lmr.name))  # fmt: skip
        elif lmr.must_refetch:
            yield Alert(f"The LMR {lmr.name} is too far behind and has to take a new snapshot.",
                            url_for("pages.lmr", name=lmr.name))  # fmt: skip
        elif lmr.since and (datetime.now(UTC) - lmr.since).total_seconds() > BEHIND_AFTER_SECONDS:
            unread = f"{lmr.events:,}{'+' if lmr.more else ''} unread event{'' if lmr.events == 1 else 's'}"
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


# Charts


@dataclass(frozen=True, slots=True)
class MetricChart:
    """A metric of a time range, one value per interval. `summary`: of the whole range."""

    title: str
    unit: str
    summary: str
    values: list[tuple[datetime, float]]

    @property
    def points(self) -> str:
        return json.dumps([[round(at.timestamp()) for at, _ in self.values], [value for _, value in self.values]])


def _charts(range_: TimeRange) -> list[MetricChart]:
    now = datetime.now(UTC)
    with services().engine.connect() as connection:
        intervals = fill_intervals(read_metrics(connection, range_, now), range_, now)
    documents = sum(interval.documents for interval in intervals)
    mean = 1000 * sum(interval.seconds for interval in intervals) / documents if documents else 0.0
    lag, waiting = (max((getattr(interval, name) for interval in intervals), default=0) for name in ("lag", "waiting"))
    return [
        _chart("Documents per minute", "documents", counted(documents, "document"), "documents_per_minute", intervals),
        _chart("Milliseconds per document", "ms", f"mean {mean:,.1f} ms", "ms_per_document", intervals),
        _chart("Largest LMR lag in seconds", "s", f"at most {lag:,.0f} s", "lag", intervals),
        _chart("Jobs waiting", "jobs", f"at most {waiting:,}", "waiting", intervals),
    ]


def _chart(title: str, unit: str, summary: str, name: str, intervals: Sequence[IntervalMetrics]) -> MetricChart:
    values = [(interval.at, round(getattr(interval, name), 2)) for interval in intervals]
    return MetricChart(title, unit, summary, values)
