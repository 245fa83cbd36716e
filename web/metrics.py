"""Figures for Prometheus: what was asked of this process, and where the MDP stands."""

from __future__ import annotations

import contextlib
import time

from flask import Flask, Response, g, request
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from mdv.db.jobs import count_waiting
from mdv.db.state import read_state

REGISTRY = CollectorRegistry()
REQUESTS = Counter("mdv_http_requests_total", "Requests answered", ["call", "method", "status"], registry=REGISTRY)
SECONDS = Histogram("mdv_http_request_seconds", "Time to answer", ["call", "method"], registry=REGISTRY)
POSITION = Gauge("mdv_position", "Position of the last transaction", registry=REGISTRY)
WAITING = Gauge("mdv_jobs_waiting", "Jobs that wait or are being carried out", registry=REGISTRY)


METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"})
"""What callers invent besides is counted together: a series for each would be theirs to make."""


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
            SECONDS.labels(call, method).observe(time.perf_counter() - g.began)
        return response


def render_metrics(engine: Engine) -> bytes:
    with contextlib.suppress(SQLAlchemyError), engine.connect() as connection:
        POSITION.set(read_state(connection).position)
        WAITING.set(count_waiting(connection))
    return generate_latest(REGISTRY)
