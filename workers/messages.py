"""Messages between processes over Redis: wake-ups, ends of jobs, and new events in feeds."""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from uuid import UUID

JOB_MESSAGE_TTL_SECONDS = 10
"""Lifetime of a job message. A caller that reads it too late reads the database instead."""

WORK_TASK, RULES_TASK, RETENTION_TASK, WEBHOOKS_TASK = "mdv.work", "mdv.rules", "mdv.tend", "mdv.webhooks"
"""Names of the tasks: jobs about documents; jobs about rules, LMRs and the schema; retention; webhooks."""
SEARCH_TASK = "mdv.search"
"""The task that updates the search index."""

PROGRAMS_TASK = "mdv.programs"
"""The task that runs processes of programs."""

PUBLISHED_CHANNEL = "mdv:published"
"""The channel that is notified when a feed may have new events. The events are in the database."""

WAKE_UP_TTL_SECONDS = 2
"""How long an undelivered wake-up suppresses further ones."""


def done_key(job_id: UUID) -> str:
    """Return the key of the list on which the caller of a job waits."""
    return f"mdv:done:{job_id}"


def news_key(process: str) -> str:
    """Return the key of the list on which the reader of a process waits."""
    return f"mdv:news:{process}"


def wake_up_key(task: str) -> str:
    """Return the key that is set while a wake-up is pending. Further wake-ups are not sent meanwhile."""
    return f"mdv:woken:{task}"


def worker_key(host: str, pid: int) -> str:
    """Return the key of the heartbeat of a worker."""
    return f"mdv:worker:{host}:{pid}"


class JobMessage(NamedTuple):
    """The state of a job, with its result or its problem."""

    state: str
    result: dict[str, Any] | None
    problem: dict[str, Any] | None

    @property
    def is_end(self) -> bool:
        return self.state in ("done", "failed")


MAX_JOB_MESSAGE_BYTES = 2_000


def encode_job_message(news: JobMessage) -> bytes:
    """Encode a message for the caller that waits for a job; empty if it is too long: then only the end is reported."""
    text = json.dumps(news).encode()
    return text if len(text) <= MAX_JOB_MESSAGE_BYTES else b""


def decode_job_message(text: bytes | str) -> JobMessage | None:
    """Decode a job message; None if the caller has to read the database.

    >>> decode_job_message(encode_job_message(JobMessage("done", {"version": 1}, None)))
    JobMessage(state='done', result={'version': 1}, problem=None)
    >>> decode_job_message(b"1"), decode_job_message(b'["done", 7, null]'), decode_job_message(b"no JSON")
    (None, None, None)
    """
    try:
        match json.loads(text):  # another version may use another format
            case ["done", dict(result), None]:
                return JobMessage("done", result, None)
            case ["failed", None, dict(problem)]:
                return JobMessage("failed", None, problem)
    except ValueError:
        pass
    return None
