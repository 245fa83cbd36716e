"""Metrics by the minute, for the charts of the web interface."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, func, select

from mdv.db.tables import figures


@dataclass(frozen=True, slots=True)
class MinuteMetrics:
    """The metrics of the minute that starts `at`. `lag` and `waiting` are maxima."""

    at: datetime
    transactions: int = 0
    documents: int = 0
    seconds: float = 0.0
    lag: float = 0.0
    waiting: int = 0

    @property
    def ms_per_document(self) -> float:
        """Mean time for a document in milliseconds."""
        return 1000 * self.seconds / self.documents if self.documents else 0.0


def read_metrics(connection: Connection, seconds: float) -> list[MinuteMetrics]:
    """Return the metrics of the last `seconds`, in order. Minutes without activity are absent."""
    since = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, seconds)
    rows = connection.execute(select(figures).where(figures.c.at > since).order_by(figures.c.at))
    return [MinuteMetrics(*row) for row in rows]


def fill_minutes(recorded: Iterable[MinuteMetrics], now: datetime) -> list[MinuteMetrics]:
    """Return the minutes of the last hour, with those without activity. The current minute is absent until the workers
    have recorded something in it: its zeros would look like a drop.

    >>> now = datetime(2026, 1, 1, 12, 0, 3)
    >>> minutes = fill_minutes([MinuteMetrics(datetime(2026, 1, 1, 11, 59), lag=7.0)], now)
    >>> len(minutes), minutes[-1].at.minute, minutes[-1].lag
    (59, 59, 7.0)
    """
    found = {minute.at: minute for minute in recorded}
    current = now.replace(second=0, microsecond=0)
    times = [current - timedelta(minutes=before) for before in range(59, -1, -1)]
    return [found.get(at, MinuteMetrics(at)) for at in times if at != current or at in found]
