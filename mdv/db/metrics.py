"""Record metrics by the minute."""

from __future__ import annotations

from sqlalchemy import Connection, delete, func
from sqlalchemy.dialects.postgresql import insert

from mdv.db.tables import figures

METRICS_RETENTION_SECONDS = 7 * 86400.0


def record_metrics(
    connection: Connection, transactions: int, documents: int, seconds: float, lag: float = 0.0, waiting: int = 0
) -> None:
    """Add to the metrics of the current minute."""
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


def delete_old_metrics(connection: Connection) -> None:
    before = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, METRICS_RETENTION_SECONDS)
    connection.execute(delete(figures).where(figures.c.at < before))
