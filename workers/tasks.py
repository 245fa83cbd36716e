"""The tasks: each calls one function of mdv."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

import redis
import structlog
from celery.signals import worker_process_init
from sqlalchemy import Engine

from mdv.config import Config
from mdv.db.engine import make_engine
from mdv.db.jobs import Ending
from mdv.figures import WEBHOOK_ATTEMPTS
from mdv.logs import configure_logs
from mdv.mdp.deliver import Deliveries
from mdv.mdp.tend import tend
from mdv.mdp.work import Worker
from workers.app import RUN_SECONDS, app, make_redis
from workers.signals import KEPT_SECONDS, PUBLISHED, RULES, TEND, WEBHOOKS, WORK, News, done_key, write_news
from workers.wake import hear, wake

log = structlog.get_logger()


@worker_process_init.connect
def _begin(**_: object) -> None:
    configure_logs(Config.from_environment().log_level)


@app.task(name=WORK)
def work() -> int:
    """Carry out what waits of documents."""
    hear(_redis(), WORK)
    return _worker().work(RUN_SECONDS, partial(wake, _redis(), app, WORK))


@app.task(name=RULES)
def work_rules() -> int:
    """Carry out the changes that wait of rules, LMRs and the schema."""
    hear(_redis(), RULES)
    return _worker().work_rules(RUN_SECONDS, partial(wake, _redis(), app, RULES))


@app.task(name=TEND)
def tend_feeds() -> int:
    """Drop what nobody will ask for any more."""
    config = Config.from_environment()
    return tend(_engine(), config.feed_seconds, config.feed_events, config.keep_jobs_seconds)


@app.task(name=WEBHOOKS)
def send_messages() -> None:
    """Tell webhooks what is due. Threads of their own do it: no receiver holds up a registration."""
    hear(_redis(), WEBHOOKS)
    _deliveries().wake()


# This process's own, made after the fork, so that no connection is shared.


@cache
def _engine() -> Engine:
    config = Config.from_environment()
    return make_engine(config.database_url, config.job_limit_seconds, pool_size=2, hide_parameters=True)


@cache
def _redis() -> redis.Redis:
    return make_redis(Config.from_environment())


@cache
def _worker() -> Worker:
    config = Config.from_environment()
    return Worker(_engine(), config.max_document_bytes, _ended, _published, longest=config.job_limit_seconds)


@cache
def _deliveries() -> Deliveries:
    private = Config.from_environment().webhook_private
    return Deliveries(_engine(), private, told=lambda outcome: WEBHOOK_ATTEMPTS.labels(outcome).inc())


def _ended(endings: Sequence[Ending]) -> None:
    try:
        with _redis().pipeline(transaction=False) as commands:
            for ending in endings:
                key = done_key(ending.job.id)
                commands.rpush(key, write_news(News(ending.told_state, ending.result, ending.problem)))
                commands.expire(key, KEPT_SECONDS)
            commands.execute()
    except redis.RedisError as error:
        log.warning("news not sent; the callers will look themselves", jobs=len(endings), reason=str(error))


def _published() -> None:
    try:
        _redis().publish(PUBLISHED, b"1")
    except redis.RedisError as error:
        log.warning("bell not rung; feeds are looked at every second", reason=str(error))
    if _deliveries().are_wanted():
        wake(_redis(), app, WEBHOOKS)
