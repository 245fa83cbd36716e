"""Figures for Prometheus: what each stage of MDV's work costs, and how much of it there was.

Several processes make up a system. Where the environment names a folder for them, each keeps its figures in files
there, and any of them can tell the figures of all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
    start_http_server,
)
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names the folder. prometheus_client reads it when it is imported."""

REGISTRY = CollectorRegistry()
disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series of each, of use to nobody here

_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LONG = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_MANY = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

REQUESTS = Counter("mdv_http_requests_total", "Requests answered", ["call", "method", "status"], registry=REGISTRY)
REQUEST_SECONDS = Histogram(
    "mdv_http_request_seconds", "Time to answer", ["call", "method"], buckets=_SHORT, registry=REGISTRY
)
JOBS_ENDED = Counter("mdv_jobs_ended_total", "Jobs that ended", ["kind", "state"], registry=REGISTRY)
ATTEMPTS_FAILED = Counter("mdv_job_attempts_failed_total", "Attempts at jobs that failed inside MDV", registry=REGISTRY)
JOB_WAITED = Histogram(
    "mdv_job_waited_seconds", "Time from a job's coming to a worker's taking it", buckets=_LONG, registry=REGISTRY
)
BATCH = Histogram("mdv_batch_documents", "Documents registered at once", buckets=_MANY, registry=REGISTRY)
STAGE_SECONDS = Histogram(
    "mdv_stage_seconds",
    "Time of a batch in a stage; where a small batch goes to the database in one message, the whole is `answer`",
    ["stage"],
    buckets=_SHORT,
    registry=REGISTRY,
)
CANDIDATES = Histogram(
    "mdv_candidates_per_document",
    "Changed resources that the filter asked rule groups about, for each document",
    buckets=(0, *_MANY),
    registry=REGISTRY,
)
MATCHED = Counter("mdv_matched_total", "Resources that came to match some rule", registry=REGISTRY)
FEED_EVENTS = Counter("mdv_feed_events_total", "Events handed out to LMRs", registry=REGISTRY)
REFUSED = Counter("mdv_refused_total", "Changes refused because too much waits", registry=REGISTRY)
WEBHOOK_ATTEMPTS = Counter("mdv_webhook_attempts_total", "Attempts to tell a webhook", ["outcome"], registry=REGISTRY)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Measure a stage."""
    began = time.perf_counter()
    try:
        yield
    finally:
        STAGE_SECONDS.labels(name).observe(time.perf_counter() - began)


def stage_seconds() -> dict[str, float]:
    """The seconds that this process has spent in each stage, until now."""
    samples = [sample for metric in STAGE_SECONDS.collect() for sample in metric.samples]
    return {sample.labels["stage"]: sample.value for sample in samples if sample.name.endswith("_sum")}


def registered() -> tuple[int, int, float]:
    """The transactions with documents that this process has made, the documents, and the seconds they took in all."""
    batches, documents = _count_and_sum(BATCH)
    return int(batches), int(documents), stage_seconds().get("answer", 0.0)


def _count_and_sum(histogram: Histogram) -> tuple[float, float]:
    samples = [sample for metric in histogram.collect() for sample in metric.samples]
    found = {sample.name.rpartition("_")[2]: sample.value for sample in samples}
    return found.get("count", 0.0), found.get("sum", 0.0)


def render(*moments: Collector) -> bytes:
    """All figures, in the form that Prometheus reads; `moments` tell those that are of this moment."""
    registry = _of_all_processes()
    for moment in moments:
        registry.register(moment)
    return generate_latest(registry)


def render_only(*figures: Collector) -> bytes:
    """These figures, of this process alone."""
    registry = CollectorRegistry()
    for figure in figures:
        registry.register(figure)
    return generate_latest(registry)


def serve_figures(host: str, port: int) -> None:
    """Answer /metrics there, in a thread, for as long as this process lives."""
    start_http_server(port, host, _of_all_processes())


def _of_all_processes() -> CollectorRegistry:
    registry = CollectorRegistry()
    if os.environ.get(FOLDER):
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    else:
        registry.register(REGISTRY)
    return registry
