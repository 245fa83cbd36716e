"""Prometheus metrics: counters, and the time of each stage of a transaction.

A system has several processes. If the environment names a folder for metrics, each process stores its metrics in files
there, and each process can serve the metrics of all.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Iterator
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

MULTIPROCESS_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable that names the folder. prometheus_client reads it when it is imported."""

REGISTRY = CollectorRegistry()
disable_created_metrics()  # type: ignore[no-untyped-call]  # unused series that prometheus_client adds to each metric

_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LONG = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_MANY = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

REQUESTS = Counter("mdv_http_requests_total", "HTTP requests", ["call", "method", "status"], registry=REGISTRY)
REQUEST_SECONDS = Histogram(
    "mdv_http_request_seconds", "Response time of HTTP requests", ["call", "method"], buckets=_SHORT, registry=REGISTRY
)
JOBS_ENDED = Counter("mdv_jobs_ended_total", "Ended jobs", ["kind", "state"], registry=REGISTRY)
SLICES = Counter(
    "mdv_process_slices_total", "Slices of processes, by the state after them", ["state"], registry=REGISTRY
)
ATTEMPTS_FAILED = Counter("mdv_job_attempts_failed_total", "Job attempts that failed inside MDV", registry=REGISTRY)
JOB_WAIT_SECONDS = Histogram(
    "mdv_job_waited_seconds",
    "Time from the creation of a job to its claim by a worker",
    buckets=_LONG,
    registry=REGISTRY,
)
BATCH_DOCUMENTS = Histogram(
    "mdv_batch_documents", "Documents registered in one batch", buckets=_MANY, registry=REGISTRY
)
STAGE_SECONDS = Histogram(
    "mdv_stage_seconds",
    "Time of a batch in a stage; for a small batch, sent to the database in one message, `answer` is the whole",
    ["stage"],
    buckets=_SHORT,
    registry=REGISTRY,
)
CANDIDATES_PER_DOCUMENT = Histogram(
    "mdv_candidates_per_document",
    "Changed resources that the filter evaluated rule groups for, per document",
    buckets=(0, *_MANY),
    registry=REGISTRY,
)
RESOURCES_MATCHED = Counter("mdv_matched_total", "Resources that started to match a rule", registry=REGISTRY)
RULES_SUSPENDED = Counter("mdv_rules_suspended_total", "Rules suspended because they took too long", registry=REGISTRY)
FEED_EVENTS = Counter("mdv_feed_events_total", "Events sent to LMRs", registry=REGISTRY)
CHANGES_REFUSED = Counter("mdv_refused_total", "Changes refused because too many jobs wait", registry=REGISTRY)
WEBHOOK_ATTEMPTS = Counter("mdv_webhook_attempts_total", "Webhook delivery attempts", ["outcome"], registry=REGISTRY)


def start_at_zero(counter: Counter, *labels: Iterable[str]) -> None:
    """Create the series of a counter, one for each combination of labels. A series that appears with its first event
    shows no increase for that event."""
    for values in itertools.product(*labels):
        counter.labels(*values)


start_at_zero(WEBHOOK_ATTEMPTS, ("delivered", "waiting", "dead"))
start_at_zero(SLICES, ("ready", "waiting", "calling", "full", "done", "failed", "stopped"))


@contextmanager
def time_stage(name: str) -> Iterator[None]:
    """Measure the time of a stage: `with time_stage("store"): …`."""
    started = time.perf_counter()
    try:
        yield
    finally:
        STAGE_SECONDS.labels(name).observe(time.perf_counter() - started)


def stage_seconds() -> dict[str, float]:
    """Return the total seconds that this process has spent in each stage."""
    samples = [sample for metric in STAGE_SECONDS.collect() for sample in metric.samples]
    return {sample.labels["stage"]: sample.value for sample in samples if sample.name.endswith("_sum")}


def registration_totals() -> tuple[int, int, float]:
    """Return the number of registration transactions of this process, their documents, and their total seconds."""
    batches, documents = _count_and_sum(BATCH_DOCUMENTS)
    return int(batches), int(documents), stage_seconds().get("answer", 0.0)


def _count_and_sum(histogram: Histogram) -> tuple[float, float]:
    samples = [sample for metric in histogram.collect() for sample in metric.samples]
    found = {sample.name.rpartition("_")[2]: sample.value for sample in samples}
    return found.get("count", 0.0), found.get("sum", 0.0)


def render(*collectors: Collector) -> bytes:
    """Return the metrics of all processes in the Prometheus text format, with those of `collectors` added."""
    registry = _registry_of_all_processes()
    for collector in collectors:
        registry.register(collector)
    return generate_latest(registry)


def render_process_metrics(*metrics: Collector) -> bytes:
    """Return the given metrics of this process in the Prometheus text format."""
    registry = CollectorRegistry()
    for metric in metrics:
        registry.register(metric)
    return generate_latest(registry)


def serve_metrics(host: str, port: int) -> None:
    """Serve /metrics at this address in a thread, until the process ends."""
    start_http_server(port, host, _registry_of_all_processes())


def _registry_of_all_processes() -> CollectorRegistry:
    registry = CollectorRegistry()
    if os.environ.get(MULTIPROCESS_FOLDER_VARIABLE):
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    else:
        registry.register(REGISTRY)
    return registry
