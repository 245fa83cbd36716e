"""The worker's own settings and its way of telling that a job has ended."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest
import redis

from mdv.config import Config
from mdv.embedded import Valkey
from workers.app import make_celery
from workers.line import Line
from workers.signals import RULES, WORK, News, done_key, read_news, woken_key, write_news
from workers.wake import hear, wake


def test_the_wake_up_carries_no_data_and_is_put_back_by_nobody(valkey: Valkey) -> None:
    app = make_celery(Config.from_environment({"MDV_REDIS_URL": valkey.url.removesuffix("/0") + "/7"}), patience=3)
    assert not app.conf.task_acks_late and app.conf.task_ignore_result and app.conf.worker_prefetch_multiplier == 1
    assert app.conf.broker_transport_options["socket_timeout"] == 3
    app.send_task("mdv.work", retry=False, ignore_result=True)
    client = redis.Redis.from_url(valkey.url.removesuffix("/0") + "/7")
    (message,) = client.lrange("mdv", 0, -1)
    assert b"mdv.work" in message and len(message) < 2000
    client.flushdb()
    app.close()


def test_each_job_has_a_list_of_its_own_for_its_news() -> None:
    assert done_key(UUID(int=1)) != done_key(UUID(int=2))


def test_no_task_outlives_the_time_after_which_its_wake_up_is_given_to_another() -> None:
    conf = make_celery(Config.from_environment({"MDV_JOB_LIMIT_SECONDS": "20"})).conf
    options = conf.broker_transport_options
    assert 20 < conf.task_time_limit < options["visibility_timeout"] <= 20 + 60
    assert options["unacked_restore_interval"] * options["unacked_restore_throttle"] <= 5


@pytest.fixture
def queue(valkey: Valkey) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(valkey.url.removesuffix("/0") + "/6")
    client.flushdb()
    yield client
    client.flushdb()
    client.close()


def test_one_wake_up_stands_for_all_until_somebody_has_heard_it(valkey: Valkey, queue: redis.Redis) -> None:
    app = make_celery(Config.from_environment({"MDV_REDIS_URL": valkey.url.removesuffix("/0") + "/6"}))
    line = Line(queue)
    for _ in range(5):
        wake(line, app, WORK)
    wake(line, app, RULES)
    assert queue.llen("mdv") == 2
    hear(line, WORK)
    wake(line, app, WORK)
    assert queue.llen("mdv") == 3
    # A worker that died before it could hear does not silence the others for long.
    assert 0 < queue.ttl(woken_key(WORK)) <= 2
    app.close()


def test_a_wake_up_that_cannot_be_sent_is_no_failure() -> None:
    app = make_celery(Config.from_environment({"MDV_REDIS_URL": "redis://127.0.0.1:1/0"}), patience=1)
    line = Line(redis.Redis(port=1))
    wake(line, app, WORK)
    hear(line, WORK)
    app.close()


def test_redis_is_left_alone_for_a_while_after_it_was_away() -> None:
    line, tries = Line(redis.Redis(port=1)), []
    assert line.use(lambda client: tries.append(1) or client.ping()) is None
    assert line.use(lambda client: tries.append(2)) is None
    assert tries == [1]
    line._again_at = 0
    assert line.use(lambda client: "answer") == "answer"


def test_news_of_a_job_carries_its_end_unless_that_is_long() -> None:
    done = News("done", {"version": 3, "document": "http://d/ü"}, None)
    assert read_news(write_news(done)) == done
    assert read_news(write_news(News("failed", None, {"detail": "x" * 60_000}))) is None
