"""The worker's own settings and its way of telling that a job has ended."""

from __future__ import annotations

from uuid import UUID

import redis

from mdv.config import Config
from mdv.embedded import Valkey
from workers.app import make_celery
from workers.signals import done_key


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
