"""The services that request handlers of an MDP share: database, Redis, schema, limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

import psycopg
import redis
import structlog
from flask import current_app
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import InterfaceError, OperationalError

from mdv.accounts.sessions import Session, find_session
from mdv.accounts.token_uses import TokenUses
from mdv.config import Config
from mdv.errors import NotFound
from mdv.inspect.eca_rule_base import RuleBaseCache
from mdv.inspect.sql.labels import read_labels
from mdv.inspect.sql.status import read_status
from mdv.mdp.admission import Admission
from mdv.mdp.federation.global_rules import is_federated
from mdv.mdp.feed import FeedReader
from mdv.mdp.feed_progress import FeedProgress
from mdv.mdp.jobs import get_job
from mdv.mdp.provider import Provider
from mdv.mdp.real.quotas import ProcessQuotas
from mdv.mdp.replica import Replica
from web.errors import first_line
from web.feed_notifier import FeedNotifier
from web.log_notifier import LogNotifier
from web.slots import Slots
from web.submit_limit import SubmitLimit
from web.used_nonces import UsedNonces
from workers.app import make_celery
from workers.messages import (
    PROGRAMS_TASK,
    PUBLISHED_CHANNEL,
    JobMessage,
    decode_job_message,
    done_key,
    news_key,
)
from workers.redis_client import RedisClient
from workers.wake import task_for, wake

log = structlog.get_logger()

SESSION_COOKIE = "mdv_session"

JOB_POLL_SECONDS = 1.0
"""Interval at which a waiting request checks the job in the database, in case Redis lost the notification."""

MAX_WAITING_REQUESTS = 1000
MAX_FEED_REQUESTS = 32
"""Concurrent requests for one feed with one token, long polls included."""

MAX_PROGRAMS, MAX_PROGRAMS_PER_CALLER = 16, 8
"""Programs that run at the same time in one process."""

JOB_POLL_SECONDS_WITHOUT_REDIS = 0.5
"""The same interval while Redis is unavailable."""
BACKBONE_SECONDS = 5.0
"""How long pages remember whether this MDP is in a backbone."""
REDIS_TIMEOUT_SECONDS = 2
"""Timeout of Redis calls, in addition to blocking time. Redis is optional, so it must not delay requests."""


@dataclass
class Services:
    """The shared services of one web process."""

    config: Config
    engine: Engine
    redis: redis.Redis = field(repr=False)

    def __post_init__(self) -> None:
        self.single = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        """For single statements: autocommit, without BEGIN and COMMIT."""
        self.token_uses = TokenUses(self.single)
        self.provider = Provider.configured(self.engine, self.config)
        self.schemas, self.rules = self.provider.schemas, self.provider.rules
        self.rule_bases = RuleBaseCache()
        self.feeds = FeedReader(self.engine, self.provider.vocabulary, self.config.feed_event_statements)
        self.feed_progress = FeedProgress(self.single)
        self.log_notifier = LogNotifier(self.engine, self.redis)
        self.feed_notifier = FeedNotifier(self.engine, self.redis)
        self.admission = Admission(self.single, self.config.max_waiting, self.config.max_waiting_bytes)
        self.submit_limit = SubmitLimit()
        self.waits = Slots(MAX_WAITING_REQUESTS, MAX_WAITING_REQUESTS // 2)
        """Slots for waiting requests. The worker sets the limits from its connection limit (`web.worker`)."""
        self.feed_requests = Slots(limit_per_key=MAX_FEED_REQUESTS)
        self.programs = Slots(MAX_PROGRAMS, MAX_PROGRAMS_PER_CALLER)
        self.process_quotas = ProcessQuotas.configured(self.config)
        self.redis_client = RedisClient(self.redis)
        self.used_nonces = UsedNonces(self.redis_client)
        self.replica = Replica(self.provider, self.notify_commit)
        self.replica_lock = threading.Lock()
        """The member of this process handles one message at a time."""
        self._in_backbone = False, 0.0
        self._in_federation = False, 0.0
        self._celery = make_celery(self.config, patience=REDIS_TIMEOUT_SECONDS)

    def is_in_backbone(self) -> bool:
        """True if this MDP is in a backbone, or was in the last seconds. A database that does not answer means no."""
        known, until = self._in_backbone
        if time.monotonic() < until:
            return known
        try:
            with self.single.connect() as connection:
                known = self.replica.mode(connection) is not None
        except (OperationalError, InterfaceError, psycopg.OperationalError):
            known = False
        self._in_backbone = known, time.monotonic() + BACKBONE_SECONDS
        return known

    def is_in_federation(self) -> bool:
        """The same for a federation."""
        known, until = self._in_federation
        if time.monotonic() < until:
            return known
        try:
            with self.single.connect() as connection:
                known = is_federated(connection)
        except (OperationalError, InterfaceError, psycopg.OperationalError):
            known = False
        self._in_federation = known, time.monotonic() + BACKBONE_SECONDS
        return known

    def count_documents(self) -> int:
        """Return the number of documents; a large one is an estimate."""
        with self.engine.connect() as connection:
            return read_status(connection).documents.count

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Yield a connection whose queries all see the same state."""
        with self.engine.execution_options(isolation_level="REPEATABLE READ").connect() as connection:
            yield connection

    def notify_commit(self) -> None:
        """Notify requests that wait for a commit, at all processes of this MDP."""
        self.redis_client.use(lambda client: client.publish(PUBLISHED_CHANNEL, b"1"))

    def cookie_name(self) -> str:
        return SESSION_COOKIE

    def find_user(self, secret: str) -> Session | None:
        """Return the session of a cookie, or None."""
        return find_session(self.single, secret, self.config.admin_token)

    def read_labels(self, uris: Sequence[str], languages: Sequence[str]) -> dict[str, str]:
        """Return the labels of resources, by URI."""
        with self.single.connect() as connection:
            properties = self.schemas.now(connection).schema.label_properties
            return read_labels(connection, uris, properties, languages)

    def wake_worker_for(self, kind: str) -> None:
        """Wake a worker for a new job of this kind."""
        if (task := task_for(kind)) is not None:
            self.wake_worker(task)

    def wake_worker(self, task: str) -> None:
        """Wake a worker, without blocking the caller."""
        threading.Thread(target=wake, args=(self.redis_client, self._celery, task), daemon=True).start()

    def wake_programs(self) -> None:
        """Wake a worker for a process that is ready."""
        self.wake_worker(PROGRAMS_TASK)

    def wait_for_news(self, process: str, seconds: float) -> None:
        """Wait until a worker has run a slice of a process, up to `seconds`, and less without Redis."""
        began = time.monotonic()
        message = self.redis_client.use(lambda client: client.blpop([news_key(process)], timeout=max(seconds, 0.01)))
        if not message:
            left = began + min(seconds, JOB_POLL_SECONDS_WITHOUT_REDIS) - time.monotonic()
            time.sleep(max(0.0, left))

    def clear_job_result(self, job_id: UUID) -> None:
        """Delete the published result of a job that is retried."""
        self.redis_client.use(lambda client: client.delete(done_key(job_id)))

    def wait_for_job(self, job_id: UUID, seconds: float, is_new: bool) -> JobMessage | None:
        """Return the final status of a job, or its status after `seconds`; None if it is unknown.

        A new job is not read from the database before the first notification or poll interval.
        """
        deadline = time.monotonic() + seconds
        if is_new:
            if seconds <= 0:
                return None
            if notification := self._await_notification(job_id, min(seconds, JOB_POLL_SECONDS)):
                return notification
        while True:
            status = self._read_status(job_id)
            left = deadline - time.monotonic()
            if (status is not None and status.is_end) or left <= 0:
                return status
            if notification := self._await_notification(job_id, min(left, JOB_POLL_SECONDS)):
                return notification

    def _read_status(self, job_id: UUID) -> JobMessage | None:
        try:
            with self.single.connect() as connection:
                status = get_job(connection, job_id)
        except NotFound:
            return None
        except (OperationalError, InterfaceError, psycopg.OperationalError) as error:
            # The job is queued anyway; the caller gets its id.
            log.warning("database unavailable while waiting for a job", job=str(job_id), reason=first_line(error))
            return None
        return JobMessage(status.state, status.result, status.problem)

    def _await_notification(self, job_id: UUID, seconds: float) -> JobMessage | None:
        """Wait for the notification of a worker about a job; None if there was none within `seconds`."""
        began = time.monotonic()
        message = self.redis_client.use(lambda client: client.blpop([done_key(job_id)], timeout=max(seconds, 0.01)))
        if message:
            return decode_job_message(message[1])
        time.sleep(max(0.0, min(JOB_POLL_SECONDS_WITHOUT_REDIS, seconds - (time.monotonic() - began))))
        return None


def services() -> Services:
    """Return the services of the current application."""
    return cast(Services, current_app.extensions["mdv"])


def make_redis(url: str) -> redis.Redis:
    """Return a client with short timeouts. It retries once: a pooled connection may have been closed."""
    retry = Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,))
    return redis.Redis.from_url(
        url,
        socket_connect_timeout=REDIS_TIMEOUT_SECONDS,
        socket_timeout=JOB_POLL_SECONDS + REDIS_TIMEOUT_SECONDS,
        retry=retry,
    )
