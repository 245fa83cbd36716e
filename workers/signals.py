"""How one process tells another that a job has ended, or that something was published."""

from __future__ import annotations

from uuid import UUID

KEPT_SECONDS = 120

PUBLISHED = "mdv:published"
"""The channel that is rung on when something may be new in a feed. What, the database knows."""


def done_key(job_id: UUID) -> str:
    """The list on which the caller of a job waits."""
    return f"mdv:done:{job_id}"
