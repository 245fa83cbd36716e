"""The tasks: each opens a transaction and calls one function of mdv."""

from __future__ import annotations

from functools import cache
from uuid import UUID

import redis
import structlog
from celery.signals import worker_process_init
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy import Engine

from mdv.config import Config
from mdv.db.engine import make_engine
from mdv.logs import configure_logs
from mdv.mdp.tend import tend
from mdv.mdp.work import Worker
from workers.app import app
from workers.signals import KEPT_SECONDS, PUBLISHED, done_key

log = structlog.get_logger()


@worker_process_init.connect
def _begin(**_: object) -> None:
    configure_logs(Config.from_environment().log_level)


@app.task(name="mdv.work")
def work() -> int:
    """Carry out what waits of documents."""
    return _worker().work()


@app.task(name="mdv.rules")
def work_rules() -> int:
    """Carry out the changes of rules that wait."""
    return _worker().work_rules()


@app.task(name="mdv.tend")
def tend_feeds() -> int:
    """Drop what nobody will ask for any more."""
    config = Config.from_environment()
    return tend(_engine(), config.feed_seconds, config.feed_events)


@cache
def _engine() -> Engine:
    return make_engine(Config.from_environment().database_url, pool_size=2, hide_parameters=True)


@cache
def _worker() -> Worker:
    """This process's worker, made after the fork, so that no connection is shared."""
    config = Config.from_environment()
    news = redis.Redis.from_url(
        config.redis_url, socket_connect_timeout=2, socket_timeout=2, retry=Retry(NoBackoff(), 1)
    )

    def ended(job_id: UUID) -> None:
        try:
            with news.pipeline(transaction=False) as commands:
                commands.rpush(done_key(job_id), 1)
                commands.expire(done_key(job_id), KEPT_SECONDS)
                commands.execute()
        except redis.RedisError as error:
            log.warning("news not sent; the caller will look itself", job=str(job_id), reason=str(error))

    def published() -> None:
        try:
            news.publish(PUBLISHED, b"1")
        except redis.RedisError as error:
            log.warning("bell not rung; feeds are looked at every second", reason=str(error))

    return Worker(_engine(), config.max_document_bytes, ended, published)
