"""Figures over time, minute by minute, for people to look at."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, select
from sqlalchemy.dialects.postgresql import insert

from mdv.db.tables import figures

KEPT_SECONDS = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class Minute:
    """What happened in the minute that begins `at`. `lag` and `waiting` are the most that was seen."""

    at: datetime
    transactions: int = 0
    documents: int = 0
    seconds: float = 0.0
    lag: float = 0.0
    waiting: int = 0

    @property
    def each_ms(self) -> float:
        """Milliseconds that a document took."""
        return 1000 * self.seconds / self.documents if self.documents else 0.0


def add_figures(
    connection: Connection, transactions: int, documents: int, seconds: float, lag: float = 0.0, waiting: int = 0
) -> None:
    """Count something up for this minute."""
    now = figures.c
    new = insert(figures).values(
        at=func.date_trunc("minute", func.now()),
        transactions=transactions,
        documents=documents,
        filter_seconds=seconds,
        lag_seconds=lag,
        waiting=waiting,
    )
    connection.execute(
        new.on_conflict_do_update(
            index_elements=[now.at],
            set_={
                "transactions": now.transactions + new.excluded.transactions,
                "documents": now.documents + new.excluded.documents,
                "filter_seconds": now.filter_seconds + new.excluded.filter_seconds,
                "lag_seconds": func.greatest(now.lag_seconds, new.excluded.lag_seconds),
                "waiting": func.greatest(now.waiting, new.excluded.waiting),
            },
        )
    )


def read_figures(connection: Connection, seconds: float) -> list[Minute]:
    """The minutes of the last while in which anything happened, in their order."""
    since = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, seconds)
    rows = connection.execute(select(figures).where(figures.c.at > since).order_by(figures.c.at))
    return [Minute(*row) for row in rows]


def forget_figures(connection: Connection) -> None:
    before = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, KEPT_SECONDS)
    connection.execute(delete(figures).where(figures.c.at < before))
