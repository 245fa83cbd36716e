"""Figures for Prometheus: every request is counted; where the MDP stands is looked up when somebody asks."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import structlog
from flask import Flask, Response, g, request
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from mdv.db.batch import Progress, running
from mdv.db.feed import Feed
from mdv.db.jobs import count_dead, look_at_waiting
from mdv.db.state import read_state
from mdv.figures import REQUEST_SECONDS, REQUESTS, render
from web.services import first_line

log = structlog.get_logger()

METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"})
"""What callers invent besides is counted together: a series for each would be theirs to make."""
MOST_LMRS = 1000
"""So many have a figure of their own: those that have not asked for longest."""
MOST_WAITING = 1_000_000


def measure(app: Flask) -> None:
    """Count and time every request, by route."""

    @app.before_request
    def _begin() -> None:
        g.began = time.perf_counter()

    @app.after_request
    def _end(response: Response) -> Response:
        call = request.url_rule.rule if request.url_rule else "unknown"
        method = request.method if request.method in METHODS else "other"
        REQUESTS.labels(call, method, response.status_code).inc()
        if "began" in g:
            REQUEST_SECONDS.labels(call, method).observe(time.perf_counter() - g.began)
        return response


class _Moment(Collector):
    """Where an MDP stands at this moment; nothing, where its database does not answer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        try:
            with self._engine.connect() as connection:
                state = read_state(connection)
                waiting = look_at_waiting(connection, MOST_WAITING)
                dead = count_dead(connection)
                lags = Feed(connection).lags(MOST_LMRS)
                batches = running(connection)
        except (SQLAlchemyError, psycopg.Error) as error:
            log.warning("the database is away", reason=first_line(error))
            yield GaugeMetricFamily("mdv_database_up", "Whether the database answers", 0)
            return
        yield GaugeMetricFamily("mdv_database_up", "Whether the database answers", 1)
        yield GaugeMetricFamily("mdv_position", "Position of the last transaction", state.position)
        yield GaugeMetricFamily("mdv_jobs_waiting", "Jobs that wait or are being carried out", waiting.jobs)
        yield GaugeMetricFamily("mdv_jobs_waiting_bytes", "The texts of these jobs", waiting.bytes)
        yield GaugeMetricFamily("mdv_jobs_oldest_seconds", "For how long the first of them has waited", waiting.oldest)
        yield GaugeMetricFamily("mdv_dead_letters", "Jobs that failed inside MDV as often as they were tried", dead)
        seconds = GaugeMetricFamily(
            "mdv_feed_lag_seconds", "Age of the first event that an LMR has not asked beyond", labels=["lmr"]
        )
        for name, age in lags:
            seconds.add_metric([name], age)
        yield seconds
        yield from _of_batches(batches)


def _of_batches(batches: list[Progress]) -> Iterator[Metric]:
    yield GaugeMetricFamily("mdv_batches_running", "Runs of `mdv batch` that go on", len(batches))
    documents = GaugeMetricFamily("mdv_batches_documents", "Documents of these runs", labels=["state"])
    documents.add_metric(["expected"], sum(batch.documents or 0 for batch in batches))
    documents.add_metric(["prepared"], sum(batch.prepared for batch in batches))
    documents.add_metric(["promoted"], sum(batch.promoted for batch in batches))
    documents.add_metric(["unchanged"], sum(batch.skipped for batch in batches))
    documents.add_metric(["refused"], sum(batch.rejected + batch.refused for batch in batches))
    yield documents


def render_metrics(engine: Engine) -> bytes:
    """The figures of an MDP."""
    return render(_Moment(engine))
