"""What a request handler needs: the database, the wake-up, the schema in force."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

import redis
import structlog
from flask import current_app
from kombu.exceptions import OperationalError as BrokerError
from sqlalchemy import Engine

from mdv.config import Config
from mdv.db.jobs import JobStatus, read_job
from mdv.mdp.schemas import Schemas
from workers.app import make_celery
from workers.signals import done_key

log = structlog.get_logger()

LOOK_AGAIN = 1.0
"""Seconds after which a waiting caller looks into the database itself, in case Redis has lost the news."""


@dataclass
class Services:
    """The parts that one web process shares among its requests."""

    config: Config
    engine: Engine
    redis: redis.Redis = field(repr=False)
    schemas: Schemas = field(default_factory=Schemas)

    def __post_init__(self) -> None:
        self._celery = make_celery(self.config)

    def wake_worker(self) -> None:
        """Tell a worker that something waits. If that fails, the worker's sweep will find it all the same."""
        try:
            self._celery.send_task("mdv.work", retry=False, ignore_result=True)
        except (BrokerError, OSError, redis.RedisError) as error:
            log.warning("wake-up not sent; the sweep will find the job", reason=str(error))

    def wait_for_job(self, job_id: UUID, seconds: float) -> JobStatus | None:
        """The job's status, once it has ended or after `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            with self.engine.connect() as connection:
                status = read_job(connection, job_id)
            left = deadline - time.monotonic()
            if status is None or status.state in ("done", "failed") or left <= 0:
                return status
            self._await_news(job_id, min(left, LOOK_AGAIN))

    def _await_news(self, job_id: UUID, seconds: float) -> None:
        started = time.monotonic()
        with contextlib.suppress(redis.RedisError):
            self.redis.blpop([done_key(job_id)], timeout=max(seconds, 0.01))
            return
        time.sleep(max(0.0, min(0.1, seconds - (time.monotonic() - started))))


def services() -> Services:
    """The services of the application that handles this request."""
    return cast(Services, current_app.extensions["mdv"])


def make_redis(url: str) -> redis.Redis:
    options: dict[str, Any] = {"socket_connect_timeout": 2, "health_check_interval": 30}
    return redis.Redis.from_url(url, **options)
