"""The Celery application. Tasks contain no data: if Redis is lost, jobs are only delayed.

If a wake-up is lost, with Redis or with the worker that received it, the sweep finds the jobs within seconds. So a
wake-up is acknowledged early: delivering it repeat would have no benefit.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import redis
from celery import Celery, bootsteps
from kombu.exceptions import OperationalError
from kombu.transport.redis import Channel

from mdv.config import Config
from mdv.mdp.worker_heartbeats import HEARTBEAT_TTL_SECONDS
from mdv.metrics import serve_metrics
from workers.log import redirect_celery_logs
from workers.messages import (
    PROGRAMS_TASK,
    RETENTION_TASK,
    RULES_TASK,
    SEARCH_TASK,
    WEBHOOKS_TASK,
    WORK_TASK,
    worker_key,
)
from workers.redis_client import RedisClient

SWEEP_INTERVAL_SECONDS = 2.0
WEBHOOK_INTERVAL_SECONDS = 5.0
RETENTION_INTERVAL_SECONDS = 60.0
SEARCH_INTERVAL_SECONDS = 5.0
HEARTBEAT_INTERVAL_SECONDS = 5.0

TASK_RUN_SECONDS = 10.0
"""A task executes waiting jobs for this long, and then lets other tasks run."""
PROGRAMS_RUN_SECONDS = 0.5
"""The same for processes of programs: registrations of documents must not wait long for them."""
REDELIVERY_MARGIN_SECONDS = 30
"""An unacknowledged wake-up is redelivered this many seconds after the time limit of its task."""

# When the broker is unreachable, kombu would try to restore unacknowledged wake-ups, fail, and end the worker.
Channel.do_restore = False


def make_celery(config: Config, patience: float = 5) -> Celery:
    """Return a Celery application for the broker in `config`. `patience` is the timeout of Redis in seconds."""
    app = Celery("mdv", broker=config.redis_url or "redis://", include=["workers.tasks"])
    limit = TASK_RUN_SECONDS + config.job_limit_seconds
    app.conf.update(
        task_ignore_result=True,
        task_acks_late=False,
        task_time_limit=limit,  # the process is killed, and its jobs are retried in smaller batches
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,  # every log line must be JSON
        worker_send_task_events=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,  # unlimited
        broker_transport_options={
            "visibility_timeout": limit + REDELIVERY_MARGIN_SECONDS,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "socket_connect_timeout": 2,
            "socket_timeout": patience,
        },
        task_default_queue="mdv",
    )
    return app


class Sweep(bootsteps.StartStopStep):
    """Sends wake-ups every few seconds, in case one was lost, and the heartbeat of the worker."""

    requires = frozenset({"celery.worker.components:Timer"})

    def __init__(self, worker: Any, **options: Any) -> None:
        self._timers: list[Any] = []
        self._redis = RedisClient.of(Config.from_environment()).client
        self._key = worker_key(socket.gethostname(), os.getpid())

    def start(self, worker: Any) -> None:
        repeat = worker.timer.call_repeatedly
        intervals = {
            WORK_TASK: SWEEP_INTERVAL_SECONDS,
            RULES_TASK: SWEEP_INTERVAL_SECONDS,
            PROGRAMS_TASK: SWEEP_INTERVAL_SECONDS,
            WEBHOOKS_TASK: WEBHOOK_INTERVAL_SECONDS,
            RETENTION_TASK: RETENTION_INTERVAL_SECONDS,
            SEARCH_TASK: SEARCH_INTERVAL_SECONDS,
        }
        for task, seconds in intervals.items():
            self._timers.append(repeat(seconds, _ignore_redis_errors, (_wake, worker.app, task, seconds)))
        heartbeat = json.dumps({"since": datetime.now(UTC).isoformat(), "processes": worker.concurrency})
        _ignore_redis_errors(self._send_heartbeat, heartbeat)
        self._timers.append(repeat(HEARTBEAT_INTERVAL_SECONDS, _ignore_redis_errors, (self._send_heartbeat, heartbeat)))

    def stop(self, worker: Any) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        _ignore_redis_errors(self._redis.delete, self._key)

    def _send_heartbeat(self, heartbeat: str) -> None:
        self._redis.set(self._key, heartbeat, ex=HEARTBEAT_TTL_SECONDS)


class MetricsServer(bootsteps.StartStopStep):
    """Serves the metrics of the worker's processes over HTTP, if MDV_WORKER_METRICS is set."""

    requires = frozenset({"celery.worker.components:Pool"})

    def start(self, worker: Any) -> None:
        address = Config.from_environment().worker_metrics
        if not address:
            return
        host, _, port = address.rpartition(":")
        try:
            serve_metrics(host.strip("[]"), int(port))
        except (ValueError, OverflowError, OSError) as error:
            raise SystemExit(
                f"MDV_WORKER_METRICS is {address!r}, which cannot be used ({error}): set it to a free address of this "
                "machine, such as 0.0.0.0:9464."
            ) from None


def _wake(celery: Celery, task: str, seconds: float) -> None:
    celery.send_task(task, retry=False, ignore_result=True, expires=seconds)


def _ignore_redis_errors(act: Callable[..., object], *arguments: Any) -> None:
    try:
        act(*arguments)
    except (OperationalError, OSError, redis.RedisError):
        return  # Redis is unreachable; the next sweep tries again.


app = make_celery(Config.from_environment())
app.steps["worker"].update({Sweep, MetricsServer})
redirect_celery_logs()
