"""The current metrics of an MDP."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from mdv.db.batch import BatchProgress, list_running
from mdv.db.feed import Feed
from mdv.db.jobs import QueueSummary, summarize_queue
from mdv.db.state import read_state
from mdv.db.suspensions import Suspensions
from mdv.inspect.sql.database_health import DatabaseHealth, WebhookCounts, count_webhooks, read_database_health
from mdv.inspect.sql.jobs import count_dead_letters


@dataclass(frozen=True, slots=True)
class ProviderMetrics:
    """The current metrics of an MDP. `lags`: LMRs, each with the age of its first unread event in seconds."""

    position: int
    queue: QueueSummary
    dead_letters: int
    lags: list[tuple[str, float]]
    batches: list[BatchProgress]
    suspended_rules: int
    lmrs: int
    webhooks: WebhookCounts
    database: DatabaseHealth


def read_provider_metrics(connection: Connection, max_jobs: int, max_lmrs: int) -> ProviderMetrics:
    """Read the metrics. At most `max_jobs` waiting jobs are counted, and the lags of `max_lmrs` LMRs are read."""
    state = read_state(connection)
    return ProviderMetrics(
        position=state.position,
        queue=summarize_queue(connection, max_jobs),
        dead_letters=count_dead_letters(connection),
        lags=Feed(connection).lags(max_lmrs),
        batches=list_running(connection),
        suspended_rules=Suspensions(connection).count(),
        lmrs=state.lmrs,
        webhooks=count_webhooks(connection),
        database=read_database_health(connection),
    )
