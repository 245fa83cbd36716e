"""The worker's settings, and its notification that a job has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

import pytest
import redis

from mdv.config import Config
from workers.app import make_celery
from workers.messages import (
    RULES_TASK,
    WORK_TASK,
    JobMessage,
    decode_job_message,
    done_key,
    encode_job_message,
    wake_up_key,
)
from workers.redis_client import RedisClient
from workers.wake import clear_wake_up, wake

pytestmark = pytest.mark.full


@pytest.fixture
def url(new_queue: Callable[[], str]) -> str:
    return new_queue()


def test_a_wake_up_carries_no_data_and_is_not_redelivered(url: str) -> None:
    app = make_celery(Config.from_environment({"MDV_REDIS_URL": url}), patience=3)
    assert not app.conf.task_acks_late and app.conf.task_ignore_result and app.conf.worker_prefetch_multiplier == 1
    assert app.conf.broker_transport_options["socket_timeout"] == 3
    app.send_task("mdv.work", retry=False, ignore_result=True)
    client = redis.Redis.from_url(url)
    (message,) = client.lrange("mdv", 0, -1)
    assert b"mdv.work" in message and len(message) < 2000
    client.close()
    app.close()


def test_each_job_has_its_own_notification_list() -> None:
    assert done_key(UUID(int=1)) != done_key(UUID(int=2))


def test_no_task_runs_longer_than_the_visibility_timeout_of_its_wake_up() -> None:
    conf = make_celery(Config.from_environment({"MDV_JOB_LIMIT_SECONDS": "20"})).conf
    options = conf.broker_transport_options
    assert 20 < conf.task_time_limit < options["visibility_timeout"] <= 20 + 60
    assert options["unacked_restore_interval"] * options["unacked_restore_throttle"] <= 5


@pytest.fixture
def queue(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url) as client:
        yield client


def test_repeated_wake_ups_are_one_message_until_it_is_received(url: str, queue: redis.Redis) -> None:
    app = make_celery(Config.from_environment({"MDV_REDIS_URL": url}))
    line = RedisClient(queue)
    app.send_task(WORK_TASK, retry=False, ignore_result=True)  # loads the transport; a wake-up counts for two seconds
    queue.delete("mdv")
    for _ in range(5):
        wake(line, app, WORK_TASK)
    wake(line, app, RULES_TASK)
    assert queue.llen("mdv") == 2
    clear_wake_up(line, WORK_TASK)
    wake(line, app, WORK_TASK)
    assert queue.llen("mdv") == 3
    # A worker that died before it received the wake-up does not silence the others for long.
    assert 0 < queue.ttl(wake_up_key(WORK_TASK)) <= 2
    app.close()


def test_a_wake_up_that_cannot_be_sent_is_no_failure() -> None:
    app = make_celery(Config.from_environment({"MDV_REDIS_URL": "redis://127.0.0.1:1/0"}), patience=1)
    line = RedisClient(redis.Redis(port=1))
    wake(line, app, WORK_TASK)
    clear_wake_up(line, WORK_TASK)
    app.close()


def test_redis_is_not_tried_again_for_a_while_after_a_failure() -> None:
    line, tries = RedisClient(redis.Redis(port=1)), []
    assert line.use(lambda client: tries.append(1) or client.ping()) is None
    assert line.use(lambda client: tries.append(2)) is None
    assert tries == [1]
    line._closed_at = 0
    assert line.use(lambda client: "answer") == "answer"


def test_the_notification_of_a_job_contains_its_result_unless_it_is_long() -> None:
    done = JobMessage("done", {"version": 3, "document": "http://d/ü"}, None)
    assert decode_job_message(encode_job_message(done)) == done
    assert decode_job_message(encode_job_message(JobMessage("failed", None, {"detail": "x" * 60_000}))) is None
