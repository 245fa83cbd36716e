"""Metrics by the minute, combined into intervals for the charts of the web interface."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, Interval, cast, func, select

from mdv.db.tables import figures

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
"""Intervals start at multiples of their length after this time."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A time up to now, divided into intervals of some seconds."""

    name: str
    label: str
    seconds: int
    step: int

    @property
    def points(self) -> int:
        return self.seconds // self.step

    def starts(self, now: datetime) -> list[datetime]:
        """Return the starts of the intervals. The last one contains `now`.

        >>> starts = TIME_RANGES["24h"].starts(datetime(2026, 1, 2, 12, 7, 3, tzinfo=UTC))
        >>> len(starts), f"{starts[0]:%d. %H:%M}", f"{starts[-1]:%d. %H:%M}"
        (144, '01. 12:10', '02. 12:00')
        """
        step = timedelta(seconds=self.step)
        last = EPOCH + (now - EPOCH) // step * step
        return [last - step * before for before in range(self.points - 1, -1, -1)]


TIME_RANGES = {
    found.name: found
    for found in (
        TimeRange("1h", "1 hour", 3600, 60),
        TimeRange("24h", "24 hours", 86400, 600),
        TimeRange("7d", "7 days", 7 * 86400, 3600),
    )
}
"""The time ranges of the charts. The longest is the retention of the metrics."""


@dataclass(frozen=True, slots=True)
class IntervalMetrics:
    """The metrics of the interval that starts `at`, of which `minutes` have begun. `lag` and `waiting` are maxima."""

    at: datetime
    minutes: float = 1.0
    transactions: int = 0
    documents: int = 0
    seconds: float = 0.0
    lag: float = 0.0
    waiting: int = 0

    @property
    def documents_per_minute(self) -> float:
        return self.documents / self.minutes

    @property
    def ms_per_document(self) -> float:
        """Mean time for a document in milliseconds."""
        return 1000 * self.seconds / self.documents if self.documents else 0.0


def read_metrics(connection: Connection, range_: TimeRange, now: datetime) -> list[IntervalMetrics]:
    """Return the metrics of a time range by interval, in order. Intervals without activity are absent."""
    f, starts = figures.c, range_.starts(now)
    at = func.date_bin(cast(timedelta(seconds=range_.step), Interval), f.at, EPOCH).label("start")
    query = (
        select(at, func.sum(f.transactions), func.sum(f.documents), func.sum(f.filter_seconds),
               func.max(f.lag_seconds), func.max(f.waiting))
        .where(f.at >= starts[0]).group_by(at).order_by(at)
    )  # fmt: skip
    return [IntervalMetrics(start, _minutes(start, range_, now), *sums) for start, *sums in connection.execute(query)]


def fill_intervals(recorded: Iterable[IntervalMetrics], range_: TimeRange, now: datetime) -> list[IntervalMetrics]:
    """Return all intervals of a time range, with those without activity. The current interval is absent until the
    workers have recorded something in it: its zeros would look like a drop.

    >>> now, hour = datetime(2026, 1, 1, 12, 0, 3, tzinfo=UTC), TIME_RANGES["1h"]
    >>> found = fill_intervals([IntervalMetrics(datetime(2026, 1, 1, 11, 59, tzinfo=UTC), lag=7.0)], hour, now)
    >>> len(found), found[-1].at.minute, found[-1].lag
    (59, 59, 7.0)
    """
    found = {interval.at: interval for interval in recorded}
    starts = range_.starts(now)
    return [
        found.get(at, IntervalMetrics(at, _minutes(at, range_, now)))
        for at in starts
        if at != starts[-1] or at in found
    ]


def _minutes(start: datetime, range_: TimeRange, now: datetime) -> float:
    """Return how many minutes of an interval have begun.

    >>> start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> [_minutes(start, TIME_RANGES["24h"], start + timedelta(seconds=after)) for after in (0, 60, 150, 4000)]
    [1.0, 2.0, 3.0, 10.0]
    """
    begun = (now - start) // timedelta(minutes=1) + 1
    return float(min(max(begun, 1), range_.step // 60))
