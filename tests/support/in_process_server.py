"""An MDP inside the test process: the Flask application served by a thread, and a worker in another thread.

The tests of `make test-quick` use it. Requests still go over HTTP, so the same tests run against gunicorn and Celery in
`make test`. Only tests that need separate processes are left out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from redis import Redis
from werkzeug.serving import WSGIRequestHandler, make_server

from mdv.config import Config
from mdv.db.engine import make_engine
from mdv.db.jobs import JobOutcome
from mdv.mdp.provider import Provider
from mdv.mdp.real.program_worker import ProgramWorker
from mdv.mdp.real.quotas import ProcessQuotas
from mdv.mdp.webhook_sender import WebhookSender
from mdv.mdp.worker import Worker
from tests.support.server import WebAddress, environment
from web.app import create_app
from web.services import make_redis
from workers.messages import PUBLISHED_CHANNEL, JobMessage, done_key, encode_job_message, news_key

IDLE_SECONDS = 1.0
"""How long the worker waits before it looks for jobs that are due without a wake-up, such as retries."""


class _Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: object) -> None:
        """Requests are logged by the application."""


@contextmanager
def serve_in_process(
    database_url: str, redis_url: str, work: bool = True, port: int = 0, **settings: str
) -> Iterator[WebAddress]:
    """Serve an MDP on a free port, or on `port`. Without `work`, its jobs stay queued."""
    config = Config.from_environment(environment(database_url, redis_url, **settings))
    app = create_app(config)
    services = app.extensions["mdv"]
    woken, stopped = threading.Event(), threading.Event()
    services.wake_worker = lambda task: woken.set()
    server = make_server("127.0.0.1", port, app, threaded=True, request_handler=_Handler)
    server.daemon_threads = True  # type: ignore[attr-defined]
    threads = [threading.Thread(target=partial(server.serve_forever, 0.05), daemon=True)]
    if work:
        threads.append(threading.Thread(target=_work, args=(config, woken, stopped), daemon=True))
    for thread in threads:
        thread.start()
    try:
        yield WebAddress(url=f"http://127.0.0.1:{server.server_port}")
    finally:
        stopped.set()
        woken.set()
        services.feed_notifier.close()
        services.log_notifier.close()
        server.shutdown()
        for thread in threads:
            thread.join(60)
        server.server_close()
        services.engine.dispose()


def _work(config: Config, woken: threading.Event, stopped: threading.Event) -> None:
    """Run jobs until stopped, as the Celery tasks do."""
    engine = make_engine(config.database_url, config.job_limit_seconds, pool_size=2)
    redis = make_redis(config.redis_url)
    sender = WebhookSender(engine, config.webhook_private)

    def notify_feeds() -> None:
        redis.publish(PUBLISHED_CHANNEL, b"1")
        if sender.any_active_webhook():
            sender.wake()

    provider = Provider.configured(engine, config)
    worker = Worker(
        engine, config.max_document_bytes, partial(notify_callers, redis), notify_feeds,
        longest=config.job_limit_seconds, provider=provider, woken=woken.set,
    )  # fmt: skip
    programs = ProgramWorker(
        engine, provider, ProcessQuotas.configured(config),
        lambda outcome: redis.rpush(news_key(outcome.iri), b"1") if outcome.is_followed else None, notify_feeds,
    )  # fmt: skip
    while not stopped.is_set():
        due = programs.seconds_until_due()
        woken.wait(IDLE_SECONDS if due is None else max(0.0, min(IDLE_SECONDS, due)))
        woken.clear()
        worker.work(1.0, woken.set)
        worker.work_rules(1.0, woken.set)
        programs.work(0.5, woken.set)
    engine.dispose()
    redis.close()


def notify_callers(redis: Redis, outcomes: Sequence[JobOutcome]) -> None:
    """Wake the callers that wait for these jobs, as the Celery tasks do."""
    for outcome in outcomes:
        message = JobMessage(outcome.public_state, outcome.result, outcome.problem)
        redis.rpush(done_key(outcome.job.id), encode_job_message(message))
