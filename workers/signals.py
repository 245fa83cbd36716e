"""How one process tells another that something waits, that a job has ended, or that something was published."""

from __future__ import annotations

from uuid import UUID

KEPT_SECONDS = 120

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
