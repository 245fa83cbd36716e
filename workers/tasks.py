"""The Celery tasks. Each calls one function of mdv.

A task is a wake-up. If Redis is unreachable and none arrives, each process polls the database by itself.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial

import structlog
from celery.signals import worker_process_init, worker_process_shutdown, worker_ready
from sqlalchemy import Engine

from mdv.config import Config
from mdv.db.engine import make_engine
from mdv.db.jobs import INTERACTIVE_PRIORITIES, JobOutcome, summarize_queue
from mdv.gc_tuning import skip_final_collection, tune_gc
from mdv.logs import configure_logs
from mdv.mdp.provider import Provider
from mdv.mdp.real.program_worker import ProgramWorker
from mdv.mdp.real.quotas import ProcessQuotas
from mdv.mdp.real.service_sender import CALLING_THREAD, ServiceSender
from mdv.mdp.real.slice_commit import SliceOutcome
from mdv.mdp.retention import apply_retention
from mdv.mdp.schemas import SchemaCache
from mdv.mdp.search_index import update_search_index
from mdv.mdp.webhook_sender import SENDING_THREAD, WebhookSender
from mdv.mdp.worker import Worker
from mdv.metrics import WEBHOOK_ATTEMPTS
from workers.app import PROGRAMS_RUN_SECONDS, SWEEP_INTERVAL_SECONDS, TASK_RUN_SECONDS, app
from workers.messages import (
    JOB_MESSAGE_TTL_SECONDS,
    PROGRAMS_TASK,
    PUBLISHED_CHANNEL,
    RETENTION_TASK,
    RULES_TASK,
    SEARCH_TASK,
    WEBHOOKS_TASK,
    WORK_TASK,
    JobMessage,
    done_key,
    encode_job_message,
)
from workers.metrics_recorder import MetricsRecorder
from workers.redis_client import RedisClient
from workers.wake import clear_wake_up, notify_reader, wake

log = structlog.get_logger()


@worker_process_init.connect
def _start_process(**_: object) -> None:
    configure_logs(Config.from_environment().log_level)
    tune_gc()
    threading.Thread(target=_poll_without_redis, name="sweep", daemon=True).start()
    MetricsRecorder(_engine()).start()


@worker_process_shutdown.connect
def _exit_process(exitcode: int, **_: object) -> None:
    """Exit at once unless a thread executes jobs, sends a webhook message or calls a service. These get another second
    from the pool."""
    is_sending = any(thread.name in (SENDING_THREAD, CALLING_THREAD) for thread in threading.enumerate())
    if not is_sending and not _working.locked():
        os._exit(exitcode)


@worker_ready.connect
def _prepare_exit(**_: object) -> None:
    skip_final_collection()


@app.task(name=WORK_TASK)
def work() -> int:
    """Execute waiting jobs about documents."""
    with _handle_wake_up(WORK_TASK):
        return _worker().work(TASK_RUN_SECONDS, partial(wake, _redis_client(), app, WORK_TASK))


@app.task(name=RULES_TASK)
def work_rules() -> int:
    """Execute waiting jobs about rules, LMRs and the schema."""
    with _handle_wake_up(RULES_TASK):
        return _worker().work_rules(TASK_RUN_SECONDS, partial(wake, _redis_client(), app, RULES_TASK))


@app.task(name=PROGRAMS_TASK)
def run_programs() -> int:
    """Run slices of ready processes."""
    _services().wake()
    with _handle_wake_up(PROGRAMS_TASK):
        slices = _programs().work(PROGRAMS_RUN_SECONDS, _wake_programs)
        _arm_timer(_programs().seconds_until_due())
        return slices


@app.task(name=RETENTION_TASK)
def run_retention() -> int:
    """Delete feed events and jobs whose retention has ended."""
    config = Config.from_environment()
    return apply_retention(_engine(), config.feed_seconds, config.feed_events, config.keep_jobs_seconds)


@app.task(name=SEARCH_TASK)
def index_search() -> bool:
    """Update the search index, only a little while jobs are waiting. Return True if it is up to date."""
    return update_search_index(_engine(), _schemas(), TASK_RUN_SECONDS, _is_busy)


def _is_busy() -> bool:
    with _engine().connect() as connection:
        return summarize_queue(connection, 1).jobs > 0


@app.task(name=WEBHOOKS_TASK)
def send_messages() -> None:
    """Send due webhook messages. They are sent in separate threads, so that a slow receiver delays no registration."""
    clear_wake_up(_redis_client(), WEBHOOKS_TASK)
    _deliveries().wake()


# Without Redis

SILENCE_SECONDS = 3 * SWEEP_INTERVAL_SECONDS
"""After this time without a wake-up the process polls by itself. The sweep normally sends one every few seconds."""

_working = threading.Lock()
_last_wake_up = time.monotonic()


@contextmanager
def _handle_wake_up(task: str) -> Iterator[None]:
    global _last_wake_up
    clear_wake_up(_redis_client(), task)
    with _working:
        yield
    _last_wake_up = time.monotonic()


def _poll_without_redis() -> None:
    while True:
        time.sleep(SWEEP_INTERVAL_SECONDS)
        if time.monotonic() - _last_wake_up < SILENCE_SECONDS or not _working.acquire(blocking=False):
            continue
        try:
            _worker().work(TASK_RUN_SECONDS)
            _worker().work_rules(TASK_RUN_SECONDS)
            _programs().work(PROGRAMS_RUN_SECONDS)
            _services().wake()
            _deliveries().wake()
        except Exception as error:  # the database may be unreachable as well; the next poll tries again
            log.warning("polling for jobs failed", reason=(str(error).splitlines() or [repr(error)])[0])
        finally:
            _working.release()


# Objects of this process, created after the fork, so that no connection is shared


@cache
def _engine() -> Engine:
    config = Config.from_environment()
    return make_engine(
        config.database_url, config.job_limit_seconds, exits_if_restored=True, pool_size=2, hide_parameters=True
    )


@cache
def _redis_client() -> RedisClient:
    return RedisClient.of(Config.from_environment())


@cache
def _worker() -> Worker:
    config = Config.from_environment()
    return Worker(
        _engine(), config.max_document_bytes, _notify_callers, _notify_feeds, longest=config.job_limit_seconds,
        provider=_provider(), woken=_wake_programs,
    )  # fmt: skip


@cache
def _provider() -> Provider:
    return Provider.configured(_engine(), Config.from_environment())


@cache
def _programs() -> ProgramWorker:
    quotas = ProcessQuotas.configured(Config.from_environment())
    return ProgramWorker(_engine(), _provider(), quotas, _notify_reader, _notify_feeds)


def _wake_programs() -> None:
    wake(_redis_client(), app, PROGRAMS_TASK)


@cache
def _services() -> ServiceSender:
    config = Config.from_environment()
    return ServiceSender(_engine(), config.real_service_secret, config.webhook_private, _wake_programs)


def _notify_reader(outcome: SliceOutcome) -> None:
    """Notify the request that reads the solutions of a process. Send the request that the process has made."""
    if outcome.state == "calling":
        _services().wake()
    if outcome.is_followed:
        notify_reader(_redis_client(), outcome.iri)


_timers: list[threading.Timer] = []


def _arm_timer(seconds: float | None) -> None:
    """Send a wake-up when the next process becomes ready by itself, if that is before the next sweep."""
    if seconds is None or seconds > SWEEP_INTERVAL_SECONDS:
        return
    for timer in _timers:
        timer.cancel()
    _timers[:] = [threading.Timer(max(0.0, seconds), _wake_programs)]
    _timers[0].daemon = True
    _timers[0].start()


@cache
def _schemas() -> SchemaCache:
    return SchemaCache()


@cache
def _deliveries() -> WebhookSender:
    private = Config.from_environment().webhook_private
    return WebhookSender(_engine(), private, on_attempt=lambda outcome: WEBHOOK_ATTEMPTS.labels(outcome).inc())


def _notify_callers(endings: Sequence[JobOutcome]) -> None:
    """Notify callers that wait for urgent jobs. Callers of other jobs poll the database."""
    urgent = [ending for ending in endings if ending.job.priority in INTERACTIVE_PRIORITIES]
    if not urgent:
        return
    with _redis_client().client.pipeline(transaction=False) as commands:
        for ending in urgent:
            key = done_key(ending.job.id)
            commands.rpush(key, encode_job_message(JobMessage(ending.public_state, ending.result, ending.problem)))
            commands.expire(key, JOB_MESSAGE_TTL_SECONDS)
        _redis_client().use(lambda _: commands.execute())


def _notify_feeds() -> None:
    _redis_client().use(lambda client: client.publish(PUBLISHED_CHANNEL, b"1"))
    if _deliveries().any_active_webhook():
        wake(_redis_client(), app, WEBHOOKS_TASK)
