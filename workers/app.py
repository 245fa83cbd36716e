"""The Celery application. Tasks hold no data: losing all of Redis costs only time."""

from __future__ import annotations

from typing import Any

from celery import Celery, bootsteps
from kombu.exceptions import OperationalError
from kombu.transport.redis import Channel
from redis import RedisError

from mdv.config import Config

SWEEP_SECONDS = 5.0
TEND_SECONDS = 60.0

# When the broker goes away, kombu would put wake-ups in hand back into it, fail, and take the worker along.
Channel.do_restore = False


def make_celery(config: Config, patience: float = 5) -> Celery:
    """A Celery application for the broker that `config` names; Redis has `patience` seconds for each answer."""
    app = Celery("mdv", broker=config.redis_url or "redis://", include=["workers.tasks"])
    app.conf.update(
        task_ignore_result=True,
        task_acks_late=False,  # a wake-up that is lost with its worker is made up for by the sweep
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_send_task_events=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,  # for ever
        broker_transport_options={"visibility_timeout": 30, "socket_connect_timeout": 2, "socket_timeout": patience},
        task_default_queue="mdv",
    )
    return app


class Sweep(bootsteps.StartStopStep):
    """Every few seconds a worker wakes itself, in case a wake-up was lost; now and then it tends the feeds."""

    requires = frozenset({"celery.worker.components:Timer"})

    def __init__(self, worker: Any, **options: Any) -> None:
        self._timers: list[Any] = []

    def start(self, worker: Any) -> None:
        again = worker.timer.call_repeatedly
        for seconds, task in ((SWEEP_SECONDS, "mdv.work"), (SWEEP_SECONDS, "mdv.rules"), (TEND_SECONDS, "mdv.tend")):
            self._timers.append(again(seconds, _wake, (worker.app, task, seconds)))

    def stop(self, worker: Any) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()


def _wake(celery: Celery, task: str, seconds: float) -> None:
    try:
        celery.send_task(task, retry=False, ignore_result=True, expires=seconds)
    except (OperationalError, OSError, RedisError):
        return  # Redis is away; the next sweep tries again.


app = make_celery(Config.from_environment())
app.steps["worker"].add(Sweep)
