"""What a request handler needs: the database, the wake-up, the schema in force."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

import psycopg
import redis
import structlog
from flask import current_app
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy import Engine
from sqlalchemy.exc import InterfaceError, OperationalError

from mdv.config import Config
from mdv.db.jobs import RULE_KINDS, read_job
from mdv.db.people import Session, find_session
from mdv.db.vocabulary import Vocabulary
from mdv.mdp.feed import Feeds
from mdv.mdp.rules import Rules
from mdv.mdp.schemas import Schemas
from web.admission import Admission
from web.turns import Turns
from web.watch import Watch
from workers.app import make_celery
from workers.line import Line
from workers.signals import RULES, WORK, News, done_key, read_news
from workers.wake import wake

log = structlog.get_logger()

COOKIE = "mdv_session"

LOOK_AGAIN = 1.0
"""Seconds after which a waiting caller looks into the database itself, in case Redis has lost the news."""

LOOK_SOON = 0.5
"""The same where Redis is known to be away."""
PATIENCE = 2
"""Seconds that Redis is given, beyond those it was asked to wait; it only saves time, so it must not cost any."""


@dataclass
class Services:
    """The parts that one web process shares among its requests."""

    config: Config
    engine: Engine
    redis: redis.Redis = field(repr=False)
    schemas: Schemas = field(default_factory=Schemas)
    rules: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        self.single = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        """For one statement alone, which needs neither BEGIN nor COMMIT around it."""
        self.vocabulary = Vocabulary(self.engine)
        self.feeds = Feeds(self.engine, self.vocabulary)
        self.watch = Watch(self.engine, self.redis)
        self.admission = Admission(self.single, self.config.max_waiting, self.config.max_waiting_bytes)
        self.turns = Turns()
        self.line = Line(self.redis)
        self._celery = make_celery(self.config, patience=PATIENCE)

    def cookie_name(self) -> str:
        return COOKIE

    def find_person(self, secret: str) -> Session | None:
        """Who has signed in to the pages, by what their cookie holds."""
        with self.single.connect() as connection:
            return find_session(connection, secret, self.config.admin_token)

    def wake_for(self, kind: str) -> None:
        """Tell a worker that a job of some kind waits."""
        self.wake_worker(RULES if kind in RULE_KINDS else WORK)

    def wake_worker(self, task: str) -> None:
        """Tell a worker that something waits. The caller does not wait for that."""
        threading.Thread(target=wake, args=(self.line, self._celery, task), daemon=True).start()

    def forget_news(self, job_id: UUID) -> None:
        """A job is tried again: how it ended before is no news."""
        self.line.use(lambda client: client.delete(done_key(job_id)))

    def wait_for_job(self, job_id: UUID, seconds: float, is_new: bool) -> News | None:
        """How a job ended, or how far it is after `seconds`; None where that is not known.

        A new job is not looked at before there is news of it, since nothing is to be seen yet.
        """
        deadline = time.monotonic() + seconds
        if is_new:
            if seconds <= 0:
                return None
            if news := self._await_news(job_id, min(seconds, LOOK_AGAIN)):
                return news
        while True:
            status = self._look_at(job_id)
            left = deadline - time.monotonic()
            if (status is not None and status.is_end) or left <= 0:
                return status
            if news := self._await_news(job_id, min(left, LOOK_AGAIN)):
                return news

    def _look_at(self, job_id: UUID) -> News | None:
        try:
            with self.single.connect() as connection:
                status = read_job(connection, job_id)
        except (OperationalError, InterfaceError, psycopg.OperationalError) as error:
            # The job is queued all the same; the caller is told its number.
            log.warning("the database is away while a caller waits", job=str(job_id), reason=first_line(error))
            return None
        return None if status is None else News(status.state, status.result, status.problem)

    def _await_news(self, job_id: UUID, seconds: float) -> News | None:
        """What a worker tells of a job within some seconds; who is told nothing looks into the database."""
        began = time.monotonic()
        told = self.line.use(lambda client: client.blpop([done_key(job_id)], timeout=max(seconds, 0.01)))
        if told:
            return read_news(told[1])
        time.sleep(max(0.0, min(LOOK_SOON, seconds - (time.monotonic() - began))))
        return None


def services() -> Services:
    """The services of the application that handles this request."""
    return cast(Services, current_app.extensions["mdv"])


def make_redis(url: str) -> redis.Redis:
    """A client that gives up soon. One try more, at once: a connection of the pool may have died unnoticed."""
    once_more = Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,))
    return redis.Redis.from_url(
        url, socket_connect_timeout=PATIENCE, socket_timeout=LOOK_AGAIN + PATIENCE, retry=once_more
    )


def first_line(error: Exception) -> str:
    """What an error of the database says, without the statement and its values."""
    return (str(error).splitlines() or [repr(error)])[0]
