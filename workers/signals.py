"""How one process tells another that something waits, that a job has ended, or that something was published."""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from uuid import UUID

KEPT_SECONDS = 10
"""News of a job is heard at once, or not at all: who comes later looks into the database."""

WORK, RULES, TEND, WEBHOOKS = "mdv.work", "mdv.rules", "mdv.tend", "mdv.webhooks"
"""The tasks: what waits of documents; of rules, LMRs and schemas; what is to be tidied up; whom to tell."""

PUBLISHED = "mdv:published"
"""The channel that is rung on when something may be new in a feed. What, the database knows."""

WOKEN_SECONDS = 2
"""For so long a wake-up that nobody has heard stands for others."""


def done_key(job_id: UUID) -> str:
    """The list on which the caller of a job waits."""
    return f"mdv:done:{job_id}"


def woken_key(task: str) -> str:
    """Set while a wake-up is on its way: it stands for all that come meanwhile."""
    return f"mdv:woken:{task}"


def worker_key(host: str, pid: int) -> str:
    """Where a worker is heard of while it lives."""
    return f"mdv:worker:{host}:{pid}"


class News(NamedTuple):
    """How a job ended, or how far it is."""

    state: str
    result: dict[str, Any] | None
    problem: dict[str, Any] | None

    @property
    def is_end(self) -> bool:
        return self.state in ("done", "failed")


LONGEST_NEWS = 2_000


def write_news(news: News) -> bytes:
    """What is told to who waits for a job: how it ended, or, where that is long, only that it did."""
    text = json.dumps(news).encode()
    return text if len(text) <= LONGEST_NEWS else b""


def read_news(text: bytes | str) -> News | None:
    """What was told; None where the database has to be asked.

    >>> read_news(write_news(News("done", {"version": 1}, None)))
    News(state='done', result={'version': 1}, problem=None)
    >>> read_news(b"1"), read_news(b'["done", 7, null]'), read_news(b"no JSON")
    (None, None, None)
    """
    try:
        match json.loads(text):  # another version may tell it otherwise
            case ["done", dict(result), None]:
                return News("done", result, None)
            case ["failed", None, dict(problem)]:
                return News("failed", None, problem)
    except ValueError:
        pass
    return None
