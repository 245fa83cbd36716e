"""Prometheus metrics of an MDP. The state is read when metrics are scraped."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import redis
import structlog
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from mdv.inspect.metrics import ProviderMetrics, read_provider_metrics
from mdv.inspect.sql.database_health import DatabaseHealth, WebhookCounts
from mdv.mdp.replica import Replica
from mdv.mdp.worker_heartbeats import list_live_workers
from mdv.metrics import render
from mdv.replication.link_status import ReplicationStatus
from web.errors import first_line

log = structlog.get_logger()

MAX_LMR_SERIES = 1000
"""LMRs with a lag series of their own: those with the oldest last request."""
MAX_JOBS_COUNTED = 1_000_000


class _StateCollector(Collector):
    """Collects the current state of an MDP; only `mdv_database_up` if the database is unavailable."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        try:
            with self._engine.connect() as connection:
                found = read_provider_metrics(connection, MAX_JOBS_COUNTED, MAX_LMR_SERIES)
        except (SQLAlchemyError, psycopg.Error) as error:
            log.warning("database unavailable", reason=first_line(error))
            yield GaugeMetricFamily("mdv_database_up", "1 if the database is available", 0)
            return
        yield GaugeMetricFamily("mdv_database_up", "1 if the database is available", 1)
        yield GaugeMetricFamily("mdv_position", "Position of the last transaction", found.position)
        yield GaugeMetricFamily("mdv_jobs_waiting", "Jobs that are queued or running", found.queue.jobs)
        yield GaugeMetricFamily("mdv_jobs_waiting_bytes", "Total size of these jobs", found.queue.bytes)
        yield GaugeMetricFamily("mdv_jobs_oldest_seconds", "Age of the oldest of these jobs", found.queue.oldest)
        yield GaugeMetricFamily(
            "mdv_dead_letters", "Jobs whose attempts all failed with internal errors", found.dead_letters
        )
        yield GaugeMetricFamily("mdv_rules_suspended", "Rules that are suspended", found.suspended_rules)
        seconds = GaugeMetricFamily(
            "mdv_feed_lag_seconds", "Age of the oldest event that an LMR has not read", labels=["lmr"]
        )
        for name, age in found.lags:
            seconds.add_metric([name], age)
        yield seconds
        yield GaugeMetricFamily("mdv_lmrs", "Registered LMRs", found.lmrs)
        yield from _webhook_metrics(found.webhooks)
        yield from _database_metrics(found.database)
        yield from _batch_metrics(found)


class _RedisCollector(Collector):
    """Collects what Redis stores; only `mdv_redis_up` if it is unavailable."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def collect(self) -> Iterator[Metric]:
        workers = list_live_workers(self._client)
        yield GaugeMetricFamily("mdv_redis_up", "1 if Redis is available", workers is not None)
        if workers is not None:
            yield GaugeMetricFamily("mdv_workers", "Workers that sent a heartbeat in the last seconds", len(workers))


class _BackboneCollector(Collector):
    """Collects the state of the backbone; nothing if this MDP is in none."""

    def __init__(self, engine: Engine, replica: Replica, status: ReplicationStatus | None) -> None:
        self._engine, self._replica = engine, replica
        self._status = status or ReplicationStatus()

    def collect(self) -> Iterator[Metric]:
        try:
            with self._engine.connect() as connection:
                sizes = self._replica.measure(connection)
        except (SQLAlchemyError, psycopg.Error) as error:
            log.warning("database unavailable", reason=first_line(error))
            return
        if sizes is None:
            return
        lag = GaugeMetricFamily(
            "mdv_backbone_lag_seconds", "How long operations of a life have been missing here", labels=["life"]
        )
        for life in sorted({*sizes.vector, *self._status.behind_since}):
            since = self._status.behind_since.get(life)
            lag.add_metric([life], max(0.0, time.time() - since) if since else 0.0)
        yield lag
        contact = GaugeMetricFamily(
            "mdv_backbone_last_contact_timestamp_seconds", "Time of the last answer of a member", labels=["peer"]
        )
        for name, link in self._status.links.items():
            contact.add_metric([name], link.contact)
        yield contact
        yield GaugeMetricFamily("mdv_backbone_waiting", "Operations that wait for others", self._status.waiting)
        yield GaugeMetricFamily("mdv_backbone_log_bytes", "Size of the log of operations", sizes.log_bytes)
        yield GaugeMetricFamily("mdv_backbone_marks", "Statements with a replicated state of their own", sizes.marks)
        yield GaugeMetricFamily("mdv_backbone_conflicts", "Open conflicts, at most 1,000 documents", sizes.conflicts)
        yield CounterMetricFamily("mdv_backbone_divergence", "Documents that have diverged", sizes.diverged)


def _webhook_metrics(counts: WebhookCounts) -> Iterator[Metric]:
    webhooks = GaugeMetricFamily("mdv_webhooks", "Webhooks", labels=["state"])
    webhooks.add_metric(["active"], counts.active)
    webhooks.add_metric(["paused"], counts.paused)
    yield webhooks
    yield GaugeMetricFamily("mdv_webhooks_failing", "Active webhooks whose last attempt failed", counts.failing)


def _database_metrics(health: DatabaseHealth) -> Iterator[Metric]:
    yield GaugeMetricFamily("mdv_database_bytes", "Size of the database", health.size)
    yield GaugeMetricFamily("mdv_database_connections", "Connections to the database server", health.connections)
    yield GaugeMetricFamily("mdv_database_max_connections", "Limit of these connections", health.max_connections)
    yield GaugeMetricFamily(
        "mdv_database_oldest_transaction_seconds",
        "Age of the oldest open transaction of the database",
        health.oldest_transaction_seconds,
    )


def _batch_metrics(found: ProviderMetrics) -> Iterator[Metric]:
    batches = found.batches
    yield GaugeMetricFamily("mdv_batches_running", "Runs of `mdv batch` in progress", len(batches))
    documents = GaugeMetricFamily("mdv_batches_documents", "Documents of these runs", labels=["state"])
    documents.add_metric(["expected"], sum(batch.documents or 0 for batch in batches))
    documents.add_metric(["prepared"], sum(batch.prepared for batch in batches))
    documents.add_metric(["promoted"], sum(batch.promoted for batch in batches))
    documents.add_metric(["unchanged"], sum(batch.skipped for batch in batches))
    documents.add_metric(["refused"], sum(batch.rejected + batch.refused for batch in batches))
    yield documents


def render_metrics(
    engine: Engine, client: redis.Redis, replica: Replica, replication: ReplicationStatus | None
) -> bytes:
    """Return the metrics of an MDP in the Prometheus text format."""
    return render(_StateCollector(engine), _RedisCollector(client), _BackboneCollector(engine, replica, replication))
