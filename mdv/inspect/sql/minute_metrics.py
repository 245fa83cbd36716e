"""Metrics by the minute, for the charts of the web interface."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

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
