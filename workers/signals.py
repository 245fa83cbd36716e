"""How a worker tells a waiting caller that a job has ended."""

from __future__ import annotations

from uuid import UUID

KEPT_SECONDS = 120


def done_key(job_id: UUID) -> str:
    """The list on which the caller of a job waits."""
    return f"mdv:done:{job_id}"
