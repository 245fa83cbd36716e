"""The tasks: each calls one function of mdv.

A task is a wake-up. Where none comes, since Redis is away, each process looks by itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial

import structlog
from celery.signals import worker_process_init
from sqlalchemy import Engine

from mdv.config import Config
from mdv.db.engine import make_engine
from mdv.db.jobs import URGENT, Ending
from mdv.figures import WEBHOOK_ATTEMPTS
from mdv.garbage import look_rarely
from mdv.logs import configure_logs
from mdv.mdp.deliver import Deliveries
from mdv.mdp.tend import tend
from mdv.mdp.work import Worker
from workers.app import RUN_SECONDS, SWEEP_SECONDS, app
from workers.line import Line
from workers.minutes import Minutes
from workers.signals import KEPT_SECONDS, PUBLISHED, RULES, TEND, WEBHOOKS, WORK, News, done_key, write_news
from workers.wake import hear, wake

log = structlog.get_logger()


@worker_process_init.connect
def _begin(**_: object) -> None:
    configure_logs(Config.from_environment().log_level)
    look_rarely()
    threading.Thread(target=_look_alone, name="sweep", daemon=True).start()
    Minutes(_engine()).start()


@app.task(name=WORK)
def work() -> int:
    """Carry out what waits of documents."""
    with _woken(WORK):
        return _worker().work(RUN_SECONDS, partial(wake, _line(), app, WORK))


@app.task(name=RULES)
def work_rules() -> int:
    """Carry out the changes that wait of rules, LMRs and the schema."""
    with _woken(RULES):
        return _worker().work_rules(RUN_SECONDS, partial(wake, _line(), app, RULES))


@app.task(name=TEND)
def tend_feeds() -> int:
    """Drop what nobody will ask for any more."""
    config = Config.from_environment()
    return tend(_engine(), config.feed_seconds, config.feed_events, config.keep_jobs_seconds)


@app.task(name=WEBHOOKS)
def send_messages() -> None:
    """Tell webhooks what is due. Threads of their own do it: no receiver holds up a registration."""
    hear(_line(), WEBHOOKS)
    _deliveries().wake()


# Without Redis

SILENCE = 3 * SWEEP_SECONDS
"""After so many seconds without a wake-up, of which the sweep sends one every few, this process looks by itself."""

_turn = threading.Lock()
_heard = time.monotonic()


@contextmanager
def _woken(task: str) -> Iterator[None]:
    global _heard
    hear(_line(), task)
    with _turn:
        yield
    _heard = time.monotonic()


def _look_alone() -> None:
    while True:
        time.sleep(SWEEP_SECONDS)
        if time.monotonic() - _heard < SILENCE or not _turn.acquire(blocking=False):
            continue
        try:
            _worker().work(RUN_SECONDS)
            _worker().work_rules(RUN_SECONDS)
            _deliveries().wake()
        except Exception as error:  # the database may be away as well; the next look tries again
            log.warning("nothing could be carried out", reason=(str(error).splitlines() or [repr(error)])[0])
        finally:
            _turn.release()


# This process's own, made after the fork, so that no connection is shared


@cache
def _engine() -> Engine:
    config = Config.from_environment()
    return make_engine(config.database_url, config.job_limit_seconds, pool_size=2, hide_parameters=True)


@cache
def _line() -> Line:
    return Line.of(Config.from_environment())


@cache
def _worker() -> Worker:
    config = Config.from_environment()
    return Worker(_engine(), config.max_document_bytes, _ended, _published, longest=config.job_limit_seconds)


@cache
def _deliveries() -> Deliveries:
    private = Config.from_environment().webhook_private
    return Deliveries(_engine(), private, told=lambda outcome: WEBHOOK_ATTEMPTS.labels(outcome).inc())


def _ended(endings: Sequence[Ending]) -> None:
    """Tell those who may wait; who does so for something less urgent looks into the database."""
    told = [ending for ending in endings if ending.job.priority in URGENT]
    if not told:
        return
    with _line().client.pipeline(transaction=False) as commands:
        for ending in told:
            key = done_key(ending.job.id)
            commands.rpush(key, write_news(News(ending.told_state, ending.result, ending.problem)))
            commands.expire(key, KEPT_SECONDS)
        _line().use(lambda _: commands.execute())


def _published() -> None:
    _line().use(lambda client: client.publish(PUBLISHED, b"1"))
    if _deliveries().are_wanted():
        wake(_line(), app, WEBHOOKS)
