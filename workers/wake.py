"""Wake up the workers. While a wake-up is pending, no further ones are sent."""

from __future__ import annotations

from celery import Celery

from mdv.db.jobs import JOB_KINDS, JobQueue
from workers.messages import (
    JOB_MESSAGE_TTL_SECONDS,
    RULES_TASK,
    WAKE_UP_TTL_SECONDS,
    WORK_TASK,
    news_key,
    wake_up_key,
)
from workers.redis_client import RedisClient

TASKS = {JobQueue.DOCUMENTS: WORK_TASK, JobQueue.RULES: RULES_TASK}


def wake(redis_client: RedisClient, celery: Celery, task: str) -> None:
    """Send a wake-up, unless one is pending. If that fails, the sweep of the workers finds the jobs later."""
    if redis_client.use(lambda client: client.set(wake_up_key(task), 1, nx=True, ex=WAKE_UP_TTL_SECONDS)):
        redis_client.use(lambda _: celery.send_task(task, retry=False, ignore_result=True))


def task_for(kind: str) -> str | None:
    """Return the task that runs jobs of this kind; None if no worker does, but `mdv replicate`."""
    return TASKS.get(JOB_KINDS[kind].queue)


def clear_wake_up(redis_client: RedisClient, task: str) -> None:
    """Clear the pending wake-up when a worker has received it. Later jobs need a new wake-up."""
    redis_client.use(lambda client: client.delete(wake_up_key(task)))


def notify_reader(redis_client: RedisClient, process: str) -> None:
    """Notify the request that reads the solutions of a process. It also looks at the database from time to time."""
    with redis_client.client.pipeline(transaction=False) as commands:
        commands.rpush(news_key(process), b"1")
        commands.expire(news_key(process), JOB_MESSAGE_TTL_SECONDS)
        redis_client.use(lambda _: commands.execute())
