"""The Celery application. Tasks hold no data: losing all of Redis costs only time.

A wake-up that is lost, with Redis or with the worker that had taken it, is made up for by the sweep, within seconds.
That is also why a wake-up is acknowledged at once: a second one would tell nothing new.
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
from mdv.figures import serve_figures
from mdv.mdp.status import HEARD_SECONDS
from workers.line import Line
from workers.log import take_over_logs
from workers.signals import RULES, TEND, WEBHOOKS, WORK, worker_key

SWEEP_SECONDS = 2.0
WEBHOOK_SECONDS = 5.0
TEND_SECONDS = 60.0
BEAT_SECONDS = 5.0

RUN_SECONDS = 10.0
"""A task takes what waits for so long, and then lets others have a turn."""
REDELIVERED_AFTER = 30
"""Seconds after the end of what a task may take, a wake-up that its worker never acknowledged is given to another."""

# When the broker goes away, kombu would put wake-ups in hand back into it, fail, and take the worker along.
Channel.do_restore = False


def make_celery(config: Config, patience: float = 5) -> Celery:
    """A Celery application for the broker that `config` names; Redis has `patience` seconds for each answer."""
    app = Celery("mdv", broker=config.redis_url or "redis://", include=["workers.tasks"])
    limit = RUN_SECONDS + config.job_limit_seconds
    app.conf.update(
        task_ignore_result=True,
        task_acks_late=False,
        task_time_limit=limit,  # by kill: what the process had in hand is tried again, in smaller batches
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,  # a line of the log stays a line of JSON
        worker_send_task_events=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,  # for ever
        broker_transport_options={
            "visibility_timeout": limit + REDELIVERED_AFTER,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "socket_connect_timeout": 2,
            "socket_timeout": patience,
        },
        task_default_queue="mdv",
    )
    return app


class Sweep(bootsteps.StartStopStep):
    """Every few seconds a worker wakes itself, in case a wake-up was lost, and tells that it lives."""

    requires = frozenset({"celery.worker.components:Timer"})

    def __init__(self, worker: Any, **options: Any) -> None:
        self._timers: list[Any] = []
        self._redis = Line.of(Config.from_environment()).client
        self._key = worker_key(socket.gethostname(), os.getpid())

    def start(self, worker: Any) -> None:
        again = worker.timer.call_repeatedly
        every = {WORK: SWEEP_SECONDS, RULES: SWEEP_SECONDS, WEBHOOKS: WEBHOOK_SECONDS, TEND: TEND_SECONDS}
        for task, seconds in every.items():
            self._timers.append(again(seconds, _quietly, (_wake, worker.app, task, seconds)))
        said = json.dumps({"since": datetime.now(UTC).isoformat(), "processes": worker.concurrency})
        _quietly(self._beat, said)
        self._timers.append(again(BEAT_SECONDS, _quietly, (self._beat, said)))

    def stop(self, worker: Any) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        _quietly(self._redis.delete, self._key)

    def _beat(self, said: str) -> None:
        self._redis.set(self._key, said, ex=HEARD_SECONDS)


class Figures(bootsteps.StartStopStep):
    """A worker tells the figures of its processes over HTTP, where that is wanted."""

    requires = frozenset({"celery.worker.components:Pool"})

    def start(self, worker: Any) -> None:
        address = Config.from_environment().worker_metrics
        if not address:
            return
        host, _, port = address.rpartition(":")
        try:
            serve_figures(host.strip("[]"), int(port))
        except (ValueError, OverflowError, OSError) as error:
            raise SystemExit(
                f"MDV_WORKER_METRICS is {address!r}, where nothing can be told ({error}): it takes a free address of "
                "this machine, such as 0.0.0.0:9464."
            ) from None


def _wake(celery: Celery, task: str, seconds: float) -> None:
    celery.send_task(task, retry=False, ignore_result=True, expires=seconds)


def _quietly(act: Callable[..., object], *given: Any) -> None:
    try:
        act(*given)
    except (OperationalError, OSError, redis.RedisError):
        return  # Redis is away; the next sweep tries again.


app = make_celery(Config.from_environment())
app.steps["worker"].update({Sweep, Figures})
take_over_logs()
